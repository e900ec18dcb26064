"""From a checkpoint to a Decoder on a backend: every tensor checked, handed over, and its pages let go."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.models.decoder import Decoder, Layer
from gristmill.models.families import NO_HEAD, Projection, Tensors, is_idle, with_head
from gristmill.models.hyperparameters import read_config
from gristmill.ops.interface import Array, Linear, Ops
from gristmill.types import ModelConfig

logger = logging.getLogger(__name__)
Progress = Callable[[int, int], None]

_BYTES_AT_ONCE = 8 << 20  # of the file: between two signs of progress, and in memory beside what is kept


def build(checkpoint: Checkpoint, ops: Ops, progress: Progress | None = None, quantize: QType | None = None) -> Decoder:
    """The model, ready to run. progress(bytes done, bytes in all) is called as matrices are packed.

    quantize: a type of `quantize_type` for the dense matrices that are floats: projections of attention and of a
    feed-forward network without experts, and the head. The embedding stays as it is stored unless it is the head too.
    ModelFormatError, before the long work: see `check`.
    """
    config = check(checkpoint)
    if config.tied_head and not read_config(checkpoint).tied_head:
        logger.warning(NO_HEAD, checkpoint.path.name)
    tensors = Tensors(checkpoint, config)
    loader = _Loader(checkpoint, ops, progress, quantize)
    norm = ops.put_vector(tensors.norm())
    unfinished = [_vectors_of_layer(tensors, config, ops, i) for i in range(config.n_layers)]
    linears = iter(loader.linears(_stacks(tensors, config)))
    embed = next(linears)
    layers = tuple(_with_matrices(layer, config, linears) for layer in unfinished)
    head = embed if config.tied_head else next(linears)
    ops.finish_put()
    loader.report()
    return Decoder(config, embed, layers, norm, head)


def check(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of a model that can be built. Reads its vectors and no matrix.

    ModelFormatError when a tensor is missing, has another shape than the configuration says, or is not expected at all.
    """
    config = with_head(checkpoint, read_config(checkpoint))
    tensors = Tensors(checkpoint, config, copies=False)
    tensors.norm()
    for vector in (tensors.attn_norm, tensors.q_norm, tensors.k_norm, tensors.sinks, tensors.ffn_norm):
        for i in range(config.n_layers):
            vector(i)
    for _ in _stacks(tensors, config):
        pass
    tensors.check_unused()
    return config


def _stacks(tensors: Tensors, config: ModelConfig) -> Iterator[tuple[list[Projection], bool]]:
    """Every matrix of the model, in the order in which `build` and `_with_matrices` take them, and whether it is a
    dense one that may be quantized; made only as they are asked for, since some are copies."""
    yield [tensors.embed()], config.tied_head
    dense = config.moe is None
    for i in range(config.n_layers):
        yield tensors.qkv(i), True
        yield [tensors.o(i)], True
        if config.moe is not None:
            router = tensors.router(i)
            yield [_exact(router) if tensors.copies else router], False
        yield tensors.gate_up(i), dense
        yield [tensors.down(i)], dense
    if not config.tied_head:
        yield [tensors.head()], True


def _exact(router: Projection) -> Projection:
    """In float32, which meets activations that are not rounded: a last bit may decide which experts compute."""
    weight = router.weight
    values = np.ascontiguousarray(dequantize(weight), "<f4")
    return replace(router, weight=Weight(weight.name, values.reshape(-1).view(np.uint8), QType.F32, weight.shape))


def _vectors_of_layer(tensors: Tensors, config: ModelConfig, ops: Ops, i: int) -> Callable[..., Layer]:
    """A layer but for its matrices. Vectors come first: that one is missing is said before the long work."""

    def optional(values: np.ndarray | None) -> Array | None:
        return None if values is None else ops.put_vector(values)

    return partial(
        Layer,
        attn_norm=ops.put_vector(tensors.attn_norm(i)),
        q_norm=optional(tensors.q_norm(i)),
        k_norm=optional(tensors.k_norm(i)),
        sinks=optional(tensors.sinks(i)),
        ffn_norm=ops.put_vector(tensors.ffn_norm(i)),
    )


def _with_matrices(layer: Callable[..., Layer], config: ModelConfig, linears: Iterator[Linear]) -> Layer:
    return layer(
        qkv=next(linears),
        o=next(linears),
        router=None if config.moe is None else next(linears),
        gate_up=next(linears),
        down=next(linears),
    )


