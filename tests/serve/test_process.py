"""`gristmill serve` as a process: what it says, how it ends, what it refuses to do."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path

import httpx
import psutil
import pytest
from click.testing import CliRunner
from served import wait_until
from started import answers, engine_of, said, started

from gristmill.cli.main import main
from gristmill.serve.app import Settings
from gristmill.serve.giving_way import giving_way
from gristmill.serve.guard import Access
from gristmill.serve.server import Listen
from gristmill.serve.sockets import bound, free_port

LONG = {"prompt": "ab", "max_tokens": 1900, "ignore_eos": True, "stream": True, "temperature": 0}


@pytest.mark.parametrize("args", [(), ("--in-process",)], ids=["supervised", "in-process"])
@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_lets_answers_finish_and_a_second_does_not(model_path: Path, signals: int, args: tuple[str]) -> None:
    with started(model_path, "--drain-timeout", "100", *args) as (process, url):
        assert url in said(process).readline()
        wait_until(lambda: answers(url))
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == (not args)
        body = {**LONG, "n": 1 if signals == 1 else 100}  # which takes seconds
        with httpx.Client(timeout=60) as client, client.stream("POST", f"{url}/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                wait_until(lambda: not answers(url))  # it has been heeded: two at once would be one
            last = [line for line in lines if line][-1]
        assert (last == "data: [DONE]") if signals == 1 else ("shutting_down" in last)
        assert process.wait(60) == 0
        assert said(process).read() == ""
        assert not any(child.is_running() for child in children)


@pytest.mark.parametrize("args", [(), ("--in-process",)], ids=["supervised", "in-process"])
def test_a_server_whose_port_is_taken_does_not_say_that_it_serves(model_path: Path, args: tuple[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "gristmill", "serve", "-m", str(model_path), "--port", port, *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert (
        done.stderr == f"Error: a program listens at http://127.0.0.1:{port} already: end it, or name another place\n"
    )


def test_a_path_where_a_server_listens_is_left_to_it(model_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    command = [sys.executable, "-m", "gristmill", "serve", "-m", str(model_path), "--uds", str(path)]
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(path))
        there.listen()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, path.is_socket()) == (1, True)
        assert f"listens at unix:{path} already" in done.stderr
    path.chmod(0o600)
    with bound(Listen(uds=str(path))) as (one,):  # nobody is there any more
        assert path.stat().st_mode & 0o777 == 0o600
        one.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_a_server_at_a_path(model_path: Path, tmp_path: Path) -> None:
    """It answers there, and leaves nothing there, also where its model cannot be loaded."""
    path, command = tmp_path / "s", [sys.executable, "-m", "gristmill", "serve", "--uds", str(tmp_path / "s"), "-m"]
    with subprocess.Popen([*command, str(model_path)], stderr=subprocess.PIPE, text=True) as process:
        assert f"at unix:{path}" in said(process).readline()
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://x/health").json()["status"] == "ok"
        process.terminate()
        assert process.wait(60) == 0
    assert not path.exists()
    assert subprocess.run([*command, str(tmp_path / "none.gguf")], capture_output=True, timeout=60).returncode == 1
    assert not path.exists()


def test_a_place_that_this_machine_does_not_have() -> None:
    for host in ("192.0.2.1", "no.such.invalid"):
        with pytest.raises(OSError, match=rf"cannot listen at http://{host}:8000: \w"), bound(Listen(host)):
            pass


def test_a_host_of_several_addresses_is_listened_at_by_all_of_them() -> None:
    port = free_port()
    with bound(Listen("localhost", port)) as sockets:
        assert sockets
        assert {each.getsockname()[:2] for each in sockets} <= {("127.0.0.1", port), ("::1", port)}


def test_another_event_loop_that_is_installed_changes_nothing(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn takes uvloop where it finds it."""
    (tmp_path / "uvloop.py").write_text("raise RuntimeError('nobody asked for this')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with started(model_path) as (_, url):
        wait_until(lambda: answers(url))


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is Linux's")
def test_the_server_gives_way_to_its_engine_and_the_engine_to_nobody(model_path: Path) -> None:
    with started(model_path) as (process, url):
        assert url in said(process).readline()
        engine = engine_of(process)
        assert os.sched_getscheduler(process.pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_BATCH
        assert {os.sched_getscheduler(thread.id) for thread in engine.threads()} == {os.SCHED_OTHER}


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is Linux's")
def test_a_client_gives_way_while_it_measures() -> None:
    with giving_way():
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        with giving_way():
            pass
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def in_batches() -> None:
    """As `chrt --batch 0` starts it."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is Linux's")
def test_how_somebody_has_a_server_scheduled_is_its_engines_way_too(model_path: Path) -> None:
    with started(model_path, prepare=in_batches) as (process, url):
        assert url in said(process).readline()
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
        assert os.sched_getscheduler(engine_of(process).pid) == os.SCHED_BATCH


def favoured() -> None:
    """As `nice -n -5` starts it, from wherever this runs."""
    os.setpriority(os.PRIO_PROCESS, 0, -5)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="SCHED_BATCH is Linux's, favours are root's")
def test_an_engine_keeps_the_favour_that_its_server_has(model_path: Path) -> None:
    with started(model_path, prepare=favoured) as (process, url):
        assert url in said(process).readline()
        for pid in (process.pid, engine_of(process).pid):
            assert (os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)) == (os.SCHED_OTHER, -5)


def few_files() -> None:
    """What a shell may allow a process that it starts."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_more_connections_are_held_than_a_shell_lets_files_be_open(model_path: Path) -> None:
    with started(model_path, prepare=few_files) as (process, url), ExitStack() as stack:
        assert url in said(process).readline()
        address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        for _ in range(200):
            stack.enter_context(socket.create_connection(address))
        assert answers(url)


def most_bytes(process: subprocess.Popen[str]) -> int:
    """Of memory that it has had so far."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def send(url: str, head: bytes, n_pieces: int, piece: bytes) -> bytes:
    """The beginning of the answer to a body of many pieces, all of which are sent if it can be."""
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=20) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
        for _ in range(n_pieces):
            client.sendall(piece)
        return client.recv(1000)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_large_bodies_take_no_memory(model_path: Path) -> None:
    """200 MB, whether they are announced or not, and as often as anyone likes."""
    mib = 1 << 20
    announced = b"Content-Length: %d\r\n" % (200 * mib)
    with started(model_path) as (process, url):
        wait_until(lambda: answers(url), 60)
        before = most_bytes(process)
        for _ in range(3):
            assert send(url, announced, 200, bytes(mib)).startswith(b"HTTP/1.1 413")
        assert most_bytes(process) - before < 4 * mib
        chunk = b"%x\r\n%b\r\n" % (mib, bytes(mib))
        after = []
        for _ in range(3):  # up to the limit of 16 MiB it is kept
            assert send(url, b"Transfer-Encoding: chunked\r\n", 200, chunk).startswith(b"HTTP/1.1 413")
            after.append(most_bytes(process))
        assert after[0] - before < 40 * mib
        assert after[2] - after[0] < 8 * mib, after
        assert answers(url)


def test_engines_that_keep_dying_end_the_server(model_path: Path) -> None:
    with started(model_path) as (process, url):
        assert url in said(process).readline()
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
            wait_until(lambda: answers(url))
            engine_of(process).send_signal(number)
            wait_until(lambda: not answers(url))
        assert process.wait(60) == 1
        last = said(process).read().split("\nError: ")[1]
    assert "SIGABRT" in last.splitlines()[0]
    assert "3 times" in last.splitlines()[0]
    assert "most recent call first" in last


def test_an_engine_killed_while_it_is_loaded_ends_the_server(model_path: Path) -> None:
    with started(model_path) as (process, _):
        engine_of(process).kill()
        assert process.wait(60) == 1
        text = said(process).read()
    assert text.startswith("Error: the engine was ended by SIGKILL")
    assert "while it loaded the model" in text


@pytest.mark.parametrize("phase", ["loading", "ready", "generating"])
def test_a_server_that_is_killed_leaves_no_process(model_path: Path, phase: str) -> None:
    with started(model_path) as (process, url), httpx.Client(timeout=60) as client, ExitStack() as stack:
        engine = engine_of(process)
        if phase != "loading":
            wait_until(lambda: answers(url))
        if phase == "generating":
            body = {**LONG, "n": 100}
            response = stack.enter_context(client.stream("POST", f"{url}/v1/completions", json=body))
            next(response.iter_lines())
        process.kill()
        wait_until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)


def test_a_signal_while_the_model_is_loaded_ends_both(model_path: Path) -> None:
    with started(model_path) as (process, _):
        engine = engine_of(process)
        process.terminate()
        assert process.wait(60) == 0
        assert not engine.is_running()


@pytest.mark.parametrize("args", [("--kv-type", "q8_0"), ("--ctx", "999999"), ("--quantize", "q9")])
def test_what_cannot_be_loaded_is_one_line(model_path: Path, args: tuple[str, ...]) -> None:
    with started(model_path, *args) as (process, _):
        assert process.wait(60) == 1
        lines = said(process).read().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")


def test_others_are_not_served_without_a_key(model_path: Path) -> None:
    result = CliRunner().invoke(main, ["serve", "-m", str(model_path), "--host", "0.0.0.0"])
    assert result.exit_code == 2
    assert "--api-key" in result.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--api-key", ""), "--api-key"),
        (("--api-key", "good", "--api-key", " \t"), "--api-key"),
        (("--insecure", "--api-key", "key "), "--api-key"),
        (("--insecure", "--allowed-host", "https://a.example"), "--allowed-host"),
        (("--api-key", "key", "--allowed-host", "a.example:8000"), "--allowed-host"),
        (("--api-key", "key", "--allowed-host", "a.example b.example"), "--allowed-host"),
    ],
)
def test_a_key_that_is_none_and_a_name_that_is_none_are_refused(
    model_path: Path, args: tuple[str, ...], told: str
) -> None:
    result = CliRunner().invoke(main, ["serve", "-m", str(model_path), "--host", "0.0.0.0", *args])
    assert result.exit_code == 2
    assert f"Error: {told}: " in result.output


@pytest.mark.parametrize(
    ("variable", "keys"),
    [
        ("correct horse", ("correct horse",)),
        ("one\ntwo words\n", ("one", "two words")),
    ],
)
def test_keys_of_the_environment_stand_on_lines(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, keys: tuple[str, ...]
) -> None:
    served = list[Settings]()
    monkeypatch.setattr(
        "gristmill.cli.serve._serve_supervised", lambda text, engine, settings, *_: served.append(settings)
    )
    monkeypatch.setattr("gristmill.serve.sockets.bound", nullcontext)
    env = {"GRISTMILL_API_KEY": variable, "GRISTMILL_ALLOWED_HOST": "a.example\nb.example"}
    result = CliRunner().invoke(main, ["serve", "-m", str(model_path), "--host", "0.0.0.0"], env=env)
    assert result.exit_code == 0, result.output
    assert served[0].access == Access(keys, True, (), ("a.example", "b.example"))


@pytest.mark.parametrize(
    ("args", "is_checked"),
    [((), True), (("--host", "0.0.0.0", "--api-key", "k"), False), (("--uds", "s"), False), (("--host", "::1"), True)],
)
def test_which_names_are_checked(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], is_checked: bool
) -> None:
    served = list[Settings]()
    monkeypatch.setattr(
        "gristmill.cli.serve._serve_supervised", lambda text, engine, settings, *_: served.append(settings)
    )
    monkeypatch.setattr("gristmill.serve.sockets.bound", nullcontext)
    for more in ((), ("--allowed-host", "a.example")):
        assert CliRunner().invoke(main, ["serve", "-m", str(model_path), *args, *more]).exit_code == 0
    assert [settings.access.check_host for settings in served] == [is_checked, True]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("a.example", False)],
)
def test_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert Listen(host).is_loopback == expected
