"""The kernels that multiply compile for the card they are meant for, and fit it, which no interpreter tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton.backends.nvidia")
TESTS = Path(__file__).parents[1]
SHARED_BYTES = 99 * 1024
"""What a program may have on consumer cards since 2020; an H200 has more."""


def test_kernels_compile_for_an_h200() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", str(TESTS / "compile_matrices.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    kernels = json.loads(done.stdout)
    assert {kernel["name"] for kernel in kernels} >= {"_vector", "_tiles", "_expert_tiles", "_rows", "_place"}
    for kernel in kernels:
        assert kernel["stack_bytes"] == 0, f"{kernel['name']} does not fit its registers"
        assert kernel["shared_bytes"] <= SHARED_BYTES, kernel["name"]
        assert kernel["tensor_cores"] or kernel["name"] not in ("_tiles", "_expert_tiles")
