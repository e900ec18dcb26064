"""Floats to int8 with a scale a row, on the device, as `formats.quantize.quantize_int8_rows` defines it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Floats x [E, R, K] -> int8 [E, R, K], scales float32 [E, R]: infinite where the row is not finite."""
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)
    block = min(2048, triton.next_power_of_2(x.shape[2]))
    _quantize[(scales.numel(),)](codes, scales, x, x.shape[2], block, enable_fp_fusion=False)
    return codes, scales


@triton.jit
def _quantize(codes, scales, x, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    largest = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, n_cols, BLOCK):
        k = begin + tl.arange(0, BLOCK)
        values = tl.load(x + row * n_cols + k, mask=k < n_cols, other=0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(values), propagate_nan=tl.PropagateNan.ALL)
    peak = tl.max(tl.where(largest == largest, largest, float("inf")), axis=0)  # a maximum leaves NaN out
    tl.store(scales + row, tl.div_rn(peak, 127.0))
    inverse = tl.where(peak > 4e-37, tl.div_rn(127.0, tl.maximum(peak, 4e-37)), 0.0)
    for begin in range(0, n_cols, BLOCK):
        k = begin + tl.arange(0, BLOCK)
        values = tl.load(x + row * n_cols + k, mask=k < n_cols, other=0).to(tl.float32) * inverse
        down = tl.floor(values)
        above = values - down
        odd = down - 2 * tl.floor(down * 0.5)
        rounded = down + tl.where((above > 0.5) | ((above == 0.5) & (odd == 1)), 1.0, 0.0)
        tl.store(codes + row * n_cols + k, rounded.to(tl.int8), mask=k < n_cols)
