"""Clients that send or read slowly hold up nobody, and lose their connection in the end."""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from served import Running, serving, wait_until

from gristmill import LLM
from gristmill.cli.open_files import allow_open_files
from gristmill.serve import slow_clients

pytestmark = pytest.mark.alone

LONG = {"prompt": "ab", "max_tokens": 2000, "ignore_eos": True, "n": 4}
LARGE = {"max_tokens": 1900, "ignore_eos": True, "n": 3, "stream": True, "logprobs": True, "top_logprobs": 20}


@contextmanager
def connected(running: Running, data: bytes = b"", receive_bytes: int | None = None) -> Iterator[socket.socket]:
    with socket.socket() as client:
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(10)
        client.connect(("127.0.0.1", int(running.url.rsplit(":", 1)[1])))
        client.sendall(data)
        yield client


def is_closed(client: socket.socket) -> bool:
    """Whether the server ended the connection; what it said before is read."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


BEGUN = [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"POST /v1/completions HTTP/1.1\r\n"]


@pytest.mark.parametrize("data", BEGUN)
def test_a_request_that_does_not_come_ends_the_connection(llm: LLM, data: bytes) -> None:
    with serving(llm, request_s=0.5) as running, connected(running, data) as client:
        start = time.monotonic()
        assert is_closed(client)
        assert 0.5 <= time.monotonic() - start < 5


def test_a_second_request_that_does_not_come_ends_the_connection(llm: LLM) -> None:
    with serving(llm, request_s=0.5) as running:
        with connected(running, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal") as client:
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
            assert is_closed(client)
        with connected(running, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
            assert client.recv(1000).startswith(b"HTTP/1.1 200")


def test_headers_that_come_byte_by_byte_do_not_hold_a_connection(llm: LLM) -> None:
    with serving(llm, request_s=1) as running, connected(running, b"GET / HTTP/1.1\r\nX: ") as client:
        start = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - start < 10:
                client.sendall(b"a")
                time.sleep(0.05)
        assert time.monotonic() - start < 5


def test_a_body_that_does_not_come_is_told_so(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.serve.wire.MAX_BODY_S", 0.3)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with serving(llm, request_s=0.5) as running, connected(running, head) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 408")
        assert is_closed(client)


TOO_LARGE = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000000\r\n\r\n"


def test_a_body_that_was_refused_ends_the_connection(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.serve.wire.LINGER_S", 0.3)
    with serving(llm) as running, connected(running, TOO_LARGE) as client:  # the rest does not come
        start = time.monotonic()
        assert client.recv(1000).startswith(b"HTTP/1.1 413")
        assert time.monotonic() - start < 0.3
        assert is_closed(client)
        assert time.monotonic() - start < 3
    with serving(llm) as running, connected(running, TOO_LARGE) as client:  # it comes, and does not end
        start = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - start < 10:
                client.sendall(b" ")
                time.sleep(0.02)
        assert time.monotonic() - start < 3


def test_who_sends_all_of_it_reads_why_it_was_refused(running: Running) -> None:
    """Ending the connection at once would take the answer away from a client that is still writing."""
    with connected(
        running, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40000000\r\n\r\n"
    ) as client:
        client.sendall(bytes(40_000_000))
        start = time.monotonic()
        said = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert time.monotonic() - start < 3
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert b"\r\nconnection: close" in head
    assert json.loads(body)["error"]["code"] == "body_too_large"


def test_more_connections_than_there_is_room_for(llm: LLM) -> None:
    """Requests of some more are told so in the API's words; what comes beyond them is not taken at all."""
    with serving(llm, max_connections=8) as running, ExitStack() as stack:
        connections = running.server.server_state.connections
        for _ in range(8):
            stack.enter_context(connected(running))
        wait_until(lambda: len(connections) == 8)
        for path in ("/v1/completions", "/v1/messages"):
            refused = running.http.post(path, json={"prompt": "ab"})
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            assert refused.headers["connection"] == "close"
            assert refused.json()["error"]["type"] == "overloaded_error"
        assert running.http.get("/v1/models").status_code == 503
        assert running.http.get("/health").status_code == 200  # whoever watches over it still can
        for _ in range(100):
            stack.enter_context(connected(running))
        wait_until(lambda: len(connections) == 8 + 64 - 1)
        stack.close()
        wait_until(lambda: len(connections) <= 2)
        assert running.http.post("/v1/completions", json={"prompt": "ab", "max_tokens": 1}).status_code == 200


