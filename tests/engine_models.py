"""Small random models of every family and number type as files, and the instruction sets of this machine."""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType as Type
from oracles.families import save
from oracles.gguf_files import save_gguf

from gristmill.ops.cpu import CpuOps


def checkpoint(folder: Path, model: str, qtype: str) -> Path:
    path = folder / f"{model}-{qtype}.gguf"
    if not path.exists():
        mixed = qtype == "MXFP4"
        choose = (lambda name: Type.MXFP4 if "_exps" in name else Type.Q8_0) if mixed else Type[qtype]
        save_gguf(save(model, folder / f"{model}-{qtype}"), path, choose)
    return path


def isas() -> list[str]:
    there = []
    for isa in ("avx512", "avx2", "neon", "portable"):
        try:
            CpuOps(1, isa)
        except ValueError:
            continue
        there.append(isa)
    return there
