"""A stream is the same by each way that it can be sent, and nothing of it is lost where a client waits."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from served import Running, wait_until

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "ab"}], "stream": True}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
ASKED = {
    "/v1/completions": {"prompt": ["ab", "cd"], "n": 2, "seed": 3, "max_tokens": 30, "echo": True, "stream": True},
    "/v1/chat/completions": {**CHAT, **GREEDY, "stream_options": {"include_usage": True}},
    "/v1/chat/completions?": {**CHAT, **GREEDY, "logprobs": True, "top_logprobs": 2},
    "/v1/responses": {"model": "tiny", "input": "ab", "temperature": 0, "max_output_tokens": 40, "stream": True},
    "/v1/messages": {**CHAT, **GREEDY},
}


def told(body: str) -> tuple[list[str], dict[str, str]]:
    """The kinds of events in their order; by where it stands, all that is text, and what else was told last: neither
    depends on which tokens come together."""
    kinds, texts, named = list[str](), dict[str, str](), ""

    def collect(place: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                collect(f"{place}.{name}", each)
        elif isinstance(value, list):
            for i, each in enumerate(value):
                collect(f"{place}[]" if "logprobs" in place else f"{place}[{value[0].get('index', i)}]", each)
        elif value is not None and not re.search("id|created|sequence_number|type", place.rsplit(".", 1)[-1]):
            texts[place] = texts.get(place, "") + value if isinstance(value, str) else str(value)

    for line in body.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            kind = event.get("type", "chunk")
            collect(kind, {name: value for name, value in event.items() if name not in ("object", "model", "type")})
            assert named in ("", kind)
            kinds += [kind] if kinds[-1:] != [kind] else []
        elif line.startswith("event: "):
            named = line.removeprefix("event: ")
        elif line:
            kinds.append(line)
    return kinds, texts


@pytest.mark.parametrize("path", list(ASKED))
def test_a_server_that_has_only_asgis_way_streams_the_same(running: Running, path: str) -> None:
    for _ in range(2):  # after the first, the prompt is in the cache
        by_uvicorn = running.http.post(path, json=ASKED[path])

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(running.server.config.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(path, json=ASKED[path])

    by_asgi = asyncio.run(ask())
    assert by_uvicorn.status_code == by_asgi.status_code == 200
    kinds, texts = told(by_uvicorn.text)
    assert (kinds, texts) == told(by_asgi.text)
    assert max(map(len, texts.values())) >= 20


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages"])
def test_the_first_event_comes_with_the_first_token(says: Callable[..., Running], path: str) -> None:
    """By it clients measure, vLLM's benchmark among them, how long that took."""
    body = {"prompt": "ab", "stream": True} if path == "/v1/completions" else CHAT
    with says("xyz", token_s=0.2).http.stream("POST", path, json={**body, "max_tokens": 9}) as response:
        assert '"x"' in next(response.iter_text())


@pytest.mark.parametrize("path", list(ASKED))
def test_a_text_with_line_ends_of_unicode_stays_in_the_lines_of_its_events(
    says: Callable[..., Running], path: str
) -> None:
    said = "a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029é"
    body = {name: value for name, value in ASKED[path].items() if name not in ("n", "echo")}
    with says(said).http.stream("POST", path, json=body) as response:
        lines = [line for line in response.iter_lines() if line]  # httpx ends a line where str.splitlines does
    assert all(re.match(r"(event|data): ", line) for line in lines), lines
    assert said in told("\n".join(lines))[1].values()


def connected(
    running: Running, version: str, body: dict[str, Any], path: str = "/v1/completions", receive_bytes: int = 1 << 16
) -> socket.socket:
    data = json.dumps(body).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(20)
    client.connect(("127.0.0.1", int(running.url.rsplit(":", 1)[1])))
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}"
    client.sendall(f"{head}\r\n\r\n".encode() + data)
    return client


def read_all(client: socket.socket) -> tuple[bytes, bytes]:
    """A response's head and the rest."""
    data = b""
    while more := client.recv(1 << 16):
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def test_chunks_are_for_those_who_know_them(running: Running) -> None:
    body = {"prompt": "ab", "stream": True, **GREEDY}
    with connected(running, "1.0", body) as old, connected(running, "1.1", body) as new:
        (head, plain), (new_head, chunked) = read_all(old), read_all(new)
    assert b"chunked" not in head
    assert b"transfer-encoding: chunked" in new_head.lower()
    joined, at = b"", 0
    while size := int(chunked[at : chunked.index(b"\r\n", at)], 16):
        begin = chunked.index(b"\r\n", at) + 2
        joined, at = joined + chunked[begin : begin + size], begin + size + 2
        assert chunked[at - 2 : at] == b"\r\n"
    assert chunked[at:] == b"0\r\n\r\n"
    assert all(line.startswith(b"data: ") for line in plain.splitlines() if line)
    assert told(plain.decode()) == told(joined.decode())


@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("/v1/chat/completions", {"type": "function", "function": {"name": "f"}}),
        ("/v1/messages", {"name": "f", "input_schema": {}}),
    ],
)
def test_a_stream_is_kept_alive_while_tokens_come_that_show_nothing(
    says: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, path: str, tool: dict[str, Any]
) -> None:
    monkeypatch.setattr("gristmill.serve.sse.KEEP_ALIVE_S", 0.1)
    call = '<tool_call>\n{"arguments": {"a": "%s"}, "name": "f"}\n</tool_call>' % ("b" * 100)  # told with its name
    body = {**CHAT, "max_tokens": 500, "tools": [tool]}
    with says(call, token_s=0.01).http.stream("POST", path, json=body) as answer:
        lines = list(answer.iter_lines())
    assert lines.count(": still at work") >= 5
    assert "b" * 100 in "".join(lines)


def test_a_client_that_waits_gets_everything(running: Running) -> None:
    body = {**CHAT, "max_tokens": 1900, "ignore_eos": True, "n": 3, "logprobs": True, "top_logprobs": 20}
    with connected(running, "1.1", body, "/v1/chat/completions", receive_bytes=4096) as client:
        wait_until(lambda: any(connection.flow.write_paused for connection in running.server.server_state.connections))
        _, rest = read_all(client)
    n_tokens = [0, 0, 0]
    for event in re.findall(rb"data: (\{.*)", rest):
        choice = json.loads(event)["choices"][0]
        n_tokens[choice["index"]] += len((choice["logprobs"] or {"content": ()})["content"])
    assert b"data: [DONE]" in rest
    assert n_tokens == [1900] * 3
