"""Answers of models without a format that we know: all of it is content."""

from __future__ import annotations

from collections.abc import Set

from gristmill.dialogue.types import ContentDelta, Delta


class PlainParser:
    """See `Parser`."""

    @property
    def marks(self) -> Set[str]:
        return frozenset()

    def push(self, token_id: int, text: str) -> list[Delta]:
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[Delta]:
        return []
