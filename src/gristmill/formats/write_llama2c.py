"""Writes llama2.c's `.bin` checkpoints, version 0, 1 (both float32) or 2 (int8 in groups). Knows header and order.

Format: github.com/karpathy/llama2.c, export.py; run.c reads version 0, runq.c version 2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.formats.checkpoint import shown
from gristmill.formats.llama2c import HEADER_BYTES, MAGIC
from gristmill.formats.write_file import new_file, write_all

Produce = Callable[[str, int], Iterable[Any]]
_LARGEST_GROUP = 64


@dataclass(frozen=True, slots=True)
class Llama2cShape:
    """The header's numbers. tied: the classifier is the embedding."""

    dim: int
    hidden_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    max_seq_len: int
    tied: bool

    @property
    def head_dim(self) -> int:
        return self.dim // self.n_heads

    @property
    def group_size(self) -> int:
        """As export.py has it, 64 or the next power of two that divides rows; here those of the way down as well."""
        return math.gcd(self.dim, self.hidden_dim, _LARGEST_GROUP)


def write_llama2c(path: Path, version: int, shape: Llama2cShape, produce: Produce) -> int:
    """Write `path` whole or not at all; its size in bytes.

    produce(name, group)  the bytes of a tensor under Meta's name: float32 where group is 0, otherwise int8 and then the
                          float32 scales of groups of so many numbers
    """
    group = shape.group_size if version == 2 else 0
    tensors = list(_tensors(shape, version))
    header = _header(shape, version)
    n_bytes = len(header) + sum(_n_bytes(size, group) for _, size in tensors)
    with new_file(path, n_bytes) as file:
        write_all(file, header)
        for name, size in tensors:
            grouped = group if len(size) > 1 else 0
            pieces = produce(name, grouped) if name else _rotary_tables(shape)
            made = sum(write_all(file, piece) for piece in pieces)
            if made != _n_bytes(size, grouped):
                raise ValueError(f"tensor {shown(name)}: {made} bytes were made, {_n_bytes(size, grouped)} are needed")
    return n_bytes


def _n_bytes(size: tuple[int, ...], group: int) -> int:
    n = math.prod(size)
    return n + 4 * (n // group) if group and len(size) > 1 else 4 * n


def _header(s: Llama2cShape, version: int) -> bytes:
    numbers = [s.dim, s.hidden_dim, s.n_layers, s.n_heads, s.n_kv_heads]
    if version == 0:
        return struct.pack("<7i", *numbers, s.vocab_size if s.tied else -s.vocab_size, s.max_seq_len)
    header = MAGIC + struct.pack("<i7iB", version, *numbers, s.vocab_size, s.max_seq_len, s.tied)
    if version == 2:
        header += struct.pack("<i", s.group_size)
    return header.ljust(HEADER_BYTES, b"\0")


def _tensors(s: Llama2cShape, version: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the file's order; an empty name stands for version 0's rotary tables."""
    kv_dim = s.n_kv_heads * s.head_dim
    matrices = {
        "attention.wq": (s.dim, s.dim),
        "attention.wk": (kv_dim, s.dim),
        "attention.wv": (kv_dim, s.dim),
        "attention.wo": (s.dim, s.dim),
        "feed_forward.w1": (s.hidden_dim, s.dim),
        "feed_forward.w2": (s.dim, s.hidden_dim),
        "feed_forward.w3": (s.hidden_dim, s.dim),
    }
    norms = ("attention_norm", "ffn_norm")
    embedding, norm = ("tok_embeddings.weight", (s.vocab_size, s.dim)), ("norm.weight", (s.dim,))
    parts: list[str] = [*norms, "norm", "embedding", *matrices]
    if version == 0:
        attention, ffn = list(matrices)[:4], list(matrices)[4:]
        parts = ["embedding", norms[0], *attention, norms[1], *ffn, "norm", "tables"]
    for part in parts:
        if part == "embedding":
            yield embedding
        elif part == "norm":
            yield norm
        elif part == "tables":
            yield "", (2, s.max_seq_len, s.head_dim // 2)
        else:
            for i in range(s.n_layers):
                yield f"layers.{i}.{part}.weight", matrices.get(part, (s.dim,))
    if not s.tied:
        yield "output.weight", (s.vocab_size, s.dim)


def _rotary_tables(s: Llama2cShape) -> Iterator[Any]:
    """cos and sin [max_seq_len, head_dim / 2], which version 0 holds and nothing reads."""
    inverse = 1.0 / 10000.0 ** (np.arange(0, s.head_dim, 2) / s.head_dim)
    angles = np.arange(s.max_seq_len)[:, None] * inverse
    yield np.cos(angles).astype("<f4")
    yield np.sin(angles).astype("<f4")
