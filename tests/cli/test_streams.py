"""Standard streams that are closed, full or a keyboard: no command ends in a traceback or waits without a word."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import small_model

from gristmill import LLM

TEXT = "The sea was calm and the moon was full. " * 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_model.write(tmp_path_factory.mktemp("model")))


def shell(redirection: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`gristmill ARGS REDIRECTION` as a shell starts it."""
    command = ["sh", "-c", f'exec "$0" -m gristmill "$@" {redirection}', sys.executable, *args]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **env})


@pytest.mark.parametrize("args", ["generate -n 3", "trace", "tokenize", "chat"])
def test_a_closed_stdin_is_an_empty_one(model: str, args: str) -> None:
    done = shell("<&-", *args.split(), "-m", model)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_perplexity_of_a_closed_stdin_wants_more_text(model: str) -> None:
    done = shell("<&-", "perplexity", "-m", model)
    assert done.returncode == 1
    assert "give more text" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_is_written_to_a_closed_stream_goes_nowhere(model: str, closed: str) -> None:
    done = shell(closed, "generate", "-m", model, "-p", "abc", "-n", "3", "--temp", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("abc") == (closed == "2>&-")
    assert ("tok/s" in done.stderr) == (closed == ">&-")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", ["--help", "generate --help", "generate -p abc -n 3", "list --json", "inspect"])
def test_a_full_stdout_is_named(model: str, args: str, unbuffered: str) -> None:
    done = shell(">/dev/full", *args.split(), GRISTMILL_MODEL=model, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.strip() == "Error: stdout: No space left on device"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("lines", ["Once", "/set"])
def test_a_full_stdout_ends_a_chat(model: str, lines: str) -> None:
    """It is no fault of whoever answers, of whom more could be asked."""
    chat = f'echo "{lines}\n/nonsense" | "$0" -m gristmill chat --plain -m "$1" >/dev/full'
    done = subprocess.run(["sh", "-c", chat, sys.executable, model], capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (1, ["Error: stdout: No space left on device"])


def test_what_the_encoding_of_stdout_lacks_is_escaped(model: str) -> None:
    for encoding, shown in (("ascii", "a\\xfc"), ("ascii:surrogateescape", "a\\xfc"), ("ascii:replace", "a?")):
        done = shell("", "generate", "-m", model, "-n", "1", "-p", "aü", PYTHONIOENCODING=encoding)
        assert done.returncode == 0
        assert done.stdout.startswith(shown)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_encoding(model: str, encoding: str) -> None:
    """ids of "ü😀" and of U+009B, with which some terminals begin a command."""
    command = [sys.executable, "-m", "gristmill", "tokenize", "--decode", "--json", "-m", model]
    for ids, text in ((b"198 191 243 162 155 131", "ü😀"), (b"197 158", "\x9b")):
        env = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, input=ids, capture_output=True, env=env)
        assert json.loads(done.stdout.decode(encoding)) == {"text": text}
        assert done.stdout.isascii() == (encoding != "utf-8" or text == "\x9b")


def test_a_full_stdout_is_named_by_what_writes_last(model: str) -> None:
    """And leaves it to the interpreter's end to write."""
    decode = 'echo "50 60" | "$0" -m gristmill tokenize --decode -m "$1" >/dev/full'
    done = subprocess.run(["sh", "-c", decode, sys.executable, model], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (1, "Error: stdout: No space left on device")


@pytest.mark.parametrize("args", ["generate -p abc -n 9", "inspect", "trace -p abc", "--help", "show --help"])
def test_a_reader_that_has_gone_ends_it_without_a_word(model: str, args: str) -> None:
    """As a signal would end it."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gristmill", *args.split()]
    env = {**os.environ, "GRISTMILL_MODEL": model}
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=env)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_what_could_steer_a_terminal_is_escaped_there_alone(model: str) -> None:
    """ids of ESC [ 2 J, which clears a screen."""
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "gristmill", "tokenize", "--decode", "-m", model]
    try:
        subprocess.run(command, input=b"30 94 53 77", stdout=terminal, check=True)
        assert os.read(screen, 100) == rb"\x1b[2J"
    finally:
        os.close(terminal)
        os.close(screen)
    assert subprocess.run(command, input=b"30 94 53 77", capture_output=True).stdout == b"\x1b[2J"


@pytest.mark.parametrize(("data", "text"), [(b"a\r\nb", "a\r\nb"), (b"a\r\nb\r\n", "a\r\nb"), ("aü\n".encode(), "aü")])
def test_a_text_on_stdin_is_as_it_stands(model: str, data: bytes, text: str) -> None:
    """Whatever the locale: with the line ends of other systems, but for the last one."""
    command = [sys.executable, "-m", "gristmill", "generate", "-m", model, "-n", "1", "--json"]
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, input=data, capture_output=True, env=env)
    with LLM(model, threads=1) as llm:
        assert json.loads(done.stdout)["prompt_ids"] == llm.encode(text)


def test_what_is_no_text_on_stdin_is_named(model: str) -> None:
    for command in ("generate", "trace", "tokenize", "perplexity"):
        args = [sys.executable, "-m", "gristmill", command, "-m", model]
        done = subprocess.run(args, input=b"ab\xff", capture_output=True)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            2,
            b"Error: the input is not UTF-8: byte 2 is 0xff",
        )


def typed(*args: str) -> subprocess.CompletedProcess[str]:
    """A command that a text is typed for, at a terminal; it writes to pipes."""
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, f"{TEXT}\n\x04".encode())
        command = [sys.executable, "-m", "gristmill", *args]
        return subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=300)
    finally:
        os.close(terminal)
        os.close(keyboard)


@pytest.mark.parametrize("args", ["generate -n 3", "trace", "tokenize", "perplexity --ctx 32", "chat -n 3"])
def test_whoever_sits_at_a_keyboard_is_told_how_to_end(model: str, args: str) -> None:
    done = typed(*args.split(), "-m", model)
    assert done.returncode == 0, done.stderr
    assert "reading the text from the keyboard; Ctrl-D on a line of its own ends it" in done.stderr
    given = subprocess.run(
        [sys.executable, "-m", "gristmill", *args.split(), "-m", model], input=TEXT, capture_output=True, text=True
    )
    assert "keyboard" not in given.stderr
