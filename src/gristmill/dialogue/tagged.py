"""Answers in which tags enclose the thought, which comes first, and the calls. What a call looks like is a `Syntax`."""

from __future__ import annotations

from collections.abc import Set
from typing import Final, Protocol

from gristmill.dialogue.calls import State
from gristmill.dialogue.output import LINE_ENDS, SPACE, Answer, Marks, skip_space
from gristmill.dialogue.steps import SteppingParser
from gristmill.dialogue.types import Delta

THINK: Final = "<think>"
END_THINK: Final = "</think>"


class Syntax(Protocol):
    """How calls are written."""

    @property
    def openings(self) -> tuple[str, ...]:
        """Texts that begin a call."""
        ...

    @property
    def tags(self) -> Set[str]:
        """All texts that may be special tokens, `openings` among them."""
        ...

    @property
    def held(self) -> str:
        """Text since the opening that is no call if nothing more comes, or if it has failed."""
        ...

    def begin(self, opening: str) -> None:
        """The text goes on after `opening`."""
        ...

    def push(self, text: str, at: int) -> tuple[State, int]:
        """Go on from text[at]: the state, and up to where the text was read; with READING, the rest is to be given
        again with what follows it. After DONE and FAILED the rest is content."""
        ...


class TaggedParser(SteppingParser):
    """See `Parser`. `<think>` opens a thought at the beginning alone; later, and where it is never opened, the tags of
    a thought are content. A thought that is not closed lasts to the end. What a thought says calls nothing.

    starts_in_reasoning  the prompt has opened the thought: see `ends_in_thinking`
    """

    def __init__(self, answer: Answer, syntax: Syntax, *, starts_in_reasoning: bool, constrained: bool = False) -> None:
        super().__init__(answer, self._first, constrained=constrained)
        self._syntax = syntax
        self._in_thought = starts_in_reasoning
        self._space: list[str] = []
        self._first_marks = Marks(THINK)
        self._end_mark = Marks(END_THINK)
        self._openings = Marks(*syntax.openings)
        self._marks = frozenset(syntax.tags | {THINK, END_THINK})

    @property
    def marks(self) -> Set[str]:
        return self._marks

    def finish(self) -> list[Delta]:
        rest, self._rest = self._rest, ""
        if self._step == self._first:
            self._leave_first()
        if self._step == self._call:
            self._answer.content.push(self._syntax.held)
        prose = self._answer.reasoning if self._step == self._thought else self._answer.content
        prose.push(rest)
        self._answer.reasoning.cut("")  # a thought has no white space at its end
        self._answer.content.flush()
        return self._answer.take()

    def _first(self, text: str, at: int) -> int:
        """Nothing but white space so far."""
        start = at
        at = skip_space(text, at)
        self._space.append(text[start:at])
        if at == len(text):
            return at
        if self._first_marks.at(text, at):
            self._in_thought = True
            at += len(THINK)
        elif self._first_marks.may_begin(text, at):
            return at
        self._leave_first()
        return at

    def _leave_first(self) -> None:
        if self._in_thought:
            self._answer.reasoning.cut(SPACE)
            self._step = self._thought
        else:
            self._answer.content.push("".join(self._space))
            self._step = self._after_thought
        self._space.clear()

    def _thought(self, text: str, at: int) -> int:
        end, mark = self._end_mark.find(text, at)
        self._answer.reasoning.push(text[at:end])
        if mark:
            self._answer.reasoning.cut("")
            self._answer.content.cut(LINE_ENDS)
            self._step = self._after_thought
        return end + len(mark)

    def _after_thought(self, text: str, at: int) -> int:
        if not self._constrained:
            self._step = self._content
            return at
        end = skip_space(text, at)
        self._answer.content.push(text[at:end])
        if end < len(text) and not self._openings.may_begin(text, end):
            self._step = self._content if self._openings.at(text, end) and self._answer.names else self._verbatim
        return end

    def _content(self, text: str, at: int) -> int:
        end, mark = self._openings.find(text, at)
        self._answer.content.push(text[at:end])
        if mark:
            self._syntax.begin(mark)
            self._step = self._call
        return end + len(mark)

    def _call(self, text: str, at: int) -> int:
        state, at = self._syntax.push(text, at)
        if state is not State.READING:
            self._answer.content.push(self._syntax.held)
            self._step = self._content
        return at
