"""How long work takes on a processor, measured so that neither other programs nor earlier tests change it.

Late in a session one pass of Python's garbage collector walks millions of objects, and may take a second.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

USUAL_REFERENCE_S = 0.02  # on the machines that bounds in seconds are meant for


@contextmanager
def earlier_objects_set_aside() -> Iterator[None]:
    """Python's garbage collector passes over what lives already, not over what the block makes."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def processor_seconds(work: Callable[[], object], n_runs: int = 1) -> float:
    """What `work` computes in the calling thread: the least of n_runs, as others' use of caches and cores only adds."""
    times = []
    for _ in range(n_runs):
        with earlier_objects_set_aside():
            start = time.thread_time()
            work()
            times.append(time.thread_time() - start)
    return min(times)


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
    raise AssertionError(f"took {times} seconds of the processor; {seconds} are allowed, {slowness():.1f} times slower")


def _reference() -> None:
    """Some work of an interpreter."""
    counts: dict[int, int] = {}
    for i in range(200_000):
        counts[i & 1023] = counts.get(i & 1023, 0) + i
