"""Compiles Triton's kernels for a card that is not there: launching compiles, and runs nothing.

Only for a process of its own, with TRITON_INTERPRET=0. What compiles may still compute wrongly; that the interpreter
tells.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel as a multiprocessor sees it.

    stack_bytes   of a thread, for what its registers did not hold
    shared_bytes  of a program
    tensor_cores  the instructions that multiply tiles: mma, wgmma
    neighbours    of numbers that PTX adds eight at once, how many of a row a thread has side by side
    """

    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    tensor_cores: frozenset[str]
    neighbours: frozenset[int]


class Driver:
    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target


@contextmanager
def compiling(capability: int) -> Iterator[list[Compiled]]:
    """Within, kernels that are launched are compiled for this capability (90: H100, H200), and listed."""
    listed: list[Compiled] = []
    seen: set[int] = set()
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        if id(kernel) not in seen:
            seen.add(id(kernel))
            listed.append(_examine(kernel))
        return kernel

    triton.runtime.driver.set_active(Driver(capability))
    JITFunction.run = compile_only
    try:
        yield listed
    finally:
        JITFunction.run = run


def _examine(kernel: Any) -> Compiled:
    cuobjdump = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(kernel.asm["cubin"])
        binary.flush()
        command = [cuobjdump, "--dump-resource-usage", binary.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = (int(n) for n in re.search(r"REG:(\d+) STACK:(\d+)", said).groups())
    cores = frozenset(re.findall(r"\b(wgmma|mma)\.", kernel.asm["ptx"]))
    neighbours = frozenset(_neighbours(kernel.asm["ttgir"]))
    return Compiled(kernel.metadata.name, registers, stack, kernel.metadata.shared, cores, neighbours)


def _neighbours(ttgir: str) -> Iterator[int]:
    sizes = dict(re.findall(r"^(#\w+) = .*sizePerThread = \[1, (\d+)\]", ttgir, re.MULTILINE))
    for line in ttgir.splitlines():
        if "elementwise_inline_asm" in line and "packed_element = 8" in line:
            yield from (int(sizes.get(layout, 0)) for layout in set(re.findall(r"(#\w+)>", line)))
