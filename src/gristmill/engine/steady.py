"""Sequences that each go on by one token a step, with as little work as that takes. It knows no blocks and no queue."""

from __future__ import annotations

from collections import defaultdict

from gristmill.engine.sequence import Sequence
from gristmill.ops.interface import BLOCK_SIZE


class Steady:
    """A model that computes throws Python's data out of the processor's caches, so that what counts afterwards is how
    many objects are touched: here the list of each sequence's tokens, and nothing else unless something is due.

    sequences  with one token left to compute each
    beginning  those whose next token begins a block
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        self.sequences = sequences
        self.beginning = list[Sequence]()
        self._texts = [sequence.tokens for sequence in sequences]
        self._stop_ids = frozenset[int]().union(*(sequence.stop_ids for sequence in sequences))
        self._n_steps = 0
        self._due = defaultdict[int, set[int]](set)  # rows by the step that completes a block or ends a sequence
        for row in range(len(sequences)):
            self.resume(row)

    def append(self, ids: list[int]) -> list[int]:
        """Appends the id chosen for each. Returns the rows where more than that is due: at the end of a block, of what
        may be generated, and at an id that ends a sequence. The n_computed of the others is behind until `settle`."""
        self.beginning = []
        if self.append_only(ids):
            return []
        self._append(ids)
        rows = self._due.pop(self._n_steps, set())
        if not self._stop_ids.isdisjoint(ids):
            rows.update(row for row, sequence in enumerate(self.sequences) if ids[row] in sequence.stop_ids)
        return sorted(rows)

    def append_only(self, ids: list[int]) -> bool:
        """`append` where that is all that is due. False, and nothing is done, where more is."""
        if self._n_steps + 1 in self._due or not self._stop_ids.isdisjoint(ids):
            return False
        self._append(ids)
        return True

    def _append(self, ids: list[int]) -> None:
        for text, token_id in zip(self._texts, ids, strict=True):
            text.append(token_id)
        self._n_steps += 1

    def resume(self, row: int) -> None:
        """One whose n_computed is up to date goes on."""
        sequence = self.sequences[row]
        n_computed = sequence.n_computed
        if n_computed % BLOCK_SIZE == 0:
            self.beginning.append(sequence)
        n_steps = min(BLOCK_SIZE - n_computed % BLOCK_SIZE, sequence.max_tokens - len(sequence.tokens))
        self._due[self._n_steps + n_steps].add(row)

    def beginning_after(self) -> list[Sequence] | None:
        """Those that begin a block with the token after the one that `append` is told next; None where that one is the
        last of some sequence."""
        rows = sorted(self._due.get(self._n_steps + 1, ()))
        sequences = [self.sequences[row] for row in rows]
        return None if any(len(s.tokens) + 1 == s.max_tokens for s in sequences) else sequences

    def settle(self) -> None:
        """Brings every n_computed up to date."""
        for sequence in self.sequences:
            if sequence.finish is None:
                sequence.n_computed = len(sequence.tokens) - 1
