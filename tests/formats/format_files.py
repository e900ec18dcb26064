"""Writes small model files byte by byte, as the formats' specifications say, for the tests of the readers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
LLAMA2C_MAGIC = 0x616B3432


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def text(raw: bytes) -> bytes:
    """A GGUF string."""
    return u64(len(raw)) + raw


def key(name: bytes, value_type: int, payload: bytes) -> bytes:
    """A GGUF key-value."""
    return text(name) + u32(value_type) + payload


def strings(items: Sequence[bytes]) -> bytes:
    """The payload of an ARRAY of STRING."""
    return u32(STRING) + u64(len(items)) + b"".join(map(text, items))


def tensor(name: bytes, dims: Sequence[int], type_id: int, offset: int) -> bytes:
    """A GGUF tensor description; dims innermost first."""
    return text(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(type_id) + u64(offset)


def gguf(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
    pad: bool = True,
) -> bytes:
    """A GGUF file; counts may lie."""
    counts = u64(len(tensors) if n_tensors is None else n_tensors) + u64(len(keys) if n_keys is None else n_keys)
    front = b"GGUF" + u32(version) + counts + b"".join(keys) + b"".join(tensors)
    return front + (b"\0" * (-len(front) % alignment) if pad else b"") + data


def good_gguf() -> bytes:
    """A sound GGUF with a vocabulary, numbers, and tensors of five types."""
    keys = [
        key(b"general.architecture", STRING, text(b"llama")),
        key(b"general.alignment", U32, u32(32)),
        key(b"tokens", ARRAY, strings([b"a", b"", b"bc" * 200, b"\xff\xfe", b"\0" * 9, b"end"])),
        key(b"scores", ARRAY, u32(F32) + u64(3) + struct.pack("<3f", 1, 2, 3)),
        key(b"flag", BOOL, b"\1"),
        key(b"big", U64, u64(1 << 40)),
    ]
    tensors, data = [], b""
    for name, dims, type_id, n_bytes in (
        (b"norm", [8], 0, 32),
        (b"half", [4, 3], 1, 24),
        (b"q8", [32, 2], 8, 68),
        (b"q4k", [256, 1], 12, 144),
        (b"experts", [32, 2, 2], 39, 68),
    ):
        data += b"\0" * (-len(data) % 32)
        tensors.append(tensor(name, dims, type_id, len(data)))
        data += bytes((7 * i + 1) % 120 for i in range(n_bytes))
    return gguf(keys, tensors, data)


def safetensors(header: Mapping[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file; the length may lie."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return u64(len(raw) if length is None else length) + raw + data


def entry(dtype: Any, shape: Any, start: Any, stop: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def good_safetensors() -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": entry("F32", [2, 4], 0, 32),
        "b": entry("BF16", [4], 32, 40),
        "e_blocks": entry("U8", [1, 2, 1, 16], 40, 72),
        "e_scales": entry("U8", [1, 2, 1], 72, 74),
    }
    return safetensors(header, bytes(range(74)))


def folder(path: Path, files: Mapping[str, bytes | Mapping[str, Any]]) -> Path:
    """A folder with these files; mappings are written as JSON."""
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def llama2c_header(version: int, fields: Sequence[int], shared: int = 1, group_size: int = 0) -> bytes:
    """fields: dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len (v0's sign as given)."""
    if version == 0:
        return struct.pack("<7i", *fields)
    front = struct.pack("<Ii7iBi", LLAMA2C_MAGIC, version, *fields, shared, group_size)
    return front.ljust(256, b"\0")


LLAMA2C_FIELDS = (8, 12, 2, 2, 1, 20, 16)


def llama2c_shapes(fields: Sequence[int], shared: bool) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the state dict of llama2.c's model.py."""
    dim, hidden, n_layers, n_heads, n_kv_heads, vocab, _ = (abs(n) for n in fields)
    kv = dim // n_heads * n_kv_heads
    shapes: dict[str, tuple[int, ...]] = {"tok_embeddings.weight": (vocab, dim)}
    for i in range(n_layers):
        shapes |= {
            f"layers.{i}.attention.wq.weight": (dim, dim),
            f"layers.{i}.attention.wk.weight": (kv, dim),
            f"layers.{i}.attention.wv.weight": (kv, dim),
            f"layers.{i}.attention.wo.weight": (dim, dim),
            f"layers.{i}.feed_forward.w1.weight": (hidden, dim),
            f"layers.{i}.feed_forward.w2.weight": (dim, hidden),
            f"layers.{i}.feed_forward.w3.weight": (hidden, dim),
            f"layers.{i}.attention_norm.weight": (dim,),
            f"layers.{i}.ffn_norm.weight": (dim,),
        }
    shapes["norm.weight"] = (dim,)
    return shapes if shared else shapes | {"output.weight": (vocab, dim)}


def llama2c_state(fields: Sequence[int], shared: bool, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype("<f4") for name, shape in llama2c_shapes(fields, shared).items()}


def llama2c_v0(fields: Sequence[int], state: Mapping[str, np.ndarray]) -> bytes:
    """legacy_export: embedding, one kind of layer tensor after the other, norm, two rotary tables, own classifier."""
    dim, _, n_layers, n_heads, _, vocab, seq = fields
    shared = "output.weight" not in state
    kinds = ["attention_norm", *(f"attention.w{k}" for k in "qkvo"), "ffn_norm"]
    kinds += [f"feed_forward.w{n}" for n in (1, 2, 3)]
    names = ["tok_embeddings.weight", *(f"layers.{i}.{kind}.weight" for kind in kinds for i in range(n_layers))]
    body = b"".join(state[name].tobytes() for name in [*names, "norm.weight"])
    tables = np.full((2, seq, dim // n_heads // 2), np.nan, dtype="<f4").tobytes()
    sign = 1 if shared else -1
    header = llama2c_header(0, (*fields[:5], sign * vocab, seq))
    return header + body + tables + (b"" if shared else state["output.weight"].tobytes())


def _versioned_order(n_layers: int, shared: bool) -> tuple[list[str], list[str]]:
    norms = [f"layers.{i}.{kind}.weight" for kind in ("attention_norm", "ffn_norm") for i in range(n_layers)]
    kinds = [*(f"attention.w{k}" for k in "qkvo"), *(f"feed_forward.w{n}" for n in (1, 2, 3))]
    rest = ["tok_embeddings.weight", *(f"layers.{i}.{kind}.weight" for kind in kinds for i in range(n_layers))]
    return [*norms, "norm.weight"], rest if shared else [*rest, "output.weight"]


def llama2c_v1(fields: Sequence[int], state: Mapping[str, np.ndarray]) -> bytes:
    shared = "output.weight" not in state
    norms, rest = _versioned_order(fields[2], shared)
    return llama2c_header(1, fields, shared) + b"".join(state[name].tobytes() for name in norms + rest)


def quantize_groups(x: np.ndarray, group_size: int) -> tuple[np.ndarray, np.ndarray]:
    """export.py's quantize_q80: int8 and one float32 scale a group, rounded half to even."""
    groups = x.reshape(-1, group_size)
    scales = (np.abs(groups).max(axis=1) / np.float32(127)).astype("<f4")
    return np.rint(groups / scales[:, None]).astype(np.int8), scales


def llama2c_v2(fields: Sequence[int], state: Mapping[str, np.ndarray], group_size: int) -> bytes:
    shared = "output.weight" not in state
    norms, rest = _versioned_order(fields[2], shared)
    body = b"".join(state[name].tobytes() for name in norms)
    for name in rest:
        codes, scales = quantize_groups(state[name], group_size)
        body += codes.tobytes() + scales.tobytes()
    return llama2c_header(2, fields, shared, group_size) + body
