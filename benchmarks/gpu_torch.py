"""The same work in torch: cuBLAS, SDPA, and torch.compile where that is asked for. It computes no particular text.

Keys and values lie in one piece a sequence, which is easier than pages. Sinks and windows are left out, though a token
reads no more keys of a layer than its window shows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from model_shapes import ModelShape
from torch import Tensor

KIND = torch.bfloat16
_GATHERED = 4  # tokens whose experts' weights are copied out; with more every expert sees every token

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Of layer i: q [T, H, D], k and v [T, G, D] -> [T, H D]."""


class TorchModel:
    """Random weights of this shape in bfloat16."""

    def __init__(self, shape: ModelShape, device: torch.device) -> None:
        self._shape, self._device = s, device = shape, device
        n_qkv = (s.n_heads + 2 * s.n_kv_heads) * s.head_dim
        experts = (s.n_experts,) if s.n_experts else ()
        self._layers = [
            (
                self._weight(n_qkv, s.d_model),
                self._weight(s.d_model, s.n_heads * s.head_dim),
                self._weight(s.n_experts, s.d_model) if s.n_experts else None,
                self._weight(*experts, 2 * s.d_ff, s.d_model),
                self._weight(*experts, s.d_model, s.d_ff),
            )
            for _ in range(s.n_layers)
        ]
        self._embed = self._weight(s.vocab_size, s.d_model)
        self._head = self._embed if s.tied_head else self._weight(s.vocab_size, s.d_model)
        angle = torch.rand(s.head_dim // 2, device=device)
        self._cos, self._sin = angle.cos().to(KIND), angle.sin().to(KIND)
        self._kv = list[Tensor]()

    def remember(self, n: int, depth: int) -> None:
        """n sequences with `depth` positions in the cache, for `step`."""
        s, self._kv = self._shape, []
        for i in range(s.n_layers):
            seen = min(depth, s.window) if s.window and i % 2 == 0 else depth
            self._kv.append(torch.randn((2, n, s.n_kv_heads, seen, s.head_dim), device=self._device, dtype=KIND))

    def step(self, ids: Tensor) -> Tensor:
        """One token of each sequence that it remembers: ids [n] -> ids [n]."""

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._kv[i]
            keys[:, :, -1], values[:, :, -1] = k, v
            y = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, enable_gqa=True)
            return y.reshape(len(q), -1)

        return self._run(ids, attend).argmax(-1)

    def prompt(self, ids: Tensor) -> Tensor:
        """All tokens of one sequence, which has none yet: ids [T] -> the next id."""

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            heads = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
            y = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
            return y[0].transpose(0, 1).reshape(len(q), -1)

        return self._run(ids, attend, last=True).argmax(-1)

    def _run(self, ids: Tensor, attend: Attend, last: bool = False) -> Tensor:
        s = self._shape
        x = self._embed[ids]
        for i, (qkv, o, router, gate_up, down) in enumerate(self._layers):
            heads = F.linear(self._norm(x), qkv).view(len(ids), -1, s.head_dim)
            q, k, v = heads.split([s.n_heads, s.n_kv_heads, s.n_kv_heads], dim=1)
            x = x + F.linear(attend(i, self._rotated(q), self._rotated(k), v), o)
            normed = self._norm(x)
            x = x + (_ffn(normed, gate_up, down) if router is None else self._experts(normed, router, gate_up, down))
        return F.linear(self._norm(x[-1:] if last else x), self._head)

    def _experts(self, x: Tensor, router: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        n_active = self._shape.n_active
        weights, chosen = F.linear(x, router).topk(n_active, dim=-1)
        weights = weights.softmax(-1)
        if len(x) <= _GATHERED:
            of_each = x.repeat_interleave(n_active, 0).unsqueeze(1)  # [T n_active, 1, d]
            y = _ffn(of_each, gate_up[chosen.flatten()], down[chosen.flatten()])
            return (y.view(len(x), n_active, -1) * weights.unsqueeze(-1)).sum(1)
        shares = torch.zeros((len(x), len(router)), device=x.device, dtype=KIND).scatter(1, chosen, weights)
        if len(x) <= 64:
            y = _ffn(x.expand(len(router), -1, -1), gate_up, down)  # [E, T, d]
            return (y * shares.t().unsqueeze(-1)).sum(0)
        y = torch.zeros_like(x)
        for e in range(len(router)):
            rows = shares[:, e].nonzero().squeeze(1)
            y.index_add_(0, rows, _ffn(x[rows], gate_up[e], down[e]) * shares[rows, e].unsqueeze(-1))
        return y

    def _norm(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), eps=self._shape.norm_eps)

    def _rotated(self, x: Tensor) -> Tensor:
        if self._shape.arch in ("qwen3", "qwen3moe"):
            x = self._norm(x)
        first, second = x.chunk(2, dim=-1)
        cos, sin = self._cos, self._sin
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def _weight(self, *size: int) -> Tensor:
        return torch.randn(size, device=self._device, dtype=KIND) * size[-1] ** -0.5


def _ffn(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """[.., T, d] by [.., 2 f, d] and [.., d, f]."""
    gate, up = (x @ gate_up.transpose(-1, -2)).chunk(2, dim=-1)
    return (F.silu(gate) * up) @ down.transpose(-1, -2)
