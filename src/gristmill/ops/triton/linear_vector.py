"""x W^T of one token, in float32 throughout: programs of few rows, whose threads sum their own columns."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.activation import swiglu_of
from gristmill.ops.triton.common import INTERPRETED, cdiv, chained, let_next_begin, tile, wait_for_last
from gristmill.ops.triton.linear_tiles import finished
from gristmill.ops.triton.quantized import (
    FLOAT,
    MXFP4,
    Q4_0,
    Q8_0,
    Matrix,
    first_columns,
    load_codes,
    load_scales,
)
from gristmill.ops.triton.unpack import eight_bits, four_bits

LANE = tl.constexpr(8)
"""Neighbours in a row that one thread multiplies and adds before it looks at their scale."""


def multiply(x: Tensor, w: Matrix, y: Tensor, gated: bool, limit: float) -> None:
    """x [1, cols] -> y [1, rows]; if gated [1, rows / 2], see `activation.swiglu`."""
    (block_rows, block_k, n_warps), n_rows = blocks(w), y.shape[1]
    _vector[(cdiv(n_rows, block_rows),)](
        y, x, w.codes, w.scales, w.bias, n_rows, w.cols, w.n_stored, limit, w.kind, block_rows, block_k, gated,
        limit != 0, num_warps=n_warps, **chained(),
    )  # fmt: skip


def blocks(w: Matrix) -> tuple[int, int, int]:
    """(rows, stored columns, warps) of a program: 16 bytes of bfloat16 a thread at once."""
    most, n_warps = (512, 2) if w.two_in_a_byte else (2048, 4)
    block_k = min(most, tile(w.n_stored, 32))
    return 64 if INTERPRETED else min(16, most // block_k), block_k, n_warps


@triton.jit
def _vector(
    y, x, codes, scales, bias, n_rows, n_cols: tl.constexpr, n_stored: tl.constexpr, limit, KIND: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr, LIMITED: tl.constexpr,
):  # fmt: skip
    """y [rows]. GATED: of as many rows of the gate, and then as many others."""
    let_next_begin()
    r = tl.program_id(0) * R + tl.arange(0, R)
    inside = r < n_rows
    sums, others = multiply_vector(x, codes, scales, r, inside, n_rows, n_cols, n_stored, KIND, R, K, GATED)
    values = finished(sums[:, None], scales, bias, r[:, None], inside[:, None], KIND)
    if GATED:
        others = finished(others[:, None], scales, bias, n_rows + r[:, None], inside[:, None], KIND)
        values = swiglu_of(values, others, limit, LIMITED)
    tl.store(y + r[:, None], values.to(y.dtype.element_ty), mask=inside[:, None])


@triton.jit
def multiply_vector(
    x, codes, scales, r, inside, n_rows, n_cols: tl.constexpr, n_stored: tl.constexpr, KIND: tl.constexpr,
    R: tl.constexpr, K: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """float32 [R] of rows r, and of rows n_rows + r if TWICE. The first weights are asked for before x is there."""
    sums = tl.zeros((R, K // LANE), tl.float32)
    others = sums
    for k0 in tl.static_range(0, n_stored, K):
        tile, low, high = _lanes_of(codes, scales, r, inside, k0, n_stored, KIND, R, K)
        if TWICE:
            tile_2, low_2, high_2 = _lanes_of(codes, scales, n_rows + r, inside, k0, n_stored, KIND, R, K)
        if k0 == 0:
            wait_for_last()
        k = first_columns(k0, K) if KIND >= Q4_0 else k0 + tl.arange(0, K)
        first = tl.load(x + k, mask=k < n_cols, other=0).to(tl.float32)[None, :]
        second = first
        if KIND >= Q4_0:
            second = tl.load(x + k + 32, mask=k + 32 < n_cols, other=0).to(tl.float32)[None, :]
        sums += _products(tile, low, high, first, second, KIND, R, K)
        if TWICE:
            others += _products(tile_2, low_2, high_2, first, second, KIND, R, K)
    return tl.sum(sums, axis=1), tl.sum(others, axis=1)


@triton.jit
def _lanes_of(
    codes, scales, r, inside, k0, n_stored: tl.constexpr, KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """[R, K] codes, and scales [R, K / LANE] of what bytes hold low and high, or one twice; 1 if there is none."""
    k = k0 + tl.arange(0, K)
    tile = load_codes(codes, r, k, inside[:, None] & (k < n_stored)[None, :], n_stored)
    if KIND >= Q8_0:
        group = (k0 + LANE * tl.arange(0, K // LANE)) // 32
        n_groups: tl.constexpr = n_stored // 32
        real = inside[:, None] & (group < n_groups)[None, :]
        if KIND == Q8_0:
            low = load_scales(scales, r, group, real, n_groups, KIND)
            high = low
        else:
            low = load_scales(scales, r, 2 * group, real, 2 * n_groups, KIND).to(tl.float32)
            high = load_scales(scales, r, 2 * group + 1, real, 2 * n_groups, KIND).to(tl.float32)
    else:
        low = tl.full((R, K // LANE), 1, tl.float32)
        high = low
    return tile, low, high


@triton.jit
def _products(tile, low, high, first, second, KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr):
    """[R, K / LANE]: sums over the neighbours in a lane, which share a thread and a scale."""
    if KIND >= Q4_0:
        a, b = four_bits(tile, KIND == MXFP4, tl.float32)
        return _in_lanes(a, first, R, K) * low + _in_lanes(b, second, R, K) * high
    elif KIND == FLOAT:
        return _in_lanes(tile, first, R, K)
    else:
        return _in_lanes(eight_bits(tile, tl.float32), first, R, K) * low


@triton.jit
def _in_lanes(tile, x, R: tl.constexpr, K: tl.constexpr):
    return tl.sum(tl.reshape(tile.to(tl.float32) * x, (R, K // LANE, LANE)), axis=2)
