"""Texts as shards of token ids on disk, made once and then memory-mapped, and which of them a step trains on.

Every document follows a BOS. The last part of each text is held out for validation. It knows no torch.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.write_file import new_file
from gristmill.tokenizer.files import load_path
from gristmill.tokenizer.interface import Tokenizer
from gristmill.train.sources import PIECE_BYTES, Span, cut, documents

INDEX = "index.json"
BESIDE_TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Files in a tokenizer's folder that decide what ids it gives, and what stands between documents."""
LEAST_HELD_OUT = 64
"""Tokens. Files too short to have so many held out are held out of together: documents rather than bits of them."""
_VERSION = 2
"""Of the way that texts become shards; those of another way have another key."""
Ids = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Shards:
    """Token ids on disk: each file's first `n_train` are trained on, the others held out."""

    folder: Path
    files: tuple[str, ...]
    n_train: tuple[int, ...]
    n_val: tuple[int, ...]
    dtype: str
    key: str


def prepare(
    folder: Path,
    files: Sequence[Path],
    tokenizer: Path,
    *,
    separator: str,
    val_fraction: float,
    processes: int = 1,
    piece_bytes: int = PIECE_BYTES,
    progress: Progress | None = None,
) -> Shards:
    """The shards of `files` in `folder`, tokenized where they are not there yet. progress(files done, files in all)."""
    if not 0 < val_fraction < 1:
        raise ValueError(f"--val-fraction must be between 0 and 1, not {val_fraction}")
    vocabulary = load_path(tokenizer)
    separator_id(vocabulary, tokenizer)
    key = key_of(files, tokenizer, separator, val_fraction, piece_bytes)
    index = folder / INDEX
    if index.is_file() and (found := open_shards(folder)).key == key:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    index.unlink(missing_ok=True)  # it would be of other files should this be broken off
    dtype = "uint16" if vocabulary.vocab_size <= 1 << 16 else "uint32"
    groups = cut(files, separator, piece_bytes)
    names = [f"{i:05}.bin" for i in range(len(groups))]
    work = partial(_write_shard, tokenizer=tokenizer, separator=separator, val_fraction=val_fraction, dtype=dtype)
    jobs = list(zip(groups, [folder / name for name in names], strict=True))
    counts = list[tuple[int, int]]()
    for count in _each(work, jobs, processes):
        counts.append(count)
        if progress:
            progress(len(counts), len(jobs))
    n_train, n_val = zip(*counts, strict=True)
    shards = Shards(folder, tuple(names), n_train, n_val, dtype, key)
    fields = {"files": names, "n_train": n_train, "n_val": n_val, "dtype": dtype, "key": key}
    _write(index, json.dumps(fields, indent=1).encode())
    return shards


