"""Pre-tokenizer patterns: the published ones, which run natively, and any other through the `regex` package."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from gristmill._tokenizer import Splitter

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CL100K = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_HEAD = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_TAIL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


@dataclass(frozen=True, slots=True)
class _KnownPatterns:
    """Patterns as they stand in published files."""

    gpt2: str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    qwen2: str = _CL100K % ""
    llama3: str = _CL100K % "{1,3}"
    o200k: str = (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_HEAD}*{_TAIL}+{_CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{_HEAD}+{_TAIL}*{_CONTRACTION}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tekken: str = (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_HEAD}*{_TAIL}+|[^\r\n\p{{L}}\p{{N}}]?{_HEAD}+{_TAIL}*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    digit: str = r"\p{N}"

    def find(self, pattern: str) -> Splitter | None:
        """The native state machine of a pattern, by its exact text."""
        return self._by_text().get(pattern)

    def text(self, splitter: Splitter) -> str | None:
        """The pattern of a native state machine."""
        return next((text for text, known in self._by_text().items() if known is splitter), None)

    def _by_text(self) -> dict[str, Splitter]:
        return {
            self.gpt2: Splitter.GPT2,
            self.qwen2: Splitter.QWEN2,
            self.llama3: Splitter.LLAMA3,
            self.o200k: Splitter.O200K,
        }


KNOWN_PATTERNS = _KnownPatterns()

LIMIT_S: Final = 20.0  # for all of a text: patterns that backtrack without end are an error, not a hang
Split = Callable[[str, float], list[str]]
"""(text, deadline as time.monotonic() tells it) -> words. Raises ValueError once the deadline has passed."""


def make_splitter(patterns: list[str]) -> Split:
    """Each pattern in turn cuts what the ones before left, into its matches and what lies between.

    Raises ValueError for a pattern that is no regular expression.
    """
    import regex  # type: ignore[import-untyped]  # here, since few models need it and every start would pay for it

    try:
        # Version 1 has nested sets and full case-folding, as the engine that these patterns were written for.
        compiled = [regex.compile(pattern, regex.V1) for pattern in patterns]
    except regex.error as error:
        raise ValueError(str(error)) from None

    def split(text: str, deadline: float) -> list[str]:
        words = [text]
        try:
            for pattern in compiled:
                words = [part for word in words for part in _cut(pattern, word, deadline)]
        except TimeoutError:
            raise ValueError(f"the model's pre-tokenizer patterns took more than {LIMIT_S:.0f} s") from None
        return words

    return split


def _cut(pattern: Any, text: str, deadline: float) -> Iterator[str]:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    start = 0
    for match in pattern.finditer(text, timeout=left_s):
        if match.start() > start:
            yield text[start : match.start()]
        if match.end() > match.start():
            yield match.group()
        start = match.end()
    if start < len(text):
        yield text[start:]
