"""`gristmill chat` at a real (pseudo) terminal: keys, interruption, history."""

from __future__ import annotations

import json
import os
import pty
import pwd
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import small_model
from prompt_toolkit.history import InMemoryHistory

from gristmill.cli.chat_terminal import _history

PROMPT = ">>> "
CTRL_C, CTRL_D, CTRL_G, UP = "\x03", "\x04", "\x07", "\x1b[A"

# A session's leader that opens a terminal has it for its own, so that Ctrl-C becomes a signal.
START = (
    "import os, sys; os.close(os.open(sys.argv[1], os.O_RDWR));"
    "os.execv(sys.executable, [sys.executable, '-m', 'gristmill', 'chat', *sys.argv[2:]])"
)


class Terminal:
    """A chat with a terminal of its own. What it wrote is read without the sequences that move the cursor."""

    def __init__(self, folder: Path, *args: str, term: str = "xterm") -> None:
        (folder / "editor").write_text("#!/bin/sh\nprintf 'from the\\neditor' > \"$1\"\n")
        (folder / "editor").chmod(0o755)
        env = {
            **{name: value for name, value in os.environ.items() if name != "VISUAL"},
            "TERM": term,
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "XDG_STATE_HOME": str(folder / "state"),
            "EDITOR": str(folder / "editor"),
        }
        self._master, slave = pty.openpty()
        command = [sys.executable, "-c", START, os.ttyname(slave), *args]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder, start_new_session=True
        )
        os.close(slave)
        self._text = ""

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self, pattern: str, seconds: float = 60) -> str:
        """What was written until the pattern came, which is then behind us."""
        end = time.monotonic() + seconds
        while (match := re.search(pattern, _plain(self._text))) is None:
            assert time.monotonic() < end, f"no {pattern!r} in {self._text[-2000:]!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self._text += os.read(self._master, 1 << 16).decode(errors="replace")
                except OSError:  # the other side has gone
                    assert re.search(pattern, _plain(self._text)), f"no {pattern!r} in {self._text[-2000:]!r}"
        text = _plain(self._text)
        self._text = text[match.end() :]
        return text[: match.end()]

    def ended(self) -> int:
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


def _plain(text: str) -> str:
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>]|\][^\x07]*\x07)", "", text)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = small_model.write(tmp_path_factory.mktemp("model"), 60_000)
    (path.parent / "t.jinja").write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}>")
    return path


@pytest.fixture
def terminal(model: Path, tmp_path: Path) -> Iterator[Terminal]:
    args = ("--chat-template", str(model.parent / "t.jinja"), "--ctx", "60000", "--ignore-eos", "--threads", "1")
    terminal = Terminal(tmp_path, "-m", str(model), *args)
    terminal.wait(PROMPT)
    yield terminal
    terminal.close()


def talk(terminal: Terminal, folder: Path) -> list[dict[str, str]]:
    """The conversation so far, as it saves it."""
    terminal.send("/save talk.json\r")
    terminal.wait("messages are in")
    messages: list[dict[str, str]] = json.loads((folder / "talk.json").read_text())["messages"]
    return messages


def test_ctrl_c_stops_the_answer_alone(terminal: Terminal, tmp_path: Path) -> None:
    """Also a signal; what came of the answer stays, and the next message is answered."""
    terminal.send("hi\r")
    terminal.wait(r"(?s)hi.{3000}")  # 60,000 tokens take longer than the test
    terminal.send(CTRL_C)
    terminal.wait(r"stopped · [\d,]+ tokens · [\d.]+ tok/s · .* left")
    terminal.wait(PROMPT)
    terminal.send("/set max_tokens 5\r")
    terminal.wait("max_tokens = 5")
    terminal.send("more\r")
    terminal.wait(r" 5 tokens|\n5 tokens")
    messages = talk(terminal, tmp_path)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert len(messages[1]["content"]) > 50
    terminal.send("/set max_tokens default\r")
    terminal.wait("max_tokens is not set")
    terminal.wait(PROMPT)
    terminal.send("/regenerate\r")
    terminal.wait(r"(?s)regenerate.{3000}")  # far more than the prompt writes
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait("stopped")
    terminal.wait(PROMPT)
    terminal.send(CTRL_D)
    assert terminal.ended() == 0


