"""How long a server's event loop is held up, which every client of it feels."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from served import Running

T = TypeVar("T")


def loop_lag(running: Running, work: Callable[[], T]) -> tuple[float, T]:
    """The longest that the loop of a server in this process does not turn while `work` runs here, and what it returns:
    in seconds that the process computes meanwhile, which a busy machine does not make more."""
    longest, begun, done = 0.0, threading.Event(), threading.Event()

    async def beat() -> None:
        nonlocal longest
        last = time.process_time()
        while not done.is_set():
            await asyncio.sleep(0.001)
            now = time.process_time()
            longest, last = max(longest, now - last), now
            begun.set()

    assert running.server._loop is not None
    beating = asyncio.run_coroutine_threadsafe(beat(), running.server._loop)
    try:
        assert begun.wait(60)
        result = work()
    finally:
        done.set()
        beating.result(60)
    return longest, result
