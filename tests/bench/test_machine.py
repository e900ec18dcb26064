"""The machine's limits as the compiled loops find them."""

from __future__ import annotations

import pytest

from gristmill import _kernels
from gristmill.bench.machine import ARITHMETICS, Machine
from gristmill.ops.cpu import CpuOps

SIZE = 256 << 20


def isas() -> list[str]:
    found = []
    for isa in ("avx512", "avx2", "neon", "portable"):
        try:
            found.append(CpuOps(1, isa).isa)
        except ValueError:
            continue
    return found


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_peaks_are_plausible(isa: str, arithmetic: str) -> None:
    """A loop that the compiler had emptied would be far over what any core does: 8192 operations a clock at 10 GHz."""
    peak = _kernels.measure_peak(_kernels.Ops(1, isa), arithmetic, 0.005)
    assert 1e8 < peak < 1e14


def test_limits_of_one_thread() -> None:
    limits = Machine(SIZE).limits(1, 3)
    assert set(limits.peaks) == set(ARITHMETICS)
    assert 0.1 < limits.read.median <= limits.read.best < 2000
    assert all(0 < rate.median <= rate.best for rate in limits.peaks.values())


@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_wider_vectors_are_not_slower(name: str) -> None:
    if name not in isas():
        pytest.skip(f"this machine has no {name}")
    wide, narrow = (_kernels.measure_peak(_kernels.Ops(1, isa), "int8", 0.01) for isa in (name, "portable"))
    assert wide > narrow


def test_bad_values() -> None:
    ops = _kernels.Ops(1, "portable")
    with pytest.raises(ValueError, match="must be f32, bf16 or int8"):
        _kernels.measure_peak(ops, "fp8", 0.1)
    with pytest.raises(ValueError, match="seconds must be over 0"):
        _kernels.measure_peak(ops, "f32", 0.0)
    with pytest.raises(ValueError, match="ReadTest"):
        _kernels.ReadTest(ops, 0)
    with pytest.raises(ValueError, match="instruction set"):
        Machine(SIZE, "sse9")
