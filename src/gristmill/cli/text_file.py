"""A text that an option names: a file or a pipe, which may have no end."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAX_CHARACTERS: Final = 1 << 20


def read_text_file(path: Path) -> str:
    """All of it. ValueError for what is larger than any that is meant, and for what is not UTF-8."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8 text") from None
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{path}: has more than {MAX_CHARACTERS} characters, far more than is meant to be there")
    return text
