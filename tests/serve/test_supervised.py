"""An engine in a process of its own answers as one in this process does; its end is told, never half an answer."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from served import n_ended, wait_until
from supervised import Supervised, supervised

from gristmill.serve import engine_child, supervisor

pytestmark = pytest.mark.alone

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "ab"}]}
LONG: dict[str, Any] = {"prompt": "ab", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "note", "parameters": {"type": "object", "required": ["text"]}}}
TOOL["function"]["parameters"]["properties"] = {"text": {"type": "string", "minLength": 1500}}
CALL: dict[str, Any] = {**ASK, "tools": [TOOL], "tool_choice": "required", "max_tokens": 1600, "temperature": 0}
CALL["logit_bias"] = {"107": -100}  # no h, and so no thought before
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server(model_path: Path) -> Iterator[Supervised]:
    """Its engine may die as often as tests like."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "MAX_DEATHS", 1000)
        patch.setattr(supervisor, "STEADY_S", 0.0)
        patch.setattr(supervisor, "BACKOFF_S", 0.05)
        with supervised(model_path) as server:
            yield server


@pytest.fixture
def well(server: Supervised) -> Supervised:
    wait_until(lambda: server.is_well)
    return server


SAME: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": ["ab", "c"], "n": 2, "max_tokens": 9, "temperature": 1.5, "seed": 3, "top_k": 40}),
    ("/v1/completions", {"prompt": "ab", "max_tokens": 9, "temperature": 0, "logprobs": 3, "echo": True}),
    ("/v1/completions", {"prompt": "ab", "max_tokens": 9, "temperature": 0, "logit_bias": {"100": 50}, "stop": "q"}),
    ("/v1/completions", {"prompt": "ab", "max_tokens": 9, "logit_bias": {"100000": 50}}),
    ("/v1/completions", {"prompt": "ab", "max_tokens": 0, "echo": True, "logprobs": 1}),
    ("/v1/chat/completions", {**ASK, "max_tokens": 9, "seed": 1, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {**ASK, "max_tokens": 30, "temperature": 0, "response_format": FORMAT}),
    ("/v1/chat/completions", {**ASK, "max_tokens": 40, "seed": 2, "response_format": FORMAT, **THINKING}),
    ("/v1/chat/completions", {**ASK, "structured_outputs": {"regex": "(a"}}),
    ("/v1/embeddings", {"input": ["abc", "d"]}),
    ("/tokenize", {"prompt": "ab"}),
]


@pytest.mark.parametrize(("path", "body"), SAME)
def test_answers_are_those_of_an_engine_in_this_process(well, running, path: str, body: dict[str, Any]) -> None:
    answers = [http.post(path, json=body) for http in (well.running.http, running.http)]
    assert answers[0].status_code == answers[1].status_code
    told = [answer.json() for answer in answers]
    for each in told:
        for name in ("id", "created", "usage"):
            each.pop(name, None)
    assert told[0] == told[1]


def kill(server: Supervised, number: int = signal.SIGKILL) -> None:
    os.kill(server.pid, number)


def check_died(server: Supervised, answer: httpx.Response, killed_at: float) -> None:
    assert time.monotonic() - killed_at < 2
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_died"
    assert "SIGKILL" in answer.json()["error"]["message"]


def check_comes_back(server: Supervised) -> None:
    wait_until(lambda: server.is_well)
    assert server.service.n_open == 0
    assert server.running.http.post("/v1/completions", json={**LONG, "max_tokens": 3}).status_code == 200


PROMPTS = [[random.Random(i).randrange(3, 259) for _ in range(1900)] for i in range(200)]
IN_PHASE = {
    "prompt": ("/v1/completions", {"prompt": PROMPTS, "max_tokens": 1}),
    "generating": ("/v1/completions", {**LONG, "n": 100}),
    "call": ("/v1/chat/completions", {**CALL, "n": 50}),
    "embedding": ("/v1/embeddings", {"input": PROMPTS}),
}


