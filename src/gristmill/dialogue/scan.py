"""Walks through a JSON object as its text comes, strictly and in linear time. It knows nothing of calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from gristmill.dialogue.output import skip_space

_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_FIRST_HALF, _SECOND_HALF = 0xD800 >> 10, 0xDC00 >> 10
_REPLACEMENT: Final = "\\ufffd"
_LITERALS: Final = {"t": "rue", "f": "alse", "n": "ull"}
# A number's states: what may follow in each, by kind of character; d stands for 1 to 9.
_NUMBER: Final = {
    "-": {"0": "0", "d": "1"},
    "0": {".": ".", "e": "e"},
    "1": {"0": "1", "d": "1", ".": ".", "e": "e"},
    ".": {"0": "f", "d": "f"},
    "f": {"0": "f", "d": "f", "e": "e"},
    "e": {"0": "x", "d": "x", "+": "s", "-": "s"},
    "s": {"0": "x", "d": "x"},
    "x": {"0": "x", "d": "x"},
}
_WHOLE: Final = frozenset("01fx")
_DIGITS: Final = frozenset("123456789")


class Found(Enum):
    """What `scan` stopped at: MORE the end of the text; KEY after a key of the outermost object; VALUE before a value
    there; ENDED after it; END after the object; BAD before a character that cannot stand there."""

    MORE = auto()
    KEY = auto()
    VALUE = auto()
    ENDED = auto()
    END = auto()
    BAD = auto()


_Step = tuple[Found | None, int]


class ObjectScanner:
    """The state of one walk, which begins at the object's `{`.

    Control characters inside strings, which JSON does not allow but models write, are taken as if they were escaped. An
    escaped half of a surrogate pair without the other, which no text has, becomes U+FFFD. An escape is told once it is
    complete, a half once it is known what follows.
    """

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._step: Callable[[str, int], _Step] = self._open
        self._is_key = False
        self._told = False
        self._left = ""
        self._number = ""
        self._start = 0  # what of the text is not in _out yet
        self._escaped = ""  # of the escape that is being read
        self._half = ""  # an escape that is the first half of a pair
        self._out: list[str] = []

    def scan(self, text: str, at: int) -> tuple[Found, int]:
        """Go on from text[at] to the next thing found, and where that is. Not to be called after END or BAD."""
        self._start = at
        found: Found | None = None
        while found is None and at < len(text):
            found, at = self._step(text, at)
        if found is Found.BAD:
            self._out += (self._half, self._escaped)
        self._out.append(text[self._start : at])
        return found or Found.MORE, at

    def take(self) -> str:
        """The text that was walked through since the last `take`."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def _open(self, text: str, at: int) -> _Step:
        if text[at] != "{":
            return Found.BAD, at
        self._stack.append("}")
        self._step = self._first_key
        return None, at + 1

    def _first_key(self, text: str, at: int) -> _Step:
        return self._begin(text, at, self._key_or_end)

    def _key_or_end(self, text: str, at: int) -> _Step:
        return self._close(at + 1) if text[at] == "}" else self._key(text, at)

    def _next_key(self, text: str, at: int) -> _Step:
        return self._begin(text, at, self._key)

    def _key(self, text: str, at: int) -> _Step:
        if text[at] != '"':
            return Found.BAD, at
        self._is_key = True
        self._step = self._string
        return None, at + 1

    def _colon(self, text: str, at: int) -> _Step:
        return self._begin(text, at, self._after_key)

    def _after_key(self, text: str, at: int) -> _Step:
        if text[at] != ":":
            return Found.BAD, at
        self._step = self._next_value
        return None, at + 1

    def _first_item(self, text: str, at: int) -> _Step:
        return self._begin(text, at, self._item_or_end)

    def _item_or_end(self, text: str, at: int) -> _Step:
        return self._close(at + 1) if text[at] == "]" else self._value(text, at)

    def _next_value(self, text: str, at: int) -> _Step:
        return self._begin(text, at, self._value)

    def _begin(self, text: str, at: int, then: Callable[[str, int], _Step]) -> _Step:
        """Skip white space, then do `then` at the first character that is none."""
        at = skip_space(text, at)
        return then(text, at) if at < len(text) else (None, at)

    def _value(self, text: str, at: int) -> _Step:
        if len(self._stack) == 1 and not self._told:
            self._told = True
            return Found.VALUE, at
        self._told = False
        char = text[at]
        if char == '"':
            self._is_key = False
            self._step = self._string
        elif char == "{":
            self._stack.append("}")
            self._step = self._first_key
        elif char == "[":
            self._stack.append("]")
            self._step = self._first_item
        elif char in _LITERALS:
            self._left = _LITERALS[char]
            self._step = self._literal
        elif char == "-" or char in _DIGITS or char == "0":
            self._number = "1" if char in _DIGITS else char
            self._step = self._digits
        else:
            return Found.BAD, at
        return None, at + 1

    def _string(self, text: str, at: int) -> _Step:
        if self._half and text[at] != "\\":
            self._end_half()
        plain = _PLAIN.match(text, at)
        assert plain is not None
        at = plain.end()
        if at == len(text):
            return None, at
        if text[at] < " ":
            self._out += (text[self._start : at], _SHORT.get(text[at]) or f"\\u{ord(text[at]):04x}")
            self._start = at + 1
            return None, at + 1
        if text[at] == "\\":
            self._out.append(text[self._start : at])
            self._escaped, self._start = "\\", at + 1
            self._step = self._escape
            return None, at + 1
        if not self._is_key:
            return self._end_value(at + 1)
        self._step = self._colon
        return Found.KEY if len(self._stack) == 1 else None, at + 1

    def _escape(self, text: str, at: int) -> _Step:
        if text[at] == "u":
            self._step = self._hex
        elif text[at] in '"\\/bfnrt':
            self._end_half()
            self._out.append(f"\\{text[at]}")
        else:
            return Found.BAD, at
        self._escaped = self._escaped + "u" if text[at] == "u" else ""
        self._start = at + 1
        if not self._escaped:
            self._step = self._string
        return None, at + 1

    def _hex(self, text: str, at: int) -> _Step:
        if text[at] not in "0123456789abcdefABCDEF":
            return Found.BAD, at
        self._escaped += text[at]
        self._start = at + 1
        if len(self._escaped) == len("\\u0000"):
            self._end_hex()
            self._step = self._string
        return None, at + 1

    def _end_hex(self) -> None:
        escaped, self._escaped = self._escaped, ""
        kind = int(escaped[2:], 16) >> 10
        if self._half and kind == _SECOND_HALF:
            self._out += (self._half, escaped)
            self._half = ""
            return
        self._end_half()
        if kind == _FIRST_HALF:
            self._half = escaped
        else:
            self._out.append(_REPLACEMENT if kind == _SECOND_HALF else escaped)

    def _end_half(self) -> None:
        if self._half:
            self._out.append(_REPLACEMENT)
            self._half = ""

    def _literal(self, text: str, at: int) -> _Step:
        if text[at] != self._left[0]:
            return Found.BAD, at
        self._left = self._left[1:]
        return (None, at + 1) if self._left else self._end_value(at + 1)

    def _digits(self, text: str, at: int) -> _Step:
        char = text[at]
        kind = "d" if char in _DIGITS else "e" if char == "E" else char
        following = _NUMBER[self._number].get(kind)
        if following is not None:
            self._number = following
            return None, at + 1
        return self._end_value(at) if self._number in _WHOLE else (Found.BAD, at)

    def _end_value(self, at: int) -> _Step:
        self._step = self._after_value
        return Found.ENDED if len(self._stack) == 1 else None, at

    def _after_value(self, text: str, at: int) -> _Step:
        return self._begin(text, at, self._comma_or_end)

    def _comma_or_end(self, text: str, at: int) -> _Step:
        if text[at] == ",":
            self._step = self._next_key if self._stack[-1] == "}" else self._next_value
            return None, at + 1
        return self._close(at + 1) if text[at] == self._stack[-1] else (Found.BAD, at)

    def _close(self, at: int) -> _Step:
        self._stack.pop()
        if not self._stack:
            return Found.END, at
        return self._end_value(at)


def read_object(text: str) -> str | None:
    """`text` with control characters escaped, if it is one JSON object and nothing else."""
    scanner = ObjectScanner()
    found, at = Found.MORE, 0
    while at < len(text):
        found, at = scanner.scan(text, at)
        if found in (Found.END, Found.BAD):
            break
    return scanner.take() if found is Found.END and at == len(text) else None
