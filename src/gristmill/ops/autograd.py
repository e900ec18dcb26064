"""The decoder's operations on torch tensors, with gradients: what `gristmill train` computes with.

A batch is whole sequences of one length, each from its first token on. So nothing is cached: a layer's keys and values
are those of the batch. Experts, sinks and clamped SwiGLU are refused, and so is choosing among tokens. Operations that
torch would do in many passes over memory have gradients written out.
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
from gristmill.ops.interface import STEP_TOKENS, Arrays, Begun, Stack
from gristmill.ops.products import linear
from gristmill.types import Batch, RopeConfig


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
    least_blocks = 1
    step_tokens = STEP_TOKENS
    prompt_tokens = STEP_TOKENS
    batch_sizes: tuple[int, ...] = ()
    runs_ahead = False
    needs_warming = False

    def __init__(self, length: int = 1, device: str | torch.device = "cpu") -> None:
        self.length = length
        self._device = torch.device(device)

    def finish_put(self) -> None: ...

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

    def kv_layers(
        self, n_layers: int, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str
    ) -> list[LayerKeysValues]:
        return [LayerKeysValues(n_kv_heads, head_dim) for _ in range(n_layers)]

    def kv_block_bytes(self, n_kv_heads: int, head_dim: int, kv_type: str) -> int:
        return 0  # a text's keys and values live as long as its graph

    def write(self, array: Tensor, values: Tensor) -> None:
        array.copy_(values)

    def capture(self, step: Callable[[], Arrays]) -> tuple[Arrays, Callable[[], None]]:
        raise ValueError("steps are not recorded while training")

    def requantized(self, weights: Sequence[Weight]) -> list[Weight]:
        return []

    def embed(self, table: AutogradLinear, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, table.w)

    def linear(self, x: Tensor, w: AutogradLinear) -> Tensor:
        return linear(x, w.w, w.bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float() if x.dtype == torch.bfloat16 else x
        y: Tensor = _RmsNorm.apply(wide, weight, eps)  # type: ignore[no-untyped-call]
        return y

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
        cos, sin = (angle[:, None] for angle in angles)  # [L, 1, D / 2]
        kv_layer.k, kv_layer.v = _Rotated.apply(k, cos, sin).transpose(1, 2), v.transpose(1, 2)  # type: ignore[no-untyped-call]
        rotated: Tensor = _Rotated.apply(q, cos, sin)  # type: ignore[no-untyped-call]
        return rotated.reshape(len(qkv), -1)

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

    def gated_linear(self, x: Tensor, w: AutogradLinear, limit: float) -> Tensor:
        if limit:
            raise ValueError("clamped SwiGLU cannot be trained; use a model without experts")
        y: Tensor = _SwiGlu.apply(self.linear(x, w))  # type: ignore[no-untyped-call]
        return y

    def moe(self, x: Tensor, router: Tensor, gate_up: Any, down: Any, n_active: int, limit: float) -> Tensor:
        raise ValueError("experts cannot be trained; use a model without them")

    def take_rows(self, x: Tensor, rows: Tensor) -> Tensor:
        return x[rows]

    def sample(self, logits: Tensor, batch: Batch) -> Tensor:
        raise ValueError("training chooses no tokens; sample from its logits")

    def advance(self, batch: Batch, ids: Tensor, begun: Begun) -> None:
        raise ValueError("training chooses no tokens to go on with")

    def continuation(self, batch: Batch, ids: Tensor, again: Callable[[], None]) -> Callable[[Begun], list[int]]:
        raise ValueError("steps are not recorded while training")

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


class _Rotated(torch.autograd.Function):
    """Turns the pairs (x[i], x[i + D / 2]) of x [S, L, heads, D] by angles [L, 1, D / 2], backwards by the opposite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grads[0], cos, sin, -1), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    half = x.shape[-1] // 2
    y = x * torch.cat((cos, cos), dim=-1).to(x.dtype)
    y[..., :half].addcmul_(x[..., half:], sin.to(x.dtype), value=-sign)
    y[..., half:].addcmul_(x[..., :half], sin.to(x.dtype), value=sign)
    return y


class _RmsNorm(torch.autograd.Function):
    """x [.., n] / sqrt(mean(x^2) + eps) * weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        scale = mean_square.add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        y: Tensor = (x * scale).mul_(weight)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        n = weight.numel()
        normed = x * scale
        product = (grads[0] * normed).reshape(-1, n)
        along = torch.mv(product, weight).div_(n).view(scale.shape)  # what the norm takes out
        grad_x = torch.addcmul(grads[0] * weight, normed, along, value=-1).mul_(scale)
        return grad_x, product.sum(0), None


class _SwiGlu(torch.autograd.Function):
    """silu(gate) up of [T, 2 d_ff] = [gate | up]. silu(gate) is computed again on the way back, not kept."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        grad = torch.empty_like(gate_up)
        grad_gate, grad_up = grad.chunk(2, dim=-1)
        torch.mul(F.silu(gate), grads[0], out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grads[0] * up, gate, grad_input=grad_gate)
        return grad
