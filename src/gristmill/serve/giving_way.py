"""A thread gives way to an engine's, which it would stop at the worst moment: the server's, and that of a client that
measures it on the same machine. It knows none of them.

The engine's process wakes the server between two steps. What is woken is given a core at once, taken from whoever
computes there, and where there is no other core the whole step waits. A thread of SCHED_BATCH is given one some
milliseconds later (man 7 sched), or when the engine's threads ask whether somebody waits (native/threads.h)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_BATCH: Final = getattr(os, "SCHED_BATCH", 0)
# The flag, which takes real-time policies and negative nice values from children, does nothing here: it is the sign by
# which `spare` knows that `give_way` has chosen this. No process without privileges can take it back.
_GIVING_WAY: Final = _BATCH | getattr(os, "SCHED_RESET_ON_FORK", 0)


def give_way() -> None:
    """For this thread and those it starts. Nothing happens on systems other than Linux, and where somebody has chosen
    how this process is scheduled or favoured it by a negative nice value."""
    _choose(_GIVING_WAY)


@contextmanager
def giving_way() -> Iterator[None]:
    """The same for as long as this lasts."""
    chosen = _choose(_BATCH)
    try:
        yield
    finally:
        if chosen:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _choose(policy: int) -> bool:
    """Whether this thread has that policy now, and had none before."""
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER or os.nice(0) < 0:
        return False
    try:
        os.sched_setscheduler(0, policy, os.sched_param(0))
    except OSError:  # where a container forbids it
        return False
    return True


def spare(pid: int) -> None:
    """A process that this thread has just started does not give way because this thread does."""
    if sys.platform == "linux" and os.sched_getscheduler(0) == _GIVING_WAY:
        with suppress(OSError):  # where it has ended
            for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):  # its first one, as a rule
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
