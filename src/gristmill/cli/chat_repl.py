"""The loop of a chat: reads, answers, and keeps the conversation in order when an answer ends early."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from types import FrameType
from typing import Final

from gristmill.cli import chat_commands
from gristmill.cli.chat_backend import Backend, ContextFullError, Tally
from gristmill.cli.chat_screen import Screen, unquote
from gristmill.cli.chat_session import Conversation
from gristmill.cli.streams import one_line
from gristmill.dialogue.types import ReasoningDelta

_FULL: Final = "The context is full: /clear begins a new conversation, /save FILE keeps this one first."
_ANSWER_TOO_LONG: Final = (
    "It may have room for the conversation, and not for max_tokens more: /set max_tokens default, or a smaller value."
    " If that does not help, it is full: /clear begins a new conversation, /save FILE keeps this one first."
)


class Repl:
    """One person, or one file of lines, talking with one model.

    failed  whether anything was refused or went wrong
    tally   of the conversation's latest answer
    """

    def __init__(self, backend: Backend, screen: Screen, conversation: Conversation) -> None:
        self.backend = backend
        self.screen = screen
        self.conversation = conversation
        self.failed = False
        self.tally: Tally | None = None
        self._kept = ""
        self._interrupts = _Interrupts(screen.interactive)

    def run(self) -> None:
        """Until there is nothing more to read, or /bye."""
        if self.screen.interactive:
            self.screen.note(f"{self.backend.name}{self._room()}")
        if self.backend.notice:
            self.screen.note(self.backend.notice)
        with self._interrupts:
            while self._step():
                pass

    def go_back(self, messages: list[dict[str, str]]) -> None:
        """To the messages as they were before an answer that did not come."""
        self.conversation.messages = messages
        self._kept = ""

    def answer(self) -> bool:
        """Answer the conversation's last message, which goes back to the prompt where no answer comes: then False."""
        reasoning: list[str] = []
        content: list[str] = []
        try:
            with self._interrupts.once(), closing(self.backend.answer(self.conversation)) as deltas:
                for delta in deltas:
                    if isinstance(delta, ReasoningDelta):
                        reasoning.append(delta.text)
                        self.screen.reasoning(delta.text)
                    else:
                        content.append(delta.text)
                        self.screen.content(delta.text)
            self.screen.end_answer()
        except KeyboardInterrupt:
            self.screen.end_answer()
            if not self.screen.interactive:
                raise
            return self._take(reasoning, content, "stopped")
        except ContextFullError as error:
            self.screen.end_answer()
            self.fail(f"{error}.\n{_ANSWER_TOO_LONG if error.limit is not None else _FULL}")
            return self._take(reasoning, content, "")
        except (ValueError, OSError, MemoryError) as error:
            self.screen.end_answer()
            self.fail(one_line(error))
            return self._take(reasoning, content, "")
        return self._take(reasoning, content, None)

    def fail(self, text: str) -> None:
        self.failed = True
        self.screen.error(text)

    def _step(self) -> bool:
        """Read once and do it. False: leave."""
        try:
            with self.backend.idle() if self.screen.interactive else nullcontext():
                text = self.screen.read(self._kept, self._left())
        except ValueError as error:
            self.fail(str(error))
            return True
        self._kept = ""
        if text is None:
            return False
        if (command := chat_commands.find(text)) is not None:
            return self._command(*command)
        text, quoted = unquote(text)
        if text.strip() or quoted:
            self.conversation.messages.append({"role": "user", "content": text})
            self.answer()
        return True

    def _command(self, name: str, rest: str) -> bool:
        """Do it. False: leave."""
        try:
            with self._interrupts.once():
                return chat_commands.run(self, name, rest)
        except KeyboardInterrupt:
            if not self.screen.interactive:
                raise
            self.screen.note("stopped")
        except (ValueError, OSError) as error:
            self.fail(one_line(error))
        return True

    def _take(self, reasoning: list[str], content: list[str], early: str | None) -> bool:
        """What came becomes part of the conversation; without content, the message is taken back.

        early  None for an answer that ended as it should, else what to say of it
        """
        messages = self.conversation.messages
        if early is not None and not content:
            self._kept = messages.pop()["content"]
            if early:
                self.screen.note(f"{early} before there was an answer")
            return False
        message = {"role": "assistant", "content": "".join(content)}
        if reasoning:
            message["reasoning_content"] = "".join(reasoning)
        messages.append(message)
        self.tally = self.backend.tally
        if self.tally is not None:
            self.screen.note(" · ".join(filter(None, [early, *_figures(self.tally), self._left()])))
            self._say_if_cut(self.tally)
        return True

    def _say_if_cut(self, tally: Tally) -> None:
        if tally.finish != "length":
            return
        full = self.backend.context is not None and tally.n_used is not None and tally.n_used >= self.backend.context
        if full:
            self.fail("The context is full, and the answer was cut: /clear begins a new conversation.")
        else:
            self.screen.note("cut at max_tokens; /set max_tokens default lets answers be as long as there is room")

    def _left(self) -> str:
        """How much of the context is left."""
        tally, context = self.tally, self.backend.context
        if tally is None or tally.n_used is None:
            return ""
        if context is None:
            return f"{tally.n_used:,} tokens of context used"
        return f"{max(0, context - tally.n_used):,} of {context:,} tokens left"

    def _room(self) -> str:
        return "" if self.backend.context is None else f" · context {self.backend.context:,} tokens"


def _figures(tally: Tally) -> Iterator[str]:
    yield f"{tally.n_output:,} tokens"
    if tally.tokens_per_s is not None:
        yield f"{tally.tokens_per_s:.1f} tok/s"
    if tally.n_prompt is not None:
        cached = f", {tally.n_cached:,} of them cached" if tally.n_cached else ""
        yield f"prompt {tally.n_prompt:,}{cached}"
    if tally.first is not None:
        yield f"{tally.first - tally.started:.2f} s to the first"
    if tally.packing_s >= 0.005:
        yield f"{tally.packing_s:.2f} s more to pack the weights"


class _Interrupts:
    """While it is entered, Ctrl-C ends the block of `once`, the first time, and nothing else.

    Where nobody is there to press it, everything stays as it is: the program ends.
    """

    def __init__(self, interactive: bool) -> None:
        self._interactive = interactive and threading.current_thread() is threading.main_thread()
        self._armed = False

    def __enter__(self) -> None:
        if self._interactive:
            self._before = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *_: object) -> None:
        if self._interactive:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def once(self) -> Iterator[None]:
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt
