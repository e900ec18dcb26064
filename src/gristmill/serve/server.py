"""Runs the application: signals, and an end that lets answers finish. It knows no route."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from gristmill.serve.connection import Connection
from gristmill.serve.errors import shutting_down
from gristmill.serve.guard import MAX_HEADER_BYTES, is_loopback
from gristmill.serve.host import Host
from gristmill.serve.slow_clients import REQUEST_S, STALL_S, SlowClients

USUAL_CONNECTIONS: Final = 1024

_GRACE_S = 1
_MORE_CONNECTIONS = 64
_TICK_S = 1.0
_QUICK_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen, and for how long to wait for clients (the last two as in slow_clients).

    uds      a path to listen at instead
    drain_s  how long answers may go on after the first signal
    max_connections  requests of more are answered with 503; those beyond some more are ended without a word
    """

    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    drain_s: float = 30.0
    request_s: float = REQUEST_S
    stall_s: float = STALL_S
    max_connections: int = USUAL_CONNECTIONS

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.uds is not None or is_loopback(self.host)

    @property
    def url(self) -> str:
        if self.uds is not None:
            return f"unix:{self.uds}"
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


class Server(uvicorn.Server):
    """The first SIGTERM or SIGINT refuses new work and ends when no answer is open or drain_s are over, the second ends
    at once. Answers that are not complete then end with an error.

    on_listening  called when it does
    failure       why it ended where nobody asked it to: the engine is gone for good
    """

    def __init__(self, app: FastAPI, listen: Listen, on_listening: Callable[[], None] = lambda: None) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stirred = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,
                host=listen.host,
                port=listen.port,
                uds=listen.uds,
                http=Connection,
                loop="asyncio",  # whatever else is installed: uvloop, which uvicorn would take, is not faster here
                ws="none",
                log_level="warning",
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                limit_concurrency=listen.max_connections + _MORE_CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._host: Host = app.state.host
        self._host.crowded = lambda: len(self.server_state.connections) > listen.max_connections
        self._drain_s = listen.drain_s
        self._deadline: float | None = None
        self._on_listening = on_listening
        self._slow = SlowClients(listen.request_s, listen.stall_s)
        self.failure: str | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._host.draining:
            self._deadline = 0.0
            self._stir()
        else:
            self.drain()

    def drain(self) -> None:
        """Take nothing new, and end when what is open is answered."""
        self._host.draining = True
        self._deadline = time.monotonic() + self._drain_s
        self._stir()

    @property
    def should_exit(self) -> bool:
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        """Any thread may."""
        self._should_exit = value
        self._stir()

    async def main_loop(self) -> None:
        """uvicorn's wakes ten times a second, which an engine beside it pays for: half a percent of two cores."""
        self._loop = asyncio.get_running_loop()
        self._on_listening()
        while not await self.on_tick(0):
            is_quiet = self._host.service.health.status == "ok" and not self._host.draining
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S if is_quiet else _QUICK_TICK_S):
                    await self._stirred.wait()
            self._stirred.clear()

    async def on_tick(self, counter: int) -> bool:
        self._slow.sweep(self.server_state.connections)
        if self.failure is None and not self._host.draining and (failure := self._host.service.health.failure):
            self.failure = failure
            self.should_exit = True
        n_left = self._host.n_begun + self._host.service.n_open
        if self._deadline is not None and (n_left == 0 or time.monotonic() > self._deadline):
            self._host.service.fail(shutting_down())
            self.should_exit = True
        return await super().on_tick(counter)

    def _stir(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stirred.set)
