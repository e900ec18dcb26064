"""Memory that weights lie in: side by side, also where they are packed one by one, as late as they are used again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from process_memory import resident_bytes
from random_weights import random_weight

from gristmill.formats.mapped import MappedFile
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import CpuOps

MIB = 1 << 20

CONFINED = """
import resource
from pathlib import Path
import numpy as np
from gristmill.formats.checkpoint import Weight
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import CpuOps

ops = CpuOps(1)
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
weight = Weight("w", np.ones(2048 * 4096 // 32 * 34, np.uint8), QType.Q8_0, (2048, 4096))
stacks = [ops.put([weight]) for _ in range(4)]
assert np.isfinite(ops.linear(np.ones((1, 4096), np.float32), stacks[-1])).all()
try:
    for _ in range(40):
        stacks.append(ops.put([weight]))
except MemoryError:
    print(len(stacks))
"""


@pytest.mark.parametrize("lazy", [False, True])
def test_weights_waste_no_huge_pages(tmp_path: Path, lazy: bool) -> None:
    """In memory of their own, of which each leaves the most of a huge page, they would take 12 MiB more."""
    weights = []
    for seed in range(20):
        weight = random_weight(QType.Q8_0, (2352, 4096), seed)
        path = tmp_path / str(seed)
        path.write_bytes(weight.data.tobytes())
        weights.append(replace(weight, data=MappedFile(path).view(0, weight.data.nbytes)))
    n_bytes = 20 * len(weights[0].data)
    before = resident_bytes("RssAnon")
    ops = CpuOps(2, lazy=lazy)
    stacks = ops.put_all([([weight], None) for weight in weights])
    ops.finish_put()
    assert all(stack.is_packed != lazy for stack in stacks)
    if lazy:
        assert resident_bytes("RssAnon") - before < 8 * MIB
        ops.pack_waiting(lambda: False)
    assert abs(resident_bytes("RssAnon") - before - n_bytes) < 3 * MIB
    x = np.ones((1, 4096), np.float32)
    plain = CpuOps(2)
    for weight, stack in zip(weights, stacks, strict=True):
        np.testing.assert_array_equal(ops.linear(x, stack), plain.linear(x, plain.put([weight])))


def test_memory_of_weights_goes_with_them() -> None:
    """What lies side by side goes when the last of it does, a large matrix, which has memory of its own, by itself."""
    before = resident_bytes("RssAnon")
    ops = CpuOps(2)
    large = ops.put([random_weight(QType.Q8_0, (65536, 4096))])  # 272 MiB
    small = ops.put([random_weight(QType.Q8_0, (4096, 4096))])  # 17 MiB
    assert resident_bytes("RssAnon") - before > 280 * MIB
    del large
    assert 16 * MIB < resident_bytes("RssAnon") - before < 32 * MIB
    del small, ops
    assert resident_bytes("RssAnon") - before < 8 * MIB


def test_little_address_space_is_enough_for_small_models() -> None:
    """As `ulimit -v` leaves it: less than what is else mapped at once. A MemoryError where there is none at all."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc/self/statm, which Linux has")
    done = subprocess.run([sys.executable, "-c", CONFINED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 4 < int(done.stdout) < 44


def test_a_few_tokens_touch_few_huge_pages_of_the_cache() -> None:
    """All layers' first blocks lie side by side; a page for each layer would be 56 MiB and more."""
    ops = CpuOps(2)
    layers = ops.kv_layers(28, 2048, 8, 128, "f16")
    qkv = np.ones((16, 24 * 128), np.float32)
    angles = np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32)

    def touched(first_block: int) -> int:
        before = resident_bytes("RssAnon")
        for layer in layers:
            ops.store_qkv(qkv, None, None, 1e-6, angles, layer, 16 * first_block + np.arange(16, dtype=np.int32))
        return resident_bytes("RssAnon") - before

    assert touched(0) <= 5 * MIB
    assert touched(1) <= 5 * MIB
    assert touched(2) <= 7 * MIB
