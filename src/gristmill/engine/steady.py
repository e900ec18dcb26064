"""Sequences that each go on by one token a step, with as little work as that takes. It knows no queue."""

from __future__ import annotations

from gristmill.engine.sequence import Sequence
from gristmill.engine.tables import BlockTables
from gristmill.ops.interface import BLOCK_SIZE, NO_ID, Begun


class Steady:
    """A model that computes throws Python's code and data out of the processor's caches, so that what counts afterwards
    is how many functions are called and how many objects are touched: here the list of each sequence's tokens, and the
    tables of those that begin a block. Every n_computed stays behind, and full blocks unpublished, until that matters.

    sequences  with one token left to compute each
    n_steps    that they went on
    """

    def __init__(self, sequences: list[Sequence], tables: BlockTables) -> None:
        self.sequences = sequences
        self.n_steps = 0
        self._tables = tables
        self._texts = [sequence.tokens for sequence in sequences]
        self._stop_ids = frozenset([NO_ID]).union(*(sequence.stop_ids for sequence in sequences))
        self._n_longest = max(sequence.n_computed for sequence in sequences)  # when n_steps was 0, as all that follows
        self._n_left = min(sequence.max_tokens - len(sequence.tokens) for sequence in sequences)
        self._beginning: list[list[Sequence]] = [[] for _ in range(BLOCK_SIZE)]  # by the steps until then
        for sequence in sequences:
            self._beginning[-sequence.n_computed % BLOCK_SIZE].append(sequence)
        self._none_begun: Begun = [[] for _ in tables.pools]

    def n_blocks(self, n_ahead: int = 0) -> int:
        """Of the longest sequence, n_ahead steps after the next one."""
        return (self._n_longest + self.n_steps + n_ahead) // BLOCK_SIZE + 1

    def begin(self, n_ahead: int = 0) -> Begun | None:
        """The blocks that begin n_ahead steps after the next one. None where the pools have too few, or where some
        sequence ends before."""
        if n_ahead and self.n_steps + n_ahead >= self._n_left:
            return None
        sequences = self._beginning[(self.n_steps + n_ahead) % BLOCK_SIZE]
        return self._tables.begin(sequences, n_ahead) if sequences else self._none_begun

    def plan(self, n_blocks: int) -> list[Begun]:
        """What the next steps begin, at most 16 of them, which end no sequence but by a stop token and need no more
        than n_blocks of one. Their blocks are taken at once, which costs little more than to take one of them."""
        n_fitting = n_blocks * BLOCK_SIZE - self._n_longest - self.n_steps
        plan = list[Begun]()
        for i in range(min(BLOCK_SIZE, n_fitting, self._n_left - self.n_steps - 1)):
            if (begun := self.begin(i)) is None:
                break
            plan.append(begun)
        return plan

    def append_simple(self, ids: list[int]) -> bool:
        """`append` after a step of a `plan`. False, and nothing is done, where an id may end a sequence, or is none."""
        if not self._stop_ids.isdisjoint(ids):
            return False
        for text, token_id in zip(self._texts, ids, strict=True):
            text.append(token_id)
        self.n_steps += 1
        return True

    def append(self, ids: list[int]) -> list[Sequence]:
        """Appends the id chosen for each. Returns those that may end with it."""
        for text, token_id in zip(self._texts, ids, strict=True):
            text.append(token_id)
        self.n_steps += 1
        if self.n_steps < self._n_left and self._stop_ids.isdisjoint(ids):
            return []
        pairs = zip(self.sequences, ids, strict=True)
        return [s for s, token_id in pairs if len(s.tokens) == s.max_tokens or token_id in s.stop_ids]
