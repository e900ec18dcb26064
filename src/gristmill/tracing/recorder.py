"""A backend that keeps what passes through it. The decoder applies no operator itself, so nothing escapes.

It knows the order in which the decoder asks for operations, and nothing of texts, files or tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.ops.interface import Array, KvLayer, Linear, Ops

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """What one layer did with N tokens.

    qkv             [N, (H + 2 G) D], as `Ops.store_qkv` was given it
    attention_norm  [N], the length (Euclidean norm) of what attention added to each token's residual stream
    ffn_norm        [N], the same of the feed-forward network
    residual        [N, d_model], the residual stream after the layer
    router          [N, E], the logits of the experts; None where there are none
    """

    qkv: F32
    attention_norm: F32
    ffn_norm: F32
    residual: F32
    router: F32 | None


@dataclass(frozen=True, slots=True)
class Record:
    """What the decoder computed. embedded [N, d_model]: the residual stream before the first layer."""

    embedded: F32
    layers: tuple[LayerRecord, ...]

    def residuals(self, position: int) -> F32:
        """The residual stream of one token, before the first layer and after each: [L + 1, d_model]."""
        return np.stack([self.embedded[position], *(layer.residual[position] for layer in self.layers)])


class Recorder:
    """`Ops` that do what `ops` does, and note it. Everything that is not noted goes to `ops` as it is.

    One sequence runs through it, without replay: a tape would go past it. The logits of all its tokens must be wanted.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._embedded: list[F32] = []
        self._layers: list[dict[str, list[F32]]] = []
        self._layer = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def record(self) -> Record:
        """Of all steps so far, one after another."""
        layers = []
        for noted in self._layers:
            whole = {name: np.concatenate(parts) for name, parts in noted.items()}
            first, second = (whole[name] for name in ("attention", "ffn"))
            layers.append(LayerRecord(whole["qkv"], first, second, whole["residual"], whole.get("router")))
        return Record(np.concatenate(self._embedded), tuple(layers))

    def embed(self, table: Linear, tokens: Array) -> Array:
        x = self._ops.embed(table, tokens)
        self._embedded.append(self._copy(x))
        self._layer = 0
        return x

    def store_qkv(
        self,
        qkv: Array,
        q_norm: Array | None,
        k_norm: Array | None,
        eps: float,
        angles: tuple[Array, Array],
        kv_layer: KvLayer,
        slots: Array,
    ) -> Array:
        self._note("qkv", self._copy(qkv))
        return self._ops.store_qkv(qkv, q_norm, k_norm, eps, angles, kv_layer, slots)

    def moe(self, x: Array, router: Array, gate_up: Linear, down: Linear, n_active: int, limit: float) -> Array:
        self._note("router", self._copy(router))
        return self._ops.moe(x, router, gate_up, down, n_active, limit)

    def add(self, x: Array, y: Array) -> Array:
        """The first of a layer adds what attention gives, the second what the feed-forward network gives."""
        norm = np.linalg.norm(self._copy(y), axis=1)
        total = self._ops.add(x, y)
        if self._n_noted("attention") == self._n_noted("ffn"):
            self._note("attention", norm)
        else:
            self._note("ffn", norm)
            self._note("residual", self._copy(total))
            self._layer += 1
        return total

    def _n_noted(self, name: str) -> int:
        return len(self._layers[self._layer].get(name, ()))

    def _note(self, name: str, values: F32) -> None:
        if self._layer == len(self._layers):
            self._layers.append({})
        self._layers[self._layer].setdefault(name, []).append(values)

    def _copy(self, array: Array) -> F32:
        """Of what the backend may use again as soon as the step is over."""
        return np.array(self._ops.get(array), np.float32)
