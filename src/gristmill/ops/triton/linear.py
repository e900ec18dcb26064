"""x W^T + bias. One token takes a kernel that multiplies vectors, several one that multiplies tiles.

A row's sums follow an order that depends on the matrix alone, within each of three kinds of step: 1 token, 2 to 64, and
more. So a token has the same bits beside any others of the same kind; across kinds it need not: tensor cores add in
another order than a vector's lanes, and prompts are not split over columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.quantized import (
    INT8_ROWS,
    Q4_0,
    Matrix,
    first_columns,
    paired_tiles,
    plain_tile,
)

FEW = 64
"""Tokens of a step that is bound by reading weights: columns are split over programs to have enough of them."""

_N_PROGRAMS = 264
"""Two for each multiprocessor of an H200. It is the same on every card, and so are the sums."""

_BLOCK_ROWS = 64


def linear(x: Tensor, w: Matrix) -> Tensor:
    """x [T, cols] -> float32 [T, rows]. w has no experts."""
    n_tokens, n_rows = len(x), w.rows
    x = x.contiguous()
    y = torch.empty((n_tokens, n_rows), dtype=torch.float32, device=x.device)
    if n_tokens == 0:
        return y
    block_k = 32 if w.two_in_a_byte else 64
    n_splits = _n_splits(w, 4 * block_k) if n_tokens <= FEW else 1
    parts = y if n_splits == 1 else torch.empty((n_splits, *y.shape), dtype=torch.float32, device=x.device)
    per_split = triton.cdiv(triton.cdiv(w.n_stored, n_splits), block_k) * block_k
    matrix = (w.codes, w.scales, w.bias)
    sizes = (n_rows, w.cols, w.n_stored, per_split)
    if n_tokens == 1:
        grid = (triton.cdiv(n_rows, 16), n_splits)
        _vector[grid](parts, x, *matrix, *sizes, w.kind, 16, 4 * block_k, n_splits, num_warps=4)
    else:
        block_t, block_rows = _tile_sizes(n_tokens, w)
        tiles = (triton.cdiv(n_tokens, block_t), triton.cdiv(n_rows, block_rows), n_splits)
        blocks = (block_rows, block_t, block_k, n_splits, w.dot_type)
        warps = block_rows // 16
        _tiles[tiles](parts, x, *matrix, n_tokens, *sizes, w.kind, *blocks, num_warps=warps, num_stages=3)
    if n_splits > 1:
        _sum[(triton.cdiv(n_rows, 256), n_tokens)](y, parts, w.scales, w.bias, n_tokens, n_rows, w.kind, n_splits, 256)
    return y


def _tile_sizes(n_tokens: int, w: Matrix) -> tuple[int, int]:
    """(tokens, rows): larger ones do more with what they have read, as far as registers and shared memory hold them."""
    if n_tokens <= FEW or w.codes.dtype == torch.float32:
        return min(FEW, max(16, triton.next_power_of_2(n_tokens))), _BLOCK_ROWS
    return 128, 128


def _n_splits(w: Matrix, least: int) -> int:
    """Into how many stretches of at least so many stored columns a row's sum is split: 1, 2, 4, ... 16."""
    n_splits, n_programs = 1, triton.cdiv(w.rows, _BLOCK_ROWS)
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
            tile = plain_tile(codes, scales, r, r_inside, k0, n_stored, KIND, R, K)
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
    split = tl.program_id(2)
    r = tl.program_id(1) * R + tl.arange(0, R)
    t = tl.program_id(0) * T + tl.arange(0, T)
    begin = split * per_split
    end = tl.minimum(begin + per_split, n_stored)
    r_inside, t_inside = r < n_rows, t < n_tokens
    sums = multiply_tiles(x, t, t_inside, codes, scales, r, r_inside, n_cols, n_stored, begin, end, KIND, R, T, K, TYPE)
    if SPLITS == 1:
        sums = finished(sums, scales, bias, r, r_inside, KIND)
    at = y + (split * n_tokens + t[None, :]).to(tl.int64) * n_rows + r[:, None]
    tl.store(at, sums, mask=r_inside[:, None] & t_inside[None, :])


@triton.jit
def finished(sums, scales, bias, r, inside, KIND: tl.constexpr):
    """[R, T] with the rows' scales and bias."""
    if KIND == INT8_ROWS:
        sums = sums * tl.load(scales + r, mask=inside, other=0)[:, None]
    if bias is not None:
        sums = sums + tl.load(bias + r, mask=inside, other=0)[:, None]
    return sums


@triton.jit
def _vector(
    y,
    x,
    codes,
    scales,
    bias,
    n_rows,
    n_cols,
    n_stored,
    per_split,
    KIND: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """y [SPLITS, rows] of one token, in float32 throughout. A lane sums its own columns; lanes meet at the end."""
    split = tl.program_id(1)
    r = tl.program_id(0) * R + tl.arange(0, R)
    inside = r < n_rows
    begin = split * per_split
    end = tl.minimum(begin + per_split, n_stored)
    lanes = tl.zeros((R, K), tl.float32)
    for k0 in range(begin, end, K):
        within = k0 + tl.arange(0, K) < end
        if KIND >= Q4_0:
            k = first_columns(k0, K)
            low, high = paired_tiles(codes, scales, r, inside, k0, n_stored, KIND, R, K)
            first = tl.load(x + k, mask=within & (k < n_cols), other=0).to(tl.float32)
            second = tl.load(x + k + 32, mask=within & (k + 32 < n_cols), other=0).to(tl.float32)
            lanes += low * first[None, :] + high * second[None, :]
        else:
            tile = plain_tile(codes, scales, r, inside, k0, n_stored, KIND, R, K).to(tl.float32)
            lanes += tile * tl.load(x + k0 + tl.arange(0, K), mask=within, other=0).to(tl.float32)[None, :]
    sums = tl.sum(lanes, axis=1)[:, None]
    if SPLITS == 1:
        sums = finished(sums, scales, bias, r, inside, KIND)
    tl.store(y + split * n_rows + r[:, None], sums, mask=inside[:, None])


@triton.jit(do_not_specialize=["n_tokens"])
def _sum(
    y,
    parts,
    scales,
    bias,
    n_tokens,
    n_rows,
    KIND: tl.constexpr,
    SPLITS: tl.constexpr,
    R: tl.constexpr,
):
    """y [T, rows] of parts [SPLITS, T, rows], added in order."""
    t = tl.program_id(1)
    r = tl.program_id(0) * R + tl.arange(0, R)
    inside = r < n_rows
    sums = tl.zeros((R,), tl.float32)
    for split in range(SPLITS):
        sums += tl.load(parts + (split * n_tokens + t) * n_rows + r, mask=inside, other=0)
    tl.store(y + t * n_rows + r[:, None], finished(sums[:, None], scales, bias, r, inside, KIND), mask=inside[:, None])
