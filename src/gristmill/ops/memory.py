"""Memory for weights, made ready before anything else knows of the model: what is imported for it takes as long."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gristmill._kernels import Memory


def clear_for(path: Path) -> Memory:
    """Begins, on a thread of its own, to clear as much as a model in one file may take. For a folder, nothing; nor for
    more than there is, which the load will say."""
    memory = Memory()
    if path.is_file():
        with suppress(MemoryError):
            memory.expect(path.stat().st_size)
    return memory
