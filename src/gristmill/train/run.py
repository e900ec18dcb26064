"""Puts a run together: a new one from what is asked, or one to go on with from its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer.files import load_path
from gristmill.train.checkpoint import BEST, LAST, find, find_tokenizer, mend_best
from gristmill.train.data import Ids, Progress, Shards, key_of, open_shards, prepare, separator_id, validation
from gristmill.train.group import Group
from gristmill.train.loop import Job
from gristmill.train.model import NewCheckpoint
from gristmill.train.presets import Shape, hf_config
from gristmill.train.settings import STATE, Settings, State, read_state

SHARDS = "shards"
"""Where a run's shards are if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What to tokenize, and how: see `data.prepare`."""

    files: Sequence[Path]
    separator: str
    val_fraction: float
    processes: int
    progress: Progress | None = None


def begin(
    folder: Path,
    shape_for: Callable[[int], Shape],
    settings: Settings,
    texts: Texts,
    tokenizer: Path,
    shards: Path | None,
    group: Group,
) -> Job:
    """A new run in `folder`. shape_for: the model's shape, given the tokenizer's vocabulary.

    ValueError where the folder has a run already, or the shape has no room for the vocabulary.
    """
    if (folder / LAST).exists() or (folder / f".{LAST}.old").exists():
        raise ValueError(f"--out {folder} holds a run already: go on with it by --resume, or choose another folder")
    tokenizer = find_tokenizer(tokenizer)
    vocabulary = load_path(tokenizer)
    shape = shape_for(vocabulary.vocab_size)
    if shape.vocab_size < vocabulary.vocab_size:
        raise ValueError(
            f"--vocab-size {shape.vocab_size} is less than the {vocabulary.vocab_size} of {tokenizer}: leave it out"
        )
    bos_id = separator_id(vocabulary, tokenizer)
    # A document ends where the next one's BOS would come.
    metadata = hf_config(shape, bos_id, tuple(dict.fromkeys((*vocabulary.eos_ids, bos_id))))
    start = NewCheckpoint(metadata, settings.seed)
    data = _shards(shards or folder / SHARDS, texts, tokenizer, group)
    return Job(folder, settings, data, tokenizer, start, State(shards=str(data.folder.resolve()), shards_key=data.key))


def resume(folder: Path, changes: Mapping[str, Any], texts: Texts | None, shards: Path | None, group: Group) -> Job:
    """The run in `folder`, its settings with `changes`. texts: None where its shards are still there.

    ValueError where there is no checkpoint, where its data are gone or others, or where there is nothing left to do.
    """
    last = find(folder)
    state, settings = read_state(last / STATE)
    tokenizer = find_tokenizer(last)
    there = (place for place in (Path(state.shards), folder / SHARDS) if place.is_dir())  # a run may have moved
    data = shards or next(there, Path(state.shards))
    key = (
        open_shards(data).key if texts is None else key_of(texts.files, tokenizer, texts.separator, texts.val_fraction)
    )
    if key != state.shards_key:
        raise ValueError(
            f"{data}: {'are' if texts is None else 'would be'} other shards than {last} was trained on; give the same"
            " FILES, --separator and --val-fraction, or --shards"
        )
    if group.leads:
        mend_best(folder, state, settings)
    group.wait()
    found = open_shards(data) if texts is None else _shards(data, texts, tokenizer, group)
    changed = replace(settings, **changes)
    if state.best is None and changed.steps <= state.step:
        raise ValueError(f"--steps {changed.steps}: {state.step} are done, and none was evaluated; ask for more")
    best = None
    if state.best is not None and not np.array_equal(_held_out(found, settings), _held_out(found, changed)):
        best = open_checkpoint(folder / BEST if (folder / BEST).is_dir() else last)
    return Job(folder, changed, found, tokenizer, open_checkpoint(last), state, last, best)


def _held_out(shards: Shards, s: Settings) -> Ids:
    return validation(shards, s.ctx, s.batch * s.eval_batches)


def _shards(folder: Path, texts: Texts, tokenizer: Path, group: Group) -> Shards:
    """One process writes them, all read them."""
    if group.leads:
        prepare(
            folder,
            texts.files,
            tokenizer,
            separator=texts.separator,
            val_fraction=texts.val_fraction,
            processes=texts.processes,
            progress=texts.progress,
        )
    group.wait()
    return open_shards(folder)
