"""A pool of threads: everything is done, whoever takes it over, and at its end each thread leaves, wherever it is."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from batches import batch_of
from process_memory import resident_bytes

from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import CpuOps

PROGRAM = """
import numpy as np
from gristmill import _kernels

x, weight = np.ones((2, 8192), np.float32), np.ones(8192, np.float32)
for i in range(8_000):
    ops = _kernels.Ops(16, "auto")
    ops.rms_norm(x, None, weight, 1e-5)
    for _ in range(i % 40):
        pass
"""


def test_a_pool_ends_while_its_threads_are_at_a_loop_s_end() -> None:
    """Many pools that end at different moments after a loop. Where a thread could miss the end, one pool in 2,000 to
    30,000 or more never ended: these show it often, not always."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)


FEW = """
import resource
from pathlib import Path
from gristmill import _kernels

pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (150 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    _kernels.Ops(512, "auto")
except ValueError as error:
    assert "of 512, ask for fewer" in str(error), error
else:
    raise SystemExit(1)
"""

FORKED = """
import os, sys, threading
import numpy as np
from gristmill import _kernels

ops = _kernels.Ops(3, "auto")
ops.rms_norm(np.ones((2, 8192), np.float32), None, np.ones(8192, np.float32), 1e-5)
if os.fork() == 0:
    # Its threads take the places of those that it has not.
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    others = _kernels.Ops(3, "auto")
    del ops
    done.set()
    thread.join()
    del others
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) - 7)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts address space as Linux does")
def test_a_system_that_gives_too_few_threads_is_told_of() -> None:
    subprocess.run([sys.executable, "-c", FEW], check=True, timeout=60)


def test_a_fork_may_let_go_of_what_its_parent_computes_with() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)


def test_threads_that_end_leave_no_memory() -> None:
    batch = batch_of([(0, 200)], 20)

    def attend() -> None:
        ops = CpuOps(9)
        kv = ops.kv_layers(1, 20, 2, 64, "f16")[0]
        kv.fill(0)
        ops.attention(np.ones((200, 256), np.float32), kv, batch, batch.block_tables[0], 0, None)

    for _ in range(10):
        attend()
    before = resident_bytes("RssAnon")
    for _ in range(40):
        attend()
    assert resident_bytes("RssAnon") - before < 20 << 20  # 0.18 MB a thread were 58


@pytest.mark.parametrize("n_threads", [2, 3, 16])
@pytest.mark.parametrize("rows", [16, 64, 200, 4160])
@pytest.mark.parametrize("columns", [1, 16, 300])
def test_every_panel_is_multiplied_with_every_column(rows: int, columns: int, n_threads: int) -> None:
    """Threads take over stretches from one another, also amid a group's columns: with more of them than cores
    they are stopped anywhere."""
    rng = np.random.default_rng(rows + columns)
    data = rng.normal(size=(rows, 64)).astype(np.float32)
    weight = Weight("w", data.reshape(-1).view(np.uint8), QType.F32, (rows, 64), None)
    x = rng.normal(size=(columns, 64)).astype(np.float32)
    alone = CpuOps(1, "auto")
    expected = alone.linear(x, alone.put([weight]))
    np.testing.assert_allclose(expected, x @ data.T, rtol=1e-4, atol=1e-4)
    ops = CpuOps(n_threads, "auto")
    packed = ops.put([weight])
    for _ in range(15):
        for sign in (np.float32(1), np.float32(-1)):  # what is left out still has the other sign
            assert np.array_equal(ops.linear(sign * x, packed), sign * expected)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_what_is_left_of_a_loop_is_not_taken_for_that_of_one_65536_loops_later(before: int) -> None:
    """Threads note which loop they took items of, by a number of 16 bits. Loops between hand out items one by one, so
    that these notes stay."""
    data = np.random.default_rng(0).normal(size=(4160, 64)).astype(np.float32)
    ops = CpuOps(2, "auto")
    packed = ops.put([Weight("w", data.reshape(-1).view(np.uint8), QType.F32, data.shape, None)])
    x, rows, weight = np.ones((1, 64), np.float32), np.ones((2, 8192), np.float32), np.ones(8192, np.float32)
    expected = ops.linear(x, packed)
    for _ in range(65_536 - before):
        ops.get(ops.rms_norm(rows, weight, 1e-5))
    assert np.array_equal(ops.linear(-x, packed), -expected)
