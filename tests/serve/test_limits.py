"""What hostile, hasty and absent clients meet: numbers, sizes, keys, hosts, queues, disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from loop_lag import loop_lag
from processor_time import slowness
from served import Running, n_ended, serving, wait_until

from gristmill import LLM
from gristmill.serve.app import Settings
from gristmill.serve.chat_protocol import ChatRequest, DetokenizeRequest, TokenizeChatRequest, TokenizeRequest
from gristmill.serve.guard import Access
from gristmill.serve.inbox import Inbox
from gristmill.serve.messages_protocol import CountRequest, MessagesRequest
from gristmill.serve.protocol import CLIENTS_OWN, CompletionRequest, EmbeddingRequest
from gristmill.serve.responses_protocol import ResponsesRequest
from gristmill.serve.service import Answering, EngineService
from gristmill.types import Request

ODD = ["0", "-1", str(2**31), str(2**63), "NaN", "Infinity", "-Infinity", "1e400", '""', "[]", "{}", "null", "true"]
ODD += ['"\\ud800"', "[[]]", "9" * 5000, "1e-400", '"a\\u0000b"']
ROUTES: list[tuple[str, Any, dict[str, str]]] = [
    ("/v1/chat/completions", ChatRequest, {"messages": '[{"role": "user", "content": "a"}]', "max_tokens": "1"}),
    ("/v1/completions", CompletionRequest, {"prompt": '"a"', "max_tokens": "1"}),
    ("/v1/embeddings", EmbeddingRequest, {"input": '"a"'}),
    ("/v1/responses", ResponsesRequest, {"input": '"a"', "max_output_tokens": "1"}),
    ("/v1/messages", MessagesRequest, {"messages": '[{"role": "user", "content": "a"}]', "max_tokens": "1"}),
    ("/v1/messages/count_tokens", CountRequest, {"messages": '[{"role": "user", "content": "a"}]'}),
    ("/tokenize", TokenizeRequest, {"prompt": '"a"'}),
    ("/tokenize", TokenizeChatRequest, {"messages": '[{"role": "user", "content": "a"}]'}),
    ("/detokenize", DetokenizeRequest, {"tokens": "[1]"}),
]


@pytest.mark.parametrize(("path", "model", "base"), ROUTES, ids=[f"{route[0]} {route[1].__name__}" for route in ROUTES])
def test_no_value_of_any_field_breaks_the_server(running, path: str, model: Any, base: dict[str, str]) -> None:
    for name, field in model.model_fields.items():
        name = field.alias or name
        for value in ODD:
            body = "{" + ",".join(f'"{k}": {v}' for k, v in {**base, name: value}.items()) + "}"
            response = running.http.post(path, content=body)
            assert response.status_code in (200, 400, 404), (name, value[:40], response.text)
            if response.status_code != 200:
                assert response.json()["error"]["message"]


FUNCTION = {"name": "f", "description": "a", "parameters": {"type": "object"}, "strict": True}
CALLED = {"id": "c", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
PARTS = [{"type": "text", "text": "a"}]
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": PARTS, "name": "b"},
    {"role": "assistant", "content": "a", "reasoning_content": "b", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c", "content": "d"},
]
CHAT: dict[str, Any] = {"messages": TURNS, "tools": [{"type": "function", "function": FUNCTION}]}
NAMED = {"type": "function", "function": {"name": "f"}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "description": "b", "schema": SCHEMA, "strict": True}}
CACHED = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
BLOCKS: list[dict[str, Any]] = [
    {"role": "user", "content": [CACHED]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": PARTS, "is_error": False}]},
]
TOLD = {"messages": BLOCKS, "system": PARTS, "tools": [{"name": "f", "input_schema": SCHEMA}]}
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "a"},
]
DEEP: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {**CHAT, "tool_choice": NAMED, "max_tokens": 1}),
    ("/v1/chat/completions", {**CHAT, "response_format": FORM, "max_tokens": 1, "metadata": {"a": "b"}}),
    ("/v1/chat/completions", {"messages": TURNS[:1], "stream_options": {"include_usage": True}, "stream": True}),
    (
        "/v1/completions",
        {"prompt": ["a"], "max_tokens": 1, "logit_bias": {"5": 1}, "stop": ["a"], "stop_token_ids": [7]},
    ),
    (
        "/v1/completions",
        {"prompt": ["a"], "max_tokens": 1, "bad_words": ["a"], "skip_special_tokens": False, "echo": True},
    ),
    (
        "/v1/completions",
        {"prompt": ["a"], "max_tokens": 1, "allowed_token_ids": [7], "include_stop_str_in_output": True},
    ),
    ("/v1/completions", {"prompt": [[5, 6]], "max_tokens": 1, "structured_outputs": {"choice": ["a", "b"]}}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "structured_outputs": {"regex": "a", "json": None}}),
    ("/v1/embeddings", {"input": ["a"]}),
    ("/v1/embeddings", {"input": [[5, 6], [7]]}),
    ("/v1/responses", {"input": ITEMS, "tools": [{"type": "function", **FUNCTION}], "max_output_tokens": 1}),
    ("/v1/responses", {"input": "a", "text": {"format": {**FORM["json_schema"], "type": "json_schema"}}}),
    ("/v1/responses", {"input": "a", "reasoning": {"effort": "low"}, "max_output_tokens": 1}),
    ("/v1/messages", {**TOLD, "max_tokens": 1, "tool_choice": {"type": "tool", "name": "f"}}),
    ("/v1/messages", {"messages": BLOCKS[:1], "max_tokens": 1, "thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ("/v1/messages", {"messages": BLOCKS[:1], "max_tokens": 1, "output_config": {"format": {"schema": SCHEMA}}}),
    ("/v1/messages/count_tokens", TOLD),
    ("/tokenize", CHAT),
    ("/detokenize", {"tokens": [5, 6]}),
]


def with_each_changed(value: Any, change: str) -> Iterator[str]:
    """JSON of `value`, each time with another of the values inside of it replaced by the JSON `change`."""
    for key, each in pairs(value):
        for changed in [change, *with_each_changed(each, change)]:
            items = [(k, changed if k == key else json.dumps(v)) for k, v in pairs(value)]
            if isinstance(value, dict):
                yield "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in items) + "}"
            else:
                yield "[" + ",".join(v for _, v in items) + "]"


def pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


@pytest.mark.parametrize(("path", "body"), DEEP, ids=[f"{path} {i}" for i, (path, _) in enumerate(DEEP)])
def test_no_value_inside_of_any_field_breaks_the_server(running, path: str, body: dict[str, Any]) -> None:
    assert running.http.post(path, json=body).status_code in (200, 400)
    for value in ODD:
        for content in with_each_changed(body, value):
            response = running.http.post(path, content=content)
            assert response.status_code in (200, 400, 404), (content[:200], response.text)
            if response.status_code != 200:
                assert response.json()["error"]["message"]
            else:
                assert '"error"' not in response.text or "/v1/responses" in path, content[:200]


def with_a_null(value: Any) -> Iterator[Any]:
    """`value`, each time with a field that is null in another of its objects, but not in those that are a client's."""
    if isinstance(value, dict):
        yield {**value, "nothing": None}
    for key, each in pairs(value):
        if key in CLIENTS_OWN and isinstance(each, dict):
            continue
        for changed in with_a_null(each):
            copied = value.copy()
            copied[key] = changed
            yield copied


