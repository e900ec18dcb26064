"""What the server wants of an engine, and the engine of this process behind it. It knows ids and events, no text.

Events cross from the engine's thread to the event loop in batches: one wake-up for all that came meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from gristmill.engine.engine import Engine, EngineClosedError, Load
from gristmill.engine.loop import Sink
from gristmill.serve.errors import ApiError, as_api_error, overloaded
from gristmill.types import Event, Failure, Request

_MOMENT_S = 0.1

Indexed = tuple[int, Event]
"""Which request of a call, and what came of it."""


class Answering(Protocol):
    """Requests that were submitted together."""

    async def events(self) -> list[Indexed]:
        """What came since the last call, at least one event. ApiError where a request failed."""
        ...

    async def settle(self) -> None:
        """Until an event is there or a moment has passed. ApiError where a request has failed at once."""
        ...

    def cancel(self, index: int) -> None:
        """End one request; it has no more events that count."""
        ...

    def close(self) -> None:
        """End what has not ended. To be called in any case."""
        ...


class Service(Protocol):
    """Takes requests. All methods are for the event loop's thread."""

    async def start(self, requests: Sequence[Request]) -> Answering:
        """ApiError for what cannot be run, and where too many wait."""
        ...

    @property
    def n_open(self) -> int:
        """Requests that were started and not closed."""
        ...

    @property
    def alive(self) -> bool: ...

    def load(self) -> Load: ...

    def fail(self, error: ApiError) -> None:
        """End everything that is open with this."""
        ...

    def close(self) -> None:
        """Nothing is started any more."""
        ...


class EngineService:
    """The engine of this process. At most max_sequences + max_queue requests are open, others are refused."""

    def __init__(self, engine: Engine, max_queue: int) -> None:
        self._engine = engine
        self._capacity = engine.settings.max_sequences + max_queue
        self._open: set[_Answers] = set()
        self._alive = True
        self._due: deque[_Answers] = deque()
        self._scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(4, "gristmill submit")

    @property
    def n_open(self) -> int:
        return sum(answers.n for answers in self._open)

    @property
    def alive(self) -> bool:
        return self._alive

    def fail(self, error: ApiError) -> None:
        for answers in self._open:
            answers.fail(error)

    def load(self) -> Load:
        return self._engine.load()

    async def start(self, requests: Sequence[Request]) -> Answering:
        n = len(requests)
        if n > self._capacity:
            raise ApiError(400, f"{n} answers are more than this server takes at once: {self._capacity}", param="n")
        if self.n_open + n > self._capacity:
            raise overloaded(f"{self.n_open} requests are open, and {self._capacity} may be; try again later")
        self._loop = asyncio.get_running_loop()
        answers = _Answers(self._engine, n, self._open.discard)
        self._open.add(answers)
        try:
            if any(request.params.structured_outputs is not None for request in requests):
                await self._loop.run_in_executor(self._threads, self._submit, answers, requests)
            else:
                self._submit(answers, requests)
        except BaseException as error:
            answers.close()
            self._alive = self._alive and not isinstance(error, EngineClosedError)
            if isinstance(error, Exception):
                raise as_api_error(error) from error
            raise
        return answers

    def _submit(self, answers: _Answers, requests: Sequence[Request]) -> None:
        for i, request in enumerate(requests):
            if answers.closed:
                return
            answers.add(self._engine.submit(request, self._sink(answers, i)))

    def _sink(self, answers: _Answers, index: int) -> Sink:
        def take(event: Event) -> bool:  # on the engine's thread
            answers.inbox.append((index, event))
            if not answers.told:
                answers.told = True
                self._due.append(answers)
                if not self._scheduled and self._loop is not None:
                    self._scheduled = True
                    self._loop.call_soon_threadsafe(self._deliver)
            return answers.closed

        return take

    def _deliver(self) -> None:
        self._scheduled = False  # before what is due is read: a sink that comes now schedules another time
        while self._due:
            answers = self._due.popleft()
            answers.told = False
            answers.arrived.set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Answers:
    """One call's requests. `inbox` and `told` are written by two threads, in an order that loses nothing."""

    def __init__(self, engine: Engine, n: int, on_end: Callable[[_Answers], None]) -> None:
        self.inbox: deque[Indexed] = deque()
        self.told = False
        self.closed = False
        self.arrived = asyncio.Event()
        self._engine = engine
        self.n = n
        self._error: ApiError | None = None
        self._on_end = on_end
        self._ids: list[int] = []

    def add(self, request_id: int) -> None:
        self._ids.append(request_id)
        if self.closed:  # meanwhile, by the loop's thread
            self._engine.cancel(request_id)

    async def events(self) -> list[Indexed]:
        while not self.inbox and self._error is None:
            await self.arrived.wait()
            self.arrived.clear()
        if self._error is not None:
            raise self._error
        events = [self.inbox.popleft() for _ in range(len(self.inbox))]
        for _, event in events:
            if isinstance(event, Failure):
                raise as_api_error(event.error) from event.error
        return events

    async def settle(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOMENT_S):
                await self.arrived.wait()
        for _, event in list(self.inbox):
            if isinstance(event, Failure):
                raise as_api_error(event.error) from event.error

    def fail(self, error: ApiError) -> None:
        self._error = error
        self.arrived.set()

    def cancel(self, index: int) -> None:
        self._engine.cancel(self._ids[index])

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        for request_id in list(self._ids):
            self._engine.cancel(request_id)
        self._on_end(self)
