"""Which blocks of the cache are free and which are taken. It knows ids only, no memory."""

from __future__ import annotations


class BlockPool:
    """Hands out block ids 0 .. n_blocks - 1, lowest first when fresh."""

    def __init__(self, n_blocks: int) -> None:
        self._free = list(range(n_blocks - 1, -1, -1))
        self._taken: set[int] = set()

    @property
    def n_free(self) -> int:
        return len(self._free)

    def allocate(self, n: int) -> list[int]:
        """n block ids; MemoryError when fewer are free, and then none is taken."""
        if n > len(self._free):
            raise MemoryError(f"{n} cache blocks asked for, {len(self._free)} free")
        blocks = [self._free.pop() for _ in range(n)]
        self._taken.update(blocks)
        return blocks

    def free(self, blocks: list[int]) -> None:
        for block in blocks:
            self._taken.remove(block)
            self._free.append(block)

    def check(self) -> None:
        """Every block is either free or taken, once."""
        assert len(self._free) == len(set(self._free))
        assert self._taken.isdisjoint(self._free)
