"""x W^T + bias. One token takes a kernel that multiplies vectors, several one that multiplies tiles.

A row's sums follow an order that depends on the matrix alone, within each of three kinds of step: 1 token, 2 to 64, and
more; with quantized types four: 1, 2 to 16, 17 to 64, and more. So a token has the same bits beside any
others of the same kind; across kinds it need not: tensor cores add in another order than a vector's lanes, some of
their instructions in another than others, and prompts are not split over columns.
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
    return _product(x, w, w.rows, torch.float32, False, 0.0)


def gated_linear(x: Tensor, w: Matrix, limit: float, dtype: torch.dtype) -> Tensor:
    """`activation.swiglu` of `linear(x, w)`: [T, cols] -> [T, rows / 2] of dtype."""
    return _product(x, w, w.rows // 2, dtype, True, limit)


def _product(x: Tensor, w: Matrix, n_rows: int, dtype: torch.dtype, gated: bool, limit: float) -> Tensor:
    x, n_tokens = x.contiguous(), len(x)
    in_tiles = n_tokens > 1 and not (n_tokens > FEW and linear_prompt.fits(x, w))
    parts = linear_tiles.multiply(x, w) if in_tiles else None
    if parts is not None and len(parts) == 1:
        return swiglu(parts[0], limit, dtype) if gated else parts[0]
    y = torch.empty((n_tokens, n_rows), dtype=dtype, device=x.device)
    if parts is not None:
        linear_tiles.add(parts, w, y, gated, limit)
    elif n_tokens:
        (linear_vector if n_tokens == 1 else linear_prompt).multiply(x, w, y, gated, limit)
    return y
