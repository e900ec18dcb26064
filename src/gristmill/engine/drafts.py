"""Guesses the tokens to come from what the sequence has said before. It knows one sequence's ids, no model."""

from __future__ import annotations

N_GRAM = 3
FIRST_LENGTH, SHORTEST, LONGEST = 3, 2, 15
FIRST_PAUSE, LONGEST_PAUSE = 16, 128


class PromptLookup:
    """Drafts for one sequence: what followed the last time its latest ids stood somewhere before.

    After "prompt lookup decoding" (Saxena 2023). Most text does not repeat itself, and a wrong draft costs time, so the
    drafts grow as long as they are right, shrink when not, and pause for ever longer while all of them are wrong.

    longest  most of them at a time
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._latest: dict[tuple[int, ...], int] = {}  # the position after the latest of these 2 or 3 ids in a row
        self._n_indexed = 2
        self._length = FIRST_LENGTH
        self._misses = 0
        self._resume_at = 0

    def propose(self, tokens: list[int], n: int) -> list[int]:
        """Up to n ids that may follow `tokens`, which only grow from call to call. Time: O(1) for each new token."""
        n = min(n, self._length, self._longest)
        if n <= 0 or len(tokens) < max(N_GRAM, self._resume_at):
            return []
        self._index(tokens)
        begin = self._latest.get(tuple(tokens[-N_GRAM:])) or self._latest.get(tuple(tokens[-N_GRAM + 1 :]))
        if begin is None:
            return []
        repeated = tokens[begin : begin + n]  # shorter than n: the text goes in a circle of that length
        return (repeated * n)[:n]

    def learn(self, n_drafted: int, n_accepted: int) -> None:
        """Tells how many of the drafts last proposed were computed, and how many of these were right."""
        if n_drafted == 0:
            return
        self._length = (
            min(self._longest, 2 * self._length + 1) if n_accepted == n_drafted else max(SHORTEST, n_accepted + 1)
        )
        if n_accepted:
            self._misses = max(0, self._misses - n_accepted)
            return
        self._misses += 1
        if self._misses > 1:
            self._resume_at = self._n_indexed + min(FIRST_PAUSE << (self._misses - 2), LONGEST_PAUSE)

    def _index(self, tokens: list[int]) -> None:
        for after in range(self._n_indexed, len(tokens)):
            self._latest[tuple(tokens[after - N_GRAM + 1 : after])] = after
            self._latest[tuple(tokens[max(0, after - N_GRAM) : after])] = after
        self._n_indexed = len(tokens)
