"""RMS norm, alone or with the addition before it. A row is one program, so neighbours change no bit of it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.common import chained, follow, let_next_begin, tile, wait_for_last

Tensor = torch.Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight: [T, d] of any float type and float [d] -> [T, d] of dtype, or x's."""
    y = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
    _launch(x, None, weight, eps, None, y)
    return y


def add_rms_norm(
    x: Tensor, y: Tensor, weight: Tensor, eps: float, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """x + y [T, d] of x's type, and its `rms_norm` of dtype, or x's, which is taken before the sum is rounded."""
    total = torch.empty_like(x)
    normed = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
    _launch(x, y, weight, eps, total, normed)
    return total, normed


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y of [T, d] each, of x's type."""
    total = torch.empty_like(x)
    n, block = x.numel(), 1024
    if n:
        _add[(triton.cdiv(n, block),)](x, y, total, n, block, num_warps=4, **chained())
    return total


def _launch(x: Tensor, y: Tensor | None, weight: Tensor, eps: float, total: Tensor | None, normed: Tensor) -> None:
    n_rows, width = x.shape
    block = tile(width)
    if n_rows:
        _rms_norm[(n_rows,)](
            x, y, weight, total, normed, eps, width, block, num_warps=min(16, max(1, block // 512)), **chained()
        )


@triton.jit
def _rms_norm(x_ptr, y_ptr, weight_ptr, total_ptr, normed_ptr, eps, width: tl.constexpr, block: tl.constexpr):
    let_next_begin()
    columns = tl.arange(0, block)
    inside = columns < width
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_last()
    at = tl.program_id(0).to(tl.int64) * width + columns
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if y_ptr is not None:
        x += tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_ptr + at, x.to(total_ptr.dtype.element_ty), mask=inside)
    normed = x / tl.sqrt(tl.sum(x * x) / width + eps) * weight
    tl.store(normed_ptr + at, normed.to(normed_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _add(x_ptr, y_ptr, total_ptr, n, block: tl.constexpr):
    follow()
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    total = tl.load(x_ptr + at, mask=at < n).to(tl.float32) + tl.load(y_ptr + at, mask=at < n).to(tl.float32)
    tl.store(total_ptr + at, total.to(total_ptr.dtype.element_ty), mask=at < n)
