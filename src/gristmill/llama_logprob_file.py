"""The file of llama.cpp's `llama-perplexity --kl-divergence-base`, read. It knows no model.

Little-endian: b"_logits_", uint32 C, int32 vocab_size, int32 W, int32 tokens [W, C], each window's first without BOS,
and for each window and each token after its first half and one more: float32 scale, float32 least and uint16
[vocab_size, rounded up to an even number], where log p is scale times the number + least. (llama.cpp's
tools/perplexity/perplexity.cpp.)
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gristmill.logprob_file import LogprobFile
from gristmill.perplexity import Distributions, Windows

MAGIC = b"_logits_"

_HEADER = struct.Struct("<8sI2i")
_LEAST = -16.0  # log p that counts, as in llama.cpp: these files have all that is less as about this
_MOST_SCALE, _MOST_LEAST = 17 / 65535, -64.0  # 16 below the likeliest, and that of a vocabulary of e^48


def open_base(path: Path) -> LogprobFile:
    """Either format's file. ModelFormatError that names the file and the field."""
    is_llama = False
    if path.is_file():
        with path.open("rb") as file:
            is_llama = file.read(len(MAGIC)) == MAGIC
    return LlamaLogprobFile(path) if is_llama else LogprobFile(path)


class LlamaLogprobFile(LogprobFile):
    """An open file of llama.cpp's."""

    def check(self, vocab_size: int, windows: Windows) -> None:
        """Any first token is right: llama.cpp keeps what the text has where its model has BOS."""
        tokens, n = windows.tokens.copy(), len(self.windows.tokens)
        tokens[:n, 0] = self.windows.tokens[: len(tokens), 0]
        super().check(vocab_size, replace(windows, tokens=tokens))

    def _read_header(self) -> None:
        magic, context, self.vocab_size, n_windows = self._unpack(_HEADER)
        self._check(magic == MAGIC, "magic", f"is {magic!r} and not {MAGIC!r}")
        for name, value, least in (("n_ctx", context, 4), ("n_vocab", self.vocab_size, 1), ("n_chunk", n_windows, 1)):
            self._check(value >= least, name, f"is {value}")
        first, row_size = context // 2 + 1, 8 + 2 * self._row_length()
        expected = _HEADER.size + n_windows * (4 * context + (context - first) * row_size)
        self.windows = Windows(self._read_tokens(n_windows, context, expected), first, context)

    def _row_length(self) -> int:
        return (self.vocab_size + 1) // 2 * 2

    def _read_window(self, i: int, tokens: NDArray[np.int32]) -> Distributions:
        row = np.dtype([("scale", "<f4"), ("least", "<f4"), ("steps", "<u2", self._row_length())])
        rows = self._array(row, (self.windows.n_scored,))
        scale, least, steps = rows["scale"], rows["least"], rows["steps"][:, : self.vocab_size]
        fine = ((scale >= 0) & (scale <= _MOST_SCALE) & (least >= _MOST_LEAST) & (least <= 0)).all()
        self._check(fine, f"window {i}: scales", "not all are of log-probabilities")
        logprobs = np.minimum(steps * scale[:, None] + least[:, None], 0)  # p of 1 may have become a little more
        nll = -logprobs[np.arange(len(rows)), tokens[self.windows.first :]].astype(np.float64)
        logprobs[logprobs <= _LEAST] = np.finfo(np.float32).min
        self._check_rows(logprobs, f"window {i}: log-probabilities")
        return Distributions(nll, steps.argmax(axis=1).astype(np.int32), logprobs)
