"""Which instruction sets this machine can run."""

from __future__ import annotations

from gristmill import _kernels


def isas() -> list[str]:
    there = []
    for isa in ("amx", "avx512bf16", "avx512", "avxvnni", "avx2", "neon", "portable"):
        try:
            _kernels.Ops(1, isa)
        except ValueError:
            continue
        there.append(isa)
    return there
