"""Rows of a matrix by their numbers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.common import cdiv, chained, follow, tile

Tensor = torch.Tensor


def take_rows(x: Tensor, rows: Tensor, dtype: torch.dtype | None = None, scales: Tensor | None = None) -> Tensor:
    """Rows, int32 [R], of x [N, d] -> [R, d] of dtype, or x's: an embedding, or the rows whose logits are wanted.

    scales  float32 [N], a factor for each row of x, for int8 that has one scale a row
    """
    width = x.shape[1]
    y = torch.empty((len(rows), width), dtype=dtype or x.dtype, device=x.device)
    block = min(1024, tile(width))
    if len(rows):
        _take_rows[(len(rows), cdiv(width, block))](x, rows, scales, y, width, block, num_warps=4, **chained())
    return y


@triton.jit
def _take_rows(x_ptr, rows_ptr, scales_ptr, y_ptr, width, block: tl.constexpr):
    follow()
    columns = tl.program_id(1) * block + tl.arange(0, block)
    row = tl.load(rows_ptr + tl.program_id(0)).to(tl.int64)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width)
    if scales_ptr is not None:
        x = x.to(tl.float32) * tl.load(scales_ptr + row)
    to = y_ptr + tl.program_id(0).to(tl.int64) * width + columns
    tl.store(to, x.to(y_ptr.dtype.element_ty), mask=columns < width)
