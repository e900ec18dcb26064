"""What a terminal may be given of texts from elsewhere. Standard library only."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with what could steer a terminal, or turn text around, escaped; line ends and tabs stay."""
    return _UNSAFE.sub(lambda match: repr(match.group())[1:-1], text)
