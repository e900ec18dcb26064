"""x W^T of several tokens, a tile of both at a time. Of few, columns are split over programs to have enough of them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.activation import swiglu_of
from gristmill.ops.triton.common import cdiv, chained, follow
from gristmill.ops.triton.quantized import (
    FLOAT,
    INT8_ROWS,
    Q4_0,
    Q4_K,
    Matrix,
    first_columns,
    paired_tiles,
    plain_tile,
)

FEW = 64
"""Tokens of a step that is bound by reading weights."""

_N_PROGRAMS = 264
"""Two for each multiprocessor of an H200. It is the same on every card, and so are the sums."""

_BLOCK_ROWS = 64


def multiply(x: Tensor, w: Matrix) -> Tensor:
    """float32 [splits, T, rows], which are to be `add`ed if there are several. x [T, cols]."""
    n_tokens, n_rows = len(x), w.rows
    n_splits = _n_splits(w) if n_tokens <= FEW else 1
    parts = torch.empty((n_splits, n_tokens, n_rows), dtype=torch.float32, device=x.device)
    block_t, block_rows, block_k = _tile_sizes(n_tokens, w)
    per_split = cdiv(cdiv(w.n_stored, n_splits), block_k) * block_k
    _tiles[(cdiv(n_tokens, block_t), cdiv(n_rows, block_rows), n_splits)](
        parts, x, w.codes, w.scales, w.bias, n_tokens, n_rows, w.cols, w.n_stored, per_split, w.kind, block_rows,
        block_t, block_k, n_splits, w.dot_type, num_warps=block_rows // 16, num_stages=3, **chained(),
    )  # fmt: skip
    return parts


def add(parts: Tensor, w: Matrix, y: Tensor, gated: bool, limit: float) -> None:
    """Their sum, in order, with w's bias -> y [T, rows]; if gated [T, rows / 2], see `activation.swiglu`."""
    n_splits, n_tokens, _ = parts.shape
    _add[(cdiv(y.shape[1], 256), n_tokens)](
        y, parts, w.scales, w.bias, n_tokens, y.shape[1], limit, w.kind, n_splits, 256, gated, limit != 0, num_warps=4,
        **chained(),
    )  # fmt: skip


def _tile_sizes(n_tokens: int, w: Matrix) -> tuple[int, int, int]:
    """(tokens, rows, stored columns): larger ones do more with what they have read, as far as registers and shared
    memory hold them. But a Hopper multiplies fewer than 64 rows by instructions of single warps, for which it loads 8
    bytes of codes at once and not 2; beside more than 16 tokens these instructions are too slow."""
    wide = w.codes.dtype == torch.float32
    if n_tokens <= FEW or wide:
        few = min(FEW, max(16, triton.next_power_of_2(n_tokens)))
        quantized = w.kind != FLOAT.value
        if quantized and few == 16:
            return few, 32, 128
        if w.kind >= Q4_K.value:
            return few, *((64, 64) if w.kind == Q4_K.value else (32, 32))
        return few, _BLOCK_ROWS, 32 if w.two_in_a_byte else 64 if wide else 128
    return 128, 128, 32 if w.two_in_a_byte else 64


def _n_splits(w: Matrix) -> int:
    """Into how many stretches of at least 256 columns a row's sum is split: 1, 2, 4, ... 16."""
    n_splits, n_programs = 1, cdiv(w.rows, _BLOCK_ROWS)
    least = 128 if w.two_in_a_byte else 256
    while n_splits < 16 and n_programs * n_splits < _N_PROGRAMS and w.n_stored // (2 * n_splits) >= least:
        n_splits *= 2
    return n_splits


