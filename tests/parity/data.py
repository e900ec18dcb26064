"""Where trained models and real texts lie, on machines that have them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """The file `name` of the data folder; skips the test where there is none."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    path = Path(os.environ.get("GRISTMILL_DATA", beside)) / name
    if not path.exists():
        pytest.skip(f"{path} is not here; GRISTMILL_DATA names the folder that holds it")
    return path
