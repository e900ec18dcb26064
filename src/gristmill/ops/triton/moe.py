"""A mixture of experts: each expert multiplies the tokens that go to it, a tile of them at a time."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.activation import swiglu, swiglu_of
from gristmill.ops.triton.common import cdiv, chained, follow
from gristmill.ops.triton.linear_tiles import FEW, finished, multiply_tiles
from gristmill.ops.triton.linear_vector import blocks, multiply_vector
from gristmill.ops.triton.moe_route import Routes, choose, route
from gristmill.ops.triton.quantized import INT8_ROWS, MXFP4, Q4_0, Q8_0, Matrix, codes_in_row, scales_in_row


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

    A token has the same bits beside any others in steps of 2 to 64 tokens, and in longer ones.
    """
    n_tokens = len(x)
    if n_tokens == 0:
        return torch.empty((0, down.rows), dtype=torch.float32, device=x.device)
    if n_tokens == 1:
        return _one_token(x.contiguous(), router, gate_up, down, n_active, limit, dtype or torch.float32)
    routes = route(router, n_active, 16 if n_tokens <= FEW else 128)
    hidden = swiglu(_each_expert(x.contiguous(), gate_up, routes, n_active), limit, dtype)
    of_experts = _each_expert(hidden, down, routes, 1)  # [T * n_active, d_model]
    y = torch.empty((n_tokens, down.rows), dtype=torch.float32, device=x.device)
    _combine[(n_tokens, cdiv(down.rows, 512))](y, of_experts, routes.weights, down.rows, n_active, 512, **chained())
    return y


