"""Which experts a token goes to, and the tokens of each expert in tiles: on the device, so that steps can be replayed.

An assignment is one of the n_active experts of one token: number t * n_active + i.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.ops.triton.common import chained, follow


@dataclass(frozen=True, slots=True)
class Routes:
    """weights       float32 [T, n_active], of each assignment
    order         int32 [n_tiles * tile], assignments such that each tile's are of one expert; -1 fills up
    tile_experts  int32 [n_tiles], -1 for tiles that are not needed
    """

    weights: Tensor
    order: Tensor
    tile_experts: Tensor


def choose(router: Tensor, n_active: int) -> tuple[Tensor, Tensor]:
    """Of router logits float32 [T, E]: the n_active highest (of equal ones the first), int32 [T, n_active], and their
    softmax, float32 [T, n_active]. Where all are NaN, so are these, of some experts that there are."""
    n_tokens, n_experts = router.shape
    chosen = torch.empty((n_tokens, n_active), dtype=torch.int32, device=router.device)
    weights = torch.empty((n_tokens, n_active), dtype=torch.float32, device=router.device)
    blocks = triton.next_power_of_2(n_active), triton.next_power_of_2(n_experts)
    _choose[(n_tokens,)](chosen, weights, router, n_experts, n_active, *blocks, num_warps=1, **chained())
    return chosen, weights


def route(router: Tensor, n_active: int, tile: int) -> Routes:
    """Of router logits float32 [T, E]."""
    (n_tokens, n_experts), device = router.shape, router.device
    n, block = n_tokens * n_active, triton.next_power_of_2(n_experts)
    chosen, weights = choose(router, n_active)
    counts = torch.empty(n_experts, dtype=torch.int32, device=device)
    _count[(n_experts,)](counts, chosen, n, 1024, num_warps=4, **chained())
    n_tiles = min(n, n_experts + n // tile)  # each expert may leave one unfilled
    order = torch.full((n_tiles * tile,), -1, dtype=torch.int32, device=device)
    tile_experts = torch.full((n_tiles,), -1, dtype=torch.int32, device=device)
    _place[(n_experts,)](order, tile_experts, counts, chosen, n, n_experts, block, tile, 1024, num_warps=4, **chained())
    return Routes(weights, order, tile_experts)


@triton.jit
def _choose(chosen, weights, router, n_experts, N: tl.constexpr, N_BLOCK: tl.constexpr, E: tl.constexpr):
    follow()
    t = tl.program_id(0)
    e = tl.arange(0, E)
    left = tl.load(router + t * n_experts + e, mask=e < n_experts, other=float("-inf"))
    left = tl.where(left == left, left, float("-inf"))  # NaN is never the highest; where all are, the first is
    highest = tl.max(left, axis=0)
    i = tl.arange(0, N_BLOCK)
    powers = tl.zeros((N_BLOCK,), tl.float32)
    for place in range(N):
        best = tl.argmax(left, axis=0)
        tl.store(chosen + t * N + place, best)
        powers = tl.where(i == place, tl.exp(tl.max(left, axis=0) - highest), powers)
        left = tl.where(e == best, float("-inf"), left)
    tl.store(weights + t * N + i, powers / tl.sum(powers, axis=0), mask=i < N)


@triton.jit(do_not_specialize=["n"])
def _count(counts, chosen, n, BLOCK: tl.constexpr):
    """Assignments of each expert, one a program."""
    follow()
    expert = tl.program_id(0)
    total = 0
    for begin in range(0, n, BLOCK):
        a = begin + tl.arange(0, BLOCK)
        total += tl.sum((tl.load(chosen + a, mask=a < n, other=-1) == expert).to(tl.int32), axis=0)
    tl.store(counts + expert, total)


@triton.jit(do_not_specialize=["n"])
def _place(order, tile_experts, counts, chosen, n, n_experts, E: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """One expert's assignments in their order, from the tile on that follows those of the experts before."""
    follow()
    expert = tl.program_id(0)
    e = tl.arange(0, E)
    n_tiles = (tl.load(counts + e, mask=e < n_experts, other=0) + TILE - 1) // TILE
    first = tl.sum(tl.where(e < expert, n_tiles, 0), axis=0)
    for i in range(tl.sum(tl.where(e == expert, n_tiles, 0), axis=0)):
        tl.store(tile_experts + first + i, expert)
    n_before = 0
    for begin in range(0, n, BLOCK):
        a = begin + tl.arange(0, BLOCK)
        mine = (tl.load(chosen + a, mask=a < n, other=-1) == expert).to(tl.int32)
        place = first * TILE + n_before + tl.cumsum(mine, axis=0) - 1
        tl.store(order + place, a, mask=mine > 0)
        n_before += tl.sum(mine, axis=0)
