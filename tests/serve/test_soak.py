"""Everything at once over HTTP for a while, at `gristmill serve`: neither of its processes grows, and all that requests
held is free in the end. GRISTMILL_SOAK_S=900 makes it a quarter of an hour, and prints what it saw."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest
from served import wait_until
from started import answers, engine_of, started

pytestmark = pytest.mark.alone

SECONDS = float(os.environ.get("GRISTMILL_SOAK_S", "10"))
LEAST_REQUESTS = 400  # before the first look and after it
MAX_GROWTH_MIB = 8
MAX_NEW_THREADS = 4  # what a pool may still start, which it does when it first has so much to do at once
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "ab"}], "ignore_eos": True}
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
SHORT = {
    "temperature": 0,
    "logit_bias": {"107": -100, "35": -100, "13": -100, "12": -100, "16": -100},
    "max_tokens": 99,
}
"""No h, and so no thought before, and no white space: a random model's call comes to an end."""
BAD = [
    ("/v1/chat/completions", b"{"),
    ("/v1/chat/completions", json.dumps({**CHAT, "temperature": -1}).encode()),
    ("/v1/chat/completions", json.dumps({**CHAT, "response_format": {"type": "nothing"}}).encode()),
    ("/v1/chat/completions", b'{"messages": ' + b"[" * 3000 + b"]" * 3000 + b"}"),
    ("/v1/completions", json.dumps({"prompt": "a" * 3000}).encode()),
    ("/v1/completions", json.dumps({"prompt": "a", "structured_outputs": {"regex": "(a"}}).encode()),
    ("/v1/embeddings", b'{"input": 1e400}'),
    ("/v1/messages", b'{"messages": [], "max_tokens": 1}'),
    ("/v1/responses", b'{"input": null}'),
    ("/nothing", b"\xff\xfe"),
]


class Client:
    """One that asks for anything, again and again. n: how often for what."""

    def __init__(self, url: str, seed: int) -> None:
        self.n = Counter[str]()
        self._rng = random.Random(seed)
        self._address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        self._url = url
        self._kinds: dict[str, Callable[[], None]] = {
            "streams": self._stream,
            "streams left": self._leave_stream,
            "answers left": self._leave,
            "tools": self._call,
            "schemas": self._schema,
            "embeddings": self._embed,
            "bad requests": self._bad,
            "looks": self._look,
        }

    def run(self, stop: threading.Event) -> None:
        with httpx.Client(base_url=self._url, timeout=300) as self._http:
            while not stop.is_set():
                kind = self._rng.choice(list(self._kinds))
                self._kinds[kind]()
                self.n[kind] += 1

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _prompt(self) -> str:
        return "".join(self._rng.choices("abcdefgh ", k=self._rng.randrange(1, 600)))

    def _stream(self) -> None:
        n = self._rng.randrange(1, 80)
        path, body, end = self._rng.choice(
            [
                ("/v1/completions", {"prompt": self._prompt(), "max_tokens": n, "n": 2, "logprobs": 3}, r"\[DONE\]"),
                ("/v1/chat/completions", {**CHAT, "max_tokens": n}, r"\[DONE\]"),
                ("/v1/responses", {"input": self._prompt(), "max_output_tokens": n}, "response.(completed|incomplete)"),
                ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": n}, "message_stop"),
            ]
        )
        with self._http.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200
            last = [line for line in response.iter_lines() if line][-1]
        assert re.search(end, last)

    def _leave_stream(self) -> None:
        body = {**CHAT, "max_tokens": 1900, "stream": True, "n": self._rng.randrange(1, 3)}
        with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            lines = list(islice(response.iter_lines(), n := self._rng.randrange(1, 20)))
        assert len(lines) == n or "data: [DONE]" in lines  # tokens that wait together are one event

    def _leave(self) -> None:
        body = json.dumps({"prompt": self._prompt(), "max_tokens": 1200, "ignore_eos": True}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        with socket.create_connection(self._address) as client:
            client.sendall(head + body[: self._rng.choice([len(body), len(body), 9])])
            time.sleep(self._rng.random() * 0.02)

    def _call(self) -> None:
        choice = self._post("/v1/chat/completions", {**CHAT, **SHORT, "tools": TOOLS, "tool_choice": "required"})
        calls = choice["choices"][0]["message"]["tool_calls"]
        assert json.loads(calls[0]["function"]["arguments"])["city"] in ("Rome", "Oslo")

    def _schema(self) -> None:
        number = self._rng.randrange(20)
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [number, "other"]}}}
        body = {"messages": CHAT["messages"], **SHORT, "response_format": form}
        assert json.loads(self._post("/v1/chat/completions", body)["choices"][0]["message"]["content"]) in (
            number,
            "other",
        )

    def _embed(self) -> None:
        body = {"input": [self._prompt() for _ in range(self._rng.randrange(1, 5))]}
        assert len(self._post("/v1/embeddings", body)["data"]) == len(body["input"])

    def _bad(self) -> None:
        path, body = self._rng.choice(BAD)
        answer = self._http.post(path, content=body)
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["message"]

    def _look(self) -> None:
        path = self._rng.choice(["/metrics", "/health", "/v1/models", "/openapi.json", "/", "/docs"])
        assert self._http.get(path).status_code == 200
        assert self._post("/tokenize", {"prompt": self._prompt()})["count"] > 0


