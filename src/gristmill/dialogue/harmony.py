"""Harmony, the format of gpt-oss: an answer is messages, each with a header that names its channel and recipient.

Source: github.com/openai/harmony, docs/format.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gristmill.dialogue.calls import Arguments, State
from gristmill.dialogue.output import SPACE, Answer, Prose, skip_space
from gristmill.dialogue.types import Delta

START: Final = 200006
END: Final = 200007
MESSAGE: Final = 200008
CHANNEL: Final = 200005
CONSTRAIN: Final = 200003
RETURN: Final = 200002
CALL: Final = 200012
END_OF_TEXT: Final = 199999

TEXTS: Final = {
    START: "<|start|>",
    END: "<|end|>",
    MESSAGE: "<|message|>",
    CHANNEL: "<|channel|>",
    CONSTRAIN: "<|constrain|>",
    RETURN: "<|return|>",
    CALL: "<|call|>",
}
_ENDS: Final = frozenset([END, RETURN, CALL])
_ROLES: Final = frozenset(["system", "developer", "user", "assistant", "tool"])
_CHANNEL_NAME: Final = re.compile(r"\s*([^\s<]*)")
_MAX_WORDS = 2  # of a header without any special token: who is addressed, and the type of the content
_MAX_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Header:
    """What stands between <|start|> and <|message|>; names are empty where there are none. rest: words beyond it."""

    role: str
    channel: str
    recipient: str
    rest: str


def read_header(text: str, *, has_role: bool) -> Header:
    """Of the texts of its tokens. has_role: it begins with a role; otherwise it is the assistant's, who may be named.

    The recipient may stand before or after the channel, with `to=` or, where there is nothing else, without.
    """
    before, mark, after = text.partition(TEXTS[CHANNEL])
    name = _CHANNEL_NAME.match(after)
    assert name is not None
    text = before + after[name.end() :] if mark else text
    words = text.replace(TEXTS[CONSTRAIN], f" {TEXTS[CONSTRAIN]}").split()
    role = "assistant"
    if words and (has_role or words[0] == role):
        role = words.pop(0)
    addressed = [word for word in words if word.startswith("to=")]
    recipient = addressed[-1] if addressed else words[0] if 1 <= len(words) <= _MAX_WORDS else ""
    recipient = recipient.removeprefix("to=").partition("<")[0]
    return Header(role, name[1] if mark else "", recipient, " ".join(words))


class HarmonyParser:
    """See `Parser`; it goes by ids. Channel "analysis" is reasoning; a message of the assistant to a function that may
    be called is a call, if it is a JSON object or empty; all else is content.

    The prompt ends with `<|start|>assistant`, so the answer begins within a header. Text where a header is expected
    is content as soon as it can be none; a message whose header is never closed is the text after its channel. Within
    a message, special tokens that do not end it are text, as openai-harmony has it.
    """

    marks = None

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._header: list[str] = []
        self._in_header = False  # it has a special token, so it is one
        self._has_role = False
        self._prose: Prose | None = None  # where the message that is open goes
        self._has_header = False  # the message that is open
        self._name = ""  # of a call whose arguments have not begun
        self._blank: list[str] = []  # white space before them
        self._arguments: Arguments | None = None

    def push(self, token_id: int, text: str) -> list[Delta]:
        mark = TEXTS.get(token_id, "")
        if token_id == END_OF_TEXT:
            return []
        text = text.removesuffix(mark)
        if text:
            self._take_text(text)
        if mark:
            self._take_mark(token_id, mark)
        return self._answer.take()

    def finish(self) -> list[Delta]:
        if self._prose is not None:
            self._prose.push("".join(self._blank))
            self._prose.flush()
        else:
            self._end_without_message()
        return self._answer.take()

    def _take_text(self, text: str) -> None:
        if self._prose is not None:
            self._take_body(self._prose, text)
            return
        self._header.append(text)
        if not self._in_header:
            held = "".join(self._header)
            self._header = [held]
            if len(held) > _MAX_CHARACTERS or len(held.split()) > _MAX_WORDS:
                self._header.clear()
                self._open(Header("assistant", "", "", ""), has_header=False)
                self._answer.content.push(held)

    def _take_mark(self, token_id: int, mark: str) -> None:
        if self._prose is not None:
            if token_id in _ENDS or (not self._has_header and token_id in (START, CHANNEL)):
                self._end_message(self._prose)
            else:
                self._take_body(self._prose, mark)
                return
        if token_id in _ENDS:
            self._end_without_message()
        elif token_id == MESSAGE:
            header = read_header("".join(self._header), has_role=self._has_role)
            self._forget_header()
            self._open(header, has_header=True)
        elif token_id == START and not self._in_header and not "".join(self._header).lstrip().startswith("to="):
            self._end_without_message()
            self._in_header = self._has_role = True
        else:
            self._in_header = True
            self._header.append(mark)

    def _open(self, header: Header, *, has_header: bool) -> None:
        self._prose = self._answer.reasoning if header.channel == "analysis" else self._answer.content
        self._prose.cut("")
        self._has_header = has_header
        recipient = header.recipient
        names = (recipient, recipient.removeprefix("functions."))
        callee = next((name for name in names if name in self._answer.names), "")
        self._name = callee if header.role == "assistant" else ""

    def _take_body(self, prose: Prose, text: str) -> None:
        at = 0
        if self._name:
            at = skip_space(text, 0)
            self._blank.append(text[:at])
            if at == len(text):
                return
            if text[at] == "{":
                self._answer.call(self._name)
                prose.cut(SPACE)
                self._arguments = Arguments(self._answer)
            else:
                prose.push("".join(self._blank))
            self._name = ""
            self._blank.clear()
        if self._arguments is not None:
            state, at = self._arguments.push(text, at)
            if state is not State.READING:
                self._arguments = None
        prose.push(text[at:])

    def _end_message(self, prose: Prose) -> None:
        if self._name:
            self._answer.call(self._name)
            self._answer.arguments("{}")
            self._name = ""
            self._blank.clear()
        self._arguments = None
        prose.flush()
        self._prose = None

    def _end_without_message(self) -> None:
        """A header that goes no further: its words are content, or what its channel says."""
        text = "".join(self._header)
        if self._in_header:
            header = read_header(text, has_role=self._has_role)
            prose = self._answer.reasoning if header.channel == "analysis" else self._answer.content
            prose.push(header.rest)
            prose.flush()
        elif text:
            self._answer.content.push(text)
            self._answer.content.flush()
        self._forget_header()

    def _forget_header(self) -> None:
        self._header.clear()
        self._in_header = self._has_role = False
