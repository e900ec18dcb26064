"""x W^T + bias. One token takes a kernel that multiplies vectors, several one that multiplies tiles.

A row's sums follow an order that depends on the matrix alone, within each of three kinds of step: 1 token, 2 to 64, and
more. So a token has the same bits beside any others of the same kind; across kinds it need not: tensor cores add in
another order than a vector's lanes, and prompts are not split over columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gristmill.ops.triton import linear_prompt, linear_tiles, linear_vector
from gristmill.ops.triton.activation import swiglu
from gristmill.ops.triton.linear_tiles import FEW
from gristmill.ops.triton.quantized import Matrix


def linear(x: Tensor, w: Matrix) -> Tensor:
    """x [T, cols] -> float32 [T, rows]. w has no experts."""
    x = x.contiguous()
    y = torch.empty((len(x), w.rows), dtype=torch.float32, device=x.device)
    if len(x) == 1:
        linear_vector.multiply(x, w, y, False, 0.0)
    elif len(x) > FEW and linear_prompt.fits(x, w):
        linear_prompt.multiply(x, w, y, False, 0.0)
    elif len(x):
        parts = linear_tiles.multiply(x, w)
        if len(parts) == 1:
            return parts[0]
        linear_tiles.add(parts, w, y, False, 0.0)
    return y


def gated_linear(x: Tensor, w: Matrix, limit: float, dtype: torch.dtype) -> Tensor:
    """`activation.swiglu` of `linear(x, w)`: [T, cols] -> [T, rows / 2] of dtype."""
    x = x.contiguous()
    y = torch.empty((len(x), w.rows // 2), dtype=dtype, device=x.device)
    if len(x) == 1:
        linear_vector.multiply(x, w, y, True, limit)
    elif len(x) > FEW and linear_prompt.fits(x, w):
        linear_prompt.multiply(x, w, y, True, limit)
    elif len(x):
        parts = linear_tiles.multiply(x, w)
        if len(parts) == 1:
            return swiglu(parts[0], limit, dtype)
        linear_tiles.add(parts, w, y, True, limit)
    return y