def test_everything_at_once_leaves_nothing_behind(model_path: Path) -> None:
    template = ("--chat-template", str(model_path.parent / "chat.jinja"))
    with started(model_path, *template, "--slots", "4", "--kv-type", "f32") as (process, url):
        wait_until(lambda: answers(url))
        clients = [Client(url, seed) for seed in range(4)]
        seen = load(process, url, clients)
        grown = [(b.bytes - a.bytes) / 2**20 for a, b in zip(*seen, strict=True)]
        print(f"{dict(sum((client.n for client in clients), Counter()))}; MiB more: {grown}; {seen}")
        assert max(grown) < MAX_GROWTH_MIB, grown
        assert all(after.threads - before.threads <= MAX_NEW_THREADS for before, after in zip(*seen, strict=True)), seen
        ended = [psutil.Process(process.pid), engine_of(process)]  # the last connections may still be closing
        wait_until(lambda: all(each.num_fds() <= before.files for each, before in zip(ended, seen[0], strict=True)), 10)


class Size(NamedTuple):
    """Of a process."""

    bytes: int
    files: int
    threads: int


def load(process: subprocess.Popen[str], url: str, clients: list[Client]) -> list[list[Size]]:
    """What the server and its engine hold after half of the time and in the end, when nothing is open."""
    errors = list[BaseException]()
    both = [psutil.Process(process.pid), engine_of(process)]

    def run(client: Client) -> None:
        try:
            client.run(stop)
        except BaseException as error:
            errors.append(error)
            stop.set()

    seen = list[list[Size]]()
    for _ in range(2):  # in the first half caches fill and allocators settle
        stop = threading.Event()
        threads = [threading.Thread(target=run, args=(client,)) for client in clients]
        wanted, end = LEAST_REQUESTS + total(clients), time.monotonic() + SECONDS / 2
        for thread in threads:
            thread.start()
        while not stop.wait(0.1) and (time.monotonic() < end or total(clients) < wanted):
            pass
        stop.set()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        wait_until(lambda: is_idle(url))
        seen.append([Size(each.memory_info().rss, each.num_fds(), each.num_threads()) for each in both])
    return seen


def total(clients: list[Client]) -> int:
    return sum(client.n.total() for client in clients)


def is_idle(url: str) -> bool:
    """Nothing is computed, nothing waits, and no block of the cache is held."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    values = [
        float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(tuple(f"gristmill:{n}{{" for n in names))
    ]
    assert len(values) == len(names)
    return not any(values)
