"""Choosing tokens: the native core equals the reference, and follows the distribution that the parameters define."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sampling_batches import bits, random_rows, sampling

from gristmill import _kernels
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import NO_ID
from gristmill.ops.reference import ReferenceOps, uniform

F64 = NDArray[np.float64]


@pytest.fixture(scope="module")
def cpu() -> CpuOps:
    return CpuOps(2)


def test_the_random_numbers_are_the_reference_s() -> None:
    for seed, position in [(0, 0), (1, 2), (2**64 - 1, 17), (12345, 2**31)]:
        assert _kernels.uniform(seed, position) == uniform(seed, position)


@pytest.mark.parametrize("vocab_size", [50, 1000])
def test_choices_equal_the_reference_s(cpu: CpuOps, vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    logits, batch = random_rows(rng, 3000, vocab_size)
    before = logits.copy()
    actual, expected = cpu.sample(logits, batch), ReferenceOps().sample(logits, batch)
    assert (actual == expected).mean() > 0.9995  # weights are float32 here, float64 there: one in many falls elsewhere
    assert np.array_equal(logits, before)


def exact(logits: F64, temperature: float = 1, top_k: int = 0, top_p: float = 1, min_p: float = 0) -> F64:
    """The distribution that the parameters stand for, in float64, by their definitions."""
    p = np.exp((logits - logits.max()) / temperature)
    p /= p.sum()
    p[p < min_p * p.max()] = 0
    order = np.argsort(-p, kind="stable")
    p[order[top_k or len(p) :]] = 0
    p /= p.sum()
    if top_p < 1:
        p[order[np.flatnonzero(np.cumsum(p[order]) >= top_p)[0] + 1 :]] = 0
    result: F64 = p / p.sum()
    return result


LOGITS = np.log(np.array([0.4, 0.3, 0.2, 0.07, 0.02, 0.006, 0.004]))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 2.5},
        {"top_k": 3},
        {"top_p": 0.8},
        {"top_p": 0.65},
        {"min_p": 0.1},
        {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    ],
    ids=str,
)
def test_choices_follow_the_distribution(cpu: CpuOps, params: dict[str, Any]) -> None:
    """Chi-square at one in a million against the exact probabilities."""
    n = 40000
    batch = sampling(n, **{name: np.full(n, value) for name, value in params.items()})
    ids = cpu.sample(np.tile(LOGITS.astype(np.float32), (n, 1)), batch)
    expected, counts = n * exact(LOGITS, **params), np.bincount(ids, minlength=len(LOGITS))
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 40.5  # 6 degrees of freedom, or fewer


def test_penalties_and_biases_change_the_distribution_as_defined(cpu: CpuOps) -> None:
    """Ids 0 (twice in the answer), 1 (in the prompt alone), 2 (biased and once in the answer), 3 (biased alone)."""
    n = 40000
    batch = sampling(
        n,
        penalties=np.tile([1.5, 0.3, 0.2], (n, 1)),
        listed_start=np.arange(n + 1) * 4,
        listed_ids=np.tile([0, 1, 2, 3], n),
        listed_counts=np.tile([2, 0, 1, -1], n),
        listed_bias=np.tile([0, 0, 3, 1], n),
    )
    logits = LOGITS.copy()
    logits[0] = logits[0] * 1.5 - 0.3 - 2 * 0.2
    logits[1] = logits[1] * 1.5
    logits[2] = (logits[2] + 3) / 1.5 - 0.3 - 0.2
    logits[3] += 1
    expected = n * exact(logits)
    counts = np.bincount(cpu.sample(np.tile(LOGITS.astype(np.float32), (n, 1)), batch), minlength=len(LOGITS))
    assert ((counts - expected) ** 2 / expected).sum() < 40.5


def test_a_mask_forbids_even_the_likeliest(cpu: CpuOps) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 100)).astype(np.float32)
    allowed = rng.random((400, 100)) < 0.1
    allowed[np.arange(400), rng.integers(0, 100, 400)] = True
    allowed[np.arange(400), logits.argmax(1)] = False
    some = allowed.any(1)
    for temperature in (0.0, 1.0):
        ids = cpu.sample(
            logits[some],
            sampling(int(some.sum()), temperature=np.full(some.sum(), temperature), masks=bits(allowed[some])),
        )
        assert allowed[some][np.arange(some.sum()), ids].all()


@pytest.mark.parametrize("at", [0, 70, 999])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_nothing_is_chosen_of_what_is_not_finite(cpu: CpuOps, number: float, at: int) -> None:
    """One of many that is minus infinity is passed over; all are too many."""
    logits = np.random.default_rng(at).normal(size=(4, 1000)).astype(np.float32)
    logits[1, at], logits[2] = number, number
    for temperature in ([0, 0, 0, 0], [1, 1, 1, 1]):
        batch = sampling(4, temperature=temperature)
        expected = ReferenceOps().sample(logits, batch)
        assert (expected == NO_ID).tolist() == [False, number != -np.inf, True, False]
        assert np.array_equal(cpu.sample(logits, batch), expected)


def test_a_large_flat_vocabulary_is_chosen_from_evenly(cpu: CpuOps) -> None:
    """All ids weigh the same: with top_p the first ones are kept, and each is as likely as the next."""
    n, vocab_size = 2000, 40000
    logits = np.zeros((n, vocab_size), np.float32)
    assert cpu.sample(logits, sampling(n)).max() > 0.99 * vocab_size
    ids = cpu.sample(logits, sampling(n, top_p=np.full(n, 0.25)))
    assert 0.24 * vocab_size < ids.max() <= 0.25 * vocab_size
    counts = np.bincount(ids * 10 // (vocab_size // 4 + 1), minlength=10)
    assert ((counts - n / 10) ** 2 / (n / 10)).sum() < 45.1  # 9 degrees of freedom


def test_logprobs_equal_the_reference_s(cpu: CpuOps) -> None:
    rng = np.random.default_rng(1)
    logits = (rng.normal(size=(50, 3000)) * 4).round(1).astype(np.float32)  # rounded: many are equal
    ids = rng.integers(0, 3000, 50).astype(np.int32)
    for n_top in (0, 1, 20):
        actual, expected = cpu.logprobs(logits, ids, n_top), ReferenceOps().logprobs(logits, ids, n_top)
        for a, e in zip(actual, expected, strict=True):
            assert a.shape == e.shape
            assert np.allclose(a, e, rtol=0, atol=1e-5)


def test_wrong_shapes_are_refused(cpu: CpuOps) -> None:
    logits = np.zeros((2, 40), np.float32)
    with pytest.raises(ValueError, match="one parameter for each row"):
        cpu.sample(logits, sampling(3))
    with pytest.raises(ValueError, match="masks must be"):
        cpu.sample(logits, sampling(2, masks=np.zeros((2, 1))))
    with pytest.raises(ValueError, match="listed_start"):
        cpu.sample(logits, sampling(2, listed_start=np.zeros(2)))
    with pytest.raises(ValueError, match="outside the vocabulary"):
        cpu.logprobs(logits, np.array([0, 40], np.int32), 1)
    with pytest.raises(ValueError, match="n_top"):
        cpu.logprobs(logits, np.array([0, 1], np.int32), 41)
