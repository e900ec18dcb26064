"""`gristmill bench serve` as a person or a script calls it: with a server of its own, and with another's."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_model.write(tmp_path_factory.mktemp("model")))


def run(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill", "bench", "serve", *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=300)


def test_a_server_of_its_own(model: str, tmp_path: Path) -> None:
    args = ["-m", model, "--threads", "1", "--num-prompts", "8", "--input-len", "5:9", "--output-len", "3:6"]
    files = ["--output-json", str(tmp_path / "all.json"), "--plot", str(tmp_path / "latency.PNG")]
    limits = ["--max-concurrency", "2", "--goodput", "ttft:60000,tpot:60000"]
    env = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    # What is meant for a server that others ask is not for this one.
    env |= {"GRISTMILL_UDS": str(tmp_path / "elsewhere"), "GRISTMILL_API_KEY_FILE": str(tmp_path / "keys")}
    env |= {"GRISTMILL_API_KEY": "one\ntwo", "GRISTMILL_SERVED_MODEL_NAME": "a\nb"}
    (tmp_path / "keys").write_text("three\n")
    done = run(*args, *files, *limits, "--json", env=env)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["completed"], summary["failed"], summary["errors"]) == (8, 0, {})
    assert 8 * 5 <= summary["total_input_tokens"] <= 8 * 9
    assert 8 * 3 <= summary["total_output_tokens"] <= 8 * 6
    assert summary["max_concurrent_requests"] == 2
    assert summary["request_goodput"] == summary["request_throughput"] > 0
    for metric in ("ttft", "tpot", "e2el"):
        for head in ("mean", "median", "p50", "p90", "p99"):
            assert summary[f"{head}_{metric}_ms"] > 0
    assert "p99_itl_ms" in summary  # a model as fast as this one may give all its text in one event
    assert "8 of 8 requests" in done.stderr
    written = json.loads((tmp_path / "all.json").read_text())
    requests = written.pop("requests")
    assert written == summary
    assert sum(request["output_tokens"] for request in requests) == summary["total_output_tokens"]
    assert (tmp_path / "latency.PNG").read_bytes().startswith(b"\x89PNG")


def test_what_comes_before_is_no_longer_than_what_counts(model: str, tmp_path: Path) -> None:
    """A context that holds the conversations is enough."""
    dataset, turns = tmp_path / "short.json", [{"value": "a sea of grain"}, {"value": "it was"}]
    dataset.write_text(json.dumps([{"conversations": turns}]))
    done = run("-m", model, "--threads", "1", "--ctx", "32", "--num-prompts", "1", "--dataset", str(dataset), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["completed"] == 1


def test_its_server_has_room_for_all_that_are_open_at_once(model: str) -> None:
    done = run(
        "-m", model, "--threads", "1", "--num-prompts", "1300", "--input-len", "4", "--output-len", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["completed"], summary["max_concurrent_requests"]) == (1300, 1300)


class Handler(BaseHTTPRequestHandler):
    """Refuses each second answer, and never says how many tokens there were."""

    n_asked = 0
    asked: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        self.reply(200, b'{"object": "list", "data": [{"id": "theirs"}]}')

    def do_POST(self) -> None:
        type(self).n_asked += 1
        self.asked.append({"path": self.path, **json.loads(self.rfile.read(int(self.headers["Content-Length"])))})
        if self.n_asked % 2:
            event = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}
            last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            lines = [f"data: {json.dumps(each)}\n\n" for each in (event, event, event, last)]
            self.reply(200, "".join([*lines, "data: [DONE]\n\n"]).encode())
        else:
            self.reply(503, b'{"error": {"message": "come [again]\\u001b[2J"}}')

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def theirs() -> Iterator[str]:
    Handler.n_asked, Handler.asked = 0, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket.listen(256)  # at once
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_failures_are_counted_and_named(theirs: str) -> None:
    args = ["--base-url", theirs, "--backend", "openai-chat", "--num-prompts", "9", "--max-concurrency", "1"]
    more = json.dumps({"top_k": 3, "stream_options": {"include_usage": False}})
    many = ",".join(map(str, range(0, 101, 5)))
    done = run(*args, "--input-len", "4", "--extra-body", more, "--request-rate", "200", "--metric-percentiles", many)
    assert done.returncode == 0, done.stderr
    table = {" ".join(words[:-1]): words[-1] for line in done.stdout.splitlines() if (words := line.split())}
    assert (table["requests answered"], table["requests failed"]) == ("4", "5")
    assert "failed 5 times: HTTP 503: come [again]\\x1b[2J" in done.stdout
    assert "the server does not count tokens" in done.stdout
    assert table["tokens in, out 16,"] == "12"
    assert next(line for line in done.stdout.splitlines() if line.startswith("Time to first token")).count(".") == 22
    first = Handler.asked[1]
    assert first["path"] == "/v1/chat/completions"
    assert (first["model"], first["max_tokens"], first["top_k"], first["ignore_eos"]) == ("theirs", 128, 3, True)
    assert first["stream_options"] == {"include_usage": False}
    assert len(first["messages"][0]["content"].split()) == 4


def test_files_for_which_there_is_no_room(theirs: str, tmp_path: Path) -> None:
    """The system's limit on files stands for a disk that becomes full."""
    code = (
        "import resource, sys, matplotlib.font_manager; from gristmill.cli.main import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); main(sys.argv[1:])"
    )
    asked = ("bench", "serve", "--base-url", theirs, "--num-prompts", "3", "--num-warmups", "0", "--input-len", "4")
    for option, name in (("--output-json", "all.json"), ("--plot", "latency.png"), ("--plot", "latency.SVG")):
        command = [sys.executable, "-c", code, *asked, option, str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 1
        assert done.stderr.endswith(f"{tmp_path / name}: cannot be written: File too large; nothing of it was kept\n")
    assert not list(tmp_path.iterdir())


def test_figures_may_go_to_a_pipe(theirs: str) -> None:
    args = ("--base-url", theirs, "--num-prompts", "3", "--num-warmups", "0", "--input-len", "4")
    done = subprocess.run(
        [sys.executable, "-m", "gristmill", "bench", "serve", *args, "--json", "--output-json", "/dev/stderr"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["completed"] == json.loads(done.stdout)["completed"]


def test_nothing_answered_is_a_failure(theirs: str) -> None:
    done = run(
        "--base-url", theirs, "--model", "x", "--num-warmups", "0", "--num-prompts", "2", "--no-stream", "--json"
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["errors"] == {"HTTP 503: come [again]\x1b[2J": 1} | {
        name: 1 for name in json.loads(done.stdout)["errors"] if "is no JSON object" in name
    }


def test_more_connections_than_a_shell_lets_files_be_open(theirs: str) -> None:
    """And than the system does, where it cannot be helped: those requests fail, the others count."""
    args = ["--base-url", theirs, "--model", "x", "--num-warmups", "0", "--num-prompts", "200", "--json"]
    command = shlex.join([sys.executable, "-m", "gristmill", "bench", "serve", *args])
    for limit, problems in (("-Sn 100", 1), ("-n 100", 2)):
        done = subprocess.run(f"ulimit {limit}; exec {command}", shell=True, capture_output=True, text=True)
        summary = json.loads(done.stdout)
        assert (summary["completed"] > 0, summary["completed"] + summary["failed"]) == (True, 200)
        assert len(summary["errors"]) == problems


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give --base-url of a server, or -m FILE"),
        (["--base-url", "http://127.0.0.1:9", "--model", "m"], "first warm-up request failed: Connect call failed"),
        (["--base-url", "http://127.0.0.1:9"], "127.0.0.1:9/v1/models: Connect call failed"),
        (["--base-url", "localhost:8000"], "is not of the form http://host:port"),
        (["--base-url", "http://a", "--slots", "3"], "--slots is for a server that is started here"),
        (["-m", "nowhere.gguf"], "nowhere.gguf: no such file"),
        (["--input-len", "9:3"], "'9:3' is not from 1 up to"),
        (["--output-len", "x"], "'x' is neither a length nor two"),
        (["--goodput", "tft:3"], "'tft' is not one of ttft, tpot, e2el"),
        (["--goodput", "ttft:x"], "'ttft:x' is not of the form ttft:MILLISECONDS"),
        (["--goodput", "ttft:inf"], "'ttft:inf' is not of the form ttft:MILLISECONDS"),
        (["--base-url", "http://a", "--no-stream", "--goodput", "e2el:9,ttft:3"], "only e2el is known"),
        (["--request-rate", "0"], "'0' is neither a number over 0 nor inf"),
        (["--metric-percentiles", "101"], "101 is not from 0 to 100"),
        (["--extra-body", "[]"], "'[]' is no JSON object"),
        (["--burstiness", "nan"], "'nan' is no finite number"),
        (["--temperature", "inf"], "'inf' is no finite number"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--base-url", "http://127.0.0.1:9", "--api-key", "ж"], "holds 'ж', which is not in Latin-1"),
        (["--base-url", "http://127.0.0.1:9", "--api-key", "one\ntwo"], "'--api-key': is no key: give one, without"),
        (["--base-url", "http://a", "--plot", "x.gif"], "must end in .png"),
        (["--base-url", "http://a", "--dataset", "nowhere.json"], "nowhere.json"),
    ],
)
def test_a_mistake_gets_one_clear_line(args: list[str], message: str) -> None:
    done = run(*args)
    assert done.returncode in (1, 2)
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_server_that_does_not_start_says_why(model: str) -> None:
    done = run("-m", model, "--ctx", "100000", "--num-prompts", "1")
    assert done.returncode == 1
    assert "the server ended with 1" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_examples() -> None:
    assert "gristmill bench serve --base-url" in run("--help").stdout
