"""Errors in the shape of the API that is asked, as the real clients read them."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator

import anthropic
import openai
import pytest
from served import Running, serving

from gristmill import LLM
from gristmill.engine.engine import EngineClosedError
from gristmill.engine.guide import GuideError
from gristmill.engine.scheduler import QueueFullError
from gristmill.serve.app import Settings
from gristmill.serve.errors import as_api_error, too_long
from gristmill.serve.guard import Access
from gristmill.types import NotFiniteError

MESSAGE = {"model": None, "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}
OPENAI_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize", "/v1/models")


@pytest.fixture(scope="module")
def locked(llm: LLM) -> Iterator[Running]:
    with serving(llm, Settings(names=("tiny",), access=Access(api_keys=("key",)))) as running:
        yield running


def of_anthropic(running: Running, key: str = "key", **headers: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=running.url, api_key=key, max_retries=0, timeout=60, default_headers=headers)


def of_openai(running: Running, key: str = "key", **headers: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0, timeout=60, default_headers=headers)


def anthropic_kind(error: anthropic.APIStatusError) -> str:
    body = error.body
    assert isinstance(body, dict)
    assert set(body) == {"type", "error"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert body["error"]["message"]
    return body["error"]["type"]


@pytest.mark.parametrize(
    ("key", "headers", "changes", "expected", "kind"),
    [
        ("wrong", {}, {}, anthropic.AuthenticationError, "authentication_error"),
        ("key", {"Host": "evil.example"}, {}, anthropic.PermissionDeniedError, "permission_error"),
        ("key", {"Origin": "https://evil.example"}, {}, anthropic.PermissionDeniedError, "permission_error"),
        ("key", {}, {"model": "none"}, anthropic.NotFoundError, "not_found_error"),
        ("key", {}, {"max_tokens": -1}, anthropic.BadRequestError, "invalid_request_error"),
        ("key", {}, {"messages": []}, anthropic.BadRequestError, "invalid_request_error"),
    ],
)
def test_anthropics_client(
    locked: Running, key: str, headers: dict, changes: dict, expected: type[anthropic.APIStatusError], kind: str
) -> None:
    with of_anthropic(locked, key, **headers) as client, pytest.raises(expected) as caught:
        client.messages.create(**{**MESSAGE, "model": "tiny", **changes})
    assert anthropic_kind(caught.value) == kind
    if "max_tokens" not in changes:
        counted = {"model": "tiny", "messages": MESSAGE["messages"], **changes}
        with of_anthropic(locked, key, **headers) as client, pytest.raises(expected) as caught:
            client.messages.count_tokens(**counted)
        assert anthropic_kind(caught.value) == kind


def test_a_large_body_is_told_in_the_same_shape(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", int(running.url.rsplit(":", 1)[1])), timeout=10) as client:
        client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000000\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):  # it may come in pieces
            answer += client.recv(4096)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 413 " in head
    assert json.loads(body)["error"]["type"] == "request_too_large"


def test_anthropics_client_where_the_server_drains(llm: LLM) -> None:
    with serving(llm, Settings(names=("tiny",))) as running, of_anthropic(running) as client:
        running.server.config.app.state.host.draining = True
        with pytest.raises(anthropic.InternalServerError) as caught:
            client.messages.create(**{**MESSAGE, "model": "tiny"})
        assert anthropic_kind(caught.value) == "overloaded_error"


@pytest.mark.parametrize(
    ("key", "headers", "changes", "expected", "code"),
    [
        ("wrong", {}, {}, openai.AuthenticationError, "invalid_api_key"),
        ("key", {"Host": "evil.example"}, {}, openai.PermissionDeniedError, "forbidden_host"),
        ("key", {}, {"model": "none"}, openai.NotFoundError, "model_not_found"),
        ("key", {}, {"max_tokens": -1}, openai.BadRequestError, "invalid_value"),
    ],
)
def test_openais_client(
    locked: Running, key: str, headers: dict, changes: dict, expected: type[openai.APIStatusError], code: str
) -> None:
    with of_openai(locked, key, **headers) as client, pytest.raises(expected) as caught:
        client.chat.completions.create(**{**MESSAGE, "model": "tiny", **changes})
    assert caught.value.code == code
    assert caught.value.type


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_methods_that_are_not_there(running: Running, method: str) -> None:
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        response = running.http.request(method, path)
        assert response.status_code == 405
        assert response.json()["error"] == {
            "type": "invalid_request_error",
            "message": f"{method} {path}: method not allowed; the API is described at /docs",
        }
    for path in ("/v1/chat/completions", "/tokenize"):
        response = running.http.request(method, path)
        assert response.status_code == 405
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert response.json()["error"]["code"] == "method_not_allowed"


def test_paths_that_are_not_there(running: Running) -> None:
    assert running.http.get("/v1/messages/none").json()["error"]["type"] == "not_found_error"
    for path in ("/v1/none", "/v1/messagesx", "/none"):
        response = running.http.post(path, json={})
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("path", OPENAI_PATHS)
def test_without_a_key(locked: Running, path: str) -> None:
    error = locked.http.post(path, json={}).json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (GuideError("json", "4 other grammars are still being compiled; try again later"), 503, "overloaded"),
        (GuideError("json", "no schema"), 400, "invalid_schema"),
        (QueueFullError("8 requests wait"), 503, "overloaded"),
        (MemoryError(), 503, "overloaded"),
        (EngineClosedError("gone"), 503, "unavailable"),
        (ValueError("top_k: no number"), 400, "invalid_value"),
        (NotFiniteError("the logits are not finite"), 500, "not_finite"),
        (KeyError("secret"), 500, "internal_error"),
    ],
)
def test_what_clients_are_told_of_an_exception(error: Exception, status: int, code: str) -> None:
    told = as_api_error(error)
    assert (told.status, told.code) == (status, code)
    assert ("Retry-After" in told.headers) == (code == "overloaded")
    assert told.message
    assert "secret" not in told.message


def test_reasons_are_said_in_this_servers_words(running: Running) -> None:
    asked = {"messages": MESSAGE["messages"], "stop": ["a"] * 33}
    refused = running.http.post("/v1/chat/completions", json=asked).json()["error"]["message"]
    assert refused == "stop: has 33 strings; at most 32 are allowed"
    told = "this model's maximum context length is 8 tokens, but the request has {} of prompt{}; shorten the prompt or"
    assert too_long(8, 0, 8, "prompt").message.startswith(told.format("8 tokens", ", which leaves none for the answer"))
    assert too_long(8, 3, 8, "prompt", at_least=True).message.startswith(
        told.format("at least 8 tokens", " and 3 for the answer")
    )


@pytest.mark.parametrize("path", ["/none", "/v1/completions"])
def test_a_body_that_breaks_after_its_answer_ends_the_connection(
    running: Running, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", int(running.url.rsplit(":", 1)[1])), timeout=10) as client:
        client.sendall(head)
        if path != "/none":  # more than is read of it
            client.sendall(b"1100000\r\n" + bytes(0x1100000) + b"\r\n")
        answer = client.recv(4096)
        client.sendall(b"no chunk\r\n")
        while more := client.recv(4096):
            answer += more
    assert re.match(rb"HTTP/1.1 4(04|13) ", answer)
    assert answer.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_clients_that_would_rather_speak_http_2_are_answered(
    running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without advice to install something."""
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAB"}
    assert running.http.get("/v1/models", headers=upgrade).status_code == 200
    assert not caplog.records


def test_a_model_has_several_names(llm: LLM) -> None:
    with serving(llm, Settings(names=("tiny", "org/tiny"))) as running:
        for name in ("tiny", "org/tiny", None):
            answer = running.http.post("/v1/completions", json={"model": name, "prompt": "ab", "max_tokens": 1})
            assert answer.json()["model"] == "tiny"
        refused = running.http.post("/v1/completions", json={"model": "org", "prompt": "ab", "max_tokens": 1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "model")


@pytest.mark.parametrize("name", ["", "b\udcfe"])
def test_a_name_that_no_request_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"--served-model-name: .* is no name"):
        Settings(names=("tiny", name))
