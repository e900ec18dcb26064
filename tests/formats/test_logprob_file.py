"""The file of log-probabilities is checked before memory is asked for, and it appears whole or not at all."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from processor_time import assert_quick
from test_hostile_files import MAX_GROWTH_BYTES, MAX_SECONDS, PeakMemory

from gristmill.formats.checkpoint import ModelFormatError
from gristmill.logprob_file import MAX_TOKENS, LogprobFile, save
from gristmill.perplexity import Distributions, Windows

VOCAB, CONTEXT, FIRST = 5, 4, 3
WINDOWS = Windows(np.arange(8, dtype=np.int32).reshape(2, CONTEXT) % VOCAB, FIRST, CONTEXT)


def found() -> Iterator[Distributions]:
    logprobs = np.log(np.full((1, VOCAB), 1 / VOCAB, np.float32))
    for _ in range(2):
        yield Distributions(np.ones(1), np.zeros(1, np.int32), logprobs)


def test_a_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    """64 GiB, as its header says: one number in a vocabulary of one for each window of four tokens."""
    path, n_windows = tmp_path / "base", (1 << 36) // (4 * CONTEXT + 14)
    with path.open("wb") as file:
        file.write(struct.pack("<8s7Q", b"gristLP1", 2, 1, n_windows, CONTEXT, FIRST, 1, 0))
        file.truncate(64 + n_windows * (4 * CONTEXT + 14))
    growths = list[int]()

    def refused() -> None:
        memory = PeakMemory()
        message = f"windows: have {n_windows * CONTEXT} tokens, at most {MAX_TOKENS} are possible"
        with pytest.raises(ModelFormatError, match=message):
            LogprobFile(path)
        growths.append(memory.growth())

    assert_quick(refused, MAX_SECONDS)
    assert growths[0] < MAX_GROWTH_BYTES


def test_no_more_is_saved_than_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.logprob_file.MAX_TOKENS", 7)
    with pytest.raises(ValueError, match="base: would hold 8 tokens, at most 7; use fewer --chunks"):
        save(tmp_path / "base", VOCAB, WINDOWS, np.float32, found())


def test_it_is_read_as_it_was_saved(tmp_path: Path) -> None:
    saved = list(save(tmp_path / "base", VOCAB, WINDOWS, np.float32, found()))
    assert [entry.name for entry in tmp_path.iterdir()] == ["base"]
    with LogprobFile(tmp_path / "base") as file:
        file.check(VOCAB, WINDOWS)
        for ours, theirs in zip(file.distributions(), saved, strict=True):
            assert np.array_equal(ours.logprobs, theirs.logprobs)


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "base").write_text("precious")
    with pytest.raises(ValueError, match="base: exists already"):
        save(tmp_path / "base", VOCAB, WINDOWS, np.float32, found())
    assert (tmp_path / "base").read_text() == "precious"


def test_more_windows_than_it_has(tmp_path: Path) -> None:
    list(save(tmp_path / "base", VOCAB, WINDOWS, np.float32, found()))
    with LogprobFile(tmp_path / "base") as file:
        file.check(VOCAB, Windows(WINDOWS.tokens[:1], FIRST, CONTEXT))
        with pytest.raises(ModelFormatError, match="windows: are not those of this run"):
            file.check(VOCAB, Windows(np.tile(WINDOWS.tokens, (2, 1)), FIRST, CONTEXT))


def test_two_runs_that_save_under_one_name(tmp_path: Path) -> None:
    """Neither takes away what the other has written."""
    first, second = (save(tmp_path / "base", VOCAB, WINDOWS, np.float32, found()) for _ in range(2))
    next(first)
    next(second)
    second.close()  # type: ignore[attr-defined]
    assert len(list(first)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["base"]
