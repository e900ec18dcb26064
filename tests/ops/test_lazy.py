"""Weights that stay in their file until they are used again: the same results, and packed when they are said to be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from instruction_sets import isas
from numpy.typing import NDArray
from random_weights import random_weight

from gristmill._kernels import FileChangedError
from gristmill.formats.checkpoint import Weight
from gristmill.formats.mapped import MappedFile, place_of
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import N_AS_STORED, CpuOps

F32 = NDArray[np.float32]
LARGE = (600, 512)  # has more numbers than are read as they are
assert LARGE[0] * LARGE[1] > N_AS_STORED


@pytest.fixture
def mapped(tmp_path: Path) -> Callable[[Weight], Weight]:
    """The same weight in a file's read-only map."""

    def map_it(weight: Weight) -> Weight:
        path = tmp_path / f"weight-{len(list(tmp_path.iterdir()))}"
        before = bytes(4096)
        path.write_bytes(before + weight.data.tobytes())
        return replace(weight, data=MappedFile(path).view(len(before), weight.data.nbytes))

    return map_it


def of_bf16(shape: tuple[int, int], seed: int = 0) -> F32:
    x = (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32)


def bf16(values: F32) -> Weight:
    return Weight(
        "w", (values.view(np.uint32) >> 16).astype(np.uint16).reshape(-1).view(np.uint8), QType.BF16, values.shape
    )


def f16(values: F32) -> Weight:
    return Weight("w", values.astype(np.float16).reshape(-1).view(np.uint8), QType.F16, values.shape)


def one_odd(seed: int) -> F32:
    """Float16 but for one number that bfloat16 does not have, in the last row, where no sample looks."""
    values = of_bf16(LARGE, seed)
    values[-1, -1] = 0.1
    return values


def wild(n_rows: int) -> F32:
    """Numbers in the last rows that no few exponents hold."""
    values = of_bf16(LARGE)
    values[LARGE[0] - n_rows :] = np.exp2(np.random.default_rng(1).integers(-100, 0, (n_rows, LARGE[1])))
    return values


def with_zeros(share: float, width: int = LARGE[1]) -> F32:
    """For a few of them there is room beside 12 bits; float16 is multiplied as bfloat16 in any case."""
    values = of_bf16((LARGE[0], width))
    values[np.random.default_rng(5).random(values.shape) < share] = 0
    return values


FLOATS = {
    "bf16": lambda: bf16(of_bf16(LARGE)),
    "bf16, wild numbers in a few rows": lambda: bf16(wild(3)),
    "bf16, wild numbers everywhere": lambda: bf16(wild(LARGE[0])),
    "f16": lambda: random_weight(QType.F16, LARGE),
    "f16 of bf16": lambda: f16(of_bf16(LARGE)),
    "f16 of bf16 but for one number": lambda: f16(one_odd(2)),
    "f16 of bf16 with some zeros": lambda: f16(with_zeros(0.002)),
    "f16 of bf16 with many zeros": lambda: f16(with_zeros(0.3)),
    "f16 of bf16 of an odd width": lambda: f16(with_zeros(0, 516)),
}


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_the_same_before_and_after(kind: str, isa: str, mapped: Callable[[Weight], Weight]) -> None:
    weight = mapped(FLOATS[kind]())
    x = np.random.default_rng(0).standard_normal((37, weight.shape[1]), np.float32)
    now, later = CpuOps(2, isa), CpuOps(2, isa, lazy=True)
    at_once = now.put([weight])
    expected = now.linear(x, at_once)
    w = later.put([weight])
    assert not w.is_packed
    np.testing.assert_array_equal(later.linear(x, w), expected)
    assert not w.is_packed
    np.testing.assert_array_equal(later.linear(x[:1], w), expected[:1])
    assert w.is_packed
    assert (w.arithmetic, w.n_bytes) == (at_once.arithmetic, at_once.n_bytes)
    np.testing.assert_array_equal(later.linear(x, w), expected)


