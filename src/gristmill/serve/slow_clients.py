"""Ends connections that hold what others need: no request comes, or what was answered is not read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

REQUEST_S: Final = 30.0
"""Between the connection, or the end of an answer, and a request's whole headers. Bodies have wire.MAX_BODY_S."""
STALL_S: Final = 60.0
"""In which a client takes less than 48 KiB of an answer, more of which is ready."""


Connection = Any
"""uvicorn's protocol object of one: its `flow`, `transport`, and `cycle` (the request, None before the first)."""


class SlowClients:
    """Notes since when each connection has kept us waiting, as of the last sweeps."""

    def __init__(self, request_s: float, stall_s: float) -> None:
        self._request_s = request_s
        self._stall_s = stall_s
        self._since: dict[Connection, tuple[str, float]] = {}

    def sweep(self, connections: Iterable[Connection]) -> None:
        """To be called about once a second with all that are open."""
        now, before, self._since = time.monotonic(), self._since, {}
        for connection in list(connections):
            reason = _why_waiting(connection)
            if reason is None:
                continue
            known, since = before.get(connection, (reason, now))
            self._since[connection] = (reason, since if known == reason else now)
            if now - self._since[connection][1] > (self._stall_s if reason == "unread" else self._request_s):
                connection.transport.abort()


def _why_waiting(connection: Connection) -> str | None:
    if connection.flow.write_paused:
        return "unread"
    return "no request" if connection.cycle is None or connection.cycle.response_complete else None
