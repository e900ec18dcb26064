"""What changes one request's logits before a token is chosen: biases, penalties, tokens it must not end with yet, and
the grammar that it must keep to. It knows no array of the backend."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
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

    def advance(self, token_id: int) -> None:
        """ValueError, and no change, for a token that it does not allow."""
        ...

    def rollback(self, n_tokens: int) -> None: ...

    def forced(self) -> list[int]:
        """Tokens that must come next, as it allows nothing else."""
        ...


class AllowedIds:
    """A mask of the same tokens at each step."""

    def __init__(self, token_ids: Collection[int], vocab_size: int) -> None:
        bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
        bits[list(token_ids)] = 1
        self._row = np.packbits(bits, bitorder="little").view("<u4")
        self._ids = frozenset(token_ids)

    def mask(self, row: NDArray[np.uint32]) -> None:
        row[:] = self._row

    def advance(self, token_id: int) -> None:
        if token_id not in self._ids:
            raise ValueError(f"token {token_id} is none of those allowed")

    def rollback(self, n_tokens: int) -> None:
        """Nothing changes with the tokens before."""

    def forced(self) -> list[int]:
        return []


class Adjuster:
    """guide: what structured output, or a list of ids, allows; None allows all.
    bad: sequences of ids that the answer must not have.

    Where a sequence has drafts, each is adjusted as if those before it had been chosen already.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: tuple[int, ...],
        vocab_size: int,
        guide: Mask | None,
        bad: Collection[tuple[int, ...]] = (),
    ) -> None:
        self._guide = guide
        self._bad = [([*begin], last) for *begin, last in bad]
        self._longest = max((len(begin) for begin, _ in self._bad), default=0)
        self._n_words = -(-vocab_size // 32)
        self.masks = list[NDArray[np.uint32]]()  # of the token to come, and of those after each draft
        self._bias = dict(params.logit_bias or {})
        self._counts = dict.fromkeys(prompt_ids if params.repetition_penalty != 1 else (), 0)
        self._has_penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (
            1,
            0,
            0,
        )

    def advance(self, token_ids: list[int]) -> None:
        """These were generated."""
        if self._has_penalties:
            _count(self._counts, token_ids)
        if self._guide is not None:
            for token_id in token_ids:
                self._guide.advance(token_id)

    def forced(self) -> list[int]:
        """Tokens that the grammar leaves no choice about: drafts that are always right."""
        return self._guide.forced() if self._guide is not None else []

    def possible(self, drafts: list[int]) -> list[int]:
        """Those before the first that the grammar forbids."""
        guide, n = self._guide, 0
        if guide is None:
            return drafts
        try:
            for token_id in drafts:
                guide.advance(token_id)
                n += 1
        except ValueError:
            pass
        guide.rollback(n)
        return drafts[:n]

    def fill_masks(self, drafts: list[int]) -> None:
        """Ask the grammar what it allows next, and after each of these. ValueError where it grew over its limits."""
        if self._guide is None:
            return
        self.masks += [np.zeros(self._n_words, np.uint32) for _ in range(len(drafts) + 1 - len(self.masks))]
        for mask, token_id in zip(self.masks, drafts, strict=False):
            self._guide.mask(mask)
            self._guide.advance(token_id)
        self._guide.mask(self.masks[len(drafts)])
        self._guide.rollback(len(drafts))

    def list_ids(self, sequence: Sequence, n_drafts: int, ids: list[int], counts: list[int], bias: list[float]) -> None:
        """Append each id that gets a bias or a penalty after the first n_drafts, how often it was seen (as types.Batch
        has it), and its bias."""
        listed = dict(self._bias)
        if sequence.n_output + n_drafts < sequence.params.min_tokens:
            listed |= dict.fromkeys(sequence.stop_ids, -math.inf)
        if self._bad:
            listed |= dict.fromkeys(self._ends_of_bad(sequence, n_drafts), -math.inf)
        seen = self._counts
        if n_drafts and self._has_penalties:
            seen = seen.copy()
            _count(seen, sequence.drafts[:n_drafts])
        ids += seen
        counts += seen.values()
        bias += [listed.pop(token_id, 0.0) for token_id in seen]
        ids += listed
        counts += [-1] * len(listed)
        bias += listed.values()

    def _ends_of_bad(self, sequence: Sequence, n_drafts: int) -> Iterator[int]:
        """The ids that would complete a bad sequence after the first n_drafts."""
        first = max(sequence.n_prompt, len(sequence.tokens) - self._longest)
        answer = sequence.tokens[first:] + sequence.drafts[:n_drafts]
        for begin, last in self._bad:
            if answer[max(0, len(answer) - len(begin)) :] == begin:
                yield last


def _count(counts: dict[int, int], token_ids: list[int]) -> None:
    for token_id in token_ids:
        counts[token_id] = counts.get(token_id, 0) + 1


def needs_adjusting(params: SamplingParams, has_guide: bool) -> bool:
    """Whether a request's logits are ever changed."""
    penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
    listed = bool(params.logit_bias or params.bad_words) or params.min_tokens > 0
    return has_guide or listed or penalties != (1, 0, 0)
