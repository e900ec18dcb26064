"""HTTP/1.1 as a load generator needs it: requests one after another on a connection, bodies given as they come.

httpx takes two to four times as much for each event of a stream (docs/performance.md), on a machine that it shares
with the server it measures."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

_MAX_HEAD_BYTES: Final = 64 << 10
_MAX_LINE_BYTES: Final = 4096
_RECEIVE_BYTES: Final = 1 << 16

TakeBody = Callable[[int, bytes], None]
"""Is given a response's status and a piece of its body, at once when that has come."""


class HttpError(OSError):
    """The connection ended too early, or what came is no HTTP."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. path: what its API's paths begin with, without a slash at the end."""

    host: str
    port: int
    path: str
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Address:
        """ValueError for what is no address."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"--base-url: {url!r:.80} is no address: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"--base-url: {url!r:.80} is not of the form http://host:port")
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), parts.path.rstrip("/"), tls)

    @property
    def name(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def encode_request(address: Address, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """ValueError for a header that would not be one line, or has characters that none can have."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address.name}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header holds a line break")
    try:
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    except UnicodeEncodeError as error:
        raise ValueError(f"a header or path holds {error.object[error.start]!r}, which is not in Latin-1") from None


class ResponseReader:
    """The bytes of one response -> its status and its body. HttpError for what is neither."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.done = False
        self.keeps_alive = False
        self._held = b""
        self._chunked = False
        self._left: int | None = None  # bytes of the body, or of the chunk and the line break after it
        self._in_trailer = False

    def feed(self, data: bytes) -> bytes:
        """What of the body is in `data`."""
        if self.done:
            raise HttpError("bytes came after the response")
        self._held += data
        while self.status is None:
            if not self._read_head():
                return b""
        if self._chunked:
            return self._read_chunks()
        body, self._held = self._held, b""
        if self._left is not None:
            self._left -= len(body)
            self.done = self._left <= 0
        return body

    def end(self) -> None:
        """The connection has ended."""
        if self.status is None or self._chunked or self._left is not None:
            raise HttpError("the connection ended before the response did")
        self.done = True

    def _read_head(self) -> bool:
        head, found, rest = self._held.partition(b"\r\n\r\n")
        if not found:
            if len(self._held) > _MAX_HEAD_BYTES:
                raise HttpError("the response's head does not end")
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise HttpError(f"{first!r:.60} is no HTTP response")
        self._held = rest
        if status.startswith("1"):  # 100 Continue and its like, before the response itself
            return True
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in (x.partition(":") for x in lines)}
        self.status = int(status[:3])
        self._chunked = headers.get("transfer-encoding", "").endswith("chunked")
        length = headers.get("content-length", "")
        if not self._chunked and length.isdecimal():
            self._left = int(length)
            self.done = self._left == 0
        stated = headers.get("connection", "keep-alive" if version == "HTTP/1.1" else "close")
        self.keeps_alive = stated == "keep-alive" and (self._chunked or self._left is not None)
        return True

    def _read_chunks(self) -> bytes:
        body = list[bytes]()
        held, at = self._held, 0
        while not self.done:
            if self._left:
                piece = held[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                body.append(piece[: len(piece) + min(0, self._left - 2)])  # without the line break
                if self._left:
                    break
                continue
            end = held.find(b"\r\n", at)
            if end < 0:
                if len(held) - at > _MAX_LINE_BYTES:
                    raise HttpError("a chunk's size does not end")
                break
            line, at = held[at:end], end + 2
            if self._in_trailer:
                self.done = not line
            else:
                self._start_chunk(line)
        self._held = held[at:]
        return b"".join(body)

    def _start_chunk(self, line: bytes) -> None:
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            size = -1
        if size < 0:
            raise HttpError(f"{line[:20]!r} is no size of a chunk")
        self._in_trailer = size == 0
        self._left = size + 2 if size else 0


class Connection(asyncio.BufferedProtocol):
    """One connection. `ask` again when the answer before is complete and `usable` says so.

    It has memory of its own to receive into: asyncio's other protocols are given new memory for 256 KB each time, for
    which the system is asked, as long as all else of an event takes.
    """

    def __init__(self) -> None:
        self._room = memoryview(bytearray(_RECEIVE_BYTES))
        self._transport: asyncio.WriteTransport | None = None
        self._reader = ResponseReader()
        self._take: TakeBody | None = None
        self._done: asyncio.Future[int] | None = None
        self._lost = False
        self.answered = False
        """Whether any byte of the last response came."""

    @property
    def usable(self) -> bool:
        return not self._lost and self._reader.keeps_alive

    async def ask(self, request: bytes, take: TakeBody) -> int:
        """The response's status, when all of it has come and was given to `take`."""
        assert self._transport is not None
        self._reader, self._take, self.answered = ResponseReader(), take, False
        self._done = asyncio.get_running_loop().create_future()
        if self._lost:
            raise HttpError("the connection ended before the response did")
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's are no asyncio.WriteTransport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._done is None or self._done.done() or self._take is None:
            self._lost = True  # nobody asked: not to be used again
            return
        self.answered = True
        try:
            body = self._reader.feed(bytes(self._room[:nbytes]))
            if body and self._reader.status is not None:
                self._take(self._reader.status, body)
        except Exception as error:
            self._fail(error)
            return
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._done is None or self._done.done():
            return
        try:
            self._reader.end()
        except HttpError as error:
            self._fail(exc or error)
        self._end()

    def _end(self) -> None:
        if self._reader.done and self._done is not None and not self._done.done() and self._reader.status is not None:
            self._done.set_result(self._reader.status)

    def _fail(self, error: Exception) -> None:
        self._lost = True
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)


class Pool:
    """Connections to one server, kept for the next request."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle = list[Connection]()
        self._tls = ssl.create_default_context() if address.tls else None

    async def ask(self, request: bytes, take: TakeBody) -> int:
        """As Connection.ask. A kept connection that the server has closed meanwhile is replaced."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.usable:
                connection.close()
                continue
            try:
                return await self._ask(connection, request, take)
            except OSError:
                if connection.answered:
                    raise
        return await self._ask(await self._connect(), request, take)

    async def _ask(self, connection: Connection, request: bytes, take: TakeBody) -> int:
        try:
            status = await connection.ask(request, take)
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()
        return status

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self.address.host, self.address.port, ssl=self._tls)
        return connection

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