@pytest.mark.parametrize("isa", isas())
def test_float16_that_is_to_be_quantized_waits_as_that(isa: str, mapped: Callable[[Weight], Weight]) -> None:
    weight = mapped(replace(f16(of_bf16((1000, 64))), quantize_to=QType.Q8_0))
    tokens, x = np.array([0, 7, 999], np.int32), np.ones((2, 64), np.float32)
    now, later = CpuOps(1, isa), CpuOps(1, isa, lazy=True)
    at_once, w = now.put([weight]), later.put([weight])
    assert not w.is_packed
    np.testing.assert_array_equal(later.embed(w, tokens), now.embed(at_once, tokens))
    for _ in range(3):
        np.testing.assert_array_equal(later.linear(x, w), now.linear(x, at_once))


@pytest.mark.parametrize("isa", isas())
def test_a_wrong_guess_about_the_only_expert_reaches_no_one(isa: str, mapped: Callable[[Weight], Weight]) -> None:
    size = 512
    gate, up, down = (of_bf16((size, size), seed) for seed in range(3))
    for values in (gate, up, down):
        values[-1, -1] = 0.1  # float16's
    weights = [mapped(replace(f16(values), shape=(1, size, size))) for values in (gate, up, down)]
    x, router = np.random.default_rng(0).standard_normal((3, size), np.float32), np.zeros((3, 1), np.float32)
    results = []
    for ops in (CpuOps(1, isa), CpuOps(1, isa, lazy=True)):
        gate_up, out = ops.put(weights[:2]), ops.put(weights[2:])
        results += [ops.moe(x, router, gate_up, out, 1, 0.0) for _ in range(3)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


WRONG = "f16 of bf16 but for one number"  # which few of its rows show


@pytest.mark.parametrize("isa", isas())
def test_a_wrong_guess_reaches_no_one(isa: str, mapped: Callable[[Weight], Weight]) -> None:
    """Whether rows are read, a norm multiplied with it and a neighbour, its SwiGLU taken, or all packed first."""
    odd, right, other = mapped(FLOATS[WRONG]()), mapped(f16(of_bf16(LARGE))), mapped(bf16(of_bf16(LARGE, 3)))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 5, LARGE[1]), np.float32)
    norm, tokens = rng.random(LARGE[1], np.float32), np.array([0, LARGE[0] - 1], np.int32)
    now, later = CpuOps(2, isa), CpuOps(2, isa, lazy=True)
    for parts in ([odd], [right, odd], [odd, other], [right, other]):
        expected, gated = now.put(parts), len(parts) == 2
        packed = later.put(parts)
        later.pack_waiting(lambda: False)
        again = later.put(parts)
        assert packed.is_packed
        assert not again.is_packed
        if not gated:
            np.testing.assert_array_equal(later.embed(again, tokens), now.embed(expected, tokens))
        for p in (again, packed, again):
            sums = later.add(x, y), now.add(x, y)
            actual = later.linear(later.rms_norm(sums[0], norm, 1e-5), p)
            np.testing.assert_array_equal(actual, now.linear(now.rms_norm(sums[1], norm, 1e-5), expected))
            np.testing.assert_array_equal(later.get(sums[0]), now.get(sums[1]))
        if gated:
            fresh = later.put(parts)
            for _ in range(2):
                np.testing.assert_array_equal(later.gated_linear(x, fresh, 0.0), now.gated_linear(x, expected, 0.0))


def test_large_float32_does_not_wait(mapped: Callable[[Weight], Weight]) -> None:
    """Small as it is stored, it does; large it is rounded to 24 bits, for which all of a row must be read."""
    for shape in ((40, 512), LARGE):
        weight = mapped(random_weight(QType.F32, shape))
        x = np.random.default_rng(0).standard_normal((3, shape[1]), np.float32)
        now, later = CpuOps(2), CpuOps(2, lazy=True)
        w = later.put([weight])
        assert w.is_packed is (shape == LARGE)
        np.testing.assert_array_equal(later.linear(x, w), now.linear(x, now.put([weight])))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("qtype", [QType.Q8_0, QType.Q4_K, QType.BF16])
def test_rows_of_a_table_never_pack_it(qtype: QType, isa: str, mapped: Callable[[Weight], Weight]) -> None:
    weight = mapped(random_weight(qtype, (1000, 512)))
    tokens = np.array([0, 999, 5, 63, 64, 65, 5], np.int32)
    now, later = CpuOps(2, isa), CpuOps(2, isa, lazy=True)
    w = later.put([weight])
    for _ in range(3):
        np.testing.assert_array_equal(later.embed(w, tokens), now.embed(now.put([weight]), tokens))
    assert not w.is_packed


