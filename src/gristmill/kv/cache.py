"""The memory behind the key-value cache, and how much of it there is. It does not know which block belongs to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.ops.interface import BLOCK_SIZE, KvLayer, Ops
from gristmill.types import ModelConfig

KV_TYPES = ("f16", "f32", "q8_0")


@dataclass(frozen=True, slots=True)
class KvCache:
    """layers[i]: the backend's own memory for the keys and values of layer i, which belongs to group groups[i]."""

    layers: tuple[KvLayer, ...]
    groups: tuple[int, ...]


def windows_of(config: ModelConfig) -> tuple[int, ...]:
    """The window of each group of layers that see equally far; 0, for all, comes first."""
    return tuple(sorted(set(config.windows)))


def block_bytes(ops: Ops, config: ModelConfig, kv_type: str, window: int | None = None) -> int:
    """Bytes of one block of 16 positions over all layers, or over those with this window."""
    n_layers = config.n_layers if window is None else config.windows.count(window)
    return n_layers * ops.kv_block_bytes(config.n_kv_heads, config.head_dim, kv_type)


def check_type(config: ModelConfig, kv_type: str) -> None:
    """ValueError for a type that no kernel reads or that does not fit the heads."""
    if kv_type not in KV_TYPES:
        raise ValueError(f"kv_type must be one of {', '.join(KV_TYPES)}, not {kv_type!r}")
    if kv_type == "q8_0" and config.head_dim % 32:
        raise ValueError(
            f"kv_type q8_0 needs heads of a multiple of 32, and this model's have {config.head_dim}: use f16"
        )


@dataclass(frozen=True, slots=True)
class KvPlan:
    """n_blocks[g] blocks for the layers of window windows[g], n_bytes in all."""

    windows: tuple[int, ...]
    n_blocks: tuple[int, ...]
    n_bytes: int


def plan(
    ops: Ops,
    config: ModelConfig,
    kv_type: str,
    max_context: int,
    n_sequences: int,
    step_tokens: int,
    budget: int,
    draft: ModelConfig | None = None,
) -> KvPlan:
    """Blocks for up to n_sequences of max_context tokens each, as far as they fit `budget` bytes.

    A group of layers with a window keeps, of each sequence, its window and what one step adds; so such groups get that
    first and full attention gets the rest. A draft model has a cache of as many blocks of its own. ValueError where not
    even one sequence fits.
    """
    check_type(config, kv_type)
    if draft is not None:
        check_type(draft, kv_type)
    windows = windows_of(config)
    per_context = -(-max_context // BLOCK_SIZE)

    def blocks(window: int, n: int) -> int:  # of n sequences
        if not window:
            return per_context * n
        return min(per_context, window // BLOCK_SIZE + 2) * n + min(per_context * n, step_tokens // BLOCK_SIZE)

    for n in range(n_sequences, 0, -1):
        n_blocks = tuple(blocks(window, n) for window in windows)
        n_bytes = sum(block_bytes(ops, config, kv_type, w) * b for w, b in zip(windows, n_blocks, strict=True))
        n_bytes += block_bytes(ops, draft, kv_type) * n_blocks[0] if draft is not None else 0
        if n_bytes <= budget:
            return KvPlan(windows, n_blocks, n_bytes)
    raise ValueError(
        f"the key-value cache of one sequence of {max_context} tokens takes {n_bytes / 2**20:.0f} MiB as {kv_type}, and"
        f" {budget / 2**20:.0f} MiB may be used: lower the context, choose a smaller kv_type or allow more"
    )


def allocate(ops: Ops, config: ModelConfig, n_blocks: Sequence[int], kv_type: str) -> KvCache:
    """A cache with n_blocks[g] * 16 positions in the layers of group g."""
    check_type(config, kv_type)
    windows = windows_of(config)
    groups = tuple(windows.index(window) for window in config.windows)
    made = [
        iter(ops.kv_layers(groups.count(g), n_blocks[g], config.n_kv_heads, config.head_dim, kv_type))
        for g in range(len(windows))
    ]
    return KvCache(tuple(next(made[g]) for g in groups), groups)
