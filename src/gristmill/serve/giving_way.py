"""The server's thread gives way to the engine's, which it would stop at the worst moment. It knows neither of them.

The engine's process wakes the server between two steps. What is woken is given a core at once, taken from whoever
computes there, and where there is no other core the whole step waits. A thread of SCHED_BATCH is given one some
milliseconds later (man 7 sched)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

# The flag, which takes real-time policies and negative nice values from children, does nothing here: it is the sign by
# which `spare` knows that `give_way` has chosen this.
_GIVING_WAY: Final = getattr(os, "SCHED_BATCH", 0) | getattr(os, "SCHED_RESET_ON_FORK", 0)


def give_way() -> None:
    """For this thread and those it starts. Nothing happens on systems other than Linux, and where somebody has chosen
    how this process is scheduled or favoured it by a negative nice value."""
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER or os.nice(0) < 0:
        return
    with suppress(OSError):  # where a container forbids it
        os.sched_setscheduler(0, _GIVING_WAY, os.sched_param(0))


def spare(pid: int) -> None:
    """A process that this thread has just started does not give way because this thread does."""
    if sys.platform == "linux" and os.sched_getscheduler(0) == _GIVING_WAY:
        with suppress(OSError):  # where it has ended
            for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):  # its first one, as a rule
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