def test_a_bias_and_stacked_parts_go_where_they_belong(mapped: Callable[[Weight], Weight]) -> None:
    parts = [mapped(random_weight(qtype, (n, 512), n)) for qtype, n in ((QType.Q8_0, 200), (QType.Q4_K, 72))]
    rng = np.random.default_rng(0)
    x, bias = rng.standard_normal((3, 512), np.float32), rng.standard_normal(272, np.float32)
    now, later = CpuOps(2), CpuOps(2, lazy=True)
    w = later.put(parts, bias)
    expected = now.linear(x, now.put(parts, bias))
    for _ in range(2):
        np.testing.assert_array_equal(later.linear(x, w), expected)


def test_what_no_file_holds_is_packed_at_once() -> None:
    ops = CpuOps(2, lazy=True)
    assert ops.put([random_weight(QType.Q8_0, (256, 512))]).is_packed


def test_who_waits_can_have_it_packed_a_matrix_at_a_time(mapped: Callable[[Weight], Weight]) -> None:
    ops = CpuOps(2, lazy=True)
    experts, plain = (
        ops.put([mapped(random_weight(QType.Q4_0, (3, 128, 512)))]),
        ops.put([mapped(bf16(of_bf16(LARGE)))]),
    )
    answers = iter([False, False, True])
    ops.pack_waiting(lambda: next(answers))
    assert plain.is_packed
    assert not experts.is_packed
    ops.pack_waiting(lambda: False)
    assert experts.is_packed


def test_experts_are_packed_one_by_one(mapped: Callable[[Weight], Weight]) -> None:
    n_experts, d_model, d_ff = 4, 256, 192
    weights = [mapped(random_weight(QType.Q8_0, (n_experts, d_ff, d_model), seed)) for seed in (1, 2)]
    down = mapped(random_weight(QType.Q8_0, (n_experts, d_model, d_ff), 3))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, d_model), np.float32)
    now, later = CpuOps(2), CpuOps(2, lazy=True)
    put_now = now.put(weights), now.put([down])
    gate_up, last = later.put(weights), later.put([down])
    for preferred in (0, 1, 0, 2, 1, 3, 2, 3):
        router = rng.standard_normal((5, n_experts), np.float32)
        router[:, preferred] += 100
        expected = now.moe(x, router, *put_now, 1, 7.0)
        assert not gate_up.is_packed
        np.testing.assert_array_equal(later.moe(x, router, gate_up, last, 1, 7.0), expected)
    assert gate_up.is_packed
    assert last.is_packed


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("qtype", [QType.Q8_0, QType.BF16, QType.IQ2_S], ids=lambda q: q.label)
@pytest.mark.parametrize("lazy", [False, True], ids=["at once", "lazy"])
def test_a_file_that_becomes_shorter_is_named(
    qtype: QType, lazy: bool, n_threads: int, mapped: Callable[[Weight], Weight]
) -> None:
    """Whichever thread finds out; other weights still work then, and this one once its file is whole again."""
    ops = CpuOps(n_threads, lazy=lazy)
    other, weight = (mapped(random_weight(qtype, (600, 512), seed)) for seed in (0, 1))
    place = place_of(weight.data)
    assert place is not None
    path = Path(place[0])
    whole = path.read_bytes()
    x = np.random.default_rng(0).normal(size=(3, 512)).astype(np.float32)
    good = ops.put([other])
    expected = ops.linear(x, good)
    with path.open("r+b") as file:  # the same file, not another one of its name
        file.truncate(len(whole) * 3 // 4)
        message = f"{re.escape(str(path))}: weights: byte [0-9]+ cannot be read: the file has become shorter"
        for _ in range(3):
            with pytest.raises(FileChangedError, match=message):
                ops.linear(x, ops.put([weight]))
        np.testing.assert_array_equal(ops.linear(x, good), expected)
        file.write(whole)
    np.testing.assert_array_equal(ops.linear(x, ops.put([weight])), CpuOps(2).linear(x, CpuOps(2).put([weight])))
