"""THE forward pass: one decoder for Llama, Mistral, Qwen2, Qwen3 and gpt-oss.

It knows neither files nor number formats nor hardware: weights and arrays belong to `ops`, and what a family lacks is
None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.types import Batch, ModelConfig

if TYPE_CHECKING:
    from gristmill.kv.cache import KvCache
    from gristmill.ops.interface import Array, Linear, Ops


@dataclass(frozen=True, slots=True)
class Layer:
    """One block's weights as the backend holds them. H query heads, G key-value heads, D head_dim, E experts."""

    attn_norm: Array  # [d_model]
    qkv: Linear  # [(H + 2 G) D, d_model], with a bias in Qwen2 and gpt-oss
    q_norm: Array | None  # [D], Qwen3
    k_norm: Array | None  # [D], Qwen3
    sinks: Array | None  # [H], gpt-oss
    o: Linear  # [d_model, H D]
    ffn_norm: Array  # [d_model]
    router: Linear | None  # [E, d_model], gpt-oss and Qwen3 with experts
    gate_up: Linear  # [2 d_ff, d_model], or [E, 2 d_ff, d_model]
    down: Linear  # [d_model, d_ff], or [E, d_model, d_ff]


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model that is ready to run."""

    config: ModelConfig
    embed: Linear  # [vocab_size, d_model]
    layers: tuple[Layer, ...]
    norm: Array  # [d_model]
    head: Linear  # [vocab_size, d_model], the same object as `embed` where they are tied

    def forward(self, ops: Ops, batch: Batch, kv: KvCache) -> Any:
        """Run T tokens, write their keys and values to the cache; logits [R, vocab_size] of batch.sample_rows."""
        return ops.linear(self.hidden(ops, batch, kv), self.head)

    def hidden(self, ops: Ops, batch: Batch, kv: KvCache) -> Any:
        """The same up to the last norm: [R, d_model]. Of the other rows the last layer needs keys and values alone."""
        eps = self.config.norm_eps
        angles = ops.rope_angles(batch.positions, self.config.rope)
        x = ops.embed(self.embed, batch.tokens)  # [T, d_model]
        for i, layer in enumerate(self.layers):
            y = self._attention(ops, batch, kv, i, ops.rms_norm(x, layer.attn_norm, eps), angles)  # [T, H D]
            if layer is self.layers[-1]:
                x, y = (ops.take_rows(each, batch.sample_rows) for each in (x, y))
            x = ops.add(x, ops.linear(y, layer.o))
            x = ops.add(x, self._ffn(ops, layer, ops.rms_norm(x, layer.ffn_norm, eps)))
        return ops.rms_norm(x, self.norm, eps)

    def _attention(self, ops: Ops, batch: Batch, kv: KvCache, i: int, x: Array, angles: tuple[Array, Array]) -> Any:
        c, layer, kv_layer, group = self.config, self.layers[i], kv.layers[i], kv.groups[i]
        qkv = ops.linear(x, layer.qkv)  # [T, (H + 2 G) D]
        slots = batch.slots[group]
        q = ops.store_qkv(qkv, layer.q_norm, layer.k_norm, c.norm_eps, angles, kv_layer, slots)  # [T, H D]
        return ops.attention(q, kv_layer, batch, batch.block_tables[group], c.windows[i], layer.sinks)

    def _ffn(self, ops: Ops, layer: Layer, x: Array) -> Any:
        limit = self.config.swiglu_limit
        if self.config.moe is not None:
            router = ops.linear(x, layer.router)  # [T, E]
            return ops.moe(x, router, layer.gate_up, layer.down, self.config.moe.n_active, limit)
        return ops.linear(ops.gated_linear(x, layer.gate_up, limit), layer.down)
