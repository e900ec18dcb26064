"""From a checkpoint to a Decoder on a backend: every tensor checked, handed over, and its pages let go."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, Weight, bad_file
from gristmill.models.decoder import Decoder, Layer
from gristmill.models.families import Projection, Tensors
from gristmill.models.hyperparameters import read_config
from gristmill.ops.interface import Array, Linear, Ops

logger = logging.getLogger(__name__)
Progress = Callable[[int, int], None]


def build(checkpoint: Checkpoint, ops: Ops, progress: Progress | None = None) -> Decoder:
    """The model, ready to run. progress(bytes done, bytes in all) is called after each matrix.

    ModelFormatError when a tensor is missing, has another shape than the configuration says, or is not expected at all.
    """
    config = read_config(checkpoint)
    tensors = Tensors(checkpoint, config)
    loader = _Loader(checkpoint, ops, progress)
    embed = loader.linear([Projection(tensors.embed(), None)])
    layers = tuple(_layer(tensors, loader, i) for i in range(config.n_layers))
    norm = ops.put_vector(tensors.norm())
    head = embed if config.tied_head else loader.linear([Projection(tensors.head(), None)])
    if unused := tensors.unused():
        problem = f"holds {len(unused)} tensors that {config.arch} does not have, among them {unused[0]!r}"
        raise bad_file(checkpoint.path, "tensors", problem, "the configuration may name the wrong architecture")
    loader.report()
    return Decoder(config, embed, layers, norm, head)


def _layer(tensors: Tensors, loader: _Loader, i: int) -> Layer:
    router = tensors.router(i)
    return Layer(
        attn_norm=loader.vector(tensors.attn_norm(i)),
        qkv=loader.linear(tensors.qkv(i)),
        q_norm=loader.optional(tensors.q_norm(i)),
        k_norm=loader.optional(tensors.k_norm(i)),
        sinks=loader.optional(tensors.sinks(i)),
        o=loader.linear([tensors.o(i)]),
        ffn_norm=loader.vector(tensors.ffn_norm(i)),
        router=None if router is None else loader.linear([router]),
        gate_up=loader.linear(tensors.gate_up(i)),
        down=loader.linear([tensors.down(i)]),
    )


class _Loader:
    """Hands weights to the backend and keeps count."""

    def __init__(self, checkpoint: Checkpoint, ops: Ops, progress: Progress | None) -> None:
        self._checkpoint = checkpoint
        self._ops = ops
        self._progress = progress
        self._done = 0
        self._total = sum(stored_bytes(checkpoint.get(name)) for name in checkpoint.names()) if progress else 0
        self._requantized: Counter[str] = Counter()

    def vector(self, values: np.ndarray) -> Array:
        return self._ops.put_vector(values)

    def optional(self, values: np.ndarray | None) -> Array | None:
        return None if values is None else self.vector(values)

    def linear(self, parts: list[Projection]) -> Linear:
        weights = [part.weight for part in parts]
        bias = None
        if any(part.bias is not None for part in parts):
            bias = np.concatenate([_bias(part) for part in parts], axis=-1)
        handle = self._ops.put(weights, bias)
        for weight in weights:
            if self._ops.requantizes(weight):
                self._requantized[weight.qtype.label] += 1
            self._checkpoint.release(weight)
            self._done += stored_bytes(weight)
        if self._progress:
            self._progress(min(self._done, self._total), self._total)
        return handle

    def report(self) -> None:
        for label, n in self._requantized.items():
            logger.warning(
                "%s: %d %s tensors re-quantized to q8_0, no kernel reads that type",
                self._checkpoint.path.name,
                n,
                label,
            )
        if self._progress:
            self._progress(self._total, self._total)


def stored_bytes(weight: Weight) -> int:
    """Bytes that the weight's own rows take in the file."""
    return weight.n_elements // weight.qtype.block_size * weight.qtype.block_bytes


def _bias(part: Projection) -> np.ndarray:
    return np.zeros(part.weight.shape[:-1], np.float32) if part.bias is None else part.bias
