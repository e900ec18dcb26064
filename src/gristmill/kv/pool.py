"""Which blocks of one layer group are free, used or worth keeping. It knows ids and hashes: no memory, no requests."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping


class NoBlocksError(MemoryError):
    """More cache blocks were asked for than can be had."""


class BlockPool:
    """Block ids 0 .. n_blocks - 1, counted by reference, and a prefix cache over them.

    Each block is in one of three states: free; referred to, by one sequence or by several that share it; or idle: of no
    reference, but published under a hash of what it holds, so kept until its place is needed.
    """

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self._free = list(range(n_blocks - 1, -1, -1))
        self._references = [0] * n_blocks
        self._hashes: list[bytes | None] = [None] * n_blocks
        self._published: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # the first is evicted first

    @property
    def n_free(self) -> int:
        """Blocks that `allocate` could hand out: the free and the idle ones."""
        return len(self._free) + len(self._idle)

    def allocate(self, n: int) -> list[int]:
        """n blocks with one reference each: free ones (of a fresh pool the lowest ids first), then the idle ones that
        were not used for longest, which the cache forgets. NoBlocksError when fewer can be had; then none is taken."""
        if n > self.n_free:
            raise NoBlocksError(f"{n} cache blocks asked for, {self.n_free} of {self.n_blocks} can be had")
        blocks = []
        for _ in range(n):
            block = self._free.pop() if self._free else self._evict()
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def share(self, block: int) -> None:
        """One more reference to a block that is referred to or idle."""
        if self._references[block] == 0:
            del self._idle[block]
        self._references[block] += 1

    def release(self, blocks: list[int]) -> None:
        """One reference less to each of these, which stand in the order of their positions.

        A block of a prefix is of use only while all before it are there, so the later ones become idle first, and so
        are evicted first.
        """
        for block in reversed(blocks):
            assert self._references[block] > 0, f"block {block} is released more often than it was taken"
            self._references[block] -= 1
            if self._references[block] == 0:
                if self._hashes[block] is None:
                    self._free.append(block)
                else:
                    self._idle[block] = None

    def find(self, digest: bytes) -> int | None:
        """The block published under this hash. It may be idle: `share` it before anything is allocated."""
        return self._published.get(digest)

    def publish(self, block: int, digest: bytes) -> None:
        """Lets others find a block that is referred to. Nothing happens where another block has this hash already."""
        assert self._references[block] > 0, f"block {block} is published while nobody refers to it"
        assert self._hashes[block] is None, f"block {block} is published twice"
        if self._published.setdefault(digest, block) == block:
            self._hashes[block] = digest

    def retract(self, blocks: Iterable[int]) -> None:
        """Nobody finds these from now on. Who refers to them keeps them."""
        for block in blocks:
            digest = self._hashes[block]
            if digest is not None:
                del self._published[digest]
                self._hashes[block] = None

    def n_unreferenced(self, blocks: Iterable[int], dropped: Mapping[int, int]) -> int:
        """How many of these would have no reference left, were dropped[block] references to each block released."""
        return sum(self._references[block] == dropped.get(block, 0) for block in blocks)

    def check(self, expected: Iterable[int]) -> None:
        """AssertionError unless the references are exactly those `expected`, and every block is in one state."""
        counts = Counter(expected)
        assert self._references == [counts[block] for block in range(self.n_blocks)], "references differ"
        unused = [block for block in range(self.n_blocks) if not counts[block]]
        assert sorted([*self._free, *self._idle]) == unused, "a block is lost, or both free and used"
        assert all(self._hashes[block] is not None for block in self._idle), "an idle block has no hash"
        assert all(self._hashes[block] is None for block in self._free), "a free block has a hash"
        published = {digest: block for block, digest in enumerate(self._hashes) if digest is not None}
        assert published == self._published, "the index differs from the blocks' hashes"

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        digest = self._hashes[block]
        assert digest is not None
        del self._published[digest]
        self._hashes[block] = None
        return block
