"""How many moves of automata must hold at once in a schema or a grammar: counted before the compiler, which writes them
down before it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from gristmill.engine.guide_parts import (
    MAX_MOVES,
    MAX_PROPERTIES,
    Part,
    TooWideError,
    check_n_properties,
    multiply,
)

MAX_JOINED: Final = 1 << 18
"""Moves and properties of all that holds at once, in all places together."""

_MAX_ROUNDS = 16  # until what comes of references that lead back is known; a few do, but where it grows without end


@dataclass(frozen=True, slots=True)
class _Moves:
    """Of a part, with all that holds in its place.

    here    moves in its place; places: in those with names; elsewhere: in others; within: the most of both
    most    properties that may be in its place
    joined  moves and properties that are not those of one of its parts
    """

    most: int = MAX_PROPERTIES
    here: int = 1
    places: Mapping[str, int] = field(default_factory=dict)
    elsewhere: int = 1
    within: int = 1
    joined: int = field(default=0, compare=False)


_Found = Mapping[Part, _Moves]


def check_moves(order: Sequence[Part]) -> None:
    """Refuse parts, children first, that hold at once where that would make more than the compiler can bear."""
    found = {part: _Moves(part.most) for part in order}
    for _ in range(_MAX_ROUNDS):
        changed, n_joined = False, 0
        for part in order:
            moves = _settle(part, found)
            changed |= moves != found[part]
            found[part] = moves
            n_joined += moves.joined
            _check_n_joined(n_joined)
        if not changed:
            return
    raise TooWideError("has a schema that is, by its references, one of its own anyOf or allOf: simplify it")


def _settle(part: Part, found: _Found) -> _Moves:
    """The moves of a part by those of its own parts."""
    one_of = [min(sum(found[option].here for option in group), MAX_MOVES) or 1 for group in part.groups]
    moves = [part.own, *(found[other].here for other in part.together), *one_of]
    here = multiply(moves)
    places, elsewhere, joined = _join_places(part, found)
    most = min([part.most, *(found[other].most for other in chain(part.together, *part.groups))])
    n_grouped = sum(max((len(found[option].places) for option in group), default=0) for group in part.groups)
    check_n_properties(len(places) + n_grouped, most)
    joined += here if here > max(moves) else 0
    return _Moves(most, here, places, elsewhere, max([elsewhere, *places.values()]), joined)


def _join_places(part: Part, found: _Found) -> tuple[Mapping[str, int], int, int]:
    """Moves in the places with names, in others, and how many were joined for them."""

    def most(parts: Iterable[Part]) -> int:  # in the places of parts, and within, of which one place has the most
        return max((max(found[other].here, found[other].within) for other in parts), default=1)

    matched = most(part.matched)
    own = {name: multiply([most(parts), matched]) for name, parts in part.named.items()}
    met: list[tuple[Mapping[str, int], int]] = [(own, max(matched, most(part.others)))]
    met += [(found[other].places, found[other].elsewhere) for other in part.together]
    met += [({}, max((found[option].within for option in group), default=1)) for group in part.groups]
    met = [(places, rest) for places, rest in met if places or rest > 1]
    elsewhere = multiply([rest for _, rest in met])
    if len(met) == 1:
        return met[0][0], elsewhere, 0
    n_joined = sum(len(places) for places, _ in met)
    _check_n_joined(n_joined)
    joined: dict[str, int] = {}
    for places, rest in met:
        for name, moves in places.items():
            joined[name] = min(joined.get(name, elsewhere) // rest * moves, MAX_MOVES**3)
    multiply([max(joined.values(), default=1)])
    return joined, elsewhere, n_joined + sum(joined.values())


def _check_n_joined(n: int) -> None:
    if n > MAX_JOINED:
        raise TooWideError("has too much that must hold at once (in allOf, $ref, lengths beside patterns): simplify it")
