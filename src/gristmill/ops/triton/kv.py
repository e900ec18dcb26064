"""The paged cache's layout, and what one kernel does between the projections and attention: norms, rotation, storing.

A layer is k and v, [n_blocks, G, BLOCK_SIZE, D] each: the 16 keys of one head in one block lie together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from gristmill.ops.interface import BLOCK_SIZE
from gristmill.ops.triton.common import cdiv, chained, follow, tile

Tensor = torch.Tensor

_BLOCK_SIZE = tl.constexpr(BLOCK_SIZE)
_TOKENS = 4  # of one head a program; the same for all steps, so that every step rounds alike


class KvLayer(NamedTuple):
    """Keys and values of one layer."""

    k: Tensor
    v: Tensor

    def fill(self, byte: int) -> None:
        for part in self:
            part.view(torch.uint8).fill_(byte)


def kv_layer(n_blocks: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> KvLayer:
    """k and v for n_blocks * BLOCK_SIZE slots. They are 0, as warming reads what nobody has stored."""
    shape = (n_blocks, n_kv_heads, BLOCK_SIZE, head_dim)
    return KvLayer(*(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2)))


def store_qkv(
    qkv: Tensor,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
    angles: tuple[Tensor, Tensor],
    layer: KvLayer,
    slots: Tensor,
) -> Tensor:
    """Split [T, (H + 2 G) D]; normalize each head of q and k where a norm [D] is given; turn the pairs (i, i + D / 2)
    of q and k by the angles [T, D / 2]; write k and v to the layer's slots, int32 [T], but not where these are below 0;
    return q [T, H D] of the cache's type, to which attention would round it.
    """
    k_cache, v_cache = layer
    n_kv_heads, head_dim = k_cache.shape[1], k_cache.shape[3]
    n_tokens, n_heads = len(qkv), qkv.shape[1] // head_dim
    n_q_heads = n_heads - 2 * n_kv_heads
    q = torch.empty((n_tokens, n_q_heads * head_dim), dtype=k_cache.dtype, device=qkv.device)
    if n_tokens:
        _store_qkv[(cdiv(n_tokens, _TOKENS), n_heads)](
            qkv, q_norm, k_norm, *angles, k_cache, v_cache, slots, q, eps, n_tokens,
            n_q_heads, n_kv_heads, head_dim // 2, tile(head_dim // 2), _TOKENS, num_warps=1, **chained(),
        )  # fmt: skip
    return q


@triton.jit(do_not_specialize=["n_tokens"])
def _store_qkv(
    qkv_ptr, q_norm_ptr, k_norm_ptr, cos_ptr, sin_ptr, k_ptr, v_ptr, slots_ptr, q_ptr, eps, n_tokens,
    n_q_heads: tl.constexpr, n_kv_heads: tl.constexpr, half: tl.constexpr, block: tl.constexpr, tokens: tl.constexpr,
):  # fmt: skip
    follow()
    head = tl.program_id(1)
    token = tl.program_id(0) * tokens + tl.arange(0, tokens)[:, None]
    dims = tl.arange(0, block)[None, :]
    inside = (token < n_tokens) & (dims < half)
    at = token.to(tl.int64) * ((n_q_heads + 2 * n_kv_heads) * 2 * half) + head * 2 * half + dims
    first = tl.load(qkv_ptr + at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(qkv_ptr + at + half, mask=inside, other=0.0).to(tl.float32)
    if head < n_q_heads + n_kv_heads:
        if head < n_q_heads:
            first, second = _normed(first, second, q_norm_ptr, eps, dims, half)
        else:
            first, second = _normed(first, second, k_norm_ptr, eps, dims, half)
        cos = tl.load(cos_ptr + token * half + dims, mask=inside, other=0.0)
        sin = tl.load(sin_ptr + token * half + dims, mask=inside, other=0.0)
        first, second = first * cos - second * sin, second * cos + first * sin
    if head < n_q_heads:
        q_at = token.to(tl.int64) * (n_q_heads * 2 * half) + head * 2 * half + dims
        _store(q_ptr + q_at, first, second, inside, half)
    else:
        slot = tl.load(slots_ptr + token, mask=token < n_tokens, other=-1).to(tl.int64)
        inside = inside & (slot >= 0)
        kv_head = (head - n_q_heads) % n_kv_heads
        row = (slot // _BLOCK_SIZE * n_kv_heads + kv_head) * _BLOCK_SIZE + slot % _BLOCK_SIZE
        if head < n_q_heads + n_kv_heads:
            _store(k_ptr + row * (2 * half) + dims, first, second, inside, half)
        else:
            _store(v_ptr + row * (2 * half) + dims, first, second, inside, half)


@triton.jit
def _normed(first, second, norm_ptr, eps, dims, half: tl.constexpr):
    """Each row, the two halves of a head, by its root mean square; as it is where there is no norm."""
    if norm_ptr is not None:
        square = tl.sum(first * first + second * second, axis=1, keep_dims=True) / (2 * half)
        root = tl.sqrt(square + eps)
        first = first / root * tl.load(norm_ptr + dims, mask=dims < half, other=0.0).to(tl.float32)
        second = second / root * tl.load(norm_ptr + half + dims, mask=dims < half, other=0.0).to(tl.float32)
    return first, second


@triton.jit
def _store(to, first, second, inside, half: tl.constexpr):
    tl.store(to, first.to(to.dtype.element_ty), mask=inside)
    tl.store(to + half, second.to(to.dtype.element_ty), mask=inside)
