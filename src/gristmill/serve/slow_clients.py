"""Ends connections that hold what others need: no request comes, or what was answered is not read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

REQUEST_S: Final = 30.0
"""Between the connection, or the end of an answer, and a request's whole headers. Bodies have wire.MAX_BODY_S."""
STALL_S: Final = 60.0
"""In which a client takes less than STALL_BYTES of an answer, more of which is ready."""
STALL_BYTES: Final = 48 << 10


Connection = Any
"""That of serve.connection: its `flow`, `transport`, `n_resumed`, and `cycle` (the request, None before the first)."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """request: the last that came. n_resumed, n_unread (bytes): of its answer, which is not read; None: another request
    does not come."""

    since: float
    request: Any
    n_resumed: int | None = None
    n_unread: int = 0

    def goes_on_in(self, later: _Wait) -> bool:
        """Whether the client has done nothing about it until then."""
        same = later.request is self.request and later.n_resumed == self.n_resumed
        return same and self.n_unread - later.n_unread < STALL_BYTES


class SlowClients:
    """Notes since when each connection has kept us waiting, as of the last sweeps."""

    def __init__(self, request_s: float, stall_s: float) -> None:
        self._request_s = request_s
        self._stall_s = stall_s
        self._waits: dict[Connection, _Wait] = {}

    def sweep(self, connections: Iterable[Connection]) -> None:
        """To be called about once a second with all that are open."""
        now, before, self._waits = time.monotonic(), self._waits, {}
        for connection in list(connections):
            wait = _wait_of(connection, now)
            if wait is None:
                continue
            known = before.get(connection)
            self._waits[connection] = wait = known if known is not None and known.goes_on_in(wait) else wait
            if now - wait.since > (self._request_s if wait.n_resumed is None else self._stall_s):
                connection.transport.abort()


def _wait_of(connection: Connection, now: float) -> _Wait | None:
    request = connection.cycle
    if connection.flow.write_paused:
        return _Wait(now, request, connection.n_resumed, connection.transport.get_write_buffer_size())
    return _Wait(now, request) if request is None or request.response_complete else None
