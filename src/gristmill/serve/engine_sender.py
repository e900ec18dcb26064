"""The engine's process tells its parent what comes of requests. It knows no engine but what its status says."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from typing import Final

from gristmill.engine.engine import Engine
from gristmill.engine.telling import Takers
from gristmill.serve import engine_wire
from gristmill.serve.engine_wire import Kind, StepMessages
from gristmill.types import Event

STATUS_S: Final = 0.5
"""Seconds between two signs of life."""


class Sender:
    """A Reader: what a step has for requests is one message, which the engine's thread sends itself as far as the
    socket takes it at once. To wake another thread for that, which would take a core from the next step, costs more.
    What is left waits for a thread, as the other side does not read. Signs of life in between are that thread's too.

    engine  whose status is told, once it is there
    """

    def __init__(self, channel: socket.socket) -> None:
        self.engine: Engine | None = None
        self._channel = channel
        self._sending = threading.Lock()
        self._left: deque[memoryview] = deque()
        self._behind = threading.Event()  # something is left
        self._events = list[tuple[int, Event]]()  # of the step in progress
        self._takers: Takers | None = None
        self._messages = StepMessages((), ())  # for the takers
        threading.Thread(target=self._run, name="gristmill send", daemon=True).start()

    def take(self, key: int, event: Event) -> None:
        self._events.append((key, event))

    def take_step(self, takers: Takers, token_ids: list[int]) -> None:
        self.flush()
        if takers is not self._takers:
            self._takers, self._messages = takers, StepMessages(takers.keys, takers.n_cached)
        self.send(self._messages.of(token_ids))

    def flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self.send(engine_wire.events_message(events))

    def send(self, data: bytes) -> None:
        """Any thread may. Messages of one thread stay in their order."""
        with self._sending:
            self._left.append(memoryview(data))
            if len(self._left) == 1:
                self._send_left()

    @property
    def is_behind(self) -> bool:
        """The other side has not read what it was sent."""
        return self._behind.is_set()

    def _send_left(self) -> None:
        while self._left:
            data = self._left[0]
            try:
                n = self._channel.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                n = 0
            except OSError:  # nobody is there any more, and this process is about to end
                n = len(data)
            if n < len(data):
                self._left[0] = data[n:]
                self._behind.set()
                return
            self._left.popleft()
        self._behind.clear()

    def _run(self) -> None:
        room, due = select.poll(), time.monotonic()
        room.register(self._channel, select.POLLOUT)
        while True:
            wait_s = max(0.0, due - time.monotonic())
            if self._behind.wait(wait_s) and room.poll(wait_s * 1000):
                with self._sending:
                    self._send_left()
            if time.monotonic() >= due:
                due = time.monotonic() + STATUS_S
                self.send(self._status())

    def _status(self) -> bytes:
        return (
            engine_wire.message(Kind.ALIVE) if self.engine is None else engine_wire.status_message(self.engine.load())
        )
