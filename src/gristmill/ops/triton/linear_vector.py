"""x W^T of one token, in float32 throughout: programs of few rows, whose threads sum their own columns."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.activation import swiglu_of
from gristmill.ops.triton.common import INTERPRETED, cdiv, chained, let_next_begin, tile, wait_for_last
from gristmill.ops.triton.lanes import sums_in_tree, sums_of_products, sums_of_products_and_factors
from gristmill.ops.triton.linear_tiles import finished
from gristmill.ops.triton.quantized import (
    FLOAT,
    MXFP4,
    Q4_0,
    Q4_K,
    Q8_0,
    Matrix,
    codes_above_one,
    first_columns,
    load_above,
    load_codes,
    load_scales,
    load_scales_and_minimums,
)
from gristmill.ops.triton.unpack import eight_bits, four_bits


def multiply(x: Tensor, w: Matrix, y: Tensor, gated: bool, limit: float) -> None:
    """x [1, cols] -> y [1, rows]; if gated [1, rows / 2], see `activation.swiglu`."""
    (block_rows, block_k, n_warps), n_rows = blocks(w), y.shape[1]
    _vector[(cdiv(n_rows, block_rows),)](
        y, x, w.codes, w.scales, w.bias, n_rows, w.cols, w.n_stored, limit, w.kind, block_rows, block_k, gated,
        limit != 0, num_warps=n_warps, **chained(),
    )  # fmt: skip


def blocks(w: Matrix) -> tuple[int, int, int]:
    """(rows, stored columns, warps) of a program: 16 bytes of bfloat16 a thread at once. Bytes of two codes too, and of
    four rows, for which x becomes floats once, where rows are long enough and not much of the last piece is empty."""
    most, n_warps, n_rows = (512, 2, 1) if w.two_in_a_byte else (2048, 4, 1)
    if w.two_in_a_byte and cdiv(w.n_stored, 1024) * 1024 * 7 <= w.n_stored * 8:
        most, n_rows = 1024, 4
    block_k = min(most, tile(w.n_stored, 32))
    return 64 if INTERPRETED else max(n_rows, min(16, most // block_k)), block_k, n_warps


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
    LANE: tl.constexpr = 16 if KIND >= Q4_0 and K >= 1024 else 8  # neighbours whose scale one thread looks at once
    sums = tl.zeros((R, K // LANE), tl.float32)
    others = sums
    for k0 in tl.static_range(0, n_stored, K):
        part = _lanes_of(codes, scales, r, inside, k0, n_stored, KIND, R, K, LANE)
        other_part = part
        if TWICE:
            other_part = _lanes_of(codes, scales, n_rows + r, inside, k0, n_stored, KIND, R, K, LANE)
        if k0 == 0:
            wait_for_last()
        k = first_columns(k0, K) if KIND >= Q4_0 else k0 + tl.arange(0, K)
        first = tl.load(x + k, mask=k < n_cols, other=0).to(tl.float32)[None, :]
        second = first
        if KIND >= Q4_0:
            second = tl.load(x + k + 32, mask=k + 32 < n_cols, other=0).to(tl.float32)[None, :]
        sums += _products(part, first, second, KIND, R, K, LANE)
        if TWICE:
            others += _products(other_part, first, second, KIND, R, K, LANE)
    return tl.sum(sums, axis=1), tl.sum(others, axis=1)


@triton.jit
def _lanes_of(
    codes, scales, r, inside, k0, n_stored: tl.constexpr, KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr,
    LANE: tl.constexpr,
):  # fmt: skip
    """What `load_codes` and `load_above` give, [R, K], and of what bytes hold low and high, scales and minimums
    [R, K / LANE]; what a kind lacks is 0."""
    k = k0 + tl.arange(0, K)
    real = inside[:, None] & (k < n_stored)[None, :]
    tile = load_codes(codes, r, k, real, n_stored, KIND)
    above, shift = load_above(codes, r, k, real, n_stored, KIND)
    first = k0 + LANE * tl.arange(0, K // LANE)
    group = first // 32
    lanes_real = inside[:, None] & (first < n_stored)[None, :]
    low, low_minimum, high, high_minimum = 0.0, 0.0, 0.0, 0.0
    if KIND >= Q4_K:
        low, low_minimum, high, high_minimum = load_scales_and_minimums(scales, r, first, lanes_real, n_stored, KIND)
    elif KIND >= Q4_0:
        n_groups: tl.constexpr = n_stored // 16
        low = load_scales(scales, r, 2 * group, lanes_real, n_groups, KIND).to(tl.float32)
        high = load_scales(scales, r, 2 * group + 1, lanes_real, n_groups, KIND).to(tl.float32)
    elif KIND == Q8_0:
        low = load_scales(scales, r, group, lanes_real, n_stored // 32, KIND)
    return tile, above, shift, low, low_minimum, high, high_minimum


@triton.jit
def _products(part, first, second, KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr, LANE: tl.constexpr):
    """[R, K / LANE]: sums over the neighbours in a lane, which share a thread, a scale and a minimum."""
    tile, above, shift, low, low_minimum, high, high_minimum = part
    if KIND >= Q4_K:
        a, b = codes_above_one(tile, above, shift, KIND)
        a, of_first = sums_of_products_and_factors(a, first, R, K, LANE)
        b, of_second = sums_of_products_and_factors(b, second, R, K, LANE)
        return a * low + b * high - (of_first * (low + low_minimum) + of_second * (high + high_minimum))
    elif KIND >= Q4_0:
        a, b = four_bits(tile, KIND == MXFP4, tl.float32)
        return sums_of_products(a, first, R, K, LANE) * low + sums_of_products(b, second, R, K, LANE) * high
    elif KIND == FLOAT:
        return sums_in_tree(tile.to(tl.float32) * first, R, K, LANE)
    elif KIND == Q8_0:
        return sums_in_tree(eight_bits(tile, tl.float32) * first, R, K, LANE) * low
    else:
        return sums_in_tree(eight_bits(tile, tl.float32) * first, R, K, LANE)