class _Loader:
    """Hands weights to the backend and keeps count."""

    def __init__(self, checkpoint: Checkpoint, ops: Ops, progress: Progress | None, quantize: QType | None) -> None:
        self._checkpoint = checkpoint
        self._ops = ops
        self._progress = progress
        self._done = 0
        self._total = sum(stored_bytes(checkpoint.get(name)) for name in checkpoint.names()) if progress else 0
        self._quantize = quantize
        self._requantized: Counter[str] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()

    def linears(self, stacks: Iterable[tuple[list[Projection], bool]]) -> list[Linear]:
        """Handles of all stacks, in order. Small matrices go to the backend together: its threads share them out."""
        handles: list[Linear] = []
        waiting: list[list[Projection]] = []
        n_bytes = 0
        for parts, dense in stacks:
            if dense and self._quantize:
                parts = [self._quantized(part, self._quantize) for part in parts]
            waiting.append(parts)
            n_bytes += sum(stored_bytes(part.weight) for part in parts)
            if n_bytes >= _BYTES_AT_ONCE:
                handles += self._put(waiting)
                waiting, n_bytes = [], 0
        return handles + self._put(waiting)

    def _quantized(self, part: Projection, target: QType) -> Projection:
        weight = part.weight.quantized_to(target)
        if weight.quantize_to is None and weight.qtype is not target:
            self._kept[weight.qtype.label, target.label] += 1
        return replace(part, weight=weight)

    def _put(self, stacks: list[list[Projection]]) -> list[Linear]:
        handles = self._ops.put_all([([part.weight for part in parts], _joined_bias(parts)) for parts in stacks])
        for weights in ([part.weight for part in parts] for parts in stacks):
            self._requantized.update(weight.qtype.label for weight in self._ops.requantized(weights))
            for weight in weights:
                self._checkpoint.release(weight)
                self._done += stored_bytes(weight)
        if self._progress:
            self._progress(min(self._done, self._total), self._total)
        return handles

    def report(self) -> None:
        for label, n in self._requantized.items():
            logger.warning(
                "%s: %d %s tensors re-quantized to q8_0, no kernel reads them as they are",
                self._checkpoint.path.name,
                n,
                label,
            )
        for (label, target), n in self._kept.items():
            logger.warning(
                "%s: %d %s tensors not quantized to %s, only floats in rows of a multiple of 32 are",
                self._checkpoint.path.name,
                n,
                label,
                target,
            )
        if self._progress:
            self._progress(self._total, self._total)


def bytes_as_loaded(checkpoint: Checkpoint, config: ModelConfig, target: QType | None, n_exact: int) -> dict[str, int]:
    """Bytes of all tensors by type that are kept once `build` has quantized them to `target`, if there is one.

    n_exact: matrices of up to so many elements are kept as they are (see `CpuOps`).
    """
    changes: Counter[str] = Counter()
    config = with_head(checkpoint, config)
    if target is not None:
        for parts, dense in _stacks(Tensors(checkpoint, config, copies=False), config):
            for weight in (part.weight for part in parts if dense):
                quantized = weight.quantized_to(target)
                if quantized.quantize_to is None or weight.n_elements <= n_exact:
                    continue
                changes[weight.qtype.label] -= kept_bytes(weight)
                changes[target.label] += kept_bytes(quantized)
    for name in checkpoint.names():
        if is_idle(name, config.tied_head):
            continue
        weight = checkpoint.get(name)
        changes[weight.qtype.label] += kept_bytes(weight) + scale_bytes(weight)
    return {label: n for label, n in changes.items() if n > 0}


def kept_bytes(weight: Weight) -> int:
    """Bytes that the weight takes as what it is to become, the scales of its rows included."""
    qtype = weight.quantize_to or weight.qtype
    *_, cols = 1, *weight.shape  # of a scalar, which is in no model but may be in a file, 1
    if cols % qtype.row_multiple:
        qtype = QType.Q8_0
    scales = 4 * (weight.n_elements // cols) if qtype is QType.INT8_ROWS else 0
    return weight.n_elements // qtype.block_size * qtype.kept_bytes + scales


def scale_bytes(weight: Weight) -> int:
    """Bytes of the scales that are kept apart from its rows: of NVFP4 and FP8, none."""
    return 0 if weight.scales is None or weight.qtype in (QType.NVFP4, QType.FP8_GROUPS) else weight.scales.nbytes


def stored_bytes(weight: Weight) -> int:
    """Bytes that the weight's own rows take in the file."""
    return weight.n_elements // weight.qtype.block_size * weight.qtype.block_bytes


def _joined_bias(parts: list[Projection]) -> np.ndarray | None:
    if all(part.bias is None for part in parts):
        return None
    biases = [np.zeros(p.weight.shape[:-1], np.float32) if p.bias is None else p.bias for p in parts]
    return np.concatenate(biases, axis=-1)
