"""x W^T of many tokens in 16-bit floats, on cards that fetch whole tiles by themselves (Hopper's "TMA").

A matrix of another type is unpacked into memory first, which costs little beside many tokens.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from gristmill.ops.triton.activation import swiglu_of
from gristmill.ops.triton.common import INTERPRETED, cdiv, chained, dot, follow, is_roomy
from gristmill.ops.triton.linear_tiles import finished
from gristmill.ops.triton.quantized import Matrix, unpacked

_ENOUGH = 200
"""Tiles that keep a card busy."""

_MOST_UNPACKED = 512 << 20
"""Bytes: a vocabulary's matrix may be larger than what memory is left for it."""

_COLUMNS = 64
_TOGETHER = 8  # tiles of rows whose programs run side by side, so that what they read of x is found again


def fits(x: Tensor, w: Matrix) -> bool:
    """Whether `multiply` is for them."""
    narrow = INTERPRETED or (x.element_size() == 2 and w.codes.dtype != torch.float32)
    small = w.codes.dtype == x.dtype or w.rows * w.cols * x.element_size() <= _MOST_UNPACKED
    return narrow and small and w.cols % 8 == 0 and is_roomy()  # rows of whole 16 bytes


def multiply(x: Tensor, w: Matrix, y: Tensor, gated: bool, limit: float) -> None:
    """x [T, cols] -> y [T, rows]; if gated [T, rows / 2], see `activation.swiglu`. A token's sums follow one order."""
    n_tokens, n_rows = len(x), y.shape[1]
    block_t, block_rows, n_warps = (128, 128, 8) if gated else _tile_sizes(n_tokens, n_rows)
    numbers = w.codes[0] if w.codes.dtype == x.dtype else unpacked(w, x.dtype)
    x_tiles = TensorDescriptor.from_tensor(x, [block_t, _COLUMNS])
    w_tiles = TensorDescriptor.from_tensor(numbers, [block_rows, _COLUMNS])
    _multiply[(cdiv(n_tokens, block_t) * cdiv(n_rows, block_rows),)](
        y, x_tiles, w_tiles, w.scales, w.bias, n_tokens, n_rows, w.cols, limit, w.kind, block_t, block_rows, _COLUMNS,
        _TOGETHER, gated, limit != 0, num_warps=n_warps, num_stages=4, **chained(),
    )  # fmt: skip


def _tile_sizes(n_tokens: int, n_rows: int) -> tuple[int, int, int]:
    """(tokens, rows, warps) of the largest tiles of which there are enough."""
    for block_t, block_rows, n_warps in ((256, 128, 8), (128, 128, 8)):
        if cdiv(n_tokens, block_t) * cdiv(n_rows, block_rows) >= _ENOUGH // (1 if block_t == 256 else 2):
            return block_t, block_rows, n_warps
    return 128, 64, 4


@triton.jit(do_not_specialize=["n_tokens"])
def _multiply(
    y, x_tiles, w_tiles, scales, bias, n_tokens, n_rows, n_cols, limit,
    KIND: tl.constexpr, T: tl.constexpr, R: tl.constexpr, K: tl.constexpr,
    TOGETHER: tl.constexpr, GATED: tl.constexpr, LIMITED: tl.constexpr,
):  # fmt: skip
    follow()
    i = tl.program_id(0)
    n_token_tiles, n_row_tiles = tl.cdiv(n_tokens, T), tl.cdiv(n_rows, R)
    group = i // (TOGETHER * n_token_tiles)
    in_group = i % (TOGETHER * n_token_tiles)
    width = tl.minimum(n_row_tiles - group * TOGETHER, TOGETHER)
    r0 = (group * TOGETHER + in_group % width) * R
    t0 = in_group // width * T
    sums = tl.zeros((T, R), tl.float32)
    others = sums
    for k0 in range(0, n_cols, K):
        x = x_tiles.load([t0, k0])
        sums = dot(x, w_tiles.load([r0, k0]).T, sums)
        if GATED:
            others = dot(x, w_tiles.load([n_rows + r0, k0]).T, others)
    t, r = t0 + tl.arange(0, T), r0 + tl.arange(0, R)
    sums = finished(sums, scales, bias, r[None, :], (r < n_rows)[None, :], KIND)
    if GATED:
        others = finished(others, scales, bias, n_rows + r[None, :], (r < n_rows)[None, :], KIND)
        sums = swiglu_of(sums, others, limit, LIMITED)
    at = y + t[:, None].to(tl.int64) * n_rows + r[None, :]
    tl.store(at, sums.to(y.dtype.element_ty), mask=(t < n_tokens)[:, None] & (r < n_rows)[None, :])
