"""The native code compiles with clang for macOS, without a warning. What comes of it cannot be run here."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "src" / "gristmill" / "native"
FILES = sorted(str(path.relative_to(NATIVE)) for path in NATIVE.rglob("*.cpp"))
OTHER_PROCESSORS = ("kernels_amx", "kernels_avx")
FLAGS = ["-target", "aarch64-macos", "-mcpu=apple_m1", "-std=gnu++17", "-O0", "-Wall", "-Wextra", "-Werror"]


@pytest.mark.skipif(not find_spec("ziglang"), reason="needs ziglang: clang with the headers of macOS")
@pytest.mark.parametrize("file", [name for name in FILES if not name.startswith(OTHER_PROCESSORS)])
def test_compiles_for_macos(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nanobind

    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "cache"))
    headers = [f"-isystem{sysconfig.get_path('include')}", f"-isystem{nanobind.include_dir()}"]
    command = [sys.executable, "-m", "ziglang", "c++", *FLAGS, *headers, "-c", file, "-o", str(tmp_path / "file.o")]
    done = subprocess.run(command, cwd=NATIVE, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
