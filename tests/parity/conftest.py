"""Checkpoints are written once for a test session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from oracles.oracle import Oracle


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Oracle]], Oracle]:
    """checkpoint(name, save): what `save(folder)` returned when it was first asked for by that name."""
    torch.set_num_threads(2)
    root, made = tmp_path_factory.mktemp("checkpoints"), {}

    def get(name: str, save: Callable[[Path], Oracle]) -> Oracle:
        if name not in made:
            made[name] = save(root / name)
        return made[name]

    return get
