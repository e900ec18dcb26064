"""How often the compiler will write a schema down: once for each property and option that it meets. Counted before,
since it cannot be stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Final, NamedTuple

from gristmill.engine.guide_parts import Part, TooWideError

MAX_COPIES: Final = 1 << 14
"""Schemas beyond those that are given, which the compiler writes where one meets each of several properties or options:
it takes some 0.2 ms for each."""

_MOST: Final = 1 << 40  # of a size: what is more need not be told apart


class _Size(NamedTuple):
    """Of a part, in schemas.

    size   those that the compiler writes for it, a reference for one; whole: the same of what a reference leads to
    rest   of these, those of places without names, which are written for each name that another part has
    given  those that stand in it
    names  of the places within
    """

    size: int = 1
    whole: int = 1
    rest: int = 0
    given: int = 1
    names: Set[str] = frozenset()


_Found = Mapping[Part, _Size]


def check_copies(order: Sequence[Part]) -> None:
    """Refuse parts, children first, of which the compiler would write too many copies."""
    found = dict.fromkeys(order, _Size())
    for part in order:
        size = found[part] = _measure(part, found)
        if size.size - size.given > MAX_COPIES:
            raise TooWideError(
                "has schemas that meet each of several properties or options (in allOf, anyOf, patternProperties, "
                "required), again and again within: simplify it"
            )


def _measure(part: Part, found: _Found) -> _Size:
    if part.alone in ("$ref", "allOf"):
        (only,) = part.together
        size = 1 if part.alone == "$ref" else found[only].size
        return found[only]._replace(size=size, given=size)

    def sizes(parts: Iterable[Part]) -> int:
        return sum(found[other].size for other in parts)

    def beside(other: Part) -> int:  # with what it says of places without names, for the names that it lacks
        return found[other].whole + found[other].rest * len(names - found[other].names)

    first, rest = part.items
    named = {**part.named, **{f"[{i}]": parts for i, parts in enumerate(first)}}
    others, matched = sizes([*part.others, *rest]), sizes(part.matched)
    options = [*chain(*part.groups)]
    met = [found[other] for other in (*part.together, *options)]
    names = named.keys() | frozenset[str]().union(*(other.names for other in met))
    size = 1 + sum(map(sizes, named.values())) + others * (1 + len(names - named.keys()))
    size += matched * (1 + len(names)) + sum(map(beside, part.together))
    n_choices = math.prod(len(group) or 1 for group in part.groups)
    size *= n_choices
    size += sum(beside(option) * n_choices // len(group) for group in part.groups for option in group)
    whole = min(size, _MOST)
    given = {*part.children(), *chain(*first), *rest} - {part.referred}
    return _Size(
        size=1 + sizes(options) if part.alone else whole,
        whole=whole,
        rest=min(others + matched + sum(other.rest for other in met), _MOST),
        given=min(1 + sum(found[other].given for other in given if other is not None), _MOST),
        names=names,
    )
