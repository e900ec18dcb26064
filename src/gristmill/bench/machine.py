"""This machine's limits, measured: how fast memory is read and numbers are multiplied. It knows no model."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from gristmill import _kernels
from gristmill.ops.cpu import CpuOps

ARITHMETICS = ("f32", "bf16", "int8")
PEAK_S = 0.03
"""Seconds of one round of multiplying."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rounds of one measurement, in units of 1e9 a second."""

    best: float
    median: float


@dataclass(frozen=True, slots=True)
class Limits:
    """read: GB/s. peaks: GFLOP/s (int8: GOP/s) by arithmetic, a multiply-add counted as two."""

    threads: int
    isa: str
    read: Rate
    peaks: dict[str, Rate]


class Machine:
    """Holds the memory that is read, so that every thread count reads the same.

    n_bytes  enough that no cache helps
    isa      as CpuOps takes it; ValueError where the machine lacks it
    """

    def __init__(self, n_bytes: int, isa: str | None = None) -> None:
        self._isa = CpuOps(1, isa).isa
        self._n_bytes = n_bytes
        self._ops: dict[int, _kernels.Ops] = {}
        self._memory: _kernels.ReadTest | None = None

    def read(self, threads: int, rounds: int) -> Rate:
        """GB/s of passes over the memory, one warm-up before."""
        ops = self._on(threads)
        if self._memory is None:
            self._memory = _kernels.ReadTest(ops, self._n_bytes)
            self._memory.run(ops)
        return _rate([self._memory.run(ops) for _ in range(rounds)])

    def peak(self, threads: int, arithmetic: str, rounds: int) -> Rate:
        """GFLOP/s (int8: GOP/s) of multiply-adds in registers."""
        ops = self._on(threads)
        return _rate([_kernels.measure_peak(ops, arithmetic, PEAK_S) for _ in range(rounds)])

    def limits(self, threads: int, rounds: int) -> Limits:
        """All of them."""
        read = self.read(threads, rounds)
        return Limits(threads, self._isa, read, {a: self.peak(threads, a, rounds) for a in ARITHMETICS})

    def _on(self, threads: int) -> _kernels.Ops:
        if threads not in self._ops:
            self._ops[threads] = _kernels.Ops(threads, self._isa)
        return self._ops[threads]


def _rate(per_second: list[float]) -> Rate:
    return Rate(max(per_second) / 1e9, statistics.median(per_second) / 1e9)
