from __future__ import annotations

from pathlib import Path

import pytest
from tokenizer_oracles import DATA


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of models, vocabularies and texts that tests may read."""
    if not DATA.is_dir():
        pytest.skip(f"the data folder {DATA} is not there; set GRISTMILL_DATA")
    return DATA
