"""The speed of an answer, for people. It knows no command."""

from __future__ import annotations

from typing import Final

_LEAST: Final = 2


def tokens_per_s(n_tokens: float, seconds: float) -> float | None:
    """Of the tokens after an answer's first one; None of so few that it would mean nothing."""
    return n_tokens / seconds if n_tokens >= _LEAST and seconds > 0 else None
