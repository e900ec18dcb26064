"""Answers while the client listens: server-sent events, and work that ends when the client leaves. No JSON field."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gristmill.serve.errors import ApiError, as_api_error
from gristmill.serve.wire import dumps

T = TypeVar("T")

KEEP_ALIVE_S: Final = 15.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def data(value: object) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"


def event(name: str, value: object) -> bytes:
    return f"event: {name}\n".encode() + data(value)


class Chunks:
    """OpenAI's events of one answer, which differ in their choice alone: the rest of their JSON is written once.

    head   the fields before `choices`
    usage  whether `usage` is there, null until the last
    """

    def __init__(self, head: dict[str, Any], usage: bool) -> None:
        self._before = b"data: " + dumps(head)[:-1] + b',"choices":['
        self._after = b'],"usage":null}\n\n' if usage else b"]}\n\n"

    def chunk(self, choice: dict[str, Any]) -> bytes:
        return self._before + dumps(choice) + self._after

    def text(self, choice: bytes, index: int, text: str) -> bytes:
        """The same of a choice that is written but for its index (%d) and its text (%s), as nearly all are."""
        return self._before + choice % (index, dumps(text)) + self._after


DONE: Final = b"data: [DONE]\n\n"


class ClientLeftError(Exception):
    """Nobody is there to answer."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; it is cancelled, and ClientLeftError raised, when the client leaves first.

    The request's body must have been read.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeftError
        return task.result()
    finally:
        await _end(task, watch)


class EventStream(Response):
    """Sends what an iterator of encoded events gives. An error in it is told as the last event.

    on_end  called in any case, to end what the iterator asked for
    say     an error's body
    named   an error is an event with a name, `error`
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        on_end: Callable[[], None],
        say: Callable[[ApiError], dict[str, Any]] = ApiError.body,
        named: bool = False,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self._on_end = on_end
        self._say = say
        self._named = named
        self._n_sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        watch = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, watch}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except OSError:
            pass  # the client has left
        finally:
            await _end(sending, watch)
            self._on_end()
            await self._events.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        idle = asyncio.ensure_future(self._keep_alive(send))
        try:
            async for chunk in self._events:
                self._n_sent += 1
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except OSError:
            raise
        except Exception as error:
            told = self._say(as_api_error(error))
            last = event("error", told) if self._named else data(told)
            await send({"type": "http.response.body", "body": last, "more_body": True})
        finally:
            await _end(idle)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        """A comment where nothing comes for long: proxies close what is silent."""
        while True:
            before = self._n_sent
            await asyncio.sleep(KEEP_ALIVE_S)
            if self._n_sent == before:
                await send({"type": "http.response.body", "body": b": still at work\n\n", "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
