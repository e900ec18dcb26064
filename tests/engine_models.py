"""Small random models of every family and number type, as files."""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType as Type
from oracles.families import save
from oracles.gguf_files import save_gguf
from oracles.llama2c_files import save_llama2c


def checkpoint(folder: Path, model: str, qtype: str) -> Path:
    """Of "Q8_GROUPS", llama2.c's int8, a .bin file of version 2; otherwise a GGUF file."""
    groups = qtype == "Q8_GROUPS"
    path = folder / f"{model}-{qtype}.{'bin' if groups else 'gguf'}"
    if not path.exists() and groups:
        save_llama2c(save(model, folder / f"{model}-{qtype}"), path, version=2)
    elif not path.exists():
        mixed = qtype == "MXFP4"
        choose = (lambda name: Type.MXFP4 if "_exps" in name else Type.Q8_0) if mixed else Type[qtype]
        save_gguf(save(model, folder / f"{model}-{qtype}"), path, choose)
    return path
