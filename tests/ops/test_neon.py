"""The NEON kernels, built for 64-bit Arm and run under qemu, against the portable ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src" / "gristmill" / "native"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
PARTS = ("kernels_neon", "kernels_portable", "arena", "pack", "lay", "dequantize", "grids", "quantize", "threads")


@pytest.mark.skipif(not shutil.which(COMPILER) or not shutil.which(EMULATOR), reason=f"needs {COMPILER} and {EMULATOR}")
def test_neon_kernels_under_emulation(tmp_path: Path) -> None:
    binary = tmp_path / "neon_check"
    flags = ["-std=c++17", "-O2", "-static", "-pthread", "-ffp-contract=off", "-march=armv8.2-a+dotprod+fp16"]
    flags += ["-Wall", "-Wextra", "-Werror", "-Wno-psabi", f"-I{NATIVE}"]
    sources = [str(NATIVE / f"{part}.cpp") for part in PARTS] + [str(Path(__file__).with_name("neon_check.cpp"))]
    subprocess.run([COMPILER, *flags, *sources, "-o", str(binary)], check=True)
    done = subprocess.run([EMULATOR, "-cpu", "max", str(binary)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all ok\n")
