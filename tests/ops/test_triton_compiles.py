"""Kernels compile for the card they are meant for, fit it, and do so before the first request: no interpreter tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton.backends.nvidia")

from engine_models import checkpoint

TESTS = Path(__file__).parents[1]
SHARED_BYTES = 99 * 1024
"""What a program may have on consumer cards since 2020; an H200 has more."""

ROOMY, ROOMY_BYTES = {"_multiply", "_attend", "_attend_split"}, 227 * 1024
"""Kernels that have smaller tiles on other cards, or are not there."""

MULTIPLYING = {"_tiles", "_multiply", "_expert_tiles", "_attend", "_attend_split"}
OTHERS = {
    "_vector",
    "_expert_gates",
    "_expert_sums",
    "_rows",
    "_place",
    "_rms_norm",
    "_store_qkv",
    "_combine",
    "_tabulate",
    "_choose",
    "_find_top",
}


def compiled_by(script: str, *arguments: object) -> Any:
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", str(TESTS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kernels_compile_for_an_h200() -> None:
    kernels = compiled_by("compile_kernels.py", 90)
    assert {kernel["name"] for kernel in kernels} >= MULTIPLYING | OTHERS
    assert any(kernel["neighbours"] for kernel in kernels)
    for kernel in kernels:
        assert kernel["stack_bytes"] == 0, f"{kernel['name']} does not fit its registers"
        assert kernel["shared_bytes"] <= (ROOMY_BYTES if kernel["name"] in ROOMY else SHARED_BYTES), kernel["name"]
        assert kernel["tensor_cores"] or kernel["name"] not in MULTIPLYING
        assert all(n and n % 8 == 0 for n in kernel["neighbours"]), f"{kernel['name']} would add what is apart"
        assert kernel["name"] not in ("_attend", "_multiply") or kernel["tensor_cores"] == ["wgmma"]


@pytest.mark.parametrize("capability", [80, 89, 120])
def test_kernels_fit_other_cards(capability: int) -> None:
    """An A100, consumer cards of 2022 and of 2025: what spills there is slow, and no more."""
    kernels = compiled_by("compile_kernels.py", capability)
    assert {kernel["name"] for kernel in kernels} >= (MULTIPLYING | OTHERS) - {"_multiply"}
    for kernel in kernels:
        assert kernel["shared_bytes"] <= SHARED_BYTES, kernel["name"]
        assert all(n and n % 8 == 0 for n in kernel["neighbours"]), kernel["name"]


def test_nothing_compiles_while_serving(tmp_path: Path) -> None:
    """Of each family, with all that requests may ask for: no kernel that warming had not launched alike."""
    models = [("llama-tiny", "F32"), ("qwen2-tiny", "BF16"), ("qwen3-tiny", "Q8_0")]
    models += [("qwen3-moe-tiny", "BF16"), ("gpt-oss-tiny", "MXFP4")]
    late = compiled_by("launch_serving.py", *(checkpoint(tmp_path, *model) for model in models))
    assert len(late) == len(models)
    assert not any(late.values()), late
