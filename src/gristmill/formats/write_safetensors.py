"""Writes one .safetensors file; tensors come from producers one after another. Knows no model.

Format: github.com/huggingface/safetensors, README "Format".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path

from gristmill.formats.checkpoint import shown
from gristmill.formats.qtypes import QType
from gristmill.formats.write_file import write_all
from gristmill.formats.write_gguf import NewTensor

_DTYPES = {QType.F32: "F32", QType.F16: "F16", QType.BF16: "BF16"}
_ALIGNMENT = 8


def safetensors_bytes(tensors: Iterable[NewTensor]) -> int:
    """How large `write_safetensors` will make the file."""
    tensors = list(tensors)
    return len(_header(tensors)) + sum(tensor.n_bytes for tensor in tensors)


def write_safetensors(path: Path, tensors: Iterable[NewTensor]) -> int:
    """Write `path`, in a folder that is put in place when complete; its size. ValueError for other than floats."""
    tensors = list(tensors)
    with path.open("xb") as file:
        n_bytes = write_all(file, _header(tensors))
        for tensor in tensors:
            made = sum(write_all(file, piece) for piece in tensor.produce())
            if made != tensor.n_bytes:
                raise ValueError(f"tensor {shown(tensor.name)}: {made} bytes were made, {tensor.n_bytes} are needed")
            n_bytes += made
    return n_bytes


def _header(tensors: list[NewTensor]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        if tensor.qtype not in _DTYPES:
            raise ValueError(f"tensor {shown(tensor.name)}: safetensors has no type {tensor.qtype.label}")
        end = offset + tensor.n_bytes
        entries[tensor.name] = {
            "dtype": _DTYPES[tensor.qtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % _ALIGNMENT)
    return struct.pack("<Q", len(raw)) + raw
