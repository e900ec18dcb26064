"""Figures of a card as lines: read by a person, and with --json appended to a file for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from gristmill.ops.triton.common import INTERPRETED

Value = str | int | float | bool

ROUNDS = 2 if INTERPRETED else 20


class Report:
    """Each line says what was measured, and is written at once: a machine may be taken away at any time."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.lines: list[dict[str, Value]] = []

    def say(self, what: str, **figures: Value) -> None:
        line: dict[str, Value] = {"what": what, **figures}
        self.lines.append(line)
        print(f"{what:10}", *(f"{name}={_shown(value)}" for name, value in figures.items()), flush=True)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def allocated_bytes() -> int:
    """By torch on the card; 0 without one."""
    return 0 if INTERPRETED else torch.cuda.memory_allocated()


def reserved_bytes() -> int:
    """What torch holds of the card, used or not; 0 without one."""
    return 0 if INTERPRETED else torch.cuda.memory_reserved()


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return str(value)