@pytest.mark.parametrize("phase", IN_PHASE)
def test_an_engine_killed_while_it_computes_is_told_at_once(well, phase: str) -> None:
    path, body = IN_PHASE[phase]
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(well.running.http.post, path, json=body)
        wait_until(lambda: well.service.load().n_running > 0)
        assert not asking.done()
        n_restarts, killed_at = well.metric("engine_restarts_total"), time.monotonic()
        kill(well)
        check_died(well, asking.result(), killed_at)
    health = well.running.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "restarting")
    assert "SIGKILL" in health.json()["message"]
    refused = well.running.http.post("/v1/completions", json=LONG)
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert well.running.http.post("/tokenize", json={"prompt": "ab"}).status_code == 200
    check_comes_back(well)
    assert well.metric("engine_restarts_total") == n_restarts + 1


STREAMS: dict[str, dict[str, Any]] = {
    "/v1/completions": {**LONG, "n": 50},
    "/v1/chat/completions": {**CALL, "n": 20},
    "/v1/responses": {"input": "a", "max_output_tokens": 1800, "temperature": 0},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1800, "temperature": 0},
}
ENDS = ("[DONE]", "message_stop", "response.completed", "response.incomplete")


def killed_in_stream(server: Supervised, path: str) -> tuple[list[str], float]:
    """The lines that follow when the engine is killed at the first text, and for how many seconds they do."""
    with server.running.http.stream("POST", path, json={**STREAMS[path], "stream": True}) as response:
        lines = response.iter_lines()
        awaited = '"arguments":"{' if "tools" in STREAMS[path] else '"text'
        while awaited not in next(lines):
            pass
        killed_at = time.monotonic()
        kill(server)
        return [line for line in lines if line], time.monotonic() - killed_at


@pytest.mark.parametrize("path", STREAMS)
def test_an_engine_killed_while_it_streams_ends_the_stream_with_an_error(well, path: str) -> None:
    for _ in range(5):  # the engine may have computed the whole answer before the signal comes
        rest, took = killed_in_stream(well, path)
        check_comes_back(well)
        if "SIGKILL" in rest[-1]:
            break
    assert not any(end in line for line in rest for end in ENDS)
    assert "SIGKILL" in rest[-1]
    assert took < 2


def test_an_engine_killed_while_nothing_is_open_comes_back(well) -> None:
    kill(well)
    wait_until(lambda: not well.is_well)
    check_comes_back(well)


def test_an_engine_killed_while_it_is_loaded_again_comes_back(well) -> None:
    first = well.pid
    kill(well)
    wait_until(lambda: (child := well.service.supervisor.child) is not None and child.pid != first)
    second = well.pid
    assert well.running.http.get("/health").json()["loaded"] == 0
    kill(well)
    wait_until(lambda: (child := well.service.supervisor.child) is not None and child.pid != second)
    check_comes_back(well)


def test_an_engine_that_cannot_be_started_again_ends_the_server(
    model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with supervised(model_path) as server:
        monkeypatch.setattr(engine_child.socket, "socketpair", fail)
        kill(server)
        wait_until(lambda: server.running.server.should_exit)
        assert server.running.server.failure == "the engine's process cannot be started: [Errno 24] Too many open files"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT], ids=["SIGSEGV", "SIGABRT"])
def test_crashes_of_native_code_are_named(well, number: signal.Signals) -> None:
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(well.running.http.post, "/v1/completions", json={**LONG, "n": 100})
        wait_until(lambda: well.service.load().n_running > 0)
        kill(well, number)
        assert number.name in asking.result().json()["error"]["message"]
    check_comes_back(well)


