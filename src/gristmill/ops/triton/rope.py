"""The angles of rotary position embedding; `kv` turns queries and keys by them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gristmill.ops.triton.common import chained, follow, tile

Tensor = torch.Tensor


def rope_angles(positions: Tensor, inv_freq: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """cos and sin of positions [T] times inv_freq [D / 2], times scale: float32 [T, D / 2] each.

    positions int32, inv_freq float32 with the scaling of long contexts worked in (`types.RopeConfig`).
    """
    n_tokens, half = len(positions), len(inv_freq)
    cos, sin = (torch.empty((n_tokens, half), dtype=torch.float32, device=positions.device) for _ in range(2))
    if n_tokens:
        _angles[(n_tokens,)](positions, inv_freq, cos, sin, scale, half, tile(half), num_warps=1, **chained())
    return cos, sin


@triton.jit
def _angles(positions_ptr, inv_freq_ptr, cos_ptr, sin_ptr, scale, half: tl.constexpr, block: tl.constexpr):
    follow()
    token = tl.program_id(0)
    dims = tl.arange(0, block)
    inside = dims < half
    angles = tl.load(positions_ptr + token).to(tl.float32) * tl.load(inv_freq_ptr + dims, mask=inside, other=0.0)
    tl.store(cos_ptr + token * half + dims, tl.cos(angles) * scale, mask=inside)
    tl.store(sin_ptr + token * half + dims, tl.sin(angles) * scale, mask=inside)
