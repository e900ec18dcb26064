"""Attention and the key-value cache against their numpy reference, on every instruction set of this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from batches import batch_of
from instruction_sets import isas
from numpy.typing import NDArray

from gristmill import _kernels
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import BLOCK_SIZE
from gristmill.ops.reference import ReferenceOps
from gristmill.types import Batch, RopeConfig

REFERENCE = ReferenceOps()
KV_TYPES = ("f32", "f16", "q8_0")
N_BLOCKS = 160
F32 = NDArray[np.float32]


@pytest.fixture(params=isas(), scope="module")
def cpu(request: pytest.FixtureRequest) -> CpuOps:
    return CpuOps(2, request.param)


def whole(batch: Batch) -> Batch:
    """The same sequences with all their tokens in the step."""
    lens = [int(n) for n in batch.seq_lens]
    positions = np.concatenate([np.arange(n) for n in lens]).astype(np.int32)
    owner = np.repeat(np.arange(len(lens)), lens)
    blocks = batch.block_tables[0][owner, positions // BLOCK_SIZE]
    slots = ((blocks * BLOCK_SIZE + positions % BLOCK_SIZE).astype(np.int32),)
    starts = np.cumsum([0, *lens]).astype(np.int32)
    return replace(batch, tokens=positions, positions=positions, slots=slots, query_start=starts)


@dataclass(frozen=True, slots=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


SHAPES = (
    *(Shape(4, 4, 20), Shape(8, 1, 64), Shape(6, 2, 24), Shape(5, 5, 128), Shape(80, 2, 16), Shape(6, 1, 96)),
    *(Shape(6, 2, 192), Shape(4, 1, 256), Shape(16, 4, 64)),
)
CASES = [(t, s) for t in KV_TYPES for s in SHAPES if t != "q8_0" or s.head_dim % 32 == 0]


def store(ops: CpuOps | ReferenceOps, shape: Shape, kv: object, qkv: F32, slots: NDArray[np.int32]) -> None:
    """Keys and values as they are: no norm, no rotation."""
    angles = np.ones((len(qkv), shape.head_dim // 2), np.float32), np.zeros((len(qkv), shape.head_dim // 2), np.float32)
    ops.store_qkv(qkv, None, None, 1e-6, angles, kv, slots)  # type: ignore[arg-type]


def filled(ops: CpuOps | ReferenceOps, shape: Shape, kv_type: str, batch: Batch, fill: int = 0) -> object:
    """A cache with random keys and values of all tokens; whatever else it holds are bytes of `fill`."""
    kv = ops.kv_layers(1, N_BLOCKS, shape.kv_heads, shape.head_dim, kv_type)[0]
    if isinstance(kv, _kernels.KvLayer):
        kv.fill(fill)
    everything = whole(batch)
    qkv = np.random.default_rng(9).normal(size=(len(everything.positions), shape.width)).astype(np.float32)
    store(ops, shape, kv, qkv, everything.slots[0])
    return kv


def queries(shape: Shape, n_tokens: int) -> F32:
    return np.random.default_rng(1).normal(size=(n_tokens, shape.heads * shape.head_dim)).astype(np.float32)


def tolerance(cpu: CpuOps, kv_type: str) -> float:
    """Largest error where values are of order 1: float32 differs by the order of additions, f16 on AVX-512 with BF16 by
    bfloat16's 8 bits, and with q8_0 the queries too are rounded to int8."""
    return {"f32": 2e-5, "f16": 2e-2 if cpu.isa in ("amx", "avx512bf16") else 2e-3, "q8_0": 4e-2}[kv_type]


def is_shortened(cpu: CpuOps, head_dim: int) -> bool:
    """Whether a cache of f16 has bfloat16 in 12 bits a number."""
    return cpu.isa in ("amx", "avx512bf16") and head_dim % 64 == 0


