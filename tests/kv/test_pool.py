"""The pool of block ids against rules stated one by one, and against a model of it that is too simple to be wrong."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.kv.pool import BlockPool, NoBlocksError


def test_a_fresh_pool_hands_out_the_lowest_ids_first() -> None:
    pool = BlockPool(4)
    assert pool.allocate(3) == [0, 1, 2]
    assert pool.n_free == 1
    pool.check([0, 1, 2])


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(4)
    pool.allocate(2)
    with pytest.raises(NoBlocksError, match=r"3 .* 2 of 4"):
        pool.allocate(3)
    assert pool.n_free == 2
    pool.check([0, 1])
    assert issubclass(NoBlocksError, MemoryError)


def test_a_block_is_free_when_its_last_reference_goes() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.share(block)
    pool.release([block])
    assert pool.n_free == 0
    pool.release([block])
    assert pool.n_free == 1
    with pytest.raises(AssertionError, match="more often"):
        pool.release([block])


def test_a_published_block_is_found_until_its_place_is_needed() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.publish(block, b"a")
    pool.release([block])
    assert pool.find(b"a") == block
    assert pool.n_free == 2
    assert pool.allocate(1) != [block]  # the free one goes first
    assert pool.find(b"a") == block
    assert pool.allocate(1) == [block]
    assert pool.find(b"a") is None


def test_a_shared_idle_block_is_not_evicted() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(2)
    for block in blocks:
        pool.publish(block, b"%d" % block)
    pool.release(blocks)
    pool.share(blocks[1])
    assert pool.n_free == 1
    assert pool.allocate(1) == [blocks[0]]
    with pytest.raises(NoBlocksError):
        pool.allocate(1)


def test_tails_are_evicted_first_and_old_chains_before_new_ones() -> None:
    pool = BlockPool(6)
    old, new = pool.allocate(3), pool.allocate(3)
    for block in old + new:
        pool.publish(block, b"%d" % block)
    pool.release(old)
    pool.release(new)
    assert [pool.allocate(1)[0] for _ in range(6)] == [*reversed(old), *reversed(new)]


def test_use_makes_an_idle_block_recent_again() -> None:
    pool = BlockPool(2)
    a, b = pool.allocate(2)
    pool.publish(a, b"a")
    pool.publish(b, b"b")
    pool.release([a])
    pool.release([b])
    pool.share(a)
    pool.release([a])
    assert pool.allocate(1) == [b]


def test_the_first_block_of_a_hash_keeps_it() -> None:
    pool = BlockPool(3)
    a, b = pool.allocate(2)
    pool.publish(a, b"same")
    pool.publish(b, b"same")
    assert pool.find(b"same") == a
    pool.release([b])
    pool.check([a])
    assert pool.allocate(2)[0] == b  # it was not kept


def test_what_would_be_unreferenced() -> None:
    pool = BlockPool(3)
    a, b, c = pool.allocate(3)
    pool.share(a)
    assert pool.n_unreferenced([a, b, c], {}) == 0
    assert pool.n_unreferenced([a, b, c], {a: 1, b: 1}) == 1
    assert pool.n_unreferenced([a, b, c], {a: 2, b: 1}) == 2


@pytest.mark.parametrize("wrong", [[], [0, 0], [0, 1], [1]])
def test_check_notices_references_that_are_not_as_expected(wrong: list[int]) -> None:
    pool = BlockPool(2)
    pool.allocate(1)
    pool.check([0])
    with pytest.raises(AssertionError):
        pool.check(wrong)


class SimplePool:
    """The same behaviour from one list: (block, hash) of unreferenced blocks, the next to be handed out first."""

    def __init__(self, n_blocks: int) -> None:
        self.queue: list[int] = list(range(n_blocks))
        self.hash_of: dict[int, bytes] = {}
        self.references: Counter[int] = Counter()

    def allocate(self, n: int) -> list[int]:
        blocks, self.queue = self.queue[:n], self.queue[n:]
        for block in blocks:
            self.hash_of.pop(block, None)
            self.references[block] = 1
        return blocks

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.references[block] -= 1
            if not self.references[block]:
                self.queue.insert(len(self.queue) if block in self.hash_of else 0, block)

    def share(self, block: int) -> None:
        if not self.references[block]:
            self.queue.remove(block)
        self.references[block] += 1

    def find(self, digest: bytes) -> int | None:
        return next((block for block, held in self.hash_of.items() if held == digest), None)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_pool_behaves_as_a_simple_one(data: st.DataObject) -> None:
    n_blocks = data.draw(st.integers(1, 8))
    pool, simple = BlockPool(n_blocks), SimplePool(n_blocks)
    held: list[list[int]] = []
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(("allocate", "release", "publish", "share")))
        if action == "allocate":
            n = data.draw(st.integers(0, n_blocks))
            if n > len(simple.queue):
                with pytest.raises(NoBlocksError):
                    pool.allocate(n)
            else:
                held.append(pool.allocate(n))
                assert held[-1] == simple.allocate(n)
        elif action == "release" and held:
            blocks = held.pop(data.draw(st.integers(0, len(held) - 1)))
            pool.release(blocks)
            simple.release(blocks)
        elif action == "publish":
            digest = b"%d" % data.draw(st.integers(0, 5))
            unpublished = sorted({block for blocks in held for block in blocks} - set(simple.hash_of))
            if unpublished:
                block = data.draw(st.sampled_from(unpublished))
                pool.publish(block, digest)
                if simple.find(digest) is None:
                    simple.hash_of[block] = digest
        elif action == "share":
            found = pool.find(digest := b"%d" % data.draw(st.integers(0, 5)))
            assert found == simple.find(digest)
            if found is not None:
                pool.share(found)
                simple.share(found)
                held.append([found])
        assert pool.n_free == len(simple.queue)
        pool.check(block for blocks in held for block in blocks)
