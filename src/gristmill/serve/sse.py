"""Answers while the client listens: server-sent events, and work that ends when the client leaves. No JSON field."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gristmill.serve.errors import ApiError, as_api_error
from gristmill.serve.turn import Reading, Step
from gristmill.serve.wire import dumps

T = TypeVar("T")
Write = Callable[[bytes], bool]

WRITE: Final = "gristmill.write"
"""Of a scope's extensions: sends a piece of a body that was begun, or does nothing and returns False, where the client
has not taken what was sent before. A server may have it (serve/connection.py); ASGI's own way costs more."""

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

    def chunk(self, choice: dict[str, Any], usage: dict[str, Any] | None = None) -> bytes:
        """usage: what there is to say of it already."""
        after = self._after if usage is None else b'],"usage":' + dumps(usage) + b"}\n\n"
        return self._before + dumps(choice) + after

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


class Streamed(Protocol):
    """A call whose answers are sent as they come."""

    @property
    def reading(self) -> Reading: ...

    def begin(self) -> bytes:
        """What comes before any answer; nothing: b""."""
        ...

    def more(self, steps: list[Step]) -> bytes:
        """What came of the answers, which may be nothing to show."""
        ...

    def end(self) -> bytes:
        """After all answers."""
        ...

    def failed(self, error: ApiError) -> bytes:
        """Instead of the rest."""
        ...

    def close(self) -> None: ...


class EventStream(Response):
    """Sends a call's events, and closes it in any case."""

    def __init__(self, call: Streamed) -> None:
        self.status_code = 200
        self.background = None
        self._call = call
        self._n_sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        write = scope.get("extensions", {}).get(WRITE)
        sending = asyncio.ensure_future(self._send(send, write))
        watch = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, watch}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except OSError:
            pass  # the client has left
        finally:
            await _end(sending, watch)
            self._call.close()

    async def _send(self, send: Send, write: Write | None) -> None:
        call = self._call
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        idle = asyncio.ensure_future(self._keep_alive(send))
        try:
            data = call.begin()
            while not call.reading.ended:
                if data:
                    self._n_sent += 1
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                data = call.more(await call.reading.next()) if write is None else await self._follow(write)
            last = data + call.end()
        except OSError:
            raise
        except Exception as error:
            last = call.failed(as_api_error(error))
        finally:
            await _end(idle)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _follow(self, write: Write) -> bytes:
        """Writes what comes when it comes, without a task that wakes for it. Returns what is still to be sent, when the
        answers have ended or the client does not take them, for which `send` waits.

        It writes when the loop has done what it had to do when the first of it came: a server that is behind its
        engine then has more of it, which goes out as one event."""
        call, loop = self._call, asyncio.get_running_loop()
        done: asyncio.Future[bytes] = loop.create_future()
        is_due = False

        def told() -> None:
            nonlocal is_due
            if not is_due:
                is_due = True
                loop.call_soon(write_all)

        def write_all() -> None:
            nonlocal is_due
            is_due = False
            if done.done():  # what there is waits for the next call
                return
            try:
                steps = call.reading.now()
                data = call.more(steps) if steps else b""
                if call.reading.ended or (data and not write(data)):
                    done.set_result(data)
                elif data:  # tokens may come for long without anything to show
                    self._n_sent += 1
            except Exception as error:
                done.set_exception(error)

        told()  # what came before
        call.reading.answering.follow(told)
        try:
            return await done
        finally:
            call.reading.answering.follow(None)

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