STEPS = {
    "one at a time": [(130, 1), (0, 1), (511, 1), (512, 1), (1030, 1)],
    "prompts": [(0, 37), (63, 5), (500, 40), (1000, 70)],
    "mixed": [(0, 37), (130, 1), (63, 5), (0, 1), (90, 40), (1023, 2)],
}


@pytest.mark.parametrize(("kv_type", "shape"), CASES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("window", "with_sinks"), [(0, False), (19, True), (600, False), (0, True)])
def test_attention(cpu: CpuOps, kv_type: str, shape: Shape, step: str, window: int, with_sinks: bool) -> None:
    batch = batch_of(STEPS[step], N_BLOCKS)
    q = queries(shape, len(batch.positions))
    sinks = np.random.default_rng(2).normal(size=shape.heads).astype(np.float32) if with_sinks else None
    exact = filled(REFERENCE, shape, "q8_0" if kv_type == "q8_0" else "f32", batch)
    expected = REFERENCE.attention(q, exact, batch, batch.block_tables[0], window, sinks)  # type: ignore[arg-type]
    actual = cpu.attention(q, filled(cpu, shape, kv_type, batch), batch, batch.block_tables[0], window, sinks)  # type: ignore[arg-type]
    assert np.abs(actual - expected).max() < tolerance(cpu, kv_type)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("head_dim", [32, 64])
