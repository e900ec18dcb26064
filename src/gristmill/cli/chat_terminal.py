"""A chat at a terminal: lines edited by prompt_toolkit, answers written by rich. It knows no model."""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console

from gristmill.cli.chat_screen import is_open
from gristmill.printable import printable

_STYLE = Style.from_dict({"hint": "ansibrightblack", "rprompt": "ansibrightblack noreverse"})


class TerminalScreen:
    """words: commands that the tabulator key completes."""

    interactive = True

    def __init__(self, words: list[str]) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._at_start = True
        self._in_reasoning = False
        history, problem = _history()
        self._session: PromptSession[str] = PromptSession(
            history=history,
            key_bindings=_keys(),
            multiline=Condition(lambda: is_open(get_app().current_buffer.text)),
            prompt_continuation=lambda width, number, wraps: "... ",
            completer=WordCompleter(words, sentence=True),
            complete_while_typing=False,
            placeholder=FormattedText([("class:hint", "a message, or /help; Ctrl-D leaves")]),
            style=_STYLE,
            tempfile_suffix=".txt",
        )
        if problem:
            self.note(problem)

    def read(self, kept: str, hint: str) -> str | None:
        if is_dumb_terminal():
            kept = ""  # it would be in the line without being seen
        while True:
            try:
                text = self._session.prompt(">>> ", default=kept, rprompt=hint)
            except KeyboardInterrupt:  # a signal from elsewhere; the key only clears the line
                kept = ""
            except EOFError:
                return None
            else:
                return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def reasoning(self, text: str) -> None:
        self._in_reasoning = True
        self._write(text, "dim")

    def content(self, text: str) -> None:
        if self._in_reasoning:
            self._in_reasoning = False
            self._write("\n\n" if not self._at_start else "\n")
        self._write(text)

    def end_answer(self) -> None:
        self._in_reasoning = False
        if not self._at_start:
            self._write("\n")

    def show(self, text: str) -> None:
        self._write(f"{text}\n")

    def note(self, text: str) -> None:
        self._write(f"{text}\n", "dim")

    def error(self, text: str) -> None:
        self._write(f"{text}\n", "red")

    def _write(self, text: str, style: str | None = None) -> None:
        self._console.out(printable(text), end="", style=style, highlight=False)
        self._console.file.flush()
        self._at_start = text.endswith("\n")


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("c-c")
    def clear(event: KeyPressEvent) -> None:
        event.current_buffer.reset()

    @keys.add("c-g")
    def edit(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


def _history() -> tuple[History, str | None]:
    """The file under the XDG state directory, for its owner alone; where it cannot be, memory and the reason."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "gristmill"
    except RuntimeError as error:  # nobody says where the user's home is
        return InMemoryHistory(), f"the history is kept in memory alone: {error}"
    path = folder / "chat_history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        return InMemoryHistory(), f"the history is kept in memory alone: {path}: {error.strerror}"
    return _History(str(path)), None


class _History(FileHistory):
    def store_string(self, string: str) -> None:
        """A full disk, or a line that is no text, costs a line of history and not the chat."""
        try:
            super().store_string(string)
        except (OSError, UnicodeError):
            return
