"""Text that remembers which of its characters a template's author wrote. Knows nothing of Jinja or of any budget.

What an operation here does not follow comes back as plain `str`: text is trusted only while its origin is certain."""

from __future__ import annotations

from collections.abc import Sequence


class Marked(str):
    """A string with a byte for each character: 1 where the template's author wrote it, 0 where anybody else did.

    It equals, hashes and compares as the plain string does. Methods of `str` return plain strings.
    """

    __slots__ = ("mask",)
    mask: bytes

    def __new__(cls, text: str, mask: bytes) -> Marked:
        assert len(text) == len(mask)
        self = str.__new__(cls, text)
        self.mask = mask
        return self

    def __str__(self) -> str:
        return self

    @property
    def fully(self) -> bool:
        """Whether all of it is the author's."""
        return 0 not in self.mask


def mark(text: str) -> Marked:
    """`text` as all the author's own."""
    return Marked(str.__str__(text), b"\1" * len(text))


def mask_of(text: str) -> bytes:
    return text.mask if isinstance(text, Marked) else bytes(len(text))


def plain(text: str) -> str:
    return str.__getitem__(text, slice(None)) if isinstance(text, Marked) else text


def derive(result: str, *origins: object) -> str:
    """`result` of any operation on `origins`: the author's where every string among them is wholly the author's."""
    texts = [origin for origin in origins if isinstance(origin, str)]
    if texts and all(isinstance(text, Marked) and text.fully for text in texts):
        return mark(result)
    return plain(result)


def join(pieces: Sequence[str], separator: str = "") -> str:
    text = str.join(separator, pieces)
    if not isinstance(separator, Marked) and not any(isinstance(piece, Marked) for piece in pieces):
        return text
    return Marked(text, mask_of(separator).join([mask_of(piece) for piece in pieces]))


def cut(text: str, where: slice) -> str:
    part = str.__getitem__(text, where)
    return Marked(part, text.mask[where]) if isinstance(text, Marked) else part


def strip(text: str, chars: str | None, *, left: bool = True, right: bool = True) -> str:
    start = len(text) - len(str.lstrip(text, chars)) if left else 0
    end = max(start, len(str.rstrip(text, chars))) if right else len(text)
    return cut(text, slice(start, end))


def split(text: str, separator: str | None, limit: int, *, from_right: bool = False) -> list[str]:
    parts = (str.rsplit if from_right else str.split)(text, separator, limit)
    if not isinstance(text, Marked):
        return parts
    found: list[str] = []
    at = 0
    for part in parts:
        at = str.index(text, part, at)
        found.append(cut(text, slice(at, at + len(part))))
        at += len(part) + len(separator or "")
    return found


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    if not isinstance(text, Marked) and not isinstance(new, Marked):
        return str.replace(text, old, new, count)
    if not old:
        return derive(str.replace(text, old, new, count), text, new)
    return join(split(text, old, count), new)
