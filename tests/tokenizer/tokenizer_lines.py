"""Lines of text as nasty as text gets: scripts mixed within words, marks, emoji, control characters, runs of spaces."""

from __future__ import annotations

import random
from collections.abc import Callable

_LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
_CONTRACTIONS = ["'" + end for end in ["s", "S", "re", "RE", "ll", "Ll", "D", "ſ", "t", "VE", "l", "r", "é", "'"]] + [
    "'",
    "’s",
    "'s'",
]
_SPACES = [
    *" \t\n\r\u00a0\u3000\u2028\x85\u200b\x0b\x1c\u1680\u202f",
    *("  ", "   ", "\r\n", "\n\n", " \n", "\n ", "\t\t", "\n\t", "\u00a0 "),
]
_WORDS = [
    *("Hello", "WORLD", "camelCase", "HTTPServer", "don't", "I'M", "ǅungla", "ªº", "Ⅷ", "½", "٣", "१२३", "１２３"),
    *("Straße", "ﬁ", "x²", "naïve", "你好", "https://a.b/c"),
]
_RUNS = [0x61, 0x41, 0x20, 0x30, 0x2E, 0x0A, 0x4E00, 0x1F600, 0x301, 0x2581]


def _chars(random_: random.Random, low: int, high: int, most: int) -> str:
    code_points = [random_.randrange(low, high) for _ in range(random_.randint(1, most))]
    return "".join(chr(c) for c in code_points if not 0xD800 <= c < 0xE000)


_PARTS: list[Callable[[random.Random], str]] = [
    *[lambda r: "".join(r.choices(_LETTERS, k=r.randint(1, 9)))] * 4,
    lambda r: " ",
    lambda r: r.choice(_CONTRACTIONS),
    lambda r: r.choice(_SPACES) * r.randint(1, 3),
    lambda r: str(r.randrange(10 ** r.randint(1, 12))),
    lambda r: _chars(r, 0x21, 0x7F, 5),
    lambda r: _chars(r, 0x4E00, 0x9FFF, 6),
    lambda r: _chars(r, 0xC0, 0x250, 4),
    lambda r: _chars(r, 0x300, 0x370, 3),
    lambda r: _chars(r, 0x370, 0x600, 5),
    lambda r: _chars(r, 0x600, 0xE00, 5),
    lambda r: _chars(r, 0x1F300, 0x1FAFF, 3) + r.choice(["", "\u200d", "\ufe0f", "\U0001f3fb"]),
    lambda r: _chars(r, 0, 0x110000, 3),
    lambda r: _chars(r, 0, 0xA0, 3),
    lambda r: _chars(r, 0xAC00, 0xD7A4, 4),
    lambda r: _chars(r, 0x2000, 0x3100, 3),
    lambda r: _chars(r, 0x10000, 0x1F000, 3),
    lambda r: r.choice(_WORDS),
    lambda r: chr(r.choice(_RUNS)) * r.randint(1, 60),
]


def random_line(random_: random.Random) -> str:
    n_parts = random_.choice([1, 2, 3, 5, 8, 13, 21, 40, 80])
    return "".join(random_.choice(_PARTS)(random_) for _ in range(n_parts))


def random_lines(seed: int, count: int) -> list[str]:
    random_ = random.Random(seed)
    return [random_line(random_) for _ in range(count)]
