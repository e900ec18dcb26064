"""Which vocabulary a new file gets: the old one as it stands where formats agree, otherwise read and written anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gristmill.formats.checkpoint import Checkpoint, shown_path
from gristmill.tokenizer.load import vocabulary_of
from gristmill.tokenizer.vocabulary import UNUSED, Vocabulary, to_list

_FILES = {"safetensors": ("tokenizer.json", "tokenizer.model"), "llama2c": ("tokenizer.bin",)}  # others are read
_LOWEST_SCORE = -1e9


def is_copied(checkpoint: Checkpoint, kind: str) -> bool:
    """Whether the new files get what the old ones hold, byte for byte."""
    if checkpoint.format != kind:
        return False
    if kind == "gguf":
        return "tokenizer.ggml.model" in checkpoint.metadata
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    return any((folder / name).is_file() for name in _FILES[kind])


def to_write(checkpoint: Checkpoint, kind: str, override: Path | None, n_ids: int) -> Vocabulary | None:
    """The vocabulary to write; None where it is copied, or where there is none.

    n_ids: rows of the model's embedding. GGUF and llama2.c want as many tokens, so unused ones fill it up.
    """
    if override is None and is_copied(checkpoint, kind):
        return None
    vocabulary = vocabulary_of(checkpoint, override)
    if vocabulary is None:
        return None
    missing = n_ids - vocabulary.n_tokens
    if missing < 0:
        raise ValueError(
            f"{shown_path(Path(vocabulary.where))}: has {vocabulary.n_tokens} tokens, the model {n_ids}: "
            "it belongs to another model; give the right one with --tokenizer FILE"
        )
    return vocabulary if kind == "safetensors" or not missing else _filled(vocabulary, missing)


def _filled(vocabulary: Vocabulary, n: int) -> Vocabulary:
    first = vocabulary.n_tokens
    names = [f"[PAD{first + i}]" for i in range(n)]
    tokens: list[Any] = to_list(vocabulary.tokens)
    tokens += [name.encode() for name in names] if tokens and isinstance(tokens[0], bytes) else names
    scores = vocabulary.scores
    if scores is not None:
        scores = [*to_list(scores), *[_LOWEST_SCORE] * n]
    return replace(vocabulary, tokens=tokens, types=vocabulary.types + bytes([UNUSED]) * n, scores=scores)
