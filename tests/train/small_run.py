"""A run of seconds: a made-up text, a vocabulary of bytes, a model of a few thousand weights."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import small_model

from gristmill.train.presets import Shape
from gristmill.train.settings import Settings

SHAPE = Shape(32, 2, 4, 2, 64, small_model.VOCAB, 32)
SETTINGS = Settings(
    steps=12, batch=4, ctx=32, lr=3e-3, warmup=2, eval_every=4, eval_batches=2, log_every=1, sample_tokens=8, seed=3
)
WORDS = ("the", "mill", "stone", "turns", "and", "grinds", "grain", "while", "water", "runs", "over", "a", "wheel")


def write_text(folder: Path, n_documents: int = 60) -> Path:
    rng = random.Random(0)
    documents = [" ".join(rng.choices(WORDS, k=rng.randint(10, 60))) for _ in range(n_documents)]
    path = folder / "text.txt"
    path.write_text("<|endoftext|>".join(documents))
    return path


def write_tokenizer(folder: Path) -> Path:
    return small_model.write_tokenizer(folder / "bytes.bin")


def settings(**changes: Any) -> Settings:
    return replace(SETTINGS, **changes)
