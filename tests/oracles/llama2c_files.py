"""Llama models as llama2.c's .bin files, versions 0, 1 and 2: the headers and the order that its export.py writes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from oracles.families import with_parameters
from oracles.gguf_files import halve, interleave
from oracles.oracle import Oracle

Array = NDArray[np.float32]

_MAGIC = 0x616B3432  # "ak42"
_EMBED, _FINAL_NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_FFN = ("mlp.gate_proj", "mlp.down_proj", "mlp.up_proj")
_TABLES = ("cos", "sin")  # in version 0 alone; readers skip them


def tensor_order(config: LlamaConfig, version: int) -> list[str]:
    """transformers' names in the order of the file, one kind after the other, layers in turn."""

    def each(*kinds: str) -> list[str]:
        return [f"model.layers.{i}.{kind}.weight" for kind in kinds for i in range(config.num_hidden_layers)]

    head = [] if config.tie_word_embeddings else [_HEAD]
    before, after = each("input_layernorm"), each("post_attention_layernorm")
    if version == 0:
        return [_EMBED, *before, *each(*_ATTENTION), *after, *each(*_FFN), _FINAL_NORM, *_TABLES, *head]
    return [*before, *after, _FINAL_NORM, _EMBED, *each(*_ATTENTION, *_FFN), *head]


def save_llama2c(oracle: Oracle, path: Path, version: int, group_size: int = 64) -> Oracle:
    """Write `path`; the oracle returned holds the file's numbers (version 2 rounds all but the norms to int8)."""
    config, state = oracle.config, oracle.model.state_dict()
    while config.hidden_size % group_size:
        group_size //= 2
    held = {}
    with path.open("wb") as file:
        file.write(_header(config, version, group_size))
        for name in tensor_order(config, version):
            x = _tables(config)[name] if name in _TABLES else _rows(name, state[name].numpy(), config, interleave)
            if version < 2 or "norm" in name:
                file.write(x.astype("<f4").tobytes())
                continue
            q, scales = quantize_groups(x, group_size)
            file.write(q.tobytes() + scales.astype("<f4").tobytes())
            held[name] = _rows(name, (q * scales[:, None]).reshape(x.shape), config, halve)
    return Oracle(path, with_parameters(oracle.model, held), config)


def read_version_0(path: Path) -> Oracle:
    """transformers' model of a version 0 file: what a trained checkpoint computes, without llama2.c and without us."""
    header = np.fromfile(path, "<i4", 7).tolist()
    config = LlamaConfig(
        hidden_size=header[0],
        intermediate_size=header[1],
        num_hidden_layers=header[2],
        num_attention_heads=header[3],
        num_key_value_heads=header[4],
        vocab_size=abs(header[5]),
        max_position_embeddings=header[6],
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=header[5] > 0,
        bos_token_id=1,
        eos_token_id=2,
    )
    config._attn_implementation = "eager"
    model = LlamaForCausalLM._from_config(config, dtype=torch.float32).eval()
    shapes = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    shapes |= {name: table.shape for name, table in _tables(config).items()}
    data, start, tensors = np.fromfile(path, "<f4", offset=28), 0, {}
    for name in tensor_order(config, 0):
        end = start + int(np.prod(shapes[name]))
        tensors[name] = _rows(name, data[start:end].reshape(shapes[name]), config, halve)
        start = end
    assert start == len(data), f"{path}: holds {len(data)} floats, its header says {start}"
    return Oracle(path, with_parameters(model, {k: v for k, v in tensors.items() if k not in _TABLES}), config)


def quantize_groups(x: Array, group_size: int) -> tuple[NDArray[np.int8], Array]:
    """int8 [n, group_size] in -127..127 and float32 scales [n] of the flattened `x`."""
    groups = x.reshape(-1, group_size)
    scales = np.abs(groups).max(axis=1) / np.float32(127)
    return np.rint(groups / scales[:, None]).astype(np.int8), scales


def _header(config: LlamaConfig, version: int, group_size: int) -> bytes:
    c = config
    assert c.head_dim * c.num_attention_heads == c.hidden_size, "llama2.c derives head_dim from dim and n_heads"
    sizes = (c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads)
    if version == 0:  # a negative vocabulary says that a head follows
        vocab_size = c.vocab_size if c.tie_word_embeddings else -c.vocab_size
        return struct.pack("<7i", *sizes, vocab_size, c.max_position_embeddings)
    header = struct.pack("<Ii7i", _MAGIC, version, *sizes, c.vocab_size, c.max_position_embeddings)
    header += struct.pack("<B", c.tie_word_embeddings)
    if version == 2:
        header += struct.pack("<i", group_size)
    return header.ljust(256, b"\0")


def _tables(config: LlamaConfig) -> dict[str, Array]:
    inv_freq = 1e4 ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    angles = np.arange(config.max_position_embeddings)[:, None] * inv_freq
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def _rows(name: str, x: Array, config: LlamaConfig, change: Callable[[Array, int], Array]) -> Array:
    if "q_proj" in name:
        return change(x, config.num_attention_heads)
    return change(x, config.num_key_value_heads) if "k_proj" in name else x