def test_attention_never_reads_what_no_one_wrote(cpu: CpuOps, kv_type: str, step: str, head_dim: int) -> None:
    """Blocks beyond a sequence, and positions after its last one, may hold anything: here NaN."""
    shape, batch = Shape(4, 2, head_dim), batch_of(STEPS[step], N_BLOCKS)
    q = queries(shape, len(batch.positions))
    clean, poisoned = (filled(cpu, shape, kv_type, batch, fill) for fill in (0, 0xFF))
    for window in (0, 19):
        expected = cpu.attention(q, clean, batch, batch.block_tables[0], window, None)  # type: ignore[arg-type]
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(cpu.attention(q, poisoned, batch, batch.block_tables[0], window, None), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("shape", [Shape(4, 2, 32), Shape(16, 2, 64), Shape(3, 3, 128)])
@pytest.mark.parametrize("window", [0, 600])
def test_any_cut_gives_the_same_bits(cpu: CpuOps, kv_type: str, shape: Shape, window: int) -> None:
    """A prompt at once, in pieces and token by token, alone and beside others, with one to five threads."""
    batch = batch_of([(0, 1100), (0, 530)], N_BLOCKS)
    q = queries(shape, 1630)
    kv = filled(cpu, shape, kv_type, batch)
    at_once = cpu.attention(q, kv, batch, batch.block_tables[0], window, None)  # type: ignore[arg-type]
    for threads in (1, 2, 5):
        ops = CpuOps(threads, cpu.isa)
        for first, last in [(0, 530), (530, 533), (533, 534), (1023, 1024), (1024, 1025), (1050, 1100), (1099, 1100)]:
            both = last <= 530 or threads == 5
            part = batch_of([(first, last - first), (first % 500, 17)][: 1 + both], N_BLOCKS)
            part = replace(part, block_tables=(batch.block_tables[0][: 1 + both],))
            rows = np.arange(first, last)
            if both:
                rows = np.concatenate([rows, 1100 + first % 500 + np.arange(17)])
            np.testing.assert_array_equal(
                ops.attention(q[rows], kv, part, part.block_tables[0], window, None), at_once[rows]
            )  # type: ignore[arg-type]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("with_norms", [False, True])
def test_store_qkv(cpu: CpuOps, kv_type: str, with_norms: bool) -> None:
    """Queries directly; keys and values through what attention makes of them."""
    shape, batch = Shape(6, 2, 32), batch_of([(0, 37), (0, 3)], 10)
    rng = np.random.default_rng(0)
    qkv = rng.normal(size=(40, shape.width)).astype(np.float32)
    norms = [rng.uniform(0.5, 1.5, shape.head_dim).astype(np.float32) if with_norms else None for _ in range(2)]
    rope = RopeConfig(tuple(float(x) for x in 1e4 ** -(np.arange(16) / 16)), 1.3)
    q, y = [], []
    for ops in (cpu, REFERENCE):
        kv = ops.kv_layers(1, 10, shape.kv_heads, shape.head_dim, kv_type)[0]
        angles = ops.rope_angles(batch.positions, rope)
        q.append(ops.store_qkv(qkv, norms[0], norms[1], 1e-5, angles, kv, batch.slots[0]))  # type: ignore[arg-type]
        y.append(ops.attention(q[-1], kv, batch, batch.block_tables[0], 0, None))  # type: ignore[arg-type]
    np.testing.assert_allclose(q[0], q[1], rtol=1e-5, atol=1e-5)
    assert np.abs(y[0] - y[1]).max() < 3 * tolerance(cpu, kv_type)


@pytest.mark.parametrize(("kv_type", "shape"), CASES)
@pytest.mark.parametrize(
    ("step", "with_norms"), [("many", False), ("many", True), ("one at a time", True), ("mixed", True)]
)
def test_a_replay_stores_on_the_way(cpu: CpuOps, kv_type: str, shape: Shape, step: str, with_norms: bool) -> None:
    """The same bits, in the cache too, where a recorded attention stores first what it reads."""
    batch = batch_of([*STEPS.get(step, ()), *[(n, 1) for n in range(0, 900, 50) if step == "many"]], N_BLOCKS + 400)
    rng = np.random.default_rng(5)
    qkv = rng.normal(size=(len(batch.positions), shape.width)).astype(np.float32)
    norm = rng.uniform(0.5, 1.5, shape.head_dim).astype(np.float32) if with_norms else None
    inv_freq = 1e4 ** -np.linspace(0, 1, shape.head_dim // 2)
    angles = cpu.rope_angles(batch.positions, RopeConfig(tuple(map(float, inv_freq)), 1.0))

    def run(kv: _kernels.KvLayer) -> F32:
        q = cpu.store_qkv(qkv, norm, norm, 1e-5, angles, kv, batch.slots[0])
        return cpu.attention(q, kv, batch, batch.block_tables[0], 0, None)

    kept, kv = (cpu.kv_layers(1, N_BLOCKS + 400, shape.kv_heads, shape.head_dim, kv_type)[0] for _ in range(2))
    kept.fill(1)
    expected = run(kept).copy()
    (y,), again = cpu.capture(lambda: (run(kv),))
    kv.fill(1)
    y[:] = np.nan
    again()
    np.testing.assert_array_equal(y, expected)
    q = queries(shape, len(batch.positions))
    read = [cpu.attention(q, one, batch, batch.block_tables[0], 0, None).copy() for one in (kept, kv)]
    np.testing.assert_array_equal(*read)


def test_queries_stored_on_the_way_are_nowhere_else(cpu: CpuOps) -> None:
    shape, batch = Shape(2, 2, 32), batch_of([(0, 1)], 10)
    kv = cpu.kv_layers(1, 10, 2, 32, "f32")[0]
    qkv, angles = np.ones((1, shape.width), np.float32), (np.ones((1, 16), np.float32), np.zeros((1, 16), np.float32))

    def step(*after: bool) -> tuple[F32, ...]:
        q = cpu.store_qkv(qkv, None, None, 1e-5, angles, kv, batch.slots[0])
        y = cpu.attention(q, kv, batch, batch.block_tables[0], 0, None)
        return (y, *(cpu.take_rows(q, np.zeros(1, np.int32)) for _ in after))

    cpu.capture(step)
    with pytest.raises(RuntimeError, match="only in the attention"):
        cpu.capture(lambda: step(True))
    wide = cpu.kv_layers(1, 10, 1, 32, "f32")[0]  # of another shape: a store there is no attention's of this one
    wide.fill(0)

    def elsewhere() -> tuple[F32]:
        q = cpu.store_qkv(qkv, None, None, 1e-5, angles, kv, batch.slots[0])
        return (cpu.attention(q, wide, batch, batch.block_tables[0], 0, None),)

    (y,), again = cpu.capture(elsewhere)
    kv.fill(0)
    again()
    read = cpu.attention(queries(shape, 1), kv, batch, batch.block_tables[0], 0, None)
    assert not y.any()
    assert (read == 1).all()


@pytest.mark.parametrize("head_dim", [96, 128])
def test_one_key_gives_its_value(cpu: CpuOps, head_dim: int) -> None:
    """What is stored comes back: with a window of 1 the output is the value, exactly where its bits fit the cache."""
    shape, batch = Shape(2, 2, head_dim), batch_of([(0, 40)], 4)
    qkv = (np.random.default_rng(3).integers(-128, 128, (40, shape.width)) / 64).astype(np.float32)
    qkv[:, ::32] = 127 / 64  # the largest of each block, so that int8 too is exact
    qkv = np.maximum(qkv, np.float32(-127 / 64))
    for kv_type in KV_TYPES:
        kv = cpu.kv_layers(1, 4, 2, head_dim, kv_type)[0]
        kv.fill(0xFF)
        store(cpu, shape, kv, qkv, batch.slots[0])
        y = cpu.attention(queries(shape, 40), kv, batch, batch.block_tables[0], 1, None)
        values = qkv[:, -2 * head_dim :]
        if kv_type == "f16" and is_shortened(cpu, head_dim):  # where 0 is a 2^16th of the largest
            assert np.abs(y[values == 0]).max() <= 2.0**-15
            y[values == 0] = 0
        np.testing.assert_array_equal(y, values)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_numbers_of_every_size_fit_a_cache_of_16_bits(cpu: CpuOps, head_dim: int) -> None:
    """A value comes back to bfloat16's 8 bits, and where it is less than a 2^16th of its head's largest to that; of
    float16's, which end at 2^-24, likewise. Keys are as exact."""
    shape, batch, rng = Shape(2, 2, head_dim), batch_of([(0, 40)], 4), np.random.default_rng(8)
    values = rng.normal(size=(40, 2, head_dim)) * 2.0 ** rng.integers(-18, 6, (40, 2, head_dim))
    values[3] = 0  # a head of nothing
    values[5, :, 1:] = 0
    keys = rng.normal(size=(40, 2, head_dim)) * 2.0 ** rng.integers(-12, 1, (40, 2, head_dim))
    both = (np.zeros((40, 2 * head_dim)), keys.reshape(40, -1), values.reshape(40, -1))
    qkv = np.concatenate(both, axis=1).astype(np.float32)
    kv, exact = (ops.kv_layers(1, 4, 2, head_dim, t)[0] for ops, t in ((cpu, "f16"), (REFERENCE, "f32")))
    store(cpu, shape, kv, qkv, batch.slots[0])
    store(REFERENCE, shape, exact, qkv, batch.slots[0])
    q, tables = queries(shape, 40), batch.block_tables[0]
    y = cpu.attention(q, kv, batch, tables, 1, None).reshape(values.shape)
    smallest = np.maximum(np.abs(values).max(axis=2, keepdims=True) * 1.02 * 2.0**-16, 2.0**-24)
    assert (np.abs(y - values) <= np.maximum(np.abs(values) * 2.0**-8, smallest)).all()
    assert not y[3].any()
    scores = [ops.attention(q, c, batch, tables, 0, None) for ops, c in ((cpu, kv), (REFERENCE, exact))]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-2 * np.abs(values).max())


def test_a_wrong_argument_is_an_error_and_not_a_crash(cpu: CpuOps) -> None:
    batch = batch_of([(0, 5)], 8)
    kv = cpu.kv_layers(1, 1, 2, 16, "f16")[0]
    with pytest.raises(ValueError, match="block id"):
        cpu.attention(np.ones((5, 64), np.float32), kv, batch, batch.block_tables[0], 0, None)
    with pytest.raises(ValueError, match="window is negative"):
        cpu.attention(np.ones((5, 64), np.float32), kv, batch, batch.block_tables[0], -1, None)
    with pytest.raises(ValueError, match="not a multiple of the cache's"):
        store(cpu, Shape(3, 2, 16), kv, np.ones((1, 112), np.float32), np.array([0], np.int32))
    with pytest.raises(ValueError, match="slot"):
        store(cpu, Shape(2, 2, 16), kv, np.ones((1, 96), np.float32), np.array([16], np.int32))
    with pytest.raises(ValueError, match="head_dim"):
        cpu.kv_layers(1, 1, 2, 15, "f16")
    with pytest.raises(ValueError, match="use f16"):
        cpu.kv_layers(1, 1, 2, 48, "q8_0")
    with pytest.raises(ValueError, match="type"):
        cpu.kv_layers(1, 1, 2, 16, "f8")


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF])
def test_nan_stays_visible(cpu: CpuOps, kv_type: str, part: str, bits: int) -> None:
    """Of a query in its own row, of a key and a value in all that see them."""
    shape, batch = Shape(1, 1, 64), batch_of([(0, 24)], 4)
    qkv = np.random.default_rng(1).normal(size=(24, shape.width)).astype(np.float32)
    qkv.view(np.uint32)[10, "qkv".index(part) * 64 + 3] = bits
    kv = cpu.kv_layers(1, 4, 1, 64, kv_type)[0]
    kv.fill(0)
    store(cpu, shape, kv, qkv, batch.slots[0])
    y = np.asarray(cpu.attention(qkv[:, :64].copy(), kv, batch, batch.block_tables[0], 0, None))
    assert np.isnan(y[10]).any()
    assert np.isnan(y[11:]).any() == (part != "q")


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("head_dim", [32, 96])
def test_layers_side_by_side_do_not_touch_one_another(cpu: CpuOps, kv_type: str, head_dim: int) -> None:
    shape, batch = Shape(2, 2, head_dim), batch_of([(0, 100)], 10)
    layers = cpu.kv_layers(3, 10, 2, head_dim, kv_type)
    rng = np.random.default_rng(4)
    written = [rng.normal(size=(100, shape.width)).astype(np.float32) for _ in layers]
    for kv in layers:
        kv.fill(0xFF)
    for kv, qkv in zip(layers, written, strict=True):
        store(cpu, shape, kv, qkv, batch.slots[0])
    q = queries(shape, 100)
    for kv, qkv in zip(layers, written, strict=True):
        alone = cpu.kv_layers(1, 10, 2, head_dim, kv_type)[0]
        store(cpu, shape, alone, qkv, batch.slots[0])
        y, expected = (cpu.attention(q, one, batch, batch.block_tables[0], 0, None) for one in (kv, alone))
        np.testing.assert_array_equal(y, expected)


def test_types_take_as_much_memory_as_they_say(cpu: CpuOps) -> None:
    for head_dim in (96, 128):
        sizes = {kv_type: cpu.kv_layers(1, 64, 2, head_dim, kv_type)[0].n_bytes for kv_type in KV_TYPES}
        bits = 12 + 64 * 8 / (16 * head_dim) if is_shortened(cpu, head_dim) else 16
        assert sizes["f16"] == sizes["f32"] * bits / 32
        assert sizes["q8_0"] <= 0.54 * sizes["f32"] / 2


def test_rope_angles(cpu: CpuOps) -> None:
    rope = RopeConfig(tuple(float(x) for x in 5e5 ** -(np.arange(20) / 20)), 1.3)
    positions = np.array([0, 1, 77, 4095, 131071], np.int32)
    for actual, expected in zip(cpu.rope_angles(positions, rope), REFERENCE.rope_angles(positions, rope), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)
