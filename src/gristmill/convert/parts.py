"""A model's tensors under the names, and in the order of rows, of the format that is written. Reads no numbers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Checkpoint, Weight
from gristmill.formats.qtypes import QType
from gristmill.models.families import Names, Projection, Tensors
from gristmill.types import ModelConfig


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor to write; one for each expert where `name` has {e} for its number. qtype: as it is stored now.

    get  gives it, again each time, since some are copies: one weight, or several whose rows are to come in turn
    """

    name: str
    qtype: QType
    shape: tuple[int, ...]
    get: Callable[[], tuple[Weight, ...]]


def list_parts(checkpoint: Checkpoint, config: ModelConfig, names: Names) -> list[Part]:
    """Every tensor of the model, under the names of `names`. ModelFormatError where one is missing, has another shape
    than the configuration says, or belongs to no such model."""
    described, tensors = Tensors(checkpoint, config, copies=False), Tensors(checkpoint, config)
    layer = functools.lru_cache(maxsize=1)(functools.partial(_layer, tensors, config, names))
    parts = [_part(names.embed, (described.embed().weight,), lambda: {names.embed: (tensors.embed().weight,)})]
    for i in range(config.n_layers):
        found = _layer(described, config, names, i)
        parts += [_part(name, weights, functools.partial(layer, i)) for name, weights in found.items()]
    norm = _vector(names.norm, described.norm())
    parts.append(_part(names.norm, norm, lambda: {names.norm: norm}))
    if not config.tied_head:
        parts.append(_part(names.head, (described.head().weight,), lambda: {names.head: (tensors.head().weight,)}))
    described.check_unused()
    return parts


def _part(name: str, weights: tuple[Weight, ...], group: Callable[[], dict[str, tuple[Weight, ...]]]) -> Part:
    """weights: perhaps without their numbers, which are in the group's."""
    shape = weights[0].shape
    if len(weights) > 1:
        shape = (*shape[:-2], len(weights) * shape[-2], shape[-1])
    return Part(name, weights[0].qtype, shape, lambda: group()[name])


def _layer(tensors: Tensors, config: ModelConfig, names: Names, i: int) -> dict[str, tuple[Weight, ...]]:
    found: dict[str, tuple[Weight, ...]] = {}
    for name, projections in _projections(tensors, config, names, i):
        name = name.replace("{i}", str(i))
        found[name] = tuple(projection.weight for projection in projections)
        biases = [projection.bias for projection in projections if projection.bias is not None]
        if biases:
            found[names.bias(name)] = _vector(names.bias(name), _in_turn(biases))
    vectors: list[tuple[str | None, NDArray[np.float32] | None]] = [
        (names.attn_norm, tensors.attn_norm(i)),
        (names.ffn_norm, tensors.ffn_norm(i)),
        (names.q_norm, tensors.q_norm(i)),
        (names.k_norm, tensors.k_norm(i)),
        (names.sinks, tensors.sinks(i)),
    ]
    for template, values in vectors:
        if values is not None:
            assert template is not None, "only names of formats without such a thing are None"
            name = template.format(i=i)
            found[name] = _vector(name, values)
    return found


def _projections(
    tensors: Tensors, config: ModelConfig, names: Names, i: int
) -> Iterator[tuple[str, tuple[Projection, ...]]]:
    q, k, v = _split(tensors.qkv(i), config)
    if names.paired_rope:
        q, k = _paired(q, config.n_heads, config.head_dim), _paired(k, config.n_kv_heads, config.head_dim)
    yield names.q, (q,)
    yield names.k, (k,)
    yield names.v, (v,)
    yield names.o, (tensors.o(i),)
    if config.moe is not None:
        assert names.router is not None, "families with experts have a name for it"
        yield names.router, (tensors.router(i),)
    gate, up = tensors.gate_up(i)
    if names.gate_up is not None:
        yield names.gate_up, (gate, up)
    else:
        yield names.gate, (gate,)
        yield names.up, (up,)
    yield names.down, (tensors.down(i),)


def _split(qkv: list[Projection], config: ModelConfig) -> list[Projection]:
    """q, k and v, also where the file has them in one."""
    if len(qkv) > 1:
        return qkv
    n_q, n_kv = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    ends = (0, n_q, n_q + n_kv, n_q + 2 * n_kv)
    return [_take(qkv[0], np.arange(a, b)) for a, b in itertools.pairwise(ends)]


def _paired(projection: Projection, n_heads: int, head_dim: int) -> Projection:
    """Rows (i, i + head_dim / 2) of each head as neighbours (2 i, 2 i + 1)."""
    within = np.arange(head_dim).reshape(2, -1).T.reshape(-1)
    return _take(projection, (np.arange(n_heads)[:, None] * head_dim + within).reshape(-1))


def _take(projection: Projection, order: NDArray[np.int64]) -> Projection:
    bias = None if projection.bias is None else np.ascontiguousarray(projection.bias[..., order])
    return Projection(projection.weight.take_rows(order.astype(np.int32)), bias)


def _in_turn(biases: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """[.., n] each -> [.., len(biases) n]: the first of each, the second of each, and so on."""
    return np.stack(biases, axis=-1).reshape(*biases[0].shape[:-1], -1)


def _vector(name: str, values: NDArray[np.float32]) -> tuple[Weight]:
    values = np.ascontiguousarray(values, dtype="<f4")
    return (Weight(name, values.reshape(-1).view(np.uint8), QType.F32, values.shape),)
