"""The memory behind the key-value cache. It does not know which block belongs to whom."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gristmill.ops.interface import BLOCK_SIZE, KvLayer, Ops
from gristmill.types import ModelConfig

KV_TYPES = ("f16", "f32", "q8_0")


@dataclass(frozen=True, slots=True)
class KvCache:
    """layers[i]: the backend's own memory for the keys and values of layer i."""

    layers: tuple[KvLayer, ...]
    n_blocks: int


def block_bytes(config: ModelConfig, kv_type: str) -> int:
    """Bytes of one block of 16 positions over all layers."""
    widths = {"f16": 2 * BLOCK_SIZE, "f32": 4 * BLOCK_SIZE, "q8_0": BLOCK_SIZE + BLOCK_SIZE // 16}
    v_dim = -(-config.head_dim // 16) * 16
    return config.n_layers * config.n_kv_heads * (config.head_dim + v_dim) * widths[kv_type]


def allocate(ops: Ops, config: ModelConfig, n_blocks: int, kv_type: str) -> KvCache:
    """A cache of n_blocks * 16 positions. ValueError for a type that no kernel reads or that does not fit the heads."""
    if kv_type not in KV_TYPES:
        raise ValueError(f"kv_type must be one of {', '.join(KV_TYPES)}, not {kv_type!r}")
    if kv_type == "q8_0" and config.head_dim % 32:
        raise ValueError(
            f"kv_type q8_0 needs heads of a multiple of 32, and this model's have {config.head_dim}: use f16"
        )
    layer = partial(ops.kv_layer, n_blocks, config.n_kv_heads, config.head_dim, kv_type)
    return KvCache(tuple(layer() for _ in range(config.n_layers)), n_blocks)
