"""What the server wants of an engine, and the engine of this process behind it. It knows ids and events, no text.

Events cross from the engine's thread to the event loop in batches: one wake-up for all that came meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from gristmill.engine.engine import Engine, EngineClosedError, Load
from gristmill.engine.telling import Sink
from gristmill.serve.errors import ApiError, as_api_error
from gristmill.serve.inbox import MAX_UNREAD, Inbox, Indexed, OpenCalls
from gristmill.types import Event, Request


class Answering(Protocol):
    """Requests that were submitted together."""

    async def events(self) -> list[Indexed]:
        """What came since the last call, at least one event. ApiError where a request failed."""
        ...

    def follow(self, told: Callable[[], None] | None) -> None:
        """As Inbox.follow."""
        ...

    def take(self) -> list[Indexed]:
        """What came since the last call. ApiError where a request failed."""
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


@dataclass(frozen=True, slots=True)
class Health:
    """status      'ok', 'loading', 'restarting' or 'dead'
    message     what happened, for people
    loaded      share of the model that is loaded, 0 to 1, while it is
    n_restarts  times that the engine was started again
    failure     nothing will be answered any more, so that the server is to end, and say this to who runs it
    """

    status: str = "ok"
    message: str = ""
    loaded: float | None = None
    n_restarts: int = 0
    failure: str = ""


class Service(Protocol):
    """Takes requests. All methods are for the event loop's thread."""

    def open(self) -> None:
        """Called once, before any other, when the event loop runs."""
        ...

    async def start(self, requests: Sequence[Request]) -> Answering:
        """ApiError for what cannot be run, where too many wait, and while the engine is not there."""
        ...

    @property
    def n_open(self) -> int:
        """Requests that were started and not closed."""
        ...

    @property
    def n_free(self) -> int:
        """Requests that one of several slices of a call may have now: half of what is free, so that others find room
        meanwhile."""
        ...

    async def room(self) -> None:
        """Until n_free is not 0."""
        ...

    @property
    def health(self) -> Health: ...

    def load(self) -> Load: ...

    def fail(self, error: ApiError) -> None:
        """End everything that is open with this."""
        ...

    def close(self) -> None:
        """Nothing is started any more."""
        ...


class EngineService:
    """The engine of this process. At most max_sequences + max_queue requests are open, others are refused."""

    def __init__(self, engine: Engine, max_queue: int, max_unread: int = MAX_UNREAD) -> None:
        self._engine = engine
        self._open = OpenCalls(engine.settings.max_sequences + max_queue)
        self._max_unread = max_unread
        self._alive = True
        self._due: deque[_Answers] = deque()
        self._scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(4, "gristmill submit")

    def open(self) -> None:
        pass  # the engine starts with its first request

    @property
    def n_open(self) -> int:
        return self._open.n

    @property
    def n_free(self) -> int:
        return self._open.n_free

    async def room(self) -> None:
        await self._open.room()

    @property
    def health(self) -> Health:
        return Health() if self._alive else Health("dead", "the engine was closed")

    def fail(self, error: ApiError) -> None:
        self._open.fail(error)

    def load(self) -> Load:
        return self._engine.load()

    async def start(self, requests: Sequence[Request]) -> Answering:
        self._loop = asyncio.get_running_loop()
        self._open.check_room(len(requests))
        answers = _Answers(self._engine, len(requests), self._max_unread, self._open.remove)
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
            is_wanted = answers.put(index, event)
            if not answers.told:
                answers.told = True
                self._due.append(answers)
                if not self._scheduled and self._loop is not None:
                    self._scheduled = True
                    self._loop.call_soon_threadsafe(self._deliver)
            return not is_wanted

        return take

    def _deliver(self) -> None:
        self._scheduled = False  # before what is due is read: a sink that comes now schedules another time
        while self._due:
            answers = self._due.popleft()
            answers.told = False
            answers.wake()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Answers(Inbox):
    """One call's requests. `told` is written by two threads, in an order that loses nothing."""

    def __init__(self, engine: Engine, n: int, max_unread: int, on_end: Callable[[Inbox], None]) -> None:
        super().__init__(n, max_unread)
        self.told = False
        self._engine = engine
        self._on_end = on_end
        self._ids: list[int] = []

    def add(self, request_id: int) -> None:
        self._ids.append(request_id)
        if self.closed:  # meanwhile, by the loop's thread
            self._engine.cancel(request_id)

    def cancel(self, index: int) -> None:
        self._engine.cancel(self._ids[index])

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        for request_id in list(self._ids):
            self._engine.cancel(request_id)
        self._on_end(self)
