"""`gristmill serve` as a process: what it says, how it ends, what it refuses to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from served import wait_until

from gristmill.cli.main import main
from gristmill.serve.server import Listen, free_port

LONG = {"prompt": "ab", "max_tokens": 1900, "ignore_eos": True, "stream": True, "temperature": 0}


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_lets_answers_finish_and_a_second_does_not(model_path: Path, signals: int) -> None:
    url, command = f"http://127.0.0.1:{(port := free_port())}", [sys.executable, "-m", "gristmill", "serve"]
    command += ["-m", str(model_path), "--threads", "1", "--drain-timeout", "20"]
    env = {**os.environ, "GRISTMILL_PORT": str(port)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert url in process.stderr.readline()
        wait_until(lambda: answers(url))
        body = {**LONG, "n": 1 if signals == 1 else 100}  # which takes seconds
        with httpx.Client(timeout=30) as client, client.stream("POST", f"{url}/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.05)
            last = [line for line in lines if line][-1]
        assert (last == "data: [DONE]") if signals == 1 else ("shutting_down" in last)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_others_are_not_served_without_a_key(model_path: Path) -> None:
    result = CliRunner().invoke(main, ["serve", "-m", str(model_path), "--host", "0.0.0.0"])
    assert result.exit_code == 2
    assert "--api-key" in result.output


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("a.example", False)],
)
def test_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert Listen(host).is_loopback == expected
