"""Attention over the paged cache equals the reference, however a batch is put together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from batches import batch_of
from device import batch_on, off, on

from gristmill.ops.reference import ReferenceOps
from gristmill.ops.triton.attention import attention
from gristmill.types import Batch

REFERENCE = ReferenceOps()
N_BLOCKS = 64
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
Layer = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int


SHAPES = (Shape(2, 2, 32), Shape(4, 1, 64), Shape(6, 2, 128), Shape(7, 1, 20), Shape(17, 1, 32))
STEPS = {
    "one at a time": [(130, 1), (0, 1), (15, 1), (16, 1), (400, 1)],
    "prompts": [(0, 37), (63, 17), (140, 40)],
    "mixed": [(0, 33), (130, 1), (63, 3), (0, 1), (15, 2), (200, 17)],
}


def case(shape: Shape, steps: list[tuple[int, int]], dtype: torch.dtype) -> tuple[Batch, torch.Tensor, Layer, Layer]:
    """A batch, queries [T, H D], and the cache as the kernels and as the reference has it; NaN where no key is."""
    rng = np.random.default_rng(shape.head_dim)
    batch = batch_of(steps, N_BLOCKS)
    kv = []
    for _ in range(2):
        cache = np.full((N_BLOCKS, 16, shape.kv_heads, shape.head_dim), np.nan, np.float32)
        for table, n in zip(batch.block_tables[0], batch.seq_lens, strict=True):
            p = np.arange(n)
            cache[table[p // 16], p % 16] = rng.normal(size=(n, shape.kv_heads, shape.head_dim))
        kv.append(on(cache.transpose(0, 2, 1, 3), dtype))
    q = on(rng.normal(size=(len(batch.positions), shape.heads * shape.head_dim)).astype(np.float32), dtype)
    exact = tuple(off(cache).transpose(0, 2, 1, 3) for cache in kv)
    return batch, q, (kv[0], kv[1]), exact  # type: ignore[return-value]


def check(shape: Shape, step: str, dtype: torch.dtype, window: int, with_sinks: bool) -> None:
    batch, q, layer, exact = case(shape, STEPS[step], dtype)
    sinks = np.random.default_rng(2).normal(size=shape.heads).astype(np.float32) if with_sinks else None
    expected = REFERENCE.attention(off(q), exact, batch, batch.block_tables[0], window, sinks)  # type: ignore[arg-type]
    there = batch_on(batch)
    y = attention(q, layer, there, there.block_tables[0], window, None if sinks is None else on(sinks))
    assert y.dtype == dtype
    assert np.abs(off(y) - expected).max() < TOLERANCE[dtype]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("step", STEPS)
def test_shapes_of_heads(shape: Shape, step: str) -> None:
    check(shape, step, torch.float32, window=0, with_sinks=False)


@pytest.mark.parametrize("step", ["one at a time", "mixed"])
@pytest.mark.parametrize(("window", "with_sinks"), [(0, True), (19, True), (64, False), (300, False), (1, True)])
def test_windows_and_sinks(step: str, window: int, with_sinks: bool) -> None:
    check(Shape(4, 2, 32), step, torch.float32, window, with_sinks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("step", "window"), [("mixed", 0), ("mixed", 19), ("prompts", 19)])
def test_16_bit_types(step: str, dtype: torch.dtype, window: int) -> None:
    check(Shape(4, 2, 64), step, dtype, window, with_sinks=True)


def test_a_long_sequence_is_cut_in_larger_parts() -> None:
    kv_heads, length = 2, 8193
    rng = np.random.default_rng(0)
    n_blocks = -(-length // 16)
    batch = batch_of([(length - 1, 1)], n_blocks)
    kv = [rng.normal(size=(n_blocks, 16, kv_heads, 16)).astype(np.float32) for _ in range(2)]
    q = rng.normal(size=(1, kv_heads * 16)).astype(np.float32) * 3
    expected = REFERENCE.attention(q, (kv[0], kv[1]), batch, batch.block_tables[0], 0, None)
    layer = tuple(on(cache.transpose(0, 2, 1, 3)) for cache in kv)
    y = attention(on(q), layer, batch_on(batch), on(batch.block_tables[0]), 0, None)  # type: ignore[arg-type]
    np.testing.assert_allclose(off(y), expected, atol=2e-5)


def test_a_prompt_is_attended_to_as_torch_does() -> None:
    shape = Shape(6, 2, 64)
    batch, q, _, (k, v) = case(shape, [(0, 70)], torch.float32)
    there, rows = batch_on(batch), batch.slots[0]
    flat = [on(np.ascontiguousarray(cache).reshape(-1, 2, 64)[rows]).transpose(0, 1) for cache in (k, v)]  # type: ignore[call-overload]
    heads = q.view(70, 6, 64).transpose(0, 1)
    expected = torch.nn.functional.scaled_dot_product_attention(heads, *flat, is_causal=True, enable_gqa=True)
    layer = tuple(on(cache.transpose(0, 2, 1, 3)) for cache in (k, v))  # type: ignore[attr-defined]
    y = attention(q, layer, there, there.block_tables[0], 0, None)  # type: ignore[arg-type]
    np.testing.assert_allclose(off(y), off(expected.transpose(0, 1).reshape(70, -1)), atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [0, 19])
def test_neighbours_change_no_bit(dtype: torch.dtype, window: int) -> None:
    """Each sequence alone, with the block table as narrow as it can be, and in the mixed batch."""
    shape = Shape(8, 2, 32)
    batch, q, layer, _ = case(shape, STEPS["mixed"], dtype)
    there = batch_on(batch)
    together = off(attention(q, layer, there, there.block_tables[0], window, None))
    for s, (begin, end) in enumerate(zip(batch.query_start[:-1], batch.query_start[1:], strict=True)):
        alone = batch_on(
            replace(
                batch,
                query_start=np.array([0, end - begin], np.int32),
                seq_lens=batch.seq_lens[s : s + 1],
                block_tables=(batch.block_tables[0][s : s + 1, : -(-int(batch.seq_lens[s]) // 16)],),
            )
        )
        y = attention(q[begin:end], layer, alone, alone.block_tables[0], window, None)
        np.testing.assert_array_equal(off(y), together[begin:end])


@pytest.mark.parametrize("window", [0, 19])
def test_how_a_prompt_is_cut_changes_no_bit(window: int) -> None:
    """As long as a piece has more tokens than those that are new while generating."""
    shape = Shape(4, 2, 32)
    batch, q, layer, _ = case(shape, [(0, 150)], torch.bfloat16)
    there = batch_on(batch)
    at_once = off(attention(q, layer, there, there.block_tables[0], window, None))
    for first, last in [(0, 20), (20, 33), (33, 100), (100, 150)]:
        part = batch_on(batch_of([(first, last - first)], N_BLOCKS))
        y = attention(q[first:last], layer, part, there.block_tables[0], window, None)
        np.testing.assert_array_equal(off(y), at_once[first:last])
