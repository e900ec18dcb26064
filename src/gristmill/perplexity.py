"""How well a model predicts a text, and how far its predictions lie from another model's.

It works one window of the text at a time and knows neither files nor terminals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gristmill.llm import LLM

T = TypeVar("T")
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Ints = NDArray[np.int32]

_BLOCK = 1 << 20  # numbers of a window that one thread has in float64 at a time


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of a text, each given to the model alone.

    tokens  int32 [W, C]; the first of each is BOS where the model wants one
    first   tokens first .. C - 1 of a window are predicted and count, those before are context only
    stride  tokens from the start of one window to the start of the next
    """

    tokens: Ints
    first: int
    stride: int

    @property
    def context(self) -> int:
        return int(self.tokens.shape[1])

    @property
    def n_scored(self) -> int:
        """Of one window."""
        return self.context - self.first


@dataclass(frozen=True, slots=True)
class Distributions:
    """What a model expects at the n scored tokens of a window.

    nll       float64 [n], -log p of the token that is there, in nats
    top       int32 [n], the likeliest token
    logprobs  [n, vocab_size], log p of every token, in the type in which it is to be kept
    """

    nll: F64
    top: Ints
    logprobs: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A model beside a base model at n scored tokens.

    nll, base_nll  float64 [n], in nats
    kl             float64 [n], KL(base || model) in nats
    same_top       bool [n], whether both find the same token likeliest
    """

    nll: F64
    base_nll: F64
    kl: F64
    same_top: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and its standard error (0 of a single number)."""

    value: float
    error: float


def cut(
    ids: list[int], bos_id: int | None, context: int, stride: int | None = None, most: int | None = None
) -> Windows:
    """Windows of `context` tokens, as llama.cpp's perplexity tool cuts them.

    bos_id  takes the place of each window's first token, which is never scored; None leaves it
    stride  None: windows follow each other, and what comes after the first half of each and one more token is scored.
            Otherwise they begin so many tokens apart and the last `stride` tokens of each are scored: a token has
            more context, and costs more
    most    windows at most, from the start of the text
    Raises ValueError for sizes that leave nothing to score, and for a text shorter than one window.
    """
    if context < 4:
        raise ValueError(f"a window needs at least 4 tokens, not {context}")
    if stride is not None and not 1 <= stride < context:
        raise ValueError(f"the stride must be between 1 and {context - 1} (a window less one token), not {stride}")
    step = stride or context
    n = (len(ids) - context) // step + 1
    if n < 1:
        raise ValueError(
            f"the text has {len(ids)} tokens and one window takes {context}: give more text, or a smaller context"
        )
    n = n if most is None else min(n, most)
    tokens = np.stack([np.asarray(ids[i * step : i * step + context], np.int32) for i in range(n)])
    if bos_id is not None:
        tokens[:, 0] = bos_id
    return Windows(tokens, context // 2 + 1 if stride is None else context - stride, step)


def score(llm: LLM, windows: Windows) -> Iterator[F64]:
    """For each window the NLL of its scored tokens, float64 [n]. ValueError where the model's numbers are none."""
    for i, window in enumerate(windows.tokens):
        yield _finite(-llm.score(window.tolist(), windows.first), i)


def predict(
    llm: LLM, windows: Windows, dtype: type[np.floating], threads: ThreadPoolExecutor
) -> Iterator[Distributions]:
    """For each window all that the model expects at its scored tokens, log-probabilities as `dtype`."""
    for i, window in enumerate(windows.tokens):
        parts = _by_rows(llm, window, windows.first, threads, partial(_predicted, dtype))
        logprobs = np.concatenate([part.logprobs for part in parts])
        nll = np.concatenate([part.nll for part in parts])
        yield Distributions(_finite(nll, i), np.concatenate([part.top for part in parts]), logprobs)


def diverge(
    llm: LLM, windows: Windows, base: Iterable[Distributions], threads: ThreadPoolExecutor
) -> Iterator[Divergence]:
    """For each window how far the model lies from `base`, which has the distributions of another for the same windows.

    The base's rounded log-probabilities are scaled to a sum of 1 again: no divergence is then under 0, and what the
    rounding of float16 adds to one is of the second order, some 1e-8.
    """
    for i, (window, theirs) in enumerate(zip(windows.tokens, base, strict=False)):
        parts = _by_rows(llm, window, windows.first, threads, partial(_compared, theirs))
        joined = join(parts)
        _finite(joined.nll, i)
        yield joined


def join(parts: list[Divergence]) -> Divergence:
    """One after another."""
    return Divergence(
        nll=np.concatenate([part.nll for part in parts]),
        base_nll=np.concatenate([part.base_nll for part in parts]),
        kl=np.concatenate([part.kl for part in parts]),
        same_top=np.concatenate([part.same_top for part in parts]),
    )


def mean(values: NDArray[np.generic]) -> Estimate:
    """Of independent values, as llama.cpp's tool takes tokens to be."""
    exact = values.astype(np.float64)
    error = math.sqrt(exact.var() / (len(exact) - 1)) if len(exact) > 1 else 0.0
    return Estimate(float(exact.mean()), error)


def exponential(of: Estimate) -> Estimate:
    """exp of a mean, to the first order in its error: perplexity of an NLL, a ratio of perplexities of a difference."""
    value = math.exp(of.value) if of.value < 700 else math.inf
    return Estimate(value, value * of.error)


def log_softmax(logits: NDArray[np.floating]) -> F64:
    """float64 [n, vocab_size], of logits or log-probabilities in any floating type."""
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    return exact


def _by_rows(
    llm: LLM, window: Ints, first: int, threads: ThreadPoolExecutor, read: Callable[[slice, F32, Ints], T]
) -> list[T]:
    """read(rows, logits that lead to them, their tokens) of the scored tokens, some rows at a time."""
    logits, targets = llm.logits(window.tolist(), first - 1)[:-1], window[first:]
    n, n_rows = len(logits), max(1, _BLOCK // logits.shape[1])
    blocks = [slice(i, min(i + n_rows, n)) for i in range(0, n, n_rows)]
    return list(threads.map(lambda rows: read(rows, logits[rows], targets[rows]), blocks))


def _predicted(dtype: type[np.floating], rows: slice, logits: F32, targets: Ints) -> Distributions:
    logprobs = log_softmax(logits)
    kept = np.maximum(logprobs, np.finfo(dtype).min).astype(dtype)
    return Distributions(_nll(logprobs, targets), _top(logits), kept)


def _compared(base: Distributions, rows: slice, logits: F32, targets: Ints) -> Divergence:
    ours, theirs = log_softmax(logits), log_softmax(base.logprobs[rows])
    kl = (np.exp(theirs) * (theirs - ours)).sum(axis=1)
    return Divergence(_nll(ours, targets), base.nll[rows], np.maximum(kl, 0), _top(logits) == base.top[rows])


def _nll(logprobs: F64, targets: Ints) -> F64:
    nll: F64 = -logprobs[np.arange(len(targets)), targets]
    return nll


def _top(logits: F32) -> Ints:
    top: Ints = logits.argmax(axis=1).astype(np.int32)
    return top


def _finite(nll: F64, window: int) -> F64:
    if not np.isfinite(nll).all():
        raise ValueError(f"window {window}: the model's log-probabilities are not finite; its file may be damaged")
    return nll