def test_keys(terminal: Terminal, tmp_path: Path) -> None:
    terminal.send("/set max_tokens 3\r")
    terminal.wait("max_tokens = 3")
    terminal.send('"""one\rtwo\rthree"""\r')  # lines of one message
    terminal.wait("3 tokens")
    terminal.send("\x1b[200~pasted\rin lines\x1b[201~ and typed\r")
    terminal.wait("3 tokens")
    terminal.send(CTRL_C * 3)  # it may be between an answer and the prompt
    terminal.wait(PROMPT)
    terminal.send("forget this" + CTRL_C + "keep this\r")
    terminal.wait("3 tokens")
    terminal.send(CTRL_G)
    terminal.wait("editor")
    terminal.send("\r")
    terminal.wait("3 tokens")
    terminal.wait(PROMPT)
    terminal.send("/exit" + CTRL_C)
    terminal.wait("a message, or /help")
    for _ in range(10):  # the history is read once the line is there, and until then the key does nothing
        terminal.send(UP)
        with suppress(AssertionError):
            terminal.wait("editor", 3)
            break
    terminal.send(" again\r")
    terminal.wait("3 tokens")
    said = [message["content"] for message in talk(terminal, tmp_path) if message["role"] == "user"]
    assert said == [
        "one\ntwo\nthree",
        "pasted\nin lines and typed",
        "keep this",
        "from the\neditor",
        "from the\neditor again",
    ]
    terminal.send("/bye\r")
    assert terminal.ended() == 0
    history = tmp_path / "state" / "gristmill" / "chat_history"
    assert "+keep this" in history.read_text()
    assert "forget this" not in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_message_without_room_is_back_at_the_prompt(model: Path, tmp_path: Path) -> None:
    args = ("--chat-template", str(model.parent / "t.jinja"), "--ctx", "64", "--threads", "1")
    terminal = Terminal(tmp_path, "-m", str(model), *args)
    try:
        terminal.wait(PROMPT)
        long = "abcdefgh" * 8
        terminal.send(f"{long}\r")
        terminal.wait("context holds 64")
        terminal.wait(f"{PROMPT}{long[:40]}")
        terminal.send("\x7f" * 60 + "\r")  # shortened, it goes
        terminal.wait("tokens · ")
        assert talk(terminal, tmp_path)[0]["content"] == long[:4]
    finally:
        terminal.close()


def test_a_terminal_that_shows_no_line_keeps_none(model: Path, tmp_path: Path) -> None:
    """As Emacs' shell: what was refused would come before the next message, unseen."""
    args = ("--chat-template", str(model.parent / "t.jinja"), "--ctx", "64", "--threads", "1")
    terminal = Terminal(tmp_path, "-m", str(model), *args, term="dumb")
    try:
        terminal.wait(PROMPT)
        terminal.send("abcdefgh" * 8 + "\r")
        terminal.wait("context holds 64")
        terminal.wait(PROMPT)
        terminal.send("xyz\r")
        terminal.wait("tokens · ")
        assert talk(terminal, tmp_path)[0]["content"] == "xyz"
    finally:
        terminal.close()


def test_a_user_without_a_home_has_a_history_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user_id: int) -> None:
        raise KeyError(user_id)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    history, problem = _history()
    assert isinstance(history, InMemoryHistory)
    assert problem is not None
    assert problem.startswith("the history is kept in memory alone: ")


def test_a_history_that_cannot_be_kept(model: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, no folder")
    terminal = Terminal(tmp_path, "-m", str(model), "--threads", "1")
    try:
        terminal.wait("the history is kept in memory alone")
        terminal.wait("no chat template")
        terminal.wait(PROMPT)
    finally:
        terminal.close()
