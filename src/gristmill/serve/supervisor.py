"""Keeps an engine's process going: starts it, starts another when it dies, and says when that has no use. It knows no
request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gristmill.engine.engine import Load
from gristmill.serve.engine_child import EngineChild, Watch
from gristmill.serve.engine_wire import EngineOptions
from gristmill.serve.errors import ApiError
from gristmill.serve.service import Health

MAX_DEATHS: Final = 3
"""So many in a row, each before the process had been ready for STEADY_S, and there is no other restart."""
STEADY_S: Final = 60.0
BACKOFF_S: Final = 0.5
"""Before the first restart; then twice as long each time."""

_LOADING: Final = "the model is being loaded; ask again later"
_log = logging.getLogger(__name__)


class Supervisor:
    """One process after another, from `open` to `close`. For the event loop's thread.

    on_death  is told what open requests are to be told
    The first process must become ready; later ones may die MAX_DEATHS times in a row. After that, and where the model
    cannot be loaded or a process cannot be started, `health` has the failure.
    """

    def __init__(self, options: EngineOptions, watch: Watch, on_death: Callable[[ApiError], None]) -> None:
        self._options = options
        self._watch = replace(watch, ready=self._be_ready)
        self._on_first_ready = watch.ready
        self._on_death = on_death
        self._health = Health("loading", _LOADING)
        self._child: EngineChild | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._child is not None:
            self._child.close()

    @property
    def health(self) -> Health:
        if self._health.status != "ok" and self._child is not None:
            return replace(self._health, loaded=self._child.loaded)
        return self._health

    @property
    def child(self) -> EngineChild | None:
        """The process there is, loading or ready."""
        return self._child

    @property
    def load(self) -> Load:
        return self._child.load if self._child is not None else Load(0, 0, 0.0, 0)

    def ready_child(self) -> EngineChild:
        """ApiError while there is none."""
        if self._child is not None and self._health.status == "ok":
            return self._child
        raise _unavailable(self._health.message, self._health.status)

    def _be_ready(self) -> None:
        n_restarts = self._health.n_restarts
        self._health = Health(n_restarts=n_restarts)
        if n_restarts:
            _log.warning("the engine is back")
        else:
            self._on_first_ready()

    async def _run(self) -> None:
        n_deaths = 0
        while True:
            try:
                child = await EngineChild.start(self._options, self._watch)
            except OSError as error:  # the system has no process or no file left
                message = "the engine's process cannot be started"
                self._health = replace(self._health, status="dead", message=message, failure=f"{message}: {error}")
                return
            how = await self._live(child)
            was_steady = child.ready_at is not None and time.monotonic() - child.ready_at >= STEADY_S
            n_deaths = 1 if was_steady else n_deaths + 1
            if self._is_over(child, n_deaths):
                self._end(child, how, n_deaths)
                return
            self._say_restarting(child, how)
            await asyncio.sleep(BACKOFF_S * 2 ** (n_deaths - 1))
            self._health = replace(self._health, n_restarts=self._health.n_restarts + 1)

    async def _live(self, child: EngineChild) -> str:
        """From its start to its end: how that came."""
        self._child = child
        ticking = asyncio.ensure_future(_tick(child))
        try:
            return await child.ended()
        finally:
            ticking.cancel()
            self._child = None

    def _is_over(self, child: EngineChild, n_deaths: int) -> bool:
        is_first = self._health.n_restarts == 0
        return child.load_error is not None or n_deaths >= MAX_DEATHS or (is_first and child.ready_at is None)

    def _say_restarting(self, child: EngineChild, how: str) -> None:
        message = f"the engine {how}{_when(child)}"
        _log.warning("%s; it is started again", message)
        told = f"{message}; it is being started again, so ask again later"
        self._health = Health("restarting", told, n_restarts=self._health.n_restarts)
        self._on_death(_unavailable(told, "engine_died"))

    def _end(self, child: EngineChild, how: str, n_deaths: int) -> None:
        message = f"the engine {how}{_when(child)}"
        if child.load_error is not None:
            message, failure = "the model cannot be loaded; the server's log says why", str(child.load_error)
        else:
            failure = message + (f" (it died {n_deaths} times in a row)" if n_deaths > 1 else "")
            failure += "; it wrote at last:" if child.last_lines else ""
            failure += "".join(f"\n  {line}" for line in child.last_lines)
        self._on_death(_unavailable(message, "engine_died"))
        self._health = Health("dead", message, n_restarts=self._health.n_restarts, failure=failure)


async def _tick(child: EngineChild) -> None:
    while True:
        await asyncio.sleep(1)
        child.tick()


def _when(child: EngineChild) -> str:
    return " while it loaded the model" if child.ready_at is None else ""


def _unavailable(message: str, code: str) -> ApiError:
    return ApiError(503, message, code=code, kind="server_error", headers={"Retry-After": "1"})
