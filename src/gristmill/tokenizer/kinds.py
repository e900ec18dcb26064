"""Numbers that the native codec understands: kinds of pieces, and how added tokens claim text around them."""

from __future__ import annotations

from typing import Final

TEXT: Final = 0  # text may become this id
LITERAL: Final = 1  # only decoding knows it: control, unused and added tokens
BYTE: Final = 2  # written <0xAB>: one byte

SPECIAL: Final = 1  # found only when the caller asks for special tokens
LEFT_STRIP: Final = 2  # swallows white space before it
RIGHT_STRIP: Final = 4  # and after it
SINGLE_WORD: Final = 8  # not inside a word
AFTER_SPACING: Final = 16  # found once spaces are put: SentencePiece's user-defined symbols, tokens that are normalized
