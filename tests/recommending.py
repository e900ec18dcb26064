"""Tiny models whose files recommend how their tokens are chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import small_model

from gristmill.convert import convert
from gristmill.formats.open import open_checkpoint
from gristmill.formats.write_gguf import NewTensor, write_gguf
from gristmill.formats.write_gguf_raw import raw_values


def folder(path: Path, **fields: Any) -> Path:
    """A tiny model in Hugging Face's layout whose generation_config.json says this."""
    path.mkdir()
    convert(open_checkpoint(small_model.write(path)), path / "model", out_format="safetensors")
    (path / "model" / "generation_config.json").write_text(json.dumps(fields))
    return path / "model"


def gguf_file(path: Path, **keys: Any) -> Path:
    """A tiny model in GGUF with these key-values beside its own."""
    plain = path.with_name("plain.gguf")
    convert(open_checkpoint(small_model.write(path.parent)), plain)
    opened = open_checkpoint(plain)

    def tensor(name: str) -> NewTensor:
        weight = opened.get(name)
        return NewTensor(name, weight.qtype, weight.shape, lambda: [weight.data])

    added = {f"general.sampling.{key}": value for key, value in keys.items()}
    write_gguf(path, {**raw_values(plain), **added}, map(tensor, opened.names()))
    return path
