"""Normalization form C against the `tokenizers` library, for every character that normalization knows."""

from __future__ import annotations

import random
import unicodedata

import pytest
from tokenizer_lines import random_lines
from tokenizer_oracles import THOROUGH

from gristmill.tokenizer.normalize import nfc

tokenizers = pytest.importorskip("tokenizers")
THEIRS = tokenizers.normalizers.NFC()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def test_every_character_between_marks() -> None:
    for c in CODE_POINTS[:: 1 if THOROUGH else 3]:
        text = f"q{chr(c)}\u0301\u0334{chr(c)}\u0316e"
        assert nfc(text) == THEIRS.normalize_str(text), hex(c)


def test_every_mark_and_every_decomposition() -> None:
    for c in CODE_POINTS:
        decomposed = unicodedata.normalize("NFD", chr(c))
        if unicodedata.combining(chr(c)) or decomposed != chr(c):
            for text in (decomposed, f"{chr(c)}\u0301", f"a\u0316{chr(c)}\u05b0", f"{decomposed}\u0323\u0307"):
                assert nfc(text) == THEIRS.normalize_str(text), hex(c)


def test_random_text() -> None:
    random_ = random.Random(81)
    for line in random_lines(82, 3000):
        text = unicodedata.normalize(random_.choice(["NFD", "NFC"]), line)
        assert nfc(text) == THEIRS.normalize_str(text)
