"""Reads llama2.c's `.bin` checkpoints: v0 (no magic), v1 (float32) and v2 (int8 groups). Owns header, order and sizes.

Format: github.com/karpathy/llama2.c, export.py writes it, run.c (v0) and runq.c (v2) read it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.formats.checkpoint import Weight, bad_file, shown
from gristmill.formats.mapped import MappedFile, release_weight
from gristmill.formats.qtypes import QType

MAGIC = struct.pack("<I", 0x616B3432)
HEADER_BYTES_V0 = 28
HEADER_BYTES = 256  # v1 and v2

# Far above any real model, low enough that names and sizes are computed in an instant.
_LIMITS = {
    "dim": 1 << 20,
    "hidden_dim": 1 << 22,
    "n_layers": 1 << 12,
    "n_heads": 1 << 16,
    "n_kv_heads": 1 << 16,
    "vocab_size": 1 << 24,
    "max_seq_len": 1 << 28,
}
_NOT_LLAMA2C = "not a llama2.c checkpoint, or a damaged one: export the model again with llama2.c's export.py"


@dataclass(frozen=True, slots=True)
class _Header:
    dim: int
    hidden_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    max_seq_len: int
    version: int
    group_size: int  # 0 where nothing is quantized
    shared_classifier: bool

    @property
    def head_dim(self) -> int:
        return self.dim // self.n_heads


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    shape: tuple[int, ...]
    n_bytes: int  # of the numbers; scales follow where quantized
    quantized: bool


class Llama2cCheckpoint:
    """One llama2.c `.bin`. Names are those of Meta's state dict: `layers.0.attention.wq.weight`, `norm.weight`, ...

    `output.weight` is absent when the classifier shares the embedding. Raises ModelFormatError unless header and file
    size agree to the byte.
    """

    format = "llama2c"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = MappedFile(path)
        header = _read_header(self._file)
        self.metadata: Mapping[str, Any] = {name: getattr(header, name) for name in header.__slots__}
        self._entries = dict(_layout(header, self._file))

    def names(self) -> Iterable[str]:
        return self._entries.keys()

    def get(self, name: str) -> Weight:
        entry = self._entries[name]
        if not entry.quantized:
            return Weight(name, self._file.view(entry.offset, entry.n_bytes, 4), QType.F32, entry.shape)
        data = self._file.view(entry.offset, entry.n_bytes)
        n_groups = entry.n_bytes // self.metadata["group_size"]
        scales = self._file.view(entry.offset + entry.n_bytes, 4 * n_groups, 4).view("<f4")
        return Weight(name, data, QType.Q8_GROUPS, entry.shape, scales)

    def release(self, weight: Weight) -> None:
        release_weight([self._file], weight)

    def release_all(self) -> None:
        self._file.release_all()


def is_plausible_v0(start: bytes) -> bool:
    """Whether a file that begins with these 28 bytes can be v0, which has no magic to tell."""
    if len(start) < HEADER_BYTES_V0:
        return False
    values = [abs(v) if name == "vocab_size" else v for name, v in zip(_LIMITS, _ints(start, 0), strict=True)]
    return all(1 <= v <= limit for v, limit in zip(values, _LIMITS.values(), strict=True))


def _ints(buffer: Any, offset: int) -> tuple[int, ...]:
    return struct.unpack_from("<7i", buffer, offset)


def _read_header(file: MappedFile) -> _Header:
    versioned = file.buffer[:4] == MAGIC
    n_bytes = HEADER_BYTES if versioned else HEADER_BYTES_V0
    if file.size < n_bytes:
        raise bad_file(file.path, "header", f"needs {n_bytes} bytes, the file has {file.size}")
    fields = dict(zip(_LIMITS, _ints(file.buffer, 8 if versioned else 0), strict=True))
    version, group_size, shared = 0, 0, fields["vocab_size"] > 0
    if versioned:
        version, flag, group_size = _read_version(file)
        shared = bool(flag)
    else:
        fields["vocab_size"] = abs(fields["vocab_size"])  # v0 says "own classifier" by a negative vocab_size
    for name, limit in _LIMITS.items():
        if not 1 <= fields[name] <= limit:
            raise bad_file(file.path, name, f"is {fields[name]}, must be 1 to {limit}", _NOT_LLAMA2C)
    header = _Header(**fields, version=version, group_size=group_size, shared_classifier=shared)
    _check_heads(header, file.path)
    return header


def _read_version(file: MappedFile) -> tuple[int, int, int]:
    """(version, shared_classifier flag, group_size) of a file with the magic."""
    (version,) = struct.unpack_from("<i", file.buffer, 4)
    if version not in (1, 2):
        raise bad_file(file.path, "version", f"is {version}, gristmill reads 0, 1 and 2", _NOT_LLAMA2C)
    flag, group_size = struct.unpack_from("<Bi", file.buffer, 36)
    if flag not in (0, 1):
        raise bad_file(file.path, "shared_classifier", f"is {flag}, must be 0 or 1")
    if version == 1:
        return version, flag, 0
    if not 1 <= group_size <= 1 << 20:
        raise bad_file(file.path, "group_size", f"is {group_size}, must be 1 to {1 << 20}", _NOT_LLAMA2C)
    return version, flag, group_size


def _check_heads(h: _Header, path: Path) -> None:
    if h.dim % h.n_heads or h.head_dim % 2:
        raise bad_file(path, "n_heads", f"is {h.n_heads}, which does not split dim {h.dim} into heads of even width")
    if h.n_heads % h.n_kv_heads:
        raise bad_file(path, "n_kv_heads", f"is {h.n_kv_heads}, which does not divide n_heads {h.n_heads}")


def _tensors(h: _Header) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the file's order; a pair with an empty name is v0's rotary tables, which nothing uses."""
    kv_dim = h.n_kv_heads * h.head_dim
    embedding: tuple[str, tuple[int, ...]] = ("tok_embeddings.weight", (h.vocab_size, h.dim))
    attention = {"wq": (h.dim, h.dim), "wk": (kv_dim, h.dim), "wv": (kv_dim, h.dim), "wo": (h.dim, h.dim)}
    ffn = {"w1": (h.hidden_dim, h.dim), "w2": (h.dim, h.hidden_dim), "w3": (h.hidden_dim, h.dim)}

    def layers(part: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        return ((f"layers.{i}.{part}.weight", shape) for i in range(h.n_layers))

    if h.version == 0:
        yield embedding
        yield from layers("attention_norm", (h.dim,))
    else:
        yield from layers("attention_norm", (h.dim,))
        yield from layers("ffn_norm", (h.dim,))
        yield "norm.weight", (h.dim,)
        yield embedding
    for name, shape in attention.items():
        yield from layers(f"attention.{name}", shape)
    if h.version == 0:
        yield from layers("ffn_norm", (h.dim,))
    for name, shape in ffn.items():
        yield from layers(f"feed_forward.{name}", shape)
    if h.version == 0:
        yield "norm.weight", (h.dim,)
        yield "", (2, h.max_seq_len, h.head_dim // 2)
    if not h.shared_classifier:
        yield "output.weight", (h.vocab_size, h.dim)


def _layout(h: _Header, file: MappedFile) -> Iterator[tuple[str, _Entry]]:
    """Where each tensor lies. Raises ModelFormatError when they do not fill the file exactly."""
    offset = HEADER_BYTES if h.version else HEADER_BYTES_V0
    for name, shape in _tensors(h):
        n = math.prod(shape)
        quantized = h.version == 2 and len(shape) > 1
        if quantized and n % h.group_size:
            raise bad_file(
                file.path, "group_size", f"is {h.group_size}, which does not divide the {n} numbers of {shown(name)}"
            )
        n_bytes = n if quantized else 4 * n
        if name:
            yield name, _Entry(offset, shape, n_bytes, quantized)
        offset += n_bytes + (4 * (n // h.group_size) if quantized else 0)
    if offset != file.size:
        raise bad_file(file.path, "file size", f"is {file.size} bytes, its header asks for exactly {offset}")
