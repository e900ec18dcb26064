from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real models and vocabularies, which is not part of the repository."""
    default = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    path = Path(os.environ.get("GRISTMILL_DATA", default))
    if not path.is_dir():
        pytest.skip(f"no test data at {path}; set GRISTMILL_DATA")
    return path
