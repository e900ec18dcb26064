"""Memory that is cleared ahead of the weights: how much of it, for whom, and that they are the same there."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from process_memory import resident_bytes
from random_weights import random_weight

from gristmill._kernels import Memory
from gristmill.formats.mapped import MappedFile
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import CpuOps
from gristmill.ops.memory import clear_for

MIB = 1 << 20


def settled(memory: Memory) -> int:
    """Bytes that are cleared once no more are being cleared."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        before = memory.n_cleared
        time.sleep(0.2)
        if memory.n_cleared == before:
            return before
    raise TimeoutError("memory is cleared and cleared")


def test_as_much_is_cleared_as_a_file_has(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.touch()
    os.truncate(path, 24 * MIB)
    assert settled(clear_for(path)) == 24 * MIB


def test_a_folder_has_nothing_cleared(tmp_path: Path) -> None:
    assert settled(clear_for(tmp_path)) == 0


def test_more_than_there_is_is_left_to_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Memory):
        def expect(self, n_bytes: int) -> None:
            raise MemoryError

    monkeypatch.setattr("gristmill.ops.memory.Memory", Full)
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    assert clear_for(path).n_cleared == 0


@pytest.mark.parametrize("least", [8, 48])
def test_clearing_goes_on_to_what_turns_out_to_be_needed(least: int) -> None:
    memory = Memory()
    memory.expect(4096 * MIB)
    memory.expect(least * MIB)
    assert least * MIB <= settled(memory) < 4096 * MIB


@pytest.mark.parametrize(("more", "cleared"), [(49, 48), (51, 48), (52, 52)])
def test_what_is_cleared_stays_where_little_more_is_needed(more: int, cleared: int) -> None:
    """K types take a little more than in their file; weights that outgrow that memory lie in other."""
    memory = Memory()
    memory.expect(48 * MIB)
    settled(memory)
    memory.expect(more * MIB)
    assert (memory.n_cleared == 48 * MIB) == (cleared == 48)
    assert settled(memory) == cleared * MIB
    weights = [random_weight(QType.Q8_0, (2048, 4096), seed) for seed in range(6)]  # 51 MiB
    x = np.ones((1, 4096), np.float32)
    results = []
    for ops in (CpuOps(2, memory=memory), CpuOps(2)):
        stacks = ops.put_all([([weight], None) for weight in weights])
        ops.expect(0)
        results.append([ops.linear(x, stack) for stack in stacks])
    np.testing.assert_array_equal(*results)


def test_weights_that_wait_give_it_back_and_lie_side_by_side_later(tmp_path: Path) -> None:
    """In chunks of 64 MiB, of which six weights leave the most of a huge page, 195 MiB would take 5 MiB more."""
    weights = []
    for seed in range(20):
        weight = random_weight(QType.Q8_0, (2352, 4096), seed)
        path = tmp_path / str(seed)
        path.write_bytes(weight.data.tobytes())
        weights.append(replace(weight, data=MappedFile(path).view(0, weight.data.nbytes)))
    memory, before = Memory(), resident_bytes("RssAnon")
    ops = CpuOps(2, memory=memory, lazy=True)
    memory.expect(64 * MIB)  # less than three quarters of all
    assert settled(memory) == 64 * MIB
    assert resident_bytes("RssAnon") - before > 60 * MIB
    n_bytes = 20 * len(weights[0].data)
    ops.expect(n_bytes)
    stacks = ops.put_all([([weight], None) for weight in weights])
    ops.expect(0)
    assert not any(stack.is_packed for stack in stacks)
    assert resident_bytes("RssAnon") - before < 8 * MIB
    ops.pack_waiting(lambda: False)
    assert resident_bytes("RssAnon") - before - n_bytes < 3 * MIB
    x = np.ones((1, 4096), np.float32)
    plain = CpuOps(2)
    for weight, stack in zip(weights, stacks, strict=True):
        np.testing.assert_array_equal(ops.linear(x, stack), plain.linear(x, plain.put([weight])))


def test_weights_are_the_same_there() -> None:
    weight = random_weight(QType.Q8_0, (2048, 4096))
    memory = Memory()
    x = np.random.default_rng(0).standard_normal((3, 4096), np.float32)
    results = []
    there = CpuOps(2, memory=memory)
    there.expect(24 * MIB)
    assert settled(memory) == 24 * MIB
    for ops in (CpuOps(2), there):
        ops.expect(16 * MIB)
        w = ops.put([weight])
        ops.expect(0)
        results.append(np.asarray(ops.get(ops.linear(x, w))))
    assert results[0].any()
    np.testing.assert_array_equal(*results)
