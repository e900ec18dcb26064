"""A mixture of experts: each expert multiplies the tokens that go to it, a tile of them at a time."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.activation import swiglu
from gristmill.ops.triton.linear import FEW, finished, multiply_tiles
from gristmill.ops.triton.moe_route import Routes, route
from gristmill.ops.triton.quantized import FLOAT, INT8_ROWS, Q4_0, Matrix


def moe(
    x: Tensor,
    router: Tensor,
    gate_up: Matrix,
    down: Matrix,
    n_active: int,
    limit: float,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """float32 [T, d_model]: for each row of x [T, d_model] the softmax-weighted sum over the n_active experts with the
    highest router logits [T, E]. Hidden activations are of dtype, or float32.

    A token has the same bits beside any others, in steps of up to 64 tokens, and in longer ones.
    """
    n_tokens = len(x)
    if n_tokens == 0:
        return torch.empty((0, down.rows), dtype=torch.float32, device=x.device)
    routes = route(router, n_active, 16 if n_tokens <= FEW else 64)
    hidden = swiglu(_each_expert(x.contiguous(), gate_up, routes, n_active), limit, dtype)
    of_experts = _each_expert(hidden, down, routes, 1)  # [T * n_active, d_model]
    y = torch.empty((n_tokens, down.rows), dtype=torch.float32, device=x.device)
    _combine[(n_tokens, triton.cdiv(down.rows, 512))](y, of_experts, routes.weights, down.rows, n_active, 512)
    return y


def _each_expert(x: Tensor, w: Matrix, routes: Routes, n_shared: int) -> Tensor:
    """float32 [assignments, rows]: of each assignment, its expert times row (assignment / n_shared) of x."""
    y = torch.empty((routes.weights.numel(), w.rows), dtype=torch.float32, device=x.device)
    n_tiles = len(routes.tile_experts)
    tile = len(routes.order) // n_tiles
    block_k = 32 if w.two_in_a_byte else 64
    grid = (triton.cdiv(w.rows, 64), n_tiles)
    _expert_tiles[grid](
        y,
        x,
        w.codes,
        w.scales,
        w.bias,
        routes.order,
        routes.tile_experts,
        w.rows,
        w.cols,
        w.n_stored,
        n_shared,
        w.kind,
        64,
        tile,
        block_k,
        w.dot_type,
        num_warps=4,
        num_stages=4,
    )
    return y


@triton.jit
def _expert_tiles(
    y,
    x,
    codes,
    scales,
    bias,
    order,
    tile_experts,
    n_rows,
    n_cols,
    n_stored,
    SHARED: tl.constexpr,
    KIND: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    K: tl.constexpr,
    TYPE: tl.constexpr,
):
    tile = tl.program_id(1)
    expert = tl.load(tile_experts + tile).to(tl.int64)
    if expert >= 0:
        a = tl.load(order + tile * T + tl.arange(0, T))
        r = tl.program_id(0) * R + tl.arange(0, R)
        r_inside, a_inside = r < n_rows, a >= 0
        codes += expert * n_rows * n_stored
        if KIND == INT8_ROWS:
            scales += expert * n_rows
        elif KIND >= Q4_0:
            scales += expert * n_rows * (n_stored // 16)
        elif KIND != FLOAT:
            scales += expert * n_rows * (n_stored // 32)
        if bias is not None:
            bias += expert * n_rows
        sums = multiply_tiles(
            x, a // SHARED, a_inside, codes, scales, r, r_inside, n_cols, n_stored, 0, n_stored, KIND, R, T, K, TYPE
        )
        sums = finished(sums, scales, bias, r, r_inside, KIND)
        at = y + a[None, :].to(tl.int64) * n_rows + r[:, None]
        tl.store(at, sums, mask=r_inside[:, None] & a_inside[None, :])


@triton.jit
def _combine(y, of_experts, weights, n_cols, N: tl.constexpr, BLOCK: tl.constexpr):
    """The weighted sum of each token's N rows, the likeliest expert's first."""
    t = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(N):
        row = tl.load(of_experts + (t * N + i) * n_cols + k, mask=k < n_cols, other=0)
        total += tl.load(weights + t * N + i) * row
    tl.store(y + t * n_cols + k, total, mask=k < n_cols)