@pytest.mark.parametrize(("path", "body"), DEEP, ids=[f"{path} {i}" for i, (path, _) in enumerate(DEEP)])
def test_a_field_that_is_null_is_as_if_left_out(running, path: str, body: dict[str, Any]) -> None:
    status = running.http.post(path, json=body).status_code
    for changed in with_a_null(body):
        response = running.http.post(path, json=changed)
        assert response.status_code == status, (changed, response.text)


def test_in_what_is_a_clients_own_null_is_a_value(running, says: Callable[..., Running]) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"const": None}}}
    for kept in ({"response_format": form}, {"structured_outputs": {"json": {"const": None}}}):
        answer = running.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 9, **kept}).json()
        assert answer["choices"][0]["text"] == "null"
    for name in ("metadata", "logit_bias", "chat_template_kwargs"):
        refused = running.http.post("/v1/chat/completions", json={"messages": TURNS[:1], name: {"5": None}})
        assert refused.json()["error"]["param"] == f"{name}.5"
    server = says("ok")
    schema = {"type": "object", "properties": {"a": {"default": None}}}
    function = {"name": "f", "description": None, "parameters": schema}
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": None}}
    turns = [*BLOCKS[:1], {"role": "assistant", "content": [call]}, *BLOCKS[2:]]
    tools = {"tools": [{"type": None, "name": "f", "description": None, "input_schema": schema}]}
    for path, body in (
        ("/v1/chat/completions", {"messages": TURNS[:1], "tools": [{"type": "function", "function": function}]}),
        ("/v1/responses", {"input": "a", "tools": [{"type": "function", **function}]}),
        ("/v1/messages", {"messages": turns, **tools, "max_tokens": 9}),
    ):
        response = server.http.post(path, json=body)
        assert response.status_code == 200, response.text
        text = server.llm.tokenizer.decode(server.server.config.app.state.host.service.requests[-1].prompt_ids)
        assert '"default": null' in text
        assert '"description"' not in text
    assert '"a": null' in text


