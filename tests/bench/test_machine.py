"""The machine's limits as the compiled loops find them."""

from __future__ import annotations

import pytest
from instruction_sets import isas

from gristmill import _kernels
from gristmill.bench.machine import ARITHMETICS, Machine

SIZE = 256 << 20

# Operations a clock of the widest cores there are; a multiply-add is two.
MOST = {
    "amx": {"f32": 64, "bf16": 1024, "int8": 2048},
    "avx512bf16": {"f32": 64, "bf16": 128, "int8": 256},
    "avx512": {"f32": 64, "bf16": 64, "int8": 256},
    "avxvnni": {"f32": 32, "bf16": 32, "int8": 128},
    "avx2": {"f32": 32, "bf16": 32, "int8": 96},
    "neon": {"f32": 32, "bf16": 32, "int8": 128},
    "portable": {"f32": 32, "bf16": 32, "int8": 32},
}
FASTEST_CLOCK = 6.5e9


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_peaks_are_possible(isa: str, arithmetic: str) -> None:
    """A loop from which the compiler had taken the multiplications would be over what any core does."""
    peak = _kernels.measure_peak(_kernels.Ops(1, isa), arithmetic, 0.005)
    assert 1e8 < peak < MOST[isa][arithmetic] * FASTEST_CLOCK


def test_limits_of_one_thread() -> None:
    limits = Machine(SIZE).limits(1, 3)
    assert set(limits.peaks) == set(ARITHMETICS)
    assert 0.1 < limits.read.median <= limits.read.best < 2000
    assert all(0 < rate.median <= rate.best for rate in limits.peaks.values())


@pytest.mark.parametrize("name", ["amx", "avx512bf16", "avx512", "avx2"])
def test_wider_vectors_are_not_slower(name: str) -> None:
    if name not in isas():
        pytest.skip(f"this machine has no {name}")
    wide, narrow = (
        max(_kernels.measure_peak(_kernels.Ops(1, isa), "int8", 0.01) for _ in range(5)) for isa in (name, "portable")
    )
    assert wide > narrow  # the best of several: others may have the core meanwhile


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
