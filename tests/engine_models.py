"""Small random models of every family and number type, as files."""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType as Type
from oracles.families import save
from oracles.gguf_files import save_gguf


def checkpoint(folder: Path, model: str, qtype: str) -> Path:
    path = folder / f"{model}-{qtype}.gguf"
    if not path.exists():
        mixed = qtype == "MXFP4"
        choose = (lambda name: Type.MXFP4 if "_exps" in name else Type.Q8_0) if mixed else Type[qtype]
        save_gguf(save(model, folder / f"{model}-{qtype}"), path, choose)
    return path