def key_of(
    files: Sequence[Path], tokenizer: Path, separator: str, val_fraction: float, piece_bytes: int = PIECE_BYTES
) -> str:
    """What shards are made of: tokenizer and the files beside it, settings, and the files by name, size and time."""
    digest = hashlib.sha256(tokenizer.read_bytes())
    for name in BESIDE_TOKENIZER:
        beside = tokenizer.parent / name
        if beside.is_file():
            digest.update(f"{name} {hashlib.sha256(beside.read_bytes()).hexdigest()}\n".encode())
    digest.update(repr((_VERSION, separator, val_fraction, piece_bytes)).encode())
    for path in files:
        about = path.stat()
        digest.update(f"{path.resolve()} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def open_shards(folder: Path) -> Shards:
    """ValueError for an index that is not ours or files that are not as it says."""
    index = folder / INDEX
    try:
        fields = json.loads(index.read_bytes())
        files, n_train, n_val = (tuple(fields[name]) for name in ("files", "n_train", "n_val"))
        shards = Shards(folder, files, n_train, n_val, fields["dtype"], fields["key"])
        width = np.dtype(shards.dtype).itemsize
        sizes = [(folder / name).stat().st_size for name in files]
        if sizes != [width * (a + b) for a, b in zip(n_train, n_val, strict=True)]:
            raise ValueError("the files have other sizes")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        remedy = f"delete {folder} and give FILES to tokenize again"
        raise ValueError(f"{index}: no sound index of shards ({error}); {remedy}") from None
    return shards


def separator_id(tokenizer: Tokenizer, path: Path) -> int:
    """What stands before every document: BOS, or for a vocabulary without one its end of text."""
    if tokenizer.bos_id is not None:
        return tokenizer.bos_id
    if not tokenizer.eos_ids:
        raise ValueError(f"{path}: has neither BOS nor EOS to put between documents; train another tokenizer")
    return tokenizer.eos_ids[0]


class Windows:
    """Stretches of length + 1 tokens, all that the shards have, in a random order that is another in every epoch.

    What the n-th is depends on (seed, n) alone: to go on where training stopped, one number is enough. Each epoch also
    starts its stretches at another token, so that a short text does not show the same ones again.
    """

    def __init__(self, shards: Shards, length: int, seed: int) -> None:
        self._length, self._seed = length, seed
        self._ids = [ids[:n] for ids, n in zip(_mapped(shards), shards.n_train, strict=True)]
        counts = [max(0, len(ids) // length - 1) for ids in self._ids]
        self.n_epoch = sum(counts)
        if not self.n_epoch:
            raise ValueError(
                f"{shards.folder}: {sum(shards.n_train)} tokens to train on are too few for sequences of {length}: give"
                f" more text or a shorter --ctx"
            )
        self._shard_of = np.repeat(np.arange(len(counts)), counts)
        self._within = np.concatenate([np.arange(count) for count in counts])
        self._epoch = -1
        self._order: Ids = np.empty(0, np.int64)
        self._offset = 0

    def take(self, begin: int, end: int) -> Ids:
        """Stretches begin .. end of all that will ever be taken: [end - begin, length + 1]."""
        return np.stack([self._one(n) for n in range(begin, end)])

    def _one(self, n: int) -> Ids:
        epoch, i = divmod(n, self.n_epoch)
        if epoch != self._epoch:
            rng = np.random.default_rng((self._seed, epoch))
            self._order, self._offset, self._epoch = (
                rng.permutation(self.n_epoch),
                int(rng.integers(self._length)),
                epoch,
            )
        window = self._order[i]
        start = self._within[window] * self._length + self._offset
        ids: Ids = self._ids[self._shard_of[window]][start : start + self._length + 1].astype(np.int64)
        return ids


def validation(shards: Shards, length: int, n_most: int) -> Ids:
    """Up to n_most stretches of what is held out, evenly spread: [n, length + 1]. ValueError where there is not one."""
    held_out = [ids[n:] for ids, n in zip(_mapped(shards), shards.n_train, strict=True)]
    all_of = [(ids, i * length) for ids in held_out for i in range(max(0, (len(ids) - 1) // length))]
    if not all_of:
        raise ValueError(
            f"{shards.folder}: {sum(shards.n_val)} held-out tokens are too few for a sequence of {length}: give more"
            " text, a greater --val-fraction or a shorter --ctx"
        )
    n = min(n_most, len(all_of))
    chosen = (all_of[i * len(all_of) // n] for i in range(n))
    return np.stack([ids[start : start + length + 1].astype(np.int64) for ids, start in chosen])


def _write(path: Path, data: bytes) -> None:
    with new_file(path, len(data)) as file:
        file.write(data)


def _each(work: Callable[..., Any], jobs: Sequence[Any], processes: int) -> Any:
    if processes <= 1 or len(jobs) <= 1:
        return map(work, jobs)
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    at_once = (signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends them without a word
    pool = ProcessPoolExecutor(min(processes, len(jobs)), context, signal.signal, at_once)

    def results() -> Any:
        with pool:
            yield from pool.map(work, jobs)

    return results()


def _write_shard(
    job: tuple[list[Span], Path], tokenizer: Path, separator: str, val_fraction: float, dtype: str
) -> tuple[int, int]:
    """Tokens to train on and held out."""
    spans, path = job
    vocabulary = load_path(tokenizer)
    bos = separator_id(vocabulary, tokenizer)
    train, held_out = list[NDArray[Any]](), list[NDArray[Any]]()
    text = list[NDArray[Any]]()  # documents that are neither yet
    for span in spans:
        for document in documents(span, separator):
            try:
                ids = np.array([bos, *vocabulary.encode(document, add_special=False)], dtype)
            except ValueError as error:
                raise ValueError(f"{span.path}: {error}") from None
            text.append(ids)
        n = sum(map(len, text))
        if text and (n * val_fraction >= LEAST_HELD_OUT or span is spans[-1]):
            every, n_train = np.concatenate(text), _n_train(text, val_fraction)
            train.append(every[:n_train])
            held_out.append(every[n_train:])
            text = []
    _write(path, b"".join(part.tobytes() for part in (*train, *held_out)))
    return sum(map(len, train)), sum(map(len, held_out))


def _n_train(text: list[NDArray[Any]], val_fraction: float) -> int:
    """How many tokens of a text come before its held-out part, which is whole documents where they are short."""
    ends = np.cumsum([len(document) for document in text])
    n = int(ends[-1])
    n_train = int(n * (1 - val_fraction))
    later = [int(end) for end in ends[:-1] if end >= n_train]
    return later[0] if later and later[0] - n_train < n * val_fraction / 2 else n_train


def _mapped(shards: Shards) -> list[NDArray[Any]]:
    return [
        np.memmap(shards.folder / name, shards.dtype, "r") if a + b else np.empty(0, shards.dtype)
        for name, a, b in zip(shards.files, shards.n_train, shards.n_val, strict=True)
    ]