def test_bodies_that_are_no_object(running) -> None:
    for body in (b"", b"{", b"[]", b"1", b"null", b"\xff\xfe", b'{"a": 1} x', b'"a"'):
        response = running.http.post("/v1/chat/completions", content=body)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "invalid_json"


def test_a_byte_order_mark_is_no_part_of_a_body(running) -> None:
    """Editors and shells of Windows write one, and Python's json takes it of bytes."""
    body = b'\xef\xbb\xbf{"prompt": "ab", "max_tokens": 1}'
    assert running.http.post("/v1/completions", content=body).status_code == 200


@pytest.mark.parametrize("depth", [65, 3000, 100_000])
def test_deep_bodies(running, depth: int) -> None:
    body = '{"messages": ' + "[" * depth + "]" * depth + "}"
    response = running.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert "64" in response.json()["error"]["message"]


def test_large_bodies_are_refused_while_they_come(running) -> None:
    address = ("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
    with socket.create_connection(address, timeout=10) as client:  # it says 200 MB and sends none
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000000\r\n\r\n")
        assert b" 413 " in client.recv(1000)

    def chunks() -> Any:
        for _ in range(17):
            yield b" " * (1 << 20)

    with contextlib.suppress(httpx.WriteError):  # refused before it was all sent
        assert running.http.post("/v1/completions", content=chunks()).status_code == 413


def test_large_headers_are_refused(running) -> None:
    assert running.http.get("/health", headers={"x-large": "a" * 100_000}).status_code in (400, 431)
    assert running.http.get("/health").status_code == 200


def test_a_key_is_wanted_everywhere_but_for_health(llm: LLM) -> None:
    with serving(llm, Settings(access=Access(api_keys=("one", "two")))) as server:
        routes = [(m, r.path) for r in server.server.config.app.routes for m in getattr(r, "methods", None) or ("GET",)]
        assert len(routes) > 10
        for method, path in routes:
            response = server.http.request(method, path.replace("{name:path}", "x").replace("{name}", "x"))
            if path in ("/health", "/healthz"):
                assert response.status_code in (200, 405)
                continue
            assert response.status_code == 401, path
            if method != "HEAD":
                assert "the API key is missing" in response.json()["error"]["message"]
        for headers in ({"Authorization": "Bearer two"}, {"x-api-key": "one"}):
            assert server.http.get("/v1/models", headers=headers).status_code == 200
        asked = server.http.get("/").headers["www-authenticate"]
        assert asked.startswith("Basic")  # a browser asks its user
        assert server.http.get("/v1/models", auth=("any", "two")).status_code == 200
        others = {"Authorization": "Bearer three", "x-api-key": "three"}  # which clients and proxies send beside
        for headers in ({**others, "Authorization": "Bearer two"}, {**others, "x-api-key": "one"}):
            assert server.http.get("/v1/models", headers=headers).status_code == 200
        for headers in (others, {"Authorization": "Bearer three"}, {"x-api-key": ""}, {"Authorization": "Basic !"}):
            assert server.http.get("/v1/models", headers=headers).status_code == 401


@pytest.mark.parametrize("key", ["", " ", "\t\n", " key", "key\n", "k\udcff"])
def test_a_key_that_requests_have_by_themselves_is_none(key: str) -> None:
    """An empty one is shown by whoever sends no more than `Authorization: Bearer`, one of stray bytes by nobody."""
    with pytest.raises(ValueError, match="--api-key: "):
        Access(api_keys=("good", key))


def test_pages_from_elsewhere_may_not_ask(running, llm: LLM) -> None:
    for host in ("evil.example", "evil.example:8000", "", "[::1", "127.0.0.1.evil.example"):
        assert running.http.get("/v1/models", headers={"Host": host}).status_code == 403
    told = running.http.get("/v1/models", headers={"Host": "evil.example"}).json()["error"]["message"]
    assert "--allowed-host NAME" in told
    for host in ("localhost", "LOCALHOST.", "127.0.0.1:1", "127.0.0.2", "127.1.2.3:80", "[::1]:8000", "[::1]"):
        assert running.http.get("/v1/models", headers={"Host": host}).status_code == 200
    response = running.http.get("/v1/models", headers={"Origin": "https://evil.example"})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers
    assert running.http.get("/v1/models", headers={"Origin": running.url}).status_code == 200
    with serving(llm, Settings(access=Access(cors_origins=("https://mine.example",)))) as server:
        allowed = server.http.get("/v1/models", headers={"Origin": "https://mine.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://mine.example"
        assert server.http.get("/v1/models", headers={"Origin": "https://evil.example"}).status_code == 403


def test_pages_from_anywhere_may_ask_where_they_are_let(llm: LLM) -> None:
    """A browser asks first, and then shows no key."""
    elsewhere = {"Origin": "https://any.example"}
    first = {**elsewhere, "Access-Control-Request-Method": "GET"}
    with serving(llm, Settings(access=Access(api_keys=("one",), cors_origins=("*",)))) as server:
        asked = server.http.options("/v1/models", headers=first)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, "*")
        assert server.http.get("/v1/models", headers=elsewhere).status_code == 401
        assert server.http.get("/v1/models", headers={**elsewhere, "x-api-key": "one"}).status_code == 200
    with serving(llm, Settings(access=Access(api_keys=("one",), check_host=False))) as server:
        assert server.http.options("/v1/models").status_code == 401
        for host in ("any.example", "any.example:80", ""):
            assert server.http.get("/v1/models", headers={"Host": host, "x-api-key": "one"}).status_code == 200
        assert server.http.get("/v1/models", headers={**elsewhere, "x-api-key": "one"}).status_code == 403


def test_what_no_browser_calls_an_origin_is_none() -> None:
    """Nothing would ever come from there."""
    Access(
        cors_origins=(
            "http://localhost:3000",
            "https://mine.example",
            "http://[::1]:80",
            "chrome-extension://abc",
            "null",
        )
    )
    for origin in (
        "",
        "mine.example",
        "https://mine.example/",
        "https://Mine.example",
        "https://a.example,https://b.example",
    ):
        with pytest.raises(ValueError, match="--cors-origin: "):
            Access(cors_origins=("https://mine.example", origin))


def test_names_that_are_allowed_are_the_servers_own(llm: LLM) -> None:
    names = ("host.docker.internal", "Mill.example.", "[fd00::1]", "192.168.0.7")
    with serving(llm, Settings(access=Access(allowed_hosts=names))) as server:
        for host in ("host.docker.internal:8000", "mill.example", "MILL.EXAMPLE.:443", "[fd00::1]:1", "192.168.0.7"):
            assert server.http.get("/v1/models", headers={"Host": host}).status_code == 200, host
        for host in ("evil.example", "a.mill.example", "[fd00::2]", "192.168.0.8", "*"):
            assert server.http.get("/v1/models", headers={"Host": host}).status_code == 403, host
            assert server.http.get("/health", headers={"Host": host}).status_code == 200, host  # as a pod's probe asks
    with serving(llm, Settings(access=Access(allowed_hosts=("*",)))) as server:
        assert server.http.get("/v1/models", headers={"Host": "any.example"}).status_code == 200
    for name in ("", "https://mill.example", "mill.example:80", "mill.example/v1", "fd00::1", "[::1"):
        with pytest.raises(ValueError, match="--allowed-host: "):
            Access(allowed_hosts=(name,))


URL = "http://169.254.169.254/latest/meta-data"
IMAGE = {"type": "image_url", "image_url": {"url": URL}}
FETCHING: list[tuple[str, dict[str, Any]]] = [
    *((path, {"model": name}) for path, _, _ in ROUTES for name in (URL, "org/name", "org/name:Q8_0", "../../x")),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [IMAGE]}]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": URL}]}]}),
    ("/v1/responses", {"tools": [{"type": "mcp", "server_label": "a", "server_url": URL}]}),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"url": URL}}]}]}),
    ("/v1/messages", {"mcp_servers": [{"type": "url", "url": URL, "name": "a"}]}),
    ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": URL}}}}),
    *((path, {"name": URL}) for path in ("/pull", "/api/pull", "/models/pull", "/v1/models")),
]


