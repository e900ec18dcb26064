"""How varied and how predictable a pile of stories is."""

from __future__ import annotations

import gzip
import lzma
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_QUOTED = re.compile(r'"[^"]*"')
_SELF = re.compile(r"\bI (?:was|had|am|went|love|saw|could)\b")
_SENTENCE = re.compile(r'(?<!Mr\.)(?<!Mrs\.)(?<=[.!?])"? +|\n+')


def distinct_ngrams(words: Sequence[str], n: int, limit: int = 1_000_000) -> float:
    """Different n-grams per million words, over the first `limit` words."""
    part = words[:limit]
    return len(set(zip(*(part[i:] for i in range(n)), strict=False))) / max(len(part), 1) * 1e6


def describe(text: str, size: int = 280_000) -> list[str]:
    """Lines about one text; sizes are compared over the first `size` characters."""
    words = _WORD.findall(text.lower())
    head = text[:size].encode()
    lines = [
        f"{len(text) / 1e6:.2f} MB, {len(words)} words, {len(set(words))} different",
        f"in {len(head)} bytes: gzip {len(head) / len(gzip.compress(head, 9)):.2f} to 1, "
        f"lzma {len(head) / len(lzma.compress(head, preset=9)):.2f} to 1",
    ]
    part = _WORD.findall(text[:size].lower())
    for n in (4, 8):
        lines.append(
            f"different {n}-grams: {distinct_ngrams(part, n) / 1e4:.1f} % of the first {size // 1000} KB, "
            f"{distinct_ngrams(words, n):.0f} in a million words"
        )
    sentences = Counter(s for s in _SENTENCE.split(text[:10_000_000]) if s)
    total = sum(sentences.values())
    shares = ", ".join(f"{sum(c for c in sentences.values() if c > k) / total:.1%} > {k}" for k in (1, 10, 100, 1000))
    lines.append(f"sentences told more than k times in {min(len(text), 10_000_000) / 1e6:.1f} MB: {shares}")
    return lines


def report(stories: Sequence[str], beside: Path | None) -> str:
    """All measures of the stories, and those of another text after them."""
    lengths = sorted(s.count(" ") + s.count("\n\n") + 1 for s in stories)
    selves = sum(bool(_SELF.search(_QUOTED.sub("", s))) for s in stories)
    lines = [
        f"{len(stories)} stories, {len(stories) - len(set(stories))} told twice; words in one: "
        f"{sum(lengths) / len(lengths):.0f}, from {lengths[0]} to {lengths[-1]}",
        f"first three words: {len({tuple(s.split()[:3]) for s in stories})} kinds; "
        f"told by the hero: {selves / len(stories):.1%}",
        *describe("\n".join(stories)),
    ]
    if beside is not None:
        lines += [f"--- {beside.name}", *describe(beside.read_text(encoding="utf-8"))]
    return "\n".join(lines)
