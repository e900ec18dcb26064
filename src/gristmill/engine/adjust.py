"""What changes one request's logits before a token is chosen: biases, penalties, tokens it must not end with yet, and
the grammar that it must keep to. It knows no array of the backend."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.engine.sequence import Sequence
from gristmill.types import SamplingParams


class Mask(Protocol):
    """Which tokens a grammar allows next."""

    def mask(self, row: NDArray[np.uint32]) -> None:
        """Fill bit i % 32 of word i // 32 for each id i of the vocabulary."""
        ...

    def advance(self, token_id: int) -> None: ...


class Adjuster:
    """guide: what structured output allows, or None."""

    def __init__(
        self, params: SamplingParams, prompt_ids: tuple[int, ...], vocab_size: int, guide: Mask | None
    ) -> None:
        self._guide = guide
        self.mask = np.zeros(-(-vocab_size // 32), np.uint32) if guide is not None else None  # of the token to come
        self._bias = dict(params.logit_bias or {})
        self._counts = dict.fromkeys(prompt_ids if params.repetition_penalty != 1 else (), 0)
        self._has_penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (
            1,
            0,
            0,
        )

    def advance(self, token_ids: list[int]) -> None:
        """These were generated."""
        for token_id in token_ids if self._has_penalties else ():
            self._counts[token_id] = self._counts.get(token_id, 0) + 1
        if self._guide is not None:
            for token_id in token_ids:
                self._guide.advance(token_id)

    def fill_mask(self) -> None:
        """Ask the grammar what it allows next. ValueError where it has grown over its limits."""
        if self._guide is not None:
            assert self.mask is not None
            self._guide.mask(self.mask)

    def list_ids(self, sequence: Sequence, ids: list[int], counts: list[int], bias: list[float]) -> None:
        """Append each id that gets a bias or a penalty, how often it was seen (see types.Batch), and its bias."""
        listed = dict(self._bias)
        if sequence.n_output < sequence.params.min_tokens:
            listed |= dict.fromkeys(sequence.stop_ids, -math.inf)
        ids += self._counts
        counts += self._counts.values()
        bias += [listed.pop(token_id, 0.0) for token_id in self._counts]
        ids += listed
        counts += [-1] * len(listed)
        bias += listed.values()


def needs_adjusting(params: SamplingParams, has_guide: bool) -> bool:
    """Whether a request's logits are ever changed."""
    penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
    return has_guide or bool(params.logit_bias) or params.min_tokens > 0 or penalties != (1, 0, 0)
