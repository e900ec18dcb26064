"""A decoder whose weights are torch parameters: made new or from a checkpoint, and as tensors under their file's names.

The forward pass is `models/decoder.py`, the one that serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gristmill.formats.checkpoint import Checkpoint, Weight
from gristmill.formats.qtypes import QType
from gristmill.kv.cache import KvCache, allocate, windows_of
from gristmill.models.build import build
from gristmill.models.decoder import Decoder
from gristmill.models.families import Names, names_of
from gristmill.models.hyperparameters import read_config
from gristmill.ops.autograd import AutogradLinear, AutogradOps, whole_sequences
from gristmill.train.loss import cross_entropy
from gristmill.types import ModelConfig

INIT_STD = 0.02


class NewCheckpoint:
    """A model that is in no file yet: random weights for a config.json.

    Normal, of deviation 0.02, and of 0.02 / sqrt(2 n_layers) for attention's output and the feed-forward network's up
    projection, as llama2.c has it; norms are 1. The same seed gives the same model.
    """

    path = Path("new model")
    format = "safetensors"

    def __init__(self, metadata: Mapping[str, Any], seed: int) -> None:
        self.metadata = metadata
        config = read_config(self)
        names = names_of(self, config)
        rng = np.random.default_rng(seed)
        small = INIT_STD / math.sqrt(2 * config.n_layers)
        smaller = {name.format(i=i) for i in range(config.n_layers) for name in (names.o, names.up)}
        self._tensors: dict[str, NDArray[np.float32]] = {}
        for name, shape in _shapes(names, config):
            if len(shape) == 1:
                self._tensors[name] = np.ones(shape, np.float32)
            else:
                std = np.float32(small if name in smaller else INIT_STD)
                self._tensors[name] = rng.standard_normal(shape, np.float32) * std

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def get(self, name: str) -> Weight:
        values = self._tensors[name]
        return Weight(name, values.view(np.uint8).reshape(-1), QType.F32, values.shape)

    def release(self, weight: Weight) -> None: ...

    def release_all(self) -> None: ...


class Model(nn.Module):
    """A decoder that is trained. It knows its checkpoint's names, so that it can be written as it was read."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device) -> None:
        super().__init__()
        self.decoder: Decoder = build(checkpoint, AutogradOps(device=device))
        self.config: ModelConfig = self.decoder.config
        self.hf_config = {**checkpoint.metadata, "tie_word_embeddings": self.config.tied_head}
        self._names = names_of(checkpoint, self.config)
        self.by_name = dict(_parameters(self.decoder))
        for name, parameter in self.by_name.items():
            self.register_parameter(name.replace(".", "_"), parameter)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean loss, in nats, of targets [S, L] after tokens [S, L]."""
        ops = AutogradOps(tokens.shape[1])
        hidden = self.decoder.hidden(ops, whole_sequences(tokens), self._no_cache(ops))
        return cross_entropy(hidden, self.decoder.head, targets.reshape(-1))

    def logits(self, tokens: Tensor, rows: Any = slice(None)) -> Tensor:
        """[rows, vocab_size] of tokens [S, L], of all their rows if it is not said which."""
        ops = AutogradOps(tokens.shape[1])
        logits: Tensor = self.decoder.forward(ops, whole_sequences(tokens, rows), self._no_cache(ops))
        return logits

    def _no_cache(self, ops: AutogradOps) -> KvCache:
        cache = allocate(ops, self.config, [0] * len(windows_of(self.config)), "f32")
        return KvCache(cache.layers, (0,) * self.config.n_layers)

    def tensors(self) -> dict[str, Tensor]:
        """What model.safetensors holds, under its own names: what the decoder has stacked is taken apart."""
        return self._unstacked(lambda parameter: parameter.detach())

    def gradients(self) -> dict[str, Tensor]:
        """Those of the last backward pass, under the same names."""
        return self._unstacked(
            lambda parameter: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        )

    def _unstacked(self, of: Callable[[nn.Parameter], Tensor]) -> dict[str, Tensor]:
        c, names = self.config, self._names
        n_q, n_kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
        found = {names.embed: of(self.decoder.embed.w), names.norm: of(self.decoder.norm)}
        if not c.tied_head:
            found[names.head] = of(self.decoder.head.w)
        for i, layer in enumerate(self.decoder.layers):
            found[names.attn_norm.format(i=i)] = of(layer.attn_norm)
            found[names.ffn_norm.format(i=i)] = of(layer.ffn_norm)
            if layer.q_norm is not None:
                found[str(names.q_norm).format(i=i)] = of(layer.q_norm)
            if layer.k_norm is not None:
                found[str(names.k_norm).format(i=i)] = of(layer.k_norm)
            stacks: tuple[tuple[AutogradLinear, tuple[str, ...], list[int]], ...] = (
                (layer.qkv, (names.q, names.k, names.v), [n_q, n_kv, n_kv]),
                (layer.o, (names.o,), [c.d_model]),
                (layer.gate_up, (names.gate, names.up), [c.d_ff, c.d_ff]),
                (layer.down, (names.down,), [c.d_model]),
            )
            for linear, parts, rows in stacks:
                own = [name.format(i=i) for name in parts]
                found.update(zip(own, torch.split(of(linear.w), rows), strict=True))
                if linear.bias is not None:
                    found.update(zip(map(names.bias, own), torch.split(of(linear.bias), rows), strict=True))
        return found


def _parameters(decoder: Decoder) -> Iterator[tuple[str, nn.Parameter]]:
    """Every weight once, named by its place in the decoder."""
    yield "embed", decoder.embed.w
    yield "norm", decoder.norm
    if decoder.head is not decoder.embed:
        yield "head", decoder.head.w
    for i, layer in enumerate(decoder.layers):
        for field in layer.__slots__:
            value = getattr(layer, field)
            if isinstance(value, AutogradLinear):
                yield f"layers.{i}.{field}", value.w
                if value.bias is not None:
                    yield f"layers.{i}.{field}.bias", value.bias
            elif value is not None:
                yield f"layers.{i}.{field}", value


def _shapes(names: Names, c: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    n_q, n_kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    yield names.embed, (c.vocab_size, c.d_model)
    for i in range(c.n_layers):
        yield names.attn_norm.format(i=i), (c.d_model,)
        yield names.q.format(i=i), (n_q, c.d_model)
        yield names.k.format(i=i), (n_kv, c.d_model)
        yield names.v.format(i=i), (n_kv, c.d_model)
        yield names.o.format(i=i), (c.d_model, n_q)
        yield names.ffn_norm.format(i=i), (c.d_model,)
        yield names.gate.format(i=i), (c.d_ff, c.d_model)
        yield names.up.format(i=i), (c.d_ff, c.d_model)
        yield names.down.format(i=i), (c.d_model, c.d_ff)
    yield names.norm, (c.d_model,)
    if not c.tied_head:
        yield names.head, (c.vocab_size, c.d_model)
