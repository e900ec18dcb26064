"""How long work takes on a processor, bounded so that other programs and a machine that is slow fail no test.

Where seconds are bounded they are those of a usual machine, in whose place this one is measured at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

USUAL_REFERENCE_S = 0.02  # what `_reference` takes on a usual machine
LEAST_S = 0.00025  # shorter times are not told apart


def processor_seconds(work: Callable[[], object]) -> float:
    """What `work` computes in the calling thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def slowness() -> float:
    """How many times slower this machine is at present than the usual one, 1 where it is faster."""
    return max(1.0, processor_seconds(_reference) / USUAL_REFERENCE_S)


def assert_quick(work: Callable[[], object], seconds: float) -> None:
    """One of three runs of `work` takes less than `seconds` of a usual machine's processor. Mostly it runs once."""
    times = []
    for _ in range(3):
        times.append(processor_seconds(work))
        if times[-1] < seconds or times[-1] < seconds * slowness():
            return
    raise AssertionError(f"takes {times} seconds of the processor, {seconds} are allowed on a usual machine")


def assert_grows_less(work: Callable[[int], object], small: int, large: int, most: float) -> None:
    """work(large) takes less than `most` times the time of work(small), in one of three comparisons."""
    ratios = []
    for _ in range(3):
        least = min(processor_seconds(lambda: work(small)) for _ in range(3))
        ratios.append(processor_seconds(lambda: work(large)) / max(least, LEAST_S))
        if ratios[-1] < most:
            return
    raise AssertionError(f"{large / small:.0f} times the work took {ratios} times the time, {most} are allowed")


def _reference() -> None:
    """Some work of an interpreter."""
    counts: dict[int, int] = {}
    for i in range(200_000):
        counts[i & 1023] = counts.get(i & 1023, 0) + i
