"""Writes one .safetensors file; tensors come from producers one after another. Knows no model.

Format: github.com/huggingface/safetensors, README "Format".
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.formats.checkpoint import shown
from gristmill.formats.qtypes import QType
from gristmill.formats.write_file import write_all
from gristmill.formats.write_gguf import NewTensor

_DTYPES = {QType.F32: "F32", QType.F16: "F16", QType.BF16: "BF16"}
_ALIGNMENT = 8


class NewBytes(NamedTuple):
    """A tensor of uint8 to write, whatever they mean; shape and produce() as of NewTensor."""

    name: str
    shape: tuple[int, ...]
    produce: Callable[[], Iterable[Any]]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape)


def safetensors_bytes(tensors: Sequence[NewTensor | NewBytes]) -> int:
    """How large `write_safetensors` will make the file."""
    return len(_header(tensors)) + sum(tensor.n_bytes for tensor in tensors)


def write_safetensors(path: Path, tensors: Sequence[NewTensor | NewBytes]) -> int:
    """Write `path`, in a folder that is put in place when complete; its size. ValueError for blocks of other types."""
    with path.open("xb") as file:
        n_bytes = write_all(file, _header(tensors))
        for tensor in tensors:
            made = sum(write_all(file, piece) for piece in tensor.produce())
            if made != tensor.n_bytes:
                raise ValueError(f"tensor {shown(tensor.name)}: {made} bytes were made, {tensor.n_bytes} are needed")
            n_bytes += made
    return n_bytes


def _header(tensors: Sequence[NewTensor | NewBytes]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.n_bytes
        entries[tensor.name] = {"dtype": _dtype(tensor), "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % _ALIGNMENT)
    return struct.pack("<Q", len(raw)) + raw


def _dtype(tensor: NewTensor | NewBytes) -> str:
    if isinstance(tensor, NewBytes):
        return "U8"
    if tensor.qtype not in _DTYPES:
        raise ValueError(f"tensor {shown(tensor.name)}: safetensors has no type {tensor.qtype.label}")
    return _DTYPES[tensor.qtype]