@triton.jit
def multiply_tiles(
    x,
    t,
    t_inside,
    codes,
    scales,
    r,
    r_inside,
    n_cols,
    n_stored,
    begin,
    end,
    KIND: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    K: tl.constexpr,
    TYPE: tl.constexpr,
):
    """float32 [R, T]: rows r of the matrix times rows t of x, over stored columns begin .. end, K at a time."""
    sums = tl.zeros((R, T), tl.float32)
    for k0 in range(begin, end, K):
        if KIND >= Q4_0:
            k = first_columns(k0, K)
            low, high = paired_tiles(codes, scales, r, r_inside, k0, n_stored, KIND, R, K)
            at = x + t[None, :] * n_cols + k[:, None]
            first = tl.load(at, mask=t_inside[None, :] & (k < n_cols)[:, None], other=0).to(TYPE)
            second = tl.load(at + 32, mask=t_inside[None, :] & (k + 32 < n_cols)[:, None], other=0).to(TYPE)
            sums = tl.dot(low.to(TYPE), first, sums, input_precision="tf32x3")
            sums = tl.dot(high.to(TYPE), second, sums, input_precision="tf32x3")
        else:
            k = k0 + tl.arange(0, K)
            tile = plain_tile(codes, scales, r, r_inside, k0, n_stored, KIND, R, K, TYPE)
            other = tl.load(
                x + t[None, :] * n_cols + k[:, None], mask=t_inside[None, :] & (k < n_cols)[:, None], other=0
            )
            sums = tl.dot(tile.to(TYPE), other.to(TYPE), sums, input_precision="tf32x3")
    return sums


@triton.jit(do_not_specialize=["n_tokens"])
def _tiles(
    y,
    x,
    codes,
    scales,
    bias,
    n_tokens,
    n_rows,
    n_cols,
    n_stored,
    per_split,
    KIND: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    TYPE: tl.constexpr,
):
    """y [SPLITS, T, rows], complete where there is one split. Grid (tokens, rows, splits), so that programs which read
    the same rows run together."""
    follow()
    split = tl.program_id(2)
    r = tl.program_id(1) * R + tl.arange(0, R)
    t = tl.program_id(0) * T + tl.arange(0, T)
    begin = split * per_split
    end = tl.minimum(begin + per_split, n_stored)
    r_inside, t_inside = r < n_rows, t < n_tokens
    sums = multiply_tiles(x, t, t_inside, codes, scales, r, r_inside, n_cols, n_stored, begin, end, KIND, R, T, K, TYPE)
    if SPLITS == 1:
        sums = finished(sums, scales, bias, r[:, None], r_inside[:, None], KIND)
    at = y + (split * n_tokens + t[None, :]).to(tl.int64) * n_rows + r[:, None]
    tl.store(at, sums, mask=r_inside[:, None] & t_inside[None, :])


@triton.jit
def finished(sums, scales, bias, r, inside, KIND: tl.constexpr):
    """With the scales and the bias of rows r, [R, 1] or [1, R] as the sums have them."""
    if KIND == INT8_ROWS:
        sums = sums * tl.load(scales + r, mask=inside, other=0)
    if bias is not None:
        sums = sums + tl.load(bias + r, mask=inside, other=0)
    return sums


@triton.jit(do_not_specialize=["n_tokens"])
def _add(
    y, parts, scales, bias, n_tokens, n_rows, limit, KIND: tl.constexpr, SPLITS: tl.constexpr, R: tl.constexpr,
    GATED: tl.constexpr, LIMITED: tl.constexpr,
):  # fmt: skip
    follow()
    t = tl.program_id(1)
    r = tl.program_id(0) * R + tl.arange(0, R)
    values = _added(parts, t, r, scales, bias, n_tokens, n_rows, KIND, SPLITS, R, GATED, 0)
    if GATED:
        others = _added(parts, t, r, scales, bias, n_tokens, n_rows, KIND, SPLITS, R, GATED, 1)
        values = swiglu_of(values, others, limit, LIMITED)
    tl.store(y + t * n_rows + r[:, None], values.to(y.dtype.element_ty), mask=(r < n_rows)[:, None])


@triton.jit
def _added(
    parts, t, r, scales, bias, n_tokens, n_rows, KIND: tl.constexpr, SPLITS: tl.constexpr, R: tl.constexpr,
    GATED: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """float32 [R, 1] of token t and rows r, or those of the second half."""
    inside = r < n_rows
    row, width = r + HALF * n_rows, n_rows * (1 + GATED)
    sums = tl.zeros((R,), tl.float32)
    for split in range(SPLITS):
        sums += tl.load(parts + (split * n_tokens + t).to(tl.int64) * width + row, mask=inside, other=0)
    return finished(sums[:, None], scales, bias, row[:, None], inside[:, None], KIND)