def test_an_engine_that_is_stopped_is_noticed(well, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_child, "MAX_SILENT_S", 2)
    kill(well, signal.SIGSTOP)
    answer = well.running.http.post("/v1/completions", json=LONG)
    assert answer.status_code == 503
    assert "no sign of life" in answer.json()["error"]["message"]
    monkeypatch.undo()
    check_comes_back(well)


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_free_what_they_held(well, stream: bool) -> None:
    rng = random.Random(0)
    body = json.dumps({**LONG, "stream": stream}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    address = ("127.0.0.1", int(well.running.url.rsplit(":", 1)[1]))
    open_clients: list[socket.socket] = []
    n_before = [n_ended(well.running.http, reason) for reason in ("abort", "length")]
    for _ in range(100):
        client = socket.create_connection(address)
        client.sendall(head + body)
        open_clients.append(client)
        time.sleep(rng.random() * 0.01)
        if len(open_clients) > 6:
            open_clients.pop(rng.randrange(7)).close()
    for client in open_clients:
        client.close()
    wait_until(lambda: well.service.n_open == 0 and well.metric("kv_cache_usage_perc") == 0)
    n_after = [n_ended(well.running.http, reason) for reason in ("abort", "length")]
    assert n_after[0] - n_before[0] > n_after[1] - n_before[1]  # few were answered to the end, for nobody
    assert well.metric("num_requests_running") == well.metric("num_requests_waiting") == 0


def test_three_times_what_the_cache_holds_is_answered_as_if_alone(model_path: Path) -> None:
    """One round, and others for three minutes where GRISTMILL_THOROUGH is set."""
    seconds = 180 if os.environ.get("GRISTMILL_THOROUGH") else 0
    prompts = [f"{i} " + "ab" * i for i in range(24)]
    n_tokens = 150
    budget = 2 * 2 * 16 * 4 * (8 * 200)  # 8 sequences of 200 tokens: 2 layers of k and v, 16 floats of 4 bytes
    with supervised(model_path, max_sequences=24, kv_budget=budget, max_context=512) as server:
        http = server.running.http

        def ask(*prompts: str) -> list[str]:
            body = {"prompt": prompts, "max_tokens": n_tokens, "temperature": 0.8, "seed": 5, "ignore_eos": True}
            answer = http.post("/v1/completions", json=body, timeout=300)
            assert answer.status_code == 200, answer.text
            assert all(choice["finish_reason"] == "length" for choice in answer.json()["choices"])
            return [choice["text"] for choice in answer.json()["choices"]]

        alone = [ask(prompt)[0] for prompt in prompts]
        start, n_rounds = time.monotonic(), 0
        while n_rounds == 0 or time.monotonic() - start < seconds:
            n_preempted = server.metric("num_preemptions_total")
            with ThreadPoolExecutor(2) as pool:
                assert list(pool.map(lambda _: ask(*prompts), range(2))) == [alone, alone]
            n_rounds += 1
            wait_until(lambda before=n_preempted: server.metric("num_preemptions_total") > before)
            wait_until(lambda: server.metric("kv_cache_usage_perc") == 0)
        print(f"{n_rounds} rounds, {server.metric('num_preemptions_total'):.0f} preemptions")


def test_the_queue_is_bounded(model_path: Path) -> None:
    with supervised(model_path, max_queue=1) as server:
        post = server.running.http.post
        assert post("/v1/completions", json={"prompt": "ab", "n": 6}).json()["error"]["param"] == "n"
        with server.running.http.stream("POST", "/v1/completions", json={**LONG, "n": 5, "stream": True}) as stream:
            refused = post("/v1/completions", json={"prompt": "ab", "n": 2})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert stream.status_code == 200
        wait_until(lambda: server.service.n_open == 0)
        assert post("/v1/completions", json={"prompt": "ab", "n": 5, "max_tokens": 2}).status_code == 200


def test_an_answer_that_nobody_reads_is_given_up(model_path: Path) -> None:
    """Nor does it hold up others, or grow beyond its limit."""
    with supervised(model_path, max_unread=2000) as server:
        body = {**ASK, "max_tokens": 1800, "ignore_eos": True, "n": 8}  # gives more than a socket holds
        body |= {"stream": True, "logprobs": True, "top_logprobs": 20}
        with server.running.http.stream("POST", "/v1/chat/completions", json=body) as stream:
            wait_until(lambda: server.service.load().n_steps > 0)
            wait_until(lambda: server.service.load().n_running == 0)
            quick = server.running.http.post("/v1/completions", json={**LONG, "max_tokens": 3})
            assert quick.status_code == 200
            last = [line for line in stream.iter_lines() if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "client_too_slow"
        assert server.metric("kv_cache_usage_perc") == 0


def test_draining_finishes_what_is_open(model_path: Path) -> None:
    with supervised(model_path, serving_with={"drain_s": 100}) as server:
        with server.running.http.stream("POST", "/v1/completions", json={**LONG, "n": 8, "stream": True}) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.running.server.drain()
            assert server.running.http.post("/v1/completions", json=LONG).status_code == 503
            assert server.running.http.get("/health").json()["status"] == "draining"
            assert [line for line in lines if line][-1] == "data: [DONE]"
        wait_until(lambda: server.running.server.should_exit)
        assert server.running.server.failure is None


def wide(number: int) -> dict[str, Any]:
    """A schema that takes a quarter of a second to compile, and no other number's."""
    names = [f"{number}p{i}" for i in range(450)]
    properties = {name: {"enum": list(range(100))} for name in names}
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def endless(number: int) -> dict[str, Any]:
    """One that is given up after two seconds, or for its size where a machine is quick."""
    return {"type": "object", "properties": {f"{number}p{i}": {"type": "string"} for i in range(5000)}}


@pytest.mark.parametrize(("schema", "status"), [(wide, 200), (endless, 400)])
def test_others_are_not_held_up_by_a_grammar(well, schema: Callable[[int], dict[str, Any]], status: int) -> None:
    """It is compiled beside the engine: none of the others' answers takes a large part of that time."""
    tries = []
    for number in range(3):  # other programs may be busy meanwhile
        form = {"type": "json_schema", "json_schema": {"name": "w", "schema": schema(number)}}
        body = {**ASK, "max_tokens": 1, "response_format": form}
        with ThreadPoolExecutor(1) as pool:
            start, waits = time.monotonic(), []
            asking = pool.submit(httpx.post, f"{well.running.url}/v1/chat/completions", json=body, timeout=60)
            while not asking.done():
                waits.append(time.monotonic())
                assert well.running.http.post("/v1/completions", json={**LONG, "max_tokens": 1}).status_code == 200
                waits[-1] = time.monotonic() - waits[-1]
            took = time.monotonic() - start
        assert asking.result().status_code == status, asking.result().text
        assert took > 0.1, "too little to hold up anybody"
        tries.append((took, max(waits)))
        if max(waits) < took / 3:
            return
    pytest.fail(f"(seconds for the grammar, the longest of another's answers): {tries}")


def test_schemas_do_not_pile_up(well) -> None:
    """GRISTMILL_THOROUGH asks for 10,000 distinct ones. The cache is full after half of the others."""
    n_schemas = 10_000 if os.environ.get("GRISTMILL_THOROUGH") else 800
    engine, rss = psutil.Process(well.pid), list[int]()

    def ask(i: int) -> None:
        schema = {"type": "object", "properties": {f"p{i}": {"enum": [i]}}, "required": [f"p{i}"]}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        answer = well.running.http.post("/v1/chat/completions", json={**ASK, "max_tokens": 1, "response_format": form})
        assert answer.status_code == 200, answer.text

    with ThreadPoolExecutor(4) as pool:
        for part in range(4):
            list(pool.map(ask, range(part * n_schemas // 4, (part + 1) * n_schemas // 4)))
            rss.append(engine.memory_info().rss)
    assert rss[3] - rss[2] < 16 << 20, rss  # all kept, 200 are 28 MB
