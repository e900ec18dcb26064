"""As many threads as this process may keep busy: its cores, its container's quota, no hyper-threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.ops import cpu

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say")

V2 = Path("/sys/fs/cgroup/cpu.max")
V1 = (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 64 cores, all of which this process may use."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(cpu, "_physical_cores", lambda: 64)


def say(monkeypatch: pytest.MonkeyPatch, files: dict[Path, str]) -> None:
    """What the system's files hold; others are not there."""

    def read_text(path: Path) -> str:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    monkeypatch.setattr(Path, "read_text", read_text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({V2: "200000 100000\n"}, 2),
        ({V2: "150000 100000\n"}, 2),
        ({V2: "1000 100000\n"}, 1),
        ({V2: "max 100000\n"}, 64),
        ({V2: "nonsense"}, 64),
        ({V1[0]: "300000\n", V1[1]: "100000\n"}, 3),
        ({V1[0]: "-1\n", V1[1]: "100000\n"}, 64),
        ({}, 64),
    ],
)
def test_a_containers_quota(
    large: None, monkeypatch: pytest.MonkeyPatch, files: dict[Path, str], expected: int
) -> None:
    say(monkeypatch, files)
    assert cpu.default_threads() == expected


@pytest.mark.parametrize(("cores", "physical", "expected"), [(64, 32, 32), (3, 32, 3), (1, 0, 1)])
def test_cores(monkeypatch: pytest.MonkeyPatch, cores: int, physical: int, expected: int) -> None:
    say(monkeypatch, {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(cpu, "_physical_cores", lambda: physical)
    assert cpu.default_threads() == expected


def test_a_process_that_is_kept_to_one_core_starts_no_second_thread() -> None:
    """As `taskset` keeps it."""
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{one}}})\n"
        "import psutil; from gristmill.ops.cpu import CpuOps; from gristmill.ops.cpu import default_threads\n"
        "before = psutil.Process().num_threads(); ops = CpuOps()\n"
        "print(default_threads(), ops.n_threads, psutil.Process().num_threads() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "0"]
