"""The arrays behind the key-value cache. It does not know which block belongs to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import ModelConfig

KV_DTYPES = {"f16": "float16", "f32": "float32"}


@dataclass(frozen=True, slots=True)
class KvCache:
    """layers[i] = (k [n_blocks, G, D, 16], v [n_blocks, G, 16, D rounded up to 16]): keys lie transposed in a block, so
    that 16 positions make one vector."""

    layers: tuple[tuple[Any, Any], ...]
    n_blocks: int


def block_bytes(config: ModelConfig, kv_type: str) -> int:
    """Bytes of one block of 16 positions over all layers."""
    width = 2 if kv_type == "f16" else 4
    v_dim = -(-config.head_dim // 16) * 16
    return config.n_layers * config.n_kv_heads * BLOCK_SIZE * (config.head_dim + v_dim) * width


def allocate(ops: Ops, config: ModelConfig, n_blocks: int, kv_type: str) -> KvCache:
    """A cache of n_blocks * 16 positions. ValueError for a type that no kernel reads."""
    if kv_type not in KV_DTYPES:
        raise ValueError(f"kv_type must be one of {', '.join(KV_DTYPES)}, not {kv_type!r}")
    v_dim = -(-config.head_dim // 16) * 16
    shapes = (
        (n_blocks, config.n_kv_heads, config.head_dim, BLOCK_SIZE),
        (n_blocks, config.n_kv_heads, BLOCK_SIZE, v_dim),
    )
    dtype = KV_DTYPES[kv_type]
    layers = tuple((ops.empty(shapes[0], dtype), ops.empty(shapes[1], dtype)) for _ in range(config.n_layers))
    return KvCache(layers, n_blocks)