def test_no_request_makes_the_server_connect_anywhere(running, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connecting(self: socket.socket, address: Any) -> None:
        asked.append(address)
        connect(self, address)

    def looking_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(host)
        return look_up(host, *args, **kwargs)

    bases = {path: json.loads("{" + ",".join(f'"{k}": {v}' for k, v in base.items()) + "}") for path, _, base in ROUTES}
    assert running.http.get("/health").status_code == 200  # its one connection is there
    monkeypatch.setattr(socket.socket, "connect", connecting)
    monkeypatch.setattr(socket, "getaddrinfo", looking_up)
    for path, body in FETCHING:
        response = running.http.post(path, json={**bases.get(path, {}), **body})
        assert 400 <= response.status_code < 500, (path, body, response.text)
    for name in (URL, "org/name", "../../x"):
        assert running.http.get(f"/v1/models/{name}").status_code == 404
    assert asked == []
    with pytest.raises(httpx.ConnectError):  # such a request would be seen
        httpx.get("http://127.0.0.1:1")
    assert ("127.0.0.1", 1) in asked


LONG = {"prompt": "ab", "max_tokens": 2000, "ignore_eos": True}


def test_the_queue_is_bounded(llm: LLM) -> None:
    with serving(llm, Settings(max_queue=1)) as server:
        for path, body, param in (
            ("/v1/completions", {"prompt": "ab", "n": 6}, "n"),
            ("/v1/completions", {"prompt": ["ab"] * 3, "n": 2}, "n"),
            ("/v1/completions", {"prompt": ["ab"] * 6}, "prompt"),
            ("/v1/chat/completions", {"messages": TURNS[:1], "n": 6}, "n"),
        ):
            response = server.http.post(path, json=body)
            assert response.status_code == 400
            assert response.json()["error"]["param"] == param
        with server.http.stream("POST", "/v1/completions", json={**LONG, "n": 5, "stream": True}) as stream:
            refused = server.http.post("/v1/completions", json={"prompt": "ab", "n": 2})
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            assert stream.status_code == 200
        wait_until(lambda: llm.engine.load().n_running == 0)
        assert server.http.post("/v1/completions", json={"prompt": "ab", "n": 5, "max_tokens": 2}).status_code == 200


def test_as_many_texts_are_embedded_as_openai_takes(llm: LLM) -> None:
    with serving(llm, Settings(max_queue=1)) as server:
        texts = [chr(ord("a") + i % 26) * (1 + i % 3) for i in range(2048)]
        answer = server.openai.embeddings.create(model="tiny", input=texts)
        assert [each.index for each in answer.data] == list(range(2048))
        one = server.openai.embeddings.create(model="tiny", input=texts[1])
        assert answer.data[1].embedding == one.data[0].embedding == answer.data[1 + 78].embedding
        assert answer.usage.prompt_tokens == sum(len(llm.tokenizer.encode(text)) for text in texts)
        refused = server.http.post("/v1/embeddings", json={"input": [*texts, "a"]})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "input"


def test_texts_to_embed_leave_room_for_others_and_wait_for_it(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 requests that may be open, they take 2; where others have taken all meanwhile, they go on after those."""
    slices, waited = list[int](), list[int]()
    start = EngineService.start

    async def starting(service: EngineService, requests: Sequence[Request]) -> Answering:
        slices.append(len(requests))
        answering = await start(service, requests)
        if len(slices) == 2:
            others = Inbox(5)
            service._open.add(others)

            def end() -> None:
                waited.append(len(slices))
                service._open.remove(others)

            asyncio.get_running_loop().call_later(0.3, end)
        return answering

    monkeypatch.setattr(EngineService, "start", starting)
    with serving(llm, Settings(max_queue=1)) as server:
        answer = server.openai.embeddings.create(model="tiny", input=["a", "b", "c", "d", "e", "f", "g"])
    assert [each.index for each in answer.data] == list(range(7))
    assert slices == [2, 2, 2, 1]
    assert waited == [2]


def test_texts_to_embed_are_refused_where_there_is_no_room(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    found, start = list[EngineService](), EngineService.start

    async def starting(service: EngineService, requests: Sequence[Request]) -> Answering:
        found.append(service)
        return await start(service, requests)

    monkeypatch.setattr(EngineService, "start", starting)
    with serving(llm, Settings(max_queue=1)) as server:
        for n_open, n_slices in ((0, 2), (4, 3)):  # beside 4 of 5, they are computed one by one
            found.clear()
            assert len(server.openai.embeddings.create(model="tiny", input=["a", "b", "c"]).data) == 3
            assert len(found) == n_slices
            if n_open == 0:
                found[0]._open.add(Inbox(4))
        found[0]._open.add(Inbox(1))
        refused = server.http.post("/v1/embeddings", json={"input": ["a"] * 9})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "overloaded"


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_free_what_they_held(llm: LLM, running, stream: bool) -> None:
    rng = random.Random(0)
    body = json.dumps({**LONG, "stream": stream}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    address = ("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
    open_clients = []
    n_before = [n_ended(running.http, reason) for reason in ("abort", "length")]
    for _ in range(100):
        client = socket.create_connection(address, timeout=10)
        client.sendall(head + body[: rng.choice([len(body), len(body), len(body), 10])])
        open_clients.append(client)
        time.sleep(rng.random() * 0.01)
        if len(open_clients) > 6:
            open_clients.pop(rng.randrange(7)).close()
    for client in open_clients:
        client.close()
    host = running.server.config.app.state.host
    wait_until(lambda: host.service.n_open == 0 and llm.engine.load().used == 0)
    n_after = [n_ended(running.http, reason) for reason in ("abort", "length")]
    assert n_after[0] - n_before[0] > n_after[1] - n_before[1]  # few were answered to the end, for nobody
    assert llm.engine.load().n_waiting == 0
    assert running.http.post("/v1/completions", json={"prompt": "ab", "max_tokens": 2}).status_code == 200


def test_draining_refuses_what_is_new_and_finishes_what_is_open(llm: LLM) -> None:
    with serving(llm, drain_s=100) as server:
        with server.http.stream("POST", "/v1/completions", json={**LONG, "n": 12, "stream": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.server.drain()
            assert server.http.post("/v1/completions", json={"prompt": "ab"}).status_code == 503
            assert server.http.get("/health").status_code == 503
            assert [line for line in lines if line][-1] == "data: [DONE]"
        wait_until(lambda: server.server.should_exit)


def test_draining_finishes_what_is_still_being_prepared(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    with serving(llm, drain_s=100) as server, ThreadPoolExecutor(1) as pool:
        texts = server.server.config.app.state.host.texts
        prompt = texts.prompt

        def prompt_that_takes_long(chat: Any) -> Any:
            begun.set()
            assert may_go_on.wait(60)
            return prompt(chat)

        monkeypatch.setattr(texts, "prompt", prompt_that_takes_long)
        chat = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 5}
        asking = pool.submit(server.http.post, "/v1/chat/completions", json=chat)
        assert begun.wait(60)
        server.server.drain()
        time.sleep(0.5)  # the server looks ten times a second
        assert not server.server.should_exit
        may_go_on.set()
        assert asking.result().status_code == 200
        wait_until(lambda: server.server.should_exit)


def test_a_body_that_does_not_come_ends_with_the_server_without_a_word(
    llm: LLM, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(llm, drain_s=0.1) as server, socket.socket() as client:
        client.connect((server.server.config.host, server.server.config.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        wait_until(lambda: server.server.config.app.state.host.n_begun == 1)
        server.server.drain()
        client.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_the_page_is_there_or_said_not_to_be(running) -> None:
    response = running.http.get("/")
    if response.status_code == 200:
        assert "default-src 'self'" in response.headers["content-security-policy"]
    for path in ("/web/../app.py", "/web/%2e%2e/app.py", "/web/app.py", "/web/nothing.js"):
        assert running.http.get(path).status_code == 404


def test_an_engine_that_is_gone_is_told(model_path: Path) -> None:
    with LLM(model_path, kv_type="f32", threads=1) as own, serving(own) as server:
        with server.http.stream("POST", "/v1/completions", json={**LONG, "n": 12, "stream": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            own.close()
            last = [line for line in lines if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "unavailable"
        assert server.http.post("/v1/completions", json={"prompt": "ab"}).status_code == 503
        assert server.http.get("/health").status_code == 503


def post_plainly(server: Running, path: str, body: dict[str, Any]) -> Callable[[], bytes]:
    """A request whose body is written beforehand, by a client that computes next to nothing; returns the head."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))

    def post() -> bytes:
        with socket.create_connection(address, timeout=60) as client:
            client.sendall(head.encode() + data)
            received = client.recv(1 << 16)
            while client.recv(1 << 20):
                pass
        return received

    return post


LARGE = {"characters": "a" * 1_000_000, "words": "ab cd " * 170_000, "too large a body": "a" * 50_000_000}
TEXTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "/v1/completions": lambda text: {"prompt": text},
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": text},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
    "/v1/messages/count_tokens": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/embeddings": lambda text: {"input": text},
    "/tokenize": lambda text: {"prompt": text, "return_token_strs": True},
}


@pytest.mark.alone
@pytest.mark.parametrize("text", LARGE)
@pytest.mark.parametrize("path", TEXTS)
def test_others_are_answered_while_a_large_text_is_read(running, path: str, text: str) -> None:
    post = post_plainly(running, path, TEXTS[path](LARGE[text]))
    status = 413 if len(LARGE[text]) > 16 << 20 else 200 if path == "/tokenize" else 400
    lags = []
    for _ in range(3):
        lag, answer = loop_lag(running, post)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        lags.append(lag)
        if lag < 0.05 or lag < 0.05 * slowness():
            return
    pytest.fail(f"others waited for {lags} seconds of this process; 0.05 are allowed on a usual machine")


def test_objects_of_too_many_names_are_refused(running) -> None:
    """To say of each of a million names that it is not known takes seconds, in which nobody else is answered."""
    for body in ({str(i): 1 for i in range(20_000)}, {"prompt": "a", "logit_bias": {str(i): 1 for i in range(20_000)}}):
        response = running.http.post("/v1/completions", json=body)
        assert response.status_code == 400
        assert "more than 16384 names" in response.json()["error"]["message"]


def test_templates_come_with_the_model_alone(running) -> None:
    for path, body in (("/v1/chat/completions", {}), ("/tokenize", {}), ("/v1/messages", {"max_tokens": 1})):
        messages = [{"role": "user", "content": "a"}]
        response = running.http.post(path, json={**body, "messages": messages, "chat_template": "{{ 7 * 7 }}"})
        assert response.status_code == 400
        assert "chat_template" in response.json()["error"]["message"]
    kwargs = {"messages": "x", "tools": "y", "bos_token": "z"}
    for name, value in kwargs.items():
        body = {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {name: value}}
        assert running.http.post("/v1/chat/completions", json=body).status_code == 400


BOMBS = {
    "repetition": "{{ 'a' * 10 ** 9 }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "format": "{{ '%1000000000d' % 1 }}",
    "growth": "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
}


@pytest.mark.alone
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_template_that_never_ends_is_an_error_and_others_go_on(bomb: str, model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "bomb.jinja").write_text(BOMBS[bomb])
    with (
        LLM(model_path, kv_type="f32", threads=1, chat_template=tmp_path / "bomb.jinja") as own,
        serving(own) as server,
    ):
        body = {"messages": [{"role": "user", "content": "a"}]}
        tries = []
        for _ in range(3):  # other programs may be busy meanwhile
            start = time.perf_counter()
            lag, response = loop_lag(server, lambda: server.http.post("/v1/chat/completions", json=body))
            tries.append((time.perf_counter() - start, lag))
            assert response.status_code == 400
            assert "template" in response.json()["error"]["message"]
            if tries[-1][0] < 1.5 and lag < 0.1 * slowness():
                return
        pytest.fail(f"(seconds to the error, seconds for which others were held up): {tries}")


def test_prompts_are_not_logged(says, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "gristmill")
    server = says("answer", RuntimeError("broken\r\nby \x1b[31m"))
    messages = [{"role": "user", "content": "my secret"}]
    assert server.http.post("/v1/chat/completions", json={"messages": messages, "user": "a secret"}).status_code == 500
    assert [record.getMessage() for record in caplog.records] == ["a request failed"]
    assert "secret" not in caplog.text
