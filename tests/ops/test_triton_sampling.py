"""Tokens chosen on the device are those of the reference, for whole batches with every parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from device import DEVICE, batch_on, off, on
from numpy.typing import NDArray
from sampling_batches import bits, random_rows, sampling

from gristmill.ops.interface import NO_ID
from gristmill.ops.reference import ReferenceOps, uniform
from gristmill.ops.reference import adjust as adjust_row
from gristmill.ops.triton import random
from gristmill.ops.triton.adjust import adjust
from gristmill.ops.triton.logprobs import logprobs
from gristmill.ops.triton.sampling import sample
from gristmill.ops.triton.survey import CAPACITY
from gristmill.types import Batch

REFERENCE = ReferenceOps()
F32 = NDArray[np.float32]


@triton.jit
def _uniform(seeds_ptr, positions_ptr, y_ptr, n: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, n)
    tl.store(y_ptr + i, random.uniform(tl.load(seeds_ptr + i), tl.load(positions_ptr + i)))


def chosen(logits: F32, batch: Batch) -> NDArray[np.int32]:
    return off(sample(on(logits), batch_on(batch)))  # type: ignore[no-any-return]


def test_the_random_numbers_are_the_reference_s() -> None:
    seeds = np.array([0, 1, 2**64 - 1, 12345, 2**63, 7, 8, 9], np.uint64)
    positions = np.array([0, 2, 17, 2**31, 2**40, 1, 2, 3], np.int64)
    y = torch.empty(8, dtype=torch.float64, device=DEVICE)
    _uniform[(1,)](on(seeds), on(positions), y, 8)
    assert off(y).tolist() == [uniform(int(s), int(p)) for s, p in zip(seeds, positions, strict=True)]


@pytest.mark.parametrize(("vocab_size", "n"), [(50, 150), (5000, 40)])
def test_choices_equal_the_reference_s(vocab_size: int, n: int) -> None:
    """Greedy, temperature, top_k, top_p, min_p, penalties, biases and masks, in every combination in one batch."""
    rng = np.random.default_rng(vocab_size)
    logits, batch = random_rows(rng, n, vocab_size)
    before = logits.copy()
    actual, expected = chosen(logits, batch), REFERENCE.sample(logits, batch)
    assert (actual == expected).mean() > 0.995  # weights are float32 here, float64 there
    assert np.array_equal(logits, before)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_nothing_is_chosen_of_what_is_not_finite(number: float) -> None:
    logits = np.random.default_rng(0).normal(size=(4, 5000)).astype(np.float32)
    logits[1, 3000], logits[2] = number, number
    for temperature in ([0, 0, 0, 0], [1, 1, 1, 1]):
        batch = sampling(4, temperature=temperature)
        expected = REFERENCE.sample(logits, batch)
        assert (expected == NO_ID).tolist() == [False, number != -np.inf, True, False]
        assert np.array_equal(chosen(logits, batch), expected)
        narrowed = sampling(4, temperature=temperature, top_k=[20] * 4, top_p=[0.9] * 4, min_p=[0.01] * 4)
        assert np.array_equal(chosen(logits, narrowed) == NO_ID, expected == NO_ID)


def test_logits_are_adjusted_as_defined() -> None:
    logits, batch = random_rows(np.random.default_rng(1), 20, 3000)
    expected = np.stack([adjust_row(row, r, batch) for r, row in enumerate(logits)])
    np.testing.assert_allclose(off(adjust(on(logits), batch_on(batch))), expected, rtol=1e-6, atol=1e-6)
    plain = sampling(20)
    tensor = on(logits)
    assert adjust(tensor, batch_on(plain)) is tensor


def test_biases_without_penalties_and_ids_outside_the_vocabulary() -> None:
    logits = np.zeros((2, 100), np.float32)
    batch = sampling(
        2,
        temperature=np.zeros(2),
        listed_start=[0, 2, 3],
        listed_ids=[5, 100, 99, -1],
        listed_counts=[-1, -1, 3, -1],
        listed_bias=[3.0, 9.0, 1.0, 0.0],
    )
    assert chosen(logits, batch).tolist() == [5, 99]


def test_a_mask_forbids_even_the_likeliest() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(10, 100)).astype(np.float32)
    allowed = rng.random((10, 100)) < 0.1
    allowed[:, 7] = True
    allowed[np.arange(10), logits.argmax(1)] = False
    for temperature in (0.0, 1.0):
        ids = chosen(logits, sampling(10, temperature=np.full(10, temperature), masks=bits(allowed)))
        assert allowed[np.arange(10), ids].all()


@pytest.mark.parametrize("params", [{"top_k": 700}, {"top_p": 0.25}, {"top_k": 2000, "top_p": 0.5}, {}])
def test_equal_logits_are_kept_in_order_of_ids(params: dict[str, Any]) -> None:
    """A few values that many ids share, as 16-bit logits do."""
    logits = np.random.default_rng(3).integers(-3, 3, (2, 4000)).astype(np.float32) / 2
    batch = sampling(2, **{name: np.full(2, value) for name, value in params.items()})
    assert chosen(logits, batch).tolist() == REFERENCE.sample(logits, batch).tolist()


def test_more_ids_may_matter_than_a_list_holds() -> None:
    logits = np.zeros((1, CAPACITY + 500), np.float32)
    batch = sampling(1, top_k=[CAPACITY], top_p=[0.6])
    assert chosen(logits, batch).tolist() == REFERENCE.sample(logits, batch).tolist()


def test_a_row_s_choice_does_not_depend_on_its_neighbours() -> None:
    logits, batch = random_rows(np.random.default_rng(5), 6, 3000)
    plain = {name: getattr(batch, name) for name in ("temperature", "top_k", "top_p", "min_p", "seeds")}
    together = chosen(logits, sampling(6, **plain, next_positions=batch.next_positions))
    for r in range(6):
        own = {name: values[r : r + 1] for name, values in plain.items()}
        alone = sampling(1, **own, next_positions=batch.next_positions[r : r + 1])
        assert chosen(logits[r : r + 1], alone)[0] == together[r]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocab_size", "n_top"), [(3000, 0), (3000, 1), (3000, 20), (40, 40)])
def test_logprobs_equal_the_reference_s(dtype: torch.dtype, vocab_size: int, n_top: int) -> None:
    rng = np.random.default_rng(1)
    logits = on((rng.normal(size=(6, vocab_size)) * 4).round(1).astype(np.float32), dtype)  # many are equal
    ids = rng.integers(0, vocab_size, 6).astype(np.int32)
    actual, expected = logprobs(logits, on(ids), n_top), REFERENCE.logprobs(off(logits), ids, n_top)
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == e.shape
        np.testing.assert_allclose(off(a), e, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(off(actual[1]), expected[1])
    np.testing.assert_array_equal(off(actual[2]), expected[2])
