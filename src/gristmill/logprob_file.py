"""The file that keeps what one model expects of a text, for another to be compared with. It knows no model.

Little-endian: a header of 64 bytes (see `_HEADER`), int32 tokens [W, C], and for each window float64 nll [n],
int32 top [n] and float16 or float32 log-probabilities [n, vocab_size], where n tokens of a window are scored.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import bad_file, shown_path
from gristmill.formats.write_file import new_file
from gristmill.perplexity import Distributions, Windows

MAGIC = b"gristLP1"
MAX_TOKENS = 32 << 20  # of all windows together: a file may be sparse, memory is not

_HEADER = struct.Struct("<8s7Q")  # magic, bytes a log-probability, vocabulary, windows, C, first, stride, 0
_MOST = 1 << 32  # of any count in the header
_SAME = "compare models of one vocabulary, on one text"
_REMEDY = "save it again with --save-base"


def file_size(vocab_size: int, windows: Windows, item_size: int) -> int:
    """Bytes of the whole file."""
    n_windows, context = windows.tokens.shape
    return _size(n_windows, context, windows.n_scored, vocab_size, item_size)


def refuse_existing(path: Path) -> None:
    """ValueError where there is something already: a slip of the hand must not cost a model."""
    if path.exists():
        raise ValueError(f"{shown_path(path)}: exists already; remove it or give --save-base another name")


def save(
    path: Path, vocab_size: int, windows: Windows, dtype: type[np.floating], found: Iterable[Distributions]
) -> Iterator[Distributions]:
    """Write each of `found`, as it is asked for, and pass it on. The file has its name only when it is complete.

    ValueError where `path` exists, where there is no room for it or too much text, before anything of `found` is asked
    for; WriteError where the disk fails.
    """
    refuse_existing(path)
    if windows.tokens.size > MAX_TOKENS:
        raise ValueError(
            f"{shown_path(path)}: would hold {windows.tokens.size} tokens, at most {MAX_TOKENS}; use fewer --chunks"
        )
    item_size = np.dtype(dtype).itemsize
    size, free = file_size(vocab_size, windows, item_size), shutil.disk_usage(path.parent).free
    if size > free:
        raise ValueError(f"{shown_path(path)}: would take {size} bytes and {free} are free; use fewer --chunks")
    n_windows, context = windows.tokens.shape
    header = _HEADER.pack(MAGIC, item_size, vocab_size, n_windows, context, windows.first, windows.stride, 0)
    return _save(path, size, header, windows.tokens, f"<f{item_size}", found)


def _save(
    path: Path, size: int, header: bytes, tokens: NDArray[np.int32], dtype: str, found: Iterable[Distributions]
) -> Iterator[Distributions]:
    with new_file(path, size) as file:
        file.write(header)
        _write(file, tokens, "<i4")
        for each in found:
            _write(file, each.nll, "<f8")
            _write(file, each.top, "<i4")
            _write(file, each.logprobs, dtype)
            yield each


class LogprobFile:
    """An open file, its header and tokens checked; each window is checked when it is read.

    Raises ModelFormatError that names the file and the field. Another format's is a subclass that reads header and
    window (see `llama_logprob_file`).
    """

    vocab_size: int
    windows: Windows

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise bad_file(path, "file", "is missing or not a regular file", _REMEDY)
        self._file = path.open("rb")
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> LogprobFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def check(self, vocab_size: int, windows: Windows) -> None:
        """ModelFormatError unless these windows, or more from the same start, are what the file was made of."""
        mine, theirs = self.windows, windows
        fits = self.vocab_size == vocab_size
        self._check(fits, "vocabulary size", f"is {self.vocab_size} and the model's is {vocab_size}", _SAME)
        n = len(theirs.tokens)
        fits = (mine.context, mine.first, mine.stride) == (theirs.context, theirs.first, theirs.stride)
        self._check(fits and n <= len(mine.tokens), "windows", "are not those of this run", _SAME)
        different = np.argwhere(mine.tokens[:n] != theirs.tokens)
        if len(different):
            i, j = different[0]
            problem = f"window {i}, token {j} is {mine.tokens[i, j]}; this text and model have {theirs.tokens[i, j]}"
            raise bad_file(self.path, "tokens", problem, _SAME)

    def distributions(self) -> Iterator[Distributions]:
        """Those of one window after another."""
        for i, tokens in enumerate(self.windows.tokens):
            yield self._read_window(i, tokens)

    def _read_window(self, i: int, tokens: NDArray[np.int32]) -> Distributions:
        n = self.windows.n_scored
        nll = self._array("<f8", (n,))
        top = self._array("<i4", (n,))
        logprobs = self._array(self._type, (n, self.vocab_size))
        self._check(np.isfinite(nll).all() and nll.min() >= 0, f"window {i}: nll", "not all are 0 or more")
        inside = top.min() >= 0 and top.max() < self.vocab_size
        self._check(inside, f"window {i}: top", f"an id is not in the vocabulary of {self.vocab_size}")
        self._check_rows(logprobs, f"window {i}: log-probabilities")
        return Distributions(nll, top, logprobs)

    def _read_header(self) -> None:
        magic, *counts = self._unpack(_HEADER)
        item_size, self.vocab_size, n_windows, context, first, stride, reserved = counts
        self._check(magic == MAGIC, "magic", f"is {magic!r} and not {MAGIC!r}: no file of --save-base")
        self._check(item_size in (2, 4), "bytes a number", f"are {item_size} and not 2 or 4")
        self._check(reserved == 0, "reserved", f"is {reserved} and not 0")
        for name, value in (("vocabulary size", self.vocab_size), ("windows", n_windows), ("context", context)):
            self._check(1 <= value < _MOST, name, f"is {value}")
        self._check(1 <= first < context, "first", f"is {first} in windows of {context}")
        self._check(1 <= stride <= context, "stride", f"is {stride} in windows of {context}")
        expected = _size(n_windows, context, context - first, self.vocab_size, item_size)
        tokens = self._read_tokens(n_windows, context, expected)
        self._type = f"<f{item_size}"
        self.windows = Windows(tokens, first, stride)

    def _unpack(self, header: struct.Struct) -> tuple[Any, ...]:
        size = self._size()
        self._check(size >= header.size, "header", f"the file has {size} bytes and the header {header.size}")
        self._file.seek(0)
        return header.unpack(self._file.read(header.size))

    def _read_tokens(self, n_windows: int, context: int, file_size: int) -> NDArray[np.int32]:
        """[W, C], where the header asks for no more than there may be, and for a file of this size."""
        n_tokens, size = n_windows * context, self._size()
        self._check(n_tokens <= MAX_TOKENS, "windows", f"have {n_tokens} tokens, at most {MAX_TOKENS} are possible")
        self._check(size == file_size, "file", f"has {size} bytes and its header asks for {file_size}")
        tokens = self._array("<i4", (n_windows, context))
        inside = tokens.min() >= 0 and tokens.max() < self.vocab_size
        self._check(inside, "tokens", f"an id is not in the vocabulary of {self.vocab_size}")
        return tokens

    def _check_rows(self, logprobs: NDArray[np.floating], where: str) -> None:
        """Eight rows at a time: they may be all there is room for."""
        for start in range(0, len(logprobs), 8):
            rows = logprobs[start : start + 8]
            sums = np.exp(rows.astype(np.float32).clip(max=1)).sum(axis=1)  # float16 has 11 bits of log p: 1 % of p
            fine = np.isfinite(rows).all() and rows.max() <= 0 and (abs(sums - 1) < 0.05).all()
            self._check(fine, where, "do not make up probabilities with a sum of 1")

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _array(self, dtype: str | np.dtype[np.void], shape: tuple[int, ...]) -> NDArray[Any]:
        array = np.empty(shape, dtype)
        n = self._file.readinto(array.data)
        self._check(n == array.nbytes, "file", f"ended {array.nbytes - n} bytes early; it has changed meanwhile")
        return array

    def _check(self, fine: object, where: str, problem: str, remedy: str = _REMEDY) -> None:
        if not fine:
            raise bad_file(self.path, where, problem, remedy)


def _size(n_windows: int, context: int, n_scored: int, vocab_size: int, item_size: int) -> int:
    return _HEADER.size + n_windows * (4 * context + n_scored * (8 + 4 + vocab_size * item_size))


def _write(file: BinaryIO, values: NDArray[np.generic], dtype: str) -> None:
    file.write(np.ascontiguousarray(values, dtype).data)
