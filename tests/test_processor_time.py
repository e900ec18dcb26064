"""The bounds that other tests set on time can fail, but not for what earlier tests or other programs do."""

from __future__ import annotations

import gc
import time

import pytest
from processor_time import assert_grows_less, assert_quick


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_slow_work_fails() -> None:
    assert_quick(lambda: compute(0.01), 0.1)
    with pytest.raises(AssertionError, match="seconds of the processor"):
        assert_quick(lambda: compute(0.1), 0.001)


def test_quadratic_work_fails() -> None:
    assert_grows_less(lambda n: compute(n * 0.0005), 2, 16, 24)
    with pytest.raises(AssertionError, match="8 times the work"):
        assert_grows_less(lambda n: compute(n * n * 0.0003), 2, 16, 24)


def test_one_quick_run_is_enough() -> None:
    times = iter([0.2, 0.001])
    assert_quick(lambda: compute(next(times)), 0.01)


def test_the_collector_passes_over_what_was_there_before() -> None:
    assert gc.get_freeze_count() > len(gc.get_objects())
