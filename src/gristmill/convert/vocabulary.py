"""Which vocabulary a new file gets: the old one as it stands where formats agree, otherwise read and written anew."""

from __future__ import annotations

from pathlib import Path

from gristmill.formats.checkpoint import Checkpoint
from gristmill.tokenizer.files import NAMES
from gristmill.tokenizer.interface import MissingTokenizerError
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.tokenizer.write import vocabulary_of


def is_copied(checkpoint: Checkpoint, kind: str) -> bool:
    """Whether the new files get what the old ones hold, byte for byte."""
    if checkpoint.format != kind:
        return False
    if kind == "gguf":
        return "tokenizer.ggml.model" in checkpoint.metadata
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    return any((folder / name).is_file() for name in NAMES)


def to_write(checkpoint: Checkpoint, kind: str, override: Path | None) -> Vocabulary | None:
    """The vocabulary to write; None where it is copied, or where there is none."""
    if override is None and is_copied(checkpoint, kind):
        return None
    try:
        return vocabulary_of(override if override is not None else checkpoint)
    except MissingTokenizerError:
        return None