def test_long_answers_are_no_slow_clients(llm: LLM) -> None:
    with serving(llm, request_s=0.1, stall_s=2) as running:
        start = time.monotonic()
        for stream in (False, True):
            answer = running.http.post("/v1/completions", json={**LONG, "stream": stream})
            assert answer.status_code == 200
        assert answer.text.endswith("[DONE]\n\n")
        assert time.monotonic() - start > 0.2


def test_who_does_not_read_loses_the_connection_and_holds_up_nobody(llm: LLM) -> None:
    body = json.dumps({**LARGE, "messages": [{"role": "user", "content": "ab"}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(llm, stall_s=1) as running, connected(running, head + body, receive_bytes=4096):
        service = running.server.config.app.state.host.service
        wait_until(lambda: service.n_open == 3)
        wait_until(lambda: any(connection.flow.write_paused for connection in running.server.server_state.connections))
        quick = running.http.post("/v1/completions", json={"prompt": "ab", "max_tokens": 2})
        assert quick.status_code == 200
        wait_until(lambda: service.n_open == 0 and llm.engine.load().used == 0)


class Held:
    """A connection whose last request is answered, but for what has to wait."""

    def __init__(self) -> None:
        self.cycle: Any = None
        self.is_ended = False
        self.n_resumed = self.n_unread = 0
        self.transport = self

    @property
    def flow(self) -> Any:
        return SimpleNamespace(write_paused=self.n_unread > 0)

    def get_write_buffer_size(self) -> int:
        return self.n_unread

    def abort(self) -> None:
        self.is_ended = True


def is_ended(monkeypatch: pytest.MonkeyPatch, seconds: Iterable[tuple[int, int, int]]) -> bool:
    """A connection of which each second shows the number of its request, how often its client went on reading, and the
    bytes that wait for it. Three seconds of nothing end it."""
    connection, sweeper = Held(), slow_clients.SlowClients(request_s=3, stall_s=3)
    requests = [SimpleNamespace(response_complete=True) for _ in range(20)]
    for now, (n, connection.n_resumed, connection.n_unread) in enumerate(seconds):
        monkeypatch.setattr(slow_clients, "time", SimpleNamespace(monotonic=lambda now=now: float(now)))
        connection.cycle = requests[n]
        sweeper.sweep([connection])
    return connection.is_ended


def test_a_connection_that_is_used_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is quiet whenever somebody looks."""
    assert is_ended(monkeypatch, [(0, 0, 0)] * 5)
    assert not is_ended(monkeypatch, [(i, 0, 0) for i in range(20)])


def test_who_reads_steadily_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a large answer waits, or one small piece after another."""
    assert is_ended(monkeypatch, [(0, 0, 1 << 20)] * 5)
    assert is_ended(monkeypatch, [(0, 0, (1 << 20) - (i << 13)) for i in range(6)])
    assert not is_ended(monkeypatch, [(0, 0, (1 << 20) - (i << 15)) for i in range(20)])
    assert not is_ended(monkeypatch, [(0, i, 1 << 16) for i in range(20)])


def median_s(http: httpx.Client) -> float:
    """Of ten requests one after the other."""
    body, times = {"prompt": "ab", "max_tokens": 200, "temperature": 0, "ignore_eos": True}, []
    for _ in range(10):
        start = time.perf_counter()
        assert http.post("/v1/completions", json=body).status_code == 200
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def test_five_hundred_slow_sockets_do_not_slow_a_request_to_half(llm: LLM) -> None:
    allow_open_files(2000)  # clients and server are one process here
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    times = []
    with serving(llm) as running:
        connections = running.server.server_state.connections
        for _ in range(5):  # other programs may be busy meanwhile
            alone = median_s(running.http)
            with ExitStack() as stack:
                slow = [stack.enter_context(connected(running, (head, head + b"\r\n{")[i % 2])) for i in range(500)]
                wait_until(lambda: len(connections) > 500)
                for client in slow[::2]:
                    client.sendall(b"X-A: b\r\n")
                times.append((alone, median_s(running.http)))
            if times[-1][1] < 2 * alone:
                return
            wait_until(lambda: len(connections) < 10)
    pytest.fail(f"seconds alone, and beside 500 slow clients: {times}")
