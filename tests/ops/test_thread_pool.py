"""The end of a pool of threads: each of them leaves, whatever it is at."""

from __future__ import annotations

import subprocess
import sys

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
