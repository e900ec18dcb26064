"""The load generator's HTTP against responses of every framing, cut at every byte, and a server of another's making."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from gristmill.bench.serving.http import Address, HttpError, Pool, ResponseReader, encode_request

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
CLOSED = b"HTTP/1.0 200 OK\r\n\r\nhello world"


@pytest.mark.parametrize("response", [LENGTH, CHUNKED, CONTINUED, CLOSED])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_body_however_it_is_framed_and_cut(response: bytes, size: int) -> None:
    reader = ResponseReader()
    body = b"".join(reader.feed(response[i : i + size]) for i in range(0, len(response), size))
    assert body == b"hello world"
    assert reader.done == (response is not CLOSED)
    assert reader.keeps_alive == (response is not CLOSED)
    if response is CLOSED:
        reader.end()
        assert reader.done


@pytest.mark.parametrize("response", [LENGTH, CHUNKED])
def test_what_ends_early_is_an_error(response: bytes) -> None:
    for n in range(len(response)):
        reader = ResponseReader()
        reader.feed(response[:n])
        assert not reader.done
        with pytest.raises(HttpError):
            reader.end()


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 \xb2\xb9\xb9 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        LENGTH,  # and then more
        b"x" * 70_000,
    ],
)
def test_what_is_no_response(response: bytes) -> None:
    def read() -> None:
        reader = ResponseReader()
        reader.feed(response)
        reader.feed(b"more")

    with pytest.raises(HttpError):
        read()


def test_addresses() -> None:
    assert Address.parse("http://[::1]:8000/v1/") == Address("::1", 8000, "/v1", False)
    assert Address.parse("http://[::1]:8000/v1/").name == "[::1]:8000"
    assert Address.parse("https://example.org").port == 443
    for wrong in ("example.org:8000", "ftp://example.org", "http://", "http://a:b", "http://a/?x=1"):
        with pytest.raises(ValueError, match="--base-url"):
            Address.parse(wrong)
    with pytest.raises(ValueError, match="line break"):
        encode_request(Address("a", 1, "", False), "GET", "/", {"Authorization": "Bearer a\r\nX: y"})
    with pytest.raises(ValueError, match="holds 'ж', which is not in Latin-1"):
        encode_request(Address("a", 1, "", False), "GET", "/", {"Authorization": "Bearer ж"})


class Handler(BaseHTTPRequestHandler):
    """Counts connections; closes one after the path /close without having said so."""

    protocol_version = "HTTP/1.1"
    timeout = 5
    connections: ClassVar[set[tuple[str, int]]] = set()

    def do_POST(self) -> None:
        self.connections.add(self.client_address)
        body = self.rfile.read(int(self.headers["Content-Length"])).upper()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path == "/close"

    def log_message(self, *_: object) -> None: ...


@contextmanager
def served() -> Iterator[Address]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Handler.connections = set()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Address("127.0.0.1", server.server_port, "", False)
        finally:
            server.shutdown()
            thread.join()


def test_connections_are_kept_and_replaced() -> None:
    async def ask(pool: Pool, path: str) -> bytes:
        body = bytearray()
        request = encode_request(pool.address, "POST", path, {}, b"hello")
        assert await pool.ask(request, lambda _, data: body.extend(data)) == 200
        return bytes(body)

    async def several() -> None:
        pool = Pool(address)
        for path in ("/", "/", "/close"):
            assert await ask(pool, path) == b"HELLO"
        assert len(Handler.connections) == 1
        await asyncio.sleep(0.1)
        assert await asyncio.gather(ask(pool, "/"), ask(pool, "/")) == [b"HELLO"] * 2
        assert len(Handler.connections) == 3
        pool.close()

    with served() as address:
        asyncio.run(several())
