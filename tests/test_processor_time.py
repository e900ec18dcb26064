"""The bounds that other tests set on time: work that is too slow fails them, a large heap does not."""

from __future__ import annotations

import gc
import time

import pytest
from processor_time import assert_quick, processor_seconds


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_slow_work_fails() -> None:
    assert_quick(lambda: compute(0.01), 0.1)
    with pytest.raises(AssertionError, match="seconds of the processor"):
        assert_quick(lambda: compute(1.0), 0.01)


def test_one_quick_run_is_enough() -> None:
    times = iter([1.0, 0.01])
    assert_quick(lambda: compute(next(times)), 0.02)


def test_what_lives_already_costs_nothing() -> None:
    """A full pass over these lists would take longer than all the rest."""
    heap = [[[i] for i in range(1000)] for _ in range(2000)]
    gc.collect()

    def full_pass() -> None:
        gc.collect()

    assert processor_seconds(full_pass) < 0.01
    gc.collect()
    assert len(heap) == 2000
