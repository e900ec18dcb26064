"""Events of one call, from where they are computed to who reads them; how many calls may be open."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gristmill.serve.errors import ApiError, as_api_error, overloaded
from gristmill.types import Event, Failure, PromptLogprobs, TokenEvent

MAX_UNREAD: Final = 1 << 17
"""Events of one call that wait for their reader, log-probabilities counted apiece: some 25 MB. More end the call."""

_MOMENT_S = 0.1

Indexed = tuple[int, Event]
"""Which request of a call, and what came of it."""


class Inbox:
    """What came of n requests that were submitted together. One thread puts events in, and the event loop's takes them.

    After `put`, that thread sees to it that `wake` is called by the event loop's.
    """

    def __init__(self, n: int, max_unread: int = MAX_UNREAD) -> None:
        self.n = n
        self.closed = False
        self._max_unread = max_unread
        self._events: deque[Indexed] = deque()
        self._n_put = self._n_read = 0  # each is written by one thread
        self._waiting: asyncio.Future[None] | None = None  # who reads, while nothing is there
        self._told: Callable[[], None] | None = None
        self._error: ApiError | None = None

    def put(self, index: int, event: Event) -> bool:
        """Whether more is wanted of this request."""
        self._n_put += 1 if type(event) is TokenEvent and not event.top_logprobs else _weight(event)
        if self._n_put - self._n_read > self._max_unread and self._error is None:
            self._error = too_slow()
        if self.closed or self._error is not None:
            return False
        self._events.append((index, event))
        return True

    def wake(self) -> None:
        if self._told is not None:
            self._told()
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def fail(self, error: ApiError) -> None:
        """No event is given out any more. For the event loop's thread."""
        self._error = self._error or error
        self.wake()

    def check(self) -> None:
        """ApiError where this has failed."""
        if self._error is not None:
            raise self._error

    async def events(self) -> list[Indexed]:
        """What came since the last call, at least one event. ApiError where a request failed."""
        while not self._events and self._error is None:
            await self._wait()
        return self.take()

    def follow(self, told: Callable[[], None] | None) -> None:
        """`told`, which raises nothing, is called when there is something to `take`, where no task waits for `events`.
        None: not any more."""
        self._told = told

    def take(self) -> list[Indexed]:
        """What came since the last call. ApiError where a request failed."""
        self.check()
        self._n_read = self._n_put  # what is put in this moment is counted with what comes next
        events = [self._events.popleft() for _ in range(len(self._events))]
        _raise_failure(events)
        return events

    async def settle(self) -> None:
        """Until an event is there or a moment has passed. ApiError where a request has failed at once."""
        if not self._events and self._error is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_MOMENT_S):
                    await self._wait()
        self.check()
        _raise_failure(list(self._events))

    async def _wait(self) -> None:
        """Until `wake` is called. One task waits at a time."""
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting


class TooManyError(ApiError):
    """400 for more requests together than may ever be open.

    param  the field that asks for so many: who knows another than `n` says so
    """

    def __init__(self, n: int, capacity: int, param: str = "n") -> None:
        message = f"{param}: {n} answers are more than this server takes at once: {capacity}"
        super().__init__(400, message, param=param, code="invalid_value")
        self.n = n
        self.capacity = capacity


class OpenCalls:
    """What is open, and how many requests may be."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._all: set[Inbox] = set()
        self._removed = asyncio.Event()

    @property
    def n(self) -> int:
        """Requests that are open."""
        return sum(inbox.n for inbox in self._all)

    def check_room(self, n: int) -> None:
        """ApiError where n more are too many."""
        if n > self._capacity:
            raise TooManyError(n, self._capacity)
        if self.n + n > self._capacity:
            raise overloaded(f"{self.n} requests are open, and {self._capacity} may be; try again later")

    @property
    def n_free(self) -> int:
        """As Service.n_free."""
        free = self._capacity - self.n
        return min(free, max(1, free // 2))

    async def room(self) -> None:
        """Until one may be added."""
        while self.n >= self._capacity:
            self._removed.clear()
            await self._removed.wait()

    def add(self, inbox: Inbox) -> None:
        self._all.add(inbox)

    def remove(self, inbox: Inbox) -> None:
        self._all.discard(inbox)
        self._removed.set()

    def fail(self, error: ApiError) -> None:
        """End all of them with this."""
        for inbox in self._all:
            inbox.fail(error)


def too_slow() -> ApiError:
    message = "the answer was not read for so long that it was given up; read it as it comes"
    return ApiError(503, message, code="client_too_slow", kind="server_error")


def _raise_failure(events: list[Indexed]) -> None:
    for _, event in events:
        if isinstance(event, Failure):
            raise as_api_error(event.error) from event.error


def _weight(event: Event) -> int:
    if isinstance(event, TokenEvent):
        return 1 + len(event.top_logprobs)
    return sum(map(_weight, event.tokens)) if isinstance(event, PromptLogprobs) else 1
