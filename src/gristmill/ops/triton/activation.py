"""What stands between a feed-forward layer's two projections."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.common import cdiv, chained, follow, tile

Tensor = torch.Tensor


def swiglu(gate_up: Tensor, limit: float, dtype: torch.dtype | None = None) -> Tensor:
    """gate sigmoid(gate) up of [T, 2 d_ff] = [gate | up] -> [T, d_ff] of dtype, or gate_up's. With a limit, gpt-oss's:
    gate = min(gate, limit), up = clip(up, +-limit), (up + 1) gate sigmoid(1.702 gate)."""
    n_rows, width = len(gate_up), gate_up.shape[1] // 2
    y = torch.empty((n_rows, width), dtype=dtype or gate_up.dtype, device=gate_up.device)
    block = min(1024, tile(width))
    if n_rows:
        _swiglu[(n_rows, cdiv(width, block))](gate_up, y, limit, width, limit != 0, block, num_warps=4, **chained())
    return y


@triton.jit
def _swiglu(gate_up_ptr, y_ptr, limit, width, limited: tl.constexpr, block: tl.constexpr):
    follow()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < width
    gate = tl.load(gate_up_ptr + row * 2 * width + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * 2 * width + width + columns, mask=inside, other=0.0).to(tl.float32)
    y = swiglu_of(gate, up, limit, limited)
    tl.store(y_ptr + row * width + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_of(gate, up, limit, limited: tl.constexpr):
    """The same of float32 tiles, for kernels that end in it."""
    if limited:
        gate = tl.minimum(gate, limit)
        up = tl.minimum(tl.maximum(up, -limit), limit) + 1
        y = gate / (1 + tl.exp(-1.702 * gate)) * up
    else:
        y = gate / (1 + tl.exp(-gate)) * up
    return y
