"""The block tables of sequences, one for each group of layers that see equally far. It does not decide who runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gristmill.engine.sequence import Sequence
from gristmill.kv.pool import BlockPool
from gristmill.ops.interface import BLOCK_SIZE, Begun


def first_kept(n_full: int, window: int) -> int:
    """The first block that queries still read once n_full blocks are computed; what lies before it is free."""
    return max(0, n_full * BLOCK_SIZE - window + 1) // BLOCK_SIZE if window else 0


def most_held(n_tokens: int, window: int) -> int:
    """Blocks held at most while n_tokens are computed one by one."""
    n_blocks = -(-n_tokens // BLOCK_SIZE)
    return min(n_blocks, (window + BLOCK_SIZE - 2) // BLOCK_SIZE + 1) if window else n_blocks


class BlockTables:
    """pools[g] has the blocks of layer group g, whose queries read the last windows[g] positions; 0: all of them.

    A sequence's tables are equally long in all groups. A group with a window frees the blocks that no later query
    reads, at each block that is completed, and keeps their places in the table.
    """

    def __init__(self, pools: list[BlockPool], windows: list[int]) -> None:
        if not pools or len(pools) != len(windows) or min(windows) < 0:
            raise ValueError(f"{len(pools)} pools for windows {windows}: give a pool for each window, 0 for no window")
        self.pools = pools
        self.windows = windows
        self._groups = list(enumerate(zip(pools, windows, strict=True)))

    def check_fits(self, sequence: Sequence) -> None:
        """ValueError for a sequence that could not finish even if it had all blocks to itself."""
        n_tokens = sequence.max_tokens - 1
        for _, (pool, window) in self._groups:
            if (n_blocks := most_held(n_tokens, window)) > pool.n_blocks:
                raise ValueError(
                    f"{sequence.n_prompt} tokens of prompt and {sequence.max_output} of output need {n_blocks} cache"
                    f" blocks of {BLOCK_SIZE} positions, and there are {pool.n_blocks}: shorten them, or give more"
                )

    def find_prefix(self, sequence: Sequence) -> int:
        """Blocks of its longest prefix that it needs not compute: each group has what queries after it will read.

        What has rows that are wanted is left to compute, at least its last token, from which it goes on.
        """
        longest, n_found = 0, [0] * len(self.pools)  # the unbroken run of blocks that ends here, in each group
        for n, digest in enumerate(sequence.hashes[: sequence.n_reusable // BLOCK_SIZE], 1):
            for group, (pool, window) in self._groups:
                n_found[group] = n_found[group] + 1 if pool.find(digest) is not None else 0
                if not n_found[group] and not window:
                    return longest
            if all(found >= n - first_kept(n, window) for found, window in zip(n_found, self.windows, strict=True)):
                longest = n
        return longest

    def fits(self, sequence: Sequence, n_hit: int, staying: list[Sequence], leaving: list[Sequence]) -> bool:
        """Whether there are blocks for all tokens of a sequence that is not admitted yet, and for one more.

        What the `staying` ones still need for theirs is set aside. What the `leaving` ones hold counts as free.
        """
        for group, (pool, window) in self._groups:
            dropped = Counter(block for other in leaving for block in self._held(other, group))
            found = self._cached(sequence, n_hit, group)
            n_free = pool.n_free + pool.n_unreferenced(dropped, dropped) - pool.n_unreferenced(found, dropped)
            n_needed = _most_wanted(sequence, window) - len(found)
            for other in staying:
                n_held = len(other.block_ids[group]) - first_kept(other.n_full, window)
                n_needed += max(0, _most_wanted(other, window) - n_held)
            if n_needed > n_free:
                return False
        return True

    def open(self, sequence: Sequence, n_hit: int) -> None:
        """Tables that begin with the blocks of its first n_hit that are in the cache."""
        sequence.block_ids = []
        for group, (pool, window) in self._groups:
            found = self._cached(sequence, n_hit, group)
            for block in found:
                pool.share(block)
            sequence.block_ids.append([0] * first_kept(n_hit, window) + found)
        sequence.n_computed = n_hit * BLOCK_SIZE

    def extend(self, sequence: Sequence, n_tokens: int) -> int:
        """Takes blocks for the first n_tokens, or as many as can be had. Returns the tokens there is room for now."""
        tables = sequence.block_ids
        n_missing = -(-n_tokens // BLOCK_SIZE) - len(tables[0])
        if n_missing > 0:
            for pool in self.pools:
                n_missing = min(n_missing, pool.n_free)
            for table, pool in zip(tables, self.pools, strict=True):
                table += pool.allocate(n_missing)
        return len(tables[0]) * BLOCK_SIZE

    def begin(self, sequences: list[Sequence], n_ahead: int) -> Begun | None:
        """Of each group, the blocks of the position n_ahead after the last token of each of these, which are taken
        where they are not there yet. None, and nothing is taken, where there are too few."""
        places = [(len(sequence.tokens) - 1 + n_ahead) // BLOCK_SIZE for sequence in sequences]
        tables = [sequence.block_ids for sequence in sequences]
        missing = [table for table, place in zip(tables, places, strict=True) if place == len(table[0])]
        for pool in self.pools:
            if pool.n_free < len(missing):
                return None
        for group, pool in enumerate(self.pools):
            for table, block in zip(missing, pool.allocate(len(missing)), strict=True):
                table[group].append(block)
        groups = range(len(self.pools))
        return [[table[group][place] for table, place in zip(tables, places, strict=True)] for group in groups]

    def complete(self, sequence: Sequence, n_before: int) -> None:
        """Publishes the blocks that were completed since n_before of them were, and frees what left a window."""
        n_full = sequence.n_full
        sequence.hash_blocks(n_full)
        for group, (pool, window) in self._groups:
            table = sequence.block_ids[group]
            for i in range(n_before, n_full):
                pool.publish(table[i], sequence.hashes[i])
            if window:
                begin, end = first_kept(n_before, window), first_kept(n_full, window)
                pool.release(table[begin:end])
                table[begin:end] = [0] * (end - begin)

    def retract(self, sequence: Sequence) -> None:
        """Lets nobody find the blocks of a sequence any more."""
        for group, (pool, _) in self._groups:
            pool.retract(self._held(sequence, group))

    def close(self, sequence: Sequence) -> None:
        """Gives up all blocks of a sequence."""
        for group, (pool, _) in self._groups:
            pool.release(self._held(sequence, group))
        sequence.block_ids = []

    def check(self, sequences: Iterable[Sequence]) -> None:
        """AssertionError unless these sequences' tables are sound and account for every block."""
        sequences = list(sequences)
        for sequence in sequences:
            n_blocks = len(sequence.block_ids[0])
            assert all(len(table) == n_blocks for table in sequence.block_ids), "tables of different lengths"
            assert sequence.n_computed <= n_blocks * BLOCK_SIZE, "computed tokens without a block"
            for table, window in zip(sequence.block_ids, self.windows, strict=True):
                assert not any(table[: first_kept(sequence.n_full, window)]), "a freed block is still in a table"
        for group, (pool, _) in self._groups:
            pool.check(block for sequence in sequences for block in self._held(sequence, group))

    def _held(self, sequence: Sequence, group: int) -> list[int]:
        return sequence.block_ids[group][first_kept(sequence.n_full, self.windows[group]) :]

    def _cached(self, sequence: Sequence, n_hit: int, group: int) -> list[int]:
        """What stands in the cache for its first n_hit blocks, without those that no query reads."""
        digests = sequence.hashes[first_kept(n_hit, self.windows[group]) : n_hit]
        return [block for digest in digests if (block := self.pools[group].find(digest)) is not None]


def _most_wanted(sequence: Sequence, window: int) -> int:
    """Blocks held at most until the tokens that are known now and one more are computed."""
    return most_held(min(len(sequence.tokens) + 1, sequence.max_tokens - 1), window)
