"""One call's JSON as it is written: name and arguments in an object, or arguments alone. It knows no marks around."""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import Enum, auto
from typing import Final

from gristmill.dialogue.output import SPACE, Answer
from gristmill.dialogue.scan import Found, ObjectScanner, read_object

_ARGUMENTS: Final = ("arguments", "parameters")
_KNOWN_KEYS: Final = ("name", *_ARGUMENTS, "type", "id")


class State(Enum):
    """READING: more text can follow. DONE: the call is complete. FAILED: what is held is no call, or, where a call had
    begun, it ends here without being complete."""

    READING = auto()
    DONE = auto()
    FAILED = auto()


class Arguments:
    """A JSON object, straight into the arguments of the call that began last."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._scanner = ObjectScanner()

    def push(self, text: str, at: int) -> tuple[State, int]:
        """Go on from text[at]: the state, and up to where the text was read."""
        found = Found.MORE
        while found not in (Found.END, Found.BAD) and at < len(text):
            found, at = self._scanner.scan(text, at)
        self._answer.arguments(self._scanner.take())
        state = {Found.END: State.DONE, Found.BAD: State.FAILED}.get(found, State.READING)
        return state, at


class Call:
    """An object with "name" and "arguments" (or "parameters"), in any order, from its `{`.

    The call begins with the first character of its arguments, once its name is known; until then the text is held.
    Arguments are an object, an object as a JSON string, or null or "" for an empty one.

    known_keys  keys that no call has, and missing arguments, mean that this is no call. Without it such keys are passed
                over, and missing arguments are an empty object
    """

    def __init__(self, answer: Answer, *, known_keys: bool) -> None:
        self._answer = answer
        self._known_keys = known_keys
        self._scanner = ObjectScanner()
        self._raw: list[str] = []
        self._part: list[str] = []  # of the key or value that is being read, from its first character that matters
        self._escaped = False  # the part has a backslash, so its beginning says nothing yet
        self._reading = ""  # the key whose value comes
        self._in_value = False
        self._name: str | None = None
        self._arguments: str | None = None  # those that came before the name, or in a string
        self._begun = False

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def held(self) -> str:
        """All text of an object that is no call, as far as it was read. Empty once the call has begun."""
        return "" if self._begun else "".join(self._raw)

    def push(self, text: str, at: int) -> tuple[State, int]:
        """Go on from text[at]: the state, and up to where the text was read."""
        while True:
            start = at
            if self._wanted() is None:
                found, at = self._scanner.scan(text, at)
            else:  # what is read beyond the first character that is wrong would not be looked at again
                found, n_read = self._scanner.scan(text[at : at + 1], 0)
                at += n_read
            if not self._begun:
                self._raw.append(text[start:at])
            self._collect(self._scanner.take())
            sound = found is not Found.BAD and self._take(found, text[at : at + 1])
            if not sound:
                return State.FAILED, at
            if found is Found.END:
                return State.DONE, at
            if found is Found.MORE and at == len(text):
                return State.READING, at

    def _collect(self, piece: str) -> None:
        if self._in_value and self._reading in _ARGUMENTS and self._begun:
            self._answer.arguments(piece)
            return
        if not self._in_value and not self._part:
            piece = piece[piece.index('"') :] if '"' in piece else ""  # up to there it is brackets, commas and space
        if piece:
            self._part.append(piece)
            self._escaped = self._escaped or "\\" in piece

    def _end_part(self) -> str:
        part = "".join(self._part)
        self._part.clear()
        self._escaped = False
        return part

    def _take(self, found: Found, following: str) -> bool:
        """What was found; False for what no call has."""
        if found is Found.MORE:
            return self._may_go_on()
        if found is Found.KEY:
            self._reading = _text_of(self._end_part())
            return not self._known_keys or self._begun or self._reading in _KNOWN_KEYS
        if found is Found.VALUE:
            return self._begin_value(following)
        if found is Found.ENDED:
            return self._end_value()
        return self._end_object()

    def _wanted(self) -> Collection[str] | None:
        """What the key or name that comes may be; None where it may be any, and where its beginning says nothing."""
        if self._begun or self._escaped:
            return None
        if not self._in_value:
            return _KNOWN_KEYS if self._known_keys else None
        return self._answer.names if self._reading == "name" else None

    def _may_go_on(self) -> bool:
        """Whether a key or a name of which a part is there can still become one that is wanted."""
        wanted = self._wanted()
        if wanted is None or not self._part:
            return True
        self._part = ["".join(self._part)]
        return any(name.startswith(self._part[0][1:]) for name in wanted)

    def _begin_value(self, first: str) -> bool:
        self._end_part()
        self._in_value = True
        if self._reading == "name":
            return first == '"' and self._name is None
        if self._reading in _ARGUMENTS:
            if self._begun or self._arguments is not None or first not in ("{", '"', "n"):
                return False
            if first == "{" and self._name is not None:
                self._begin(self._name)
        return True

    def _end_value(self) -> bool:
        self._in_value = False
        part = self._end_part()
        if self._reading == "name":
            self._name = _text_of(part)
            if self._name not in self._answer.names:
                return False
        elif self._reading in _ARGUMENTS and not self._begun:
            inner = part if part[0] == "{" else "" if part == "null" else _text_of(part).strip(SPACE)
            self._arguments = read_object(inner or "{}")
            if self._arguments is None:
                return False
        if self._name is not None and self._arguments is not None and not self._begun:
            self._begin(self._name)
            self._answer.arguments(self._arguments)
        return True

    def _end_object(self) -> bool:
        if self._begun:
            return True
        if self._name is None or self._known_keys:
            return False
        self._begin(self._name)
        self._answer.arguments("{}")
        return True

    def _begin(self, name: str) -> None:
        self._answer.call(name)
        self._begun = True
        self._raw.clear()


def _text_of(quoted: str) -> str:
    """The text of a JSON string."""
    text: str = json.loads(quoted)
    return text