def _one_token(
    x: Tensor, router: Tensor, gate_up: Matrix, down: Matrix, n_active: int, limit: float, dtype: torch.dtype
) -> Tensor:
    """Its experts' weights are read once each, and nothing has to be sorted."""
    chosen, weights = choose(router, n_active)
    hidden = torch.empty((n_active, gate_up.rows // 2), dtype=dtype, device=x.device)
    y = torch.empty((1, down.rows), dtype=torch.float32, device=x.device)
    block_rows, block_k, n_warps = blocks(gate_up)
    _expert_gates[(cdiv(hidden.shape[1], block_rows), n_active)](
        hidden, x, gate_up.codes, gate_up.scales, gate_up.bias, chosen, hidden.shape[1], gate_up.cols, gate_up.n_stored,
        limit, gate_up.kind, block_rows, block_k, limit != 0, num_warps=n_warps, **chained(),
    )  # fmt: skip
    block_rows, block_k, n_warps = blocks(down)
    _expert_sums[(cdiv(down.rows, block_rows),)](
        y, hidden, down.codes, down.scales, down.bias, chosen, weights, down.rows, down.cols, down.n_stored, n_active,
        down.kind, block_rows, block_k, num_warps=n_warps, **chained(),
    )  # fmt: skip
    return y


def _each_expert(x: Tensor, w: Matrix, routes: Routes, n_shared: int) -> Tensor:
    """float32 [assignments, rows]: of each assignment, its expert times row (assignment / n_shared) of x."""
    y = torch.empty((routes.weights.numel(), w.rows), dtype=torch.float32, device=x.device)
    n_tiles = len(routes.tile_experts)
    block_t = len(routes.order) // n_tiles
    block_rows, block_k, n_stages = (
        (64, 128, 3)
        if block_t == 16
        else (128, 64, 4 if w.kind in (INT8_ROWS.value, Q8_0.value, Q4_0.value, MXFP4.value) else 3)
    )
    if w.two_in_a_byte or w.codes.dtype == torch.float32:
        block_k //= 2
    _expert_tiles[(cdiv(w.rows, block_rows), n_tiles)](
        y, x, w.codes, w.scales, w.bias, routes.order, routes.tile_experts, w.rows, w.cols, w.n_stored, n_shared,
        w.kind, block_rows, block_t, block_k, w.dot_type, num_warps=block_rows // 16, num_stages=n_stages, **chained(),
    )  # fmt: skip
    return y


@triton.jit
def _expert_gates(
    hidden, x, codes, scales, bias, chosen, n_rows, n_cols: tl.constexpr, n_stored: tl.constexpr, limit,
    KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr, LIMITED: tl.constexpr,
):  # fmt: skip
    """hidden [N, rows] of one token and each of its N experts, which have 2 rows each.

    Where an expert's part begins is said in each kernel: a function could not return a bias that is None (Triton 3.6).
    """
    follow()
    i = tl.program_id(1)
    first = tl.load(chosen + i).to(tl.int64) * 2 * n_rows
    codes += first * codes_in_row(n_stored, KIND)
    if scales is not None:
        scales += first * scales_in_row(n_stored, KIND)
    if bias is not None:
        bias += first
    r = tl.program_id(0) * R + tl.arange(0, R)
    inside = r < n_rows
    gates, ups = multiply_vector(x, codes, scales, r, inside, n_rows, n_cols, n_stored, KIND, R, K, True)
    gates = finished(gates[:, None], scales, bias, r[:, None], inside[:, None], KIND)
    ups = finished(ups[:, None], scales, bias, n_rows + r[:, None], inside[:, None], KIND)
    values = swiglu_of(gates, ups, limit, LIMITED)
    tl.store(hidden + i * n_rows + r[:, None], values.to(hidden.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _expert_sums(
    y, hidden, codes, scales, bias, chosen, weights, n_rows, n_cols: tl.constexpr, n_stored: tl.constexpr,
    N: tl.constexpr, KIND: tl.constexpr, R: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """y [rows] of one token: the weighted sum over its N experts, the likeliest first."""
    follow()
    r = tl.program_id(0) * R + tl.arange(0, R)
    inside = r < n_rows
    total = tl.zeros((R, 1), tl.float32)
    for i in range(N):
        first = tl.load(chosen + i).to(tl.int64) * n_rows
        own_codes, own_scales, own_bias = codes + first * codes_in_row(n_stored, KIND), scales, bias
        if scales is not None:
            own_scales = scales + first * scales_in_row(n_stored, KIND)
        if bias is not None:
            own_bias = bias + first
        x = hidden + i * n_cols
        sums, _none = multiply_vector(x, own_codes, own_scales, r, inside, n_rows, n_cols, n_stored, KIND, R, K, False)
        total += tl.load(weights + i) * finished(sums[:, None], own_scales, own_bias, r[:, None], inside[:, None], KIND)
    tl.store(y + r[:, None], total, mask=inside[:, None])


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
    follow()
    tile = tl.program_id(1)
    expert = tl.load(tile_experts + tile)
    if expert >= 0:
        a = tl.load(order + tile * T + tl.arange(0, T))
        r = tl.program_id(0) * R + tl.arange(0, R)
        r_inside, a_inside = r < n_rows, a >= 0
        first = expert.to(tl.int64) * n_rows
        codes += first * codes_in_row(n_stored, KIND)
        if scales is not None:
            scales += first * scales_in_row(n_stored, KIND)
        if bias is not None:
            bias += first
        sums = multiply_tiles(
            x, a // SHARED, a_inside, codes, scales, r, r_inside, n_cols, n_stored, 0, n_stored, KIND, R, T, K, TYPE
        )
        sums = finished(sums, scales, bias, r[:, None], r_inside[:, None], KIND)
        at = y + a[None, :].to(tl.int64) * n_rows + r[:, None]
        tl.store(at, sums, mask=r_inside[:, None] & a_inside[None, :])


@triton.jit
def _combine(y, of_experts, weights, n_cols, N: tl.constexpr, BLOCK: tl.constexpr):
    """The weighted sum of each token's N rows, the likeliest expert's first."""
    follow()
    t = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(N):
        row = tl.load(of_experts + (t * N + i) * n_cols + k, mask=k < n_cols, other=0)
        total += tl.load(weights + t * N + i) * row
    tl.store(y + t * n_cols + k, total, mask=k < n_cols)
