"""uvicorn's connection, with a short way for the many pieces of a stream. It knows no event."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gristmill.serve.sse import WRITE


class Connection(H11Protocol):
    """One of those that are told why there is no room for them, or of those for which there is no room at all.

    ASGI's `send` takes each piece of a body through every layer of the application and through h11's events, which
    costs more than to make the piece. Only its beginning and its end need them.

    n_resumed  times that the client took what it had let wait
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.n_resumed = 0
        app = self.app

        async def with_write(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["http_version"] == "1.1":  # before that there are no chunks
                scope["extensions"] = {**scope.get("extensions", {}), WRITE: self._write}
            await app(scope, receive, send)

        self.app = with_write

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            transport.abort()

    def shutdown(self) -> None:
        """The server ends: a request that has not come whole by now will not be answered."""
        super().shutdown()
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()

    def resume_writing(self) -> None:
        self.n_resumed += 1
        super().resume_writing()

    def _should_upgrade(self) -> bool:
        """No, and the log says nothing of it: those that would rather speak HTTP/2, as Java's client, go on in this."""
        return False

    def send_400_response(self, msg: str) -> None:
        """For what is no HTTP. Where it comes after an answer, as the rest of a body, the connection ends."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _write(self, data: bytes) -> bool:
        """As one chunk of a body whose length was not told."""
        if self.flow.write_paused:
            return False
        if not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True
