"""The decoder's operations on torch tensors, with gradients: what `gristmill train` computes with.

A batch is whole sequences of one length, each from its first token on. So nothing is cached: a layer's keys and values
are those of the batch. Experts, sinks and clamped SwiGLU are refused, and so is choosing among tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.ops.interface import Arrays, Stack
from gristmill.types import Batch, RopeConfig

CHUNK_NUMBERS = 1 << 22
"""Logits that the loss holds at once, 16 MiB of float32: those of a whole batch would be the most memory of all."""


@dataclass(frozen=True, slots=True)
class AutogradLinear:
    """w [rows, cols], bias [rows]."""

    w: nn.Parameter
    bias: nn.Parameter | None


class LayerKeysValues:
    """What `store_qkv` hands to `attention`: k and v of a layer, [S, G, L, D] each."""

    __slots__ = ("head_dim", "k", "n_kv_heads", "v")

    def __init__(self, n_kv_heads: int, head_dim: int) -> None:
        self.n_kv_heads, self.head_dim = n_kv_heads, head_dim
        self.k: Tensor | None = None
        self.v: Tensor | None = None


class AutogradOps:
    """Implements the part of `interface.Ops` that training needs.

    length  tokens of each sequence of a batch; T is a multiple of it
    device  where `put` puts weights
    """

    name = "autograd"

    def __init__(self, length: int = 1, device: str | torch.device = "cpu") -> None:
        self.length = length
        self._device = torch.device(device)

    def expect(self, n_bytes: int) -> None: ...

    def put(self, weights: Sequence[Weight], bias: NDArray[np.float32] | None = None) -> AutogradLinear:
        """ValueError for experts."""
        if any(len(weight.shape) != 2 for weight in weights):
            raise ValueError(f"{weights[0].name}: experts cannot be trained; use a model without them")
        w = np.concatenate([dequantize(weight) for weight in weights])
        return AutogradLinear(self.put_vector(w), None if bias is None else self.put_vector(bias))

    def put_all(self, stacks: Sequence[Stack]) -> list[AutogradLinear]:
        return [self.put(weights, bias) for weights, bias in stacks]

    def put_vector(self, values: NDArray[np.float32]) -> nn.Parameter:
        return nn.Parameter(torch.tensor(values, dtype=torch.float32, device=self._device))

    def array(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self._device)

    def get(self, array: Tensor) -> NDArray[Any]:
        values: NDArray[Any] = array.detach().cpu().numpy()
        return values

    def kv_layer(self, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str) -> LayerKeysValues:
        return LayerKeysValues(n_kv_heads, head_dim)

    def write(self, array: Tensor, values: Tensor) -> None:
        array.copy_(values)

    def capture(self, step: Callable[[], Arrays]) -> tuple[Arrays, Callable[[], None]]:
        raise ValueError("steps are not recorded while training")

    def requantizes(self, weight: Weight) -> bool:
        return False

    def embed(self, table: AutogradLinear, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, table.w)

    def linear(self, x: Tensor, w: AutogradLinear) -> Tensor:
        return F.linear(x, w.w, w.bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, eps)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def rope_angles(self, positions: Tensor, rope: RopeConfig) -> tuple[Tensor, Tensor]:
        """Of one sequence, as all are alike: [L, D / 2] each."""
        inv_freq = torch.tensor(rope.inv_freq, dtype=torch.float32, device=positions.device)
        angles = positions[: self.length, None].float() * inv_freq
        return torch.cos(angles) * rope.scale, torch.sin(angles) * rope.scale

    def store_qkv(
        self,
        qkv: Tensor,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        angles: tuple[Tensor, Tensor],
        kv_layer: LayerKeysValues,
        slots: Tensor,
    ) -> Tensor:
        n_kv_heads, head_dim = kv_layer.n_kv_heads, kv_layer.head_dim
        heads = qkv.view(-1, self.length, qkv.shape[-1] // head_dim, head_dim)  # [S, L, H + 2 G, D]
        q, k, v = torch.split(heads, [heads.shape[2] - 2 * n_kv_heads, n_kv_heads, n_kv_heads], dim=2)
        if q_norm is not None:
            q = self.rms_norm(q, q_norm, eps)
        if k_norm is not None:
            k = self.rms_norm(k, k_norm, eps)
        kv_layer.k, kv_layer.v = _rotated(k, angles).transpose(1, 2), v.transpose(1, 2)
        return _rotated(q, angles).reshape(len(qkv), -1)

    def attention(
        self,
        q: Tensor,
        kv_layer: LayerKeysValues,
        batch: Batch,
        block_tables: Tensor,
        window: int,
        sinks: Tensor | None,
    ) -> Tensor:
        if sinks is not None:
            raise ValueError("attention sinks cannot be trained; use a model without them")
        assert kv_layer.k is not None
        assert kv_layer.v is not None
        length = self.length
        q = q.view(-1, length, q.shape[-1] // kv_layer.head_dim, kv_layer.head_dim).transpose(1, 2)  # [S, H, L, D]
        mask = None
        if 0 < window < length:
            position = torch.arange(length, device=q.device)
            distance = position[:, None] - position
            mask = (distance >= 0) & (distance < window)
        y = F.scaled_dot_product_attention(
            q,
            kv_layer.k.to(q.dtype),
            kv_layer.v.to(q.dtype),
            mask,
            is_causal=mask is None,
            enable_gqa=q.shape[1] != kv_layer.n_kv_heads,
        )
        return y.transpose(1, 2).reshape(-1, q.shape[1] * kv_layer.head_dim)

    def swiglu(self, gate_up: Tensor, limit: float) -> Tensor:
        if limit:
            raise ValueError("clamped SwiGLU cannot be trained; use a model without experts")
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def moe(self, x: Tensor, router: Tensor, gate_up: Any, down: Any, n_active: int, limit: float) -> Tensor:
        raise ValueError("experts cannot be trained; use a model without them")

    def take_rows(self, x: Tensor, rows: Tensor) -> Tensor:
        return x[rows]

    def sample(self, logits: Tensor, batch: Batch) -> Tensor:
        raise ValueError("training chooses no tokens; sample from its logits")

    def logprobs(self, logits: Tensor, ids: Tensor, n_top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        raise ValueError("training keeps no log-probabilities; load its checkpoint to have them")


def whole_sequences(tokens: Tensor, rows: Any = slice(None)) -> Batch:
    """The batch of tokens [S, L]; rows: which of the S L rows get logits, all of them if it is not said."""
    n, length = tokens.shape
    none = tokens.new_empty(0)
    starts = torch.arange(0, n * length + 1, length, device=tokens.device)
    return Batch(
        tokens=tokens.reshape(-1),
        positions=torch.arange(length, device=tokens.device).repeat(n),
        slots=(none,),
        query_start=starts,
        seq_lens=starts[1:] - starts[:-1],
        block_tables=(none,),
        sample_rows=rows,
        temperature=none,
        top_k=none,
        top_p=none,
        min_p=none,
        seeds=none,
        next_positions=none,
        penalties=none,
        listed_start=none,
        listed_ids=none,
        listed_counts=none,
        listed_bias=none,
        masks=none,
    )


def cross_entropy(hidden: Tensor, head: AutogradLinear, targets: Tensor) -> Tensor:
    """The mean of -log softmax(hidden head^T)[target]: hidden [T, d_model], targets [T] -> a number, in nats."""
    assert head.bias is None
    loss: Tensor = _CrossEntropy.apply(hidden, head.w, targets)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Head and loss in one, a chunk of rows at a time. Gradients are computed on the way forward, where the logits are
    at hand: softmax(logits) - onehot(target) (the backward pass only scales them)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, w: Tensor, targets: Tensor) -> Tensor:
        n, vocab_size = len(hidden), len(w)
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        x, weight = hidden.to(dtype), w.to(dtype)
        wanted = any(ctx.needs_input_grad)
        grad_x = torch.empty_like(x) if wanted else None
        grad_w = torch.zeros_like(w) if wanted else None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        rows = max(1, CHUNK_NUMBERS // vocab_size)
        buffer = torch.empty(min(rows, n), vocab_size, dtype=dtype, device=hidden.device)
        for begin in range(0, n, rows):
            part, target = x[begin : begin + rows], targets[begin : begin + rows, None]
            logits = torch.mm(part, weight.t(), out=buffer[: len(part)])
            p = torch.log_softmax(logits.float(), dim=-1)
            total -= p.gather(1, target).sum()
            if grad_x is not None and grad_w is not None:
                p.exp_()
                p.scatter_add_(1, target, torch.full_like(target, -1, dtype=p.dtype))
                p = p.to(dtype)
                torch.mm(p, weight, out=grad_x[begin : begin + rows])
                grad_w += p.t() @ part
        if grad_x is not None and grad_w is not None:
            ctx.save_for_backward(grad_x.to(hidden.dtype), grad_w)
        ctx.n = n
        return total / n

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        grad_x, grad_w = ctx.saved_tensors
        scale = grads[0] / ctx.n
        return grad_x * scale, grad_w * scale, None


def _rotated(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (x[i], x[i + D / 2]) of [S, L, heads, D]."""
    cos, sin = (angle[:, None] for angle in angles)  # [L, 1, D / 2]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
