"""How much a compiler would have to write down for what must hold at once: counted before it is asked, since it counts
after. It knows no vocabulary and no field."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

MAX_MOVES: Final = 1 << 16
"""Of one step in automata that hold at once, their own multiplied: the compiler writes them down before it counts."""
MAX_PROPERTIES: Final = 4000
"""Of one object: the compiler looks at each pair of them."""
MAX_PROPERTIES_BESIDE: Final = {"minProperties": 64, "maxProperties": 256}
"""Of an object whose properties are counted: the compiler writes all that others need down once for each."""
MAX_JOINED: Final = 1 << 18
"""Moves and properties of all that holds at once, in all places together."""
MAX_COPIES: Final = 1 << 14
"""Schemas beyond those that are given, which the compiler writes where one meets each of several properties or options:
it takes some 0.2 ms for each, and cannot be stopped."""

ANNOTATIONS: Final = frozenset(["title", "description", "default", "examples", "deprecated", "$comment"])

_CLASS = re.compile(r"\\[^a-zA-Z]|(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\.)", re.DOTALL)
_INDEX = re.compile("[0-9]{1,9}")
_LENGTH_MOVES = 2
_FORMAT_MOVES = 8
_MOST: Final = 1 << 40  # of a size: what is more need not be told apart
_MAX_ROUNDS = 16  # until what comes of references that lead back is known; a few do, but where it grows without end


class TooWideError(ValueError):
    """What must hold at once is more than the compiler can bear."""


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def check_n_properties(n: int, most: int) -> None:
    if n > most:
        others = " and ".join(f"{limit} beside {name}" for name, limit in MAX_PROPERTIES_BESIDE.items())
        raise TooWideError(
            f"has an object of {n} properties; at most {MAX_PROPERTIES} are allowed, {others}: name fewer"
        )


class Part:
    """What a schema, or a token of a grammar, asks of its place and of the places within.

    own       moves of its own automata
    most      properties that may be in its place
    together  parts that hold in its place too, all at once; groups: of each of them one part does
    named     parts of the places within that have names; others: of those that have none; matched: of any, beside them
    items     parts of the first elements of a list, of each, and of the rest
    referred  the one of `together` that stands elsewhere
    alone     the keyword that says all there is: $ref, allOf of one part, anyOf, oneOf
    here      moves in its place; places: in those with names; elsewhere: in others; within: the most of both
    size      schemas that the compiler writes for it, a reference for one; whole: the same of what a reference leads to
    rest      of these, those of places without names, which are written for each name that another part has
    n_given   schemas that stand in it
    """

    def __init__(self, own: int = 1, others: Iterable[Part] = ()) -> None:
        self.own = min(own, MAX_MOVES)
        self.most = MAX_PROPERTIES
        self.together: list[Part] = []
        self.groups: list[list[Part]] = []
        self.named: dict[str, list[Part]] = {}
        self.others = [*others]
        self.matched: list[Part] = []
        self.items: tuple[list[list[Part]], list[Part]] = ([], [])
        self.referred: Part | None = None
        self.alone = ""
        self.size = self.whole = self.n_given = 1
        self.rest = 0
        self.names: Set[str] = frozenset()
        self.here = self.elsewhere = self.within = 1
        self.places: Mapping[str, int] = {}
        self.n_joined = 0  # moves and properties that are not those of one of its parts

    def children(self) -> Iterator[Part]:
        return chain(self.together, *self.groups, *self.named.values(), self.others, self.matched)

    def settle(self) -> bool:
        """Find the moves from those of its parts. Whether that changed any."""
        before = self.here, self.places, self.elsewhere, self.most
        one_of = [min(sum(part.here for part in group), MAX_MOVES) or 1 for group in self.groups]
        moves = [self.own, *(part.here for part in self.together), *one_of]
        self.here = _multiply(moves)
        self.n_joined = self.here if self.here > max(moves) else 0
        self._join_places()
        self.within = max([self.elsewhere, *self.places.values()])
        self.most = min([self.most, *(part.most for part in chain(self.together, *self.groups))])
        n_grouped = sum(max((len(part.places) for part in group), default=0) for group in self.groups)
        check_n_properties(len(self.places) + n_grouped, self.most)
        return before != (self.here, self.places, self.elsewhere, self.most)

    def measure(self) -> None:
        """Find its sizes from those of its parts. TooWideError where there are too many copies."""
        if self.alone in ("$ref", "allOf"):
            (part,) = self.together
            self.names, self.rest, self.whole = part.names, part.rest, part.whole
            self.size = 1 if self.alone == "$ref" else part.size
            self.n_given = self.size
            return
        first, rest = self.items
        named = {**self.named, **{f"[{i}]": parts for i, parts in enumerate(first)}}
        others, matched = _sizes([*self.others, *rest]), _sizes(self.matched)
        options = [*chain(*self.groups)]
        self.names = named.keys() | frozenset[str]().union(*(part.names for part in [*self.together, *options]))
        n_choices = math.prod(len(group) or 1 for group in self.groups)
        size = 1 + sum(map(_sizes, named.values())) + others * (1 + len(self.names - named.keys()))
        size += matched * (1 + len(self.names)) + sum(self._beside(part) for part in self.together)
        size = size * n_choices + sum(
            self._beside(part) * n_choices // len(group) for group in self.groups for part in group
        )
        self.whole = min(size, _MOST)
        self.size = 1 + _sizes(options) if self.alone else self.whole
        self.rest = min(others + matched + sum(part.rest for part in [*self.together, *options]), _MOST)
        given = {*self.children(), *chain(*first), *rest} - {self.referred}
        self.n_given = min(1 + sum(part.n_given for part in given if part is not None), _MOST)
        if self.size - self.n_given > MAX_COPIES:
            raise TooWideError(
                "has schemas that meet each of several properties or options (in allOf, anyOf, patternProperties, "
                "required), again and again within: simplify it"
            )

    def _beside(self, part: Part) -> int:
        return part.whole + part.rest * len(self.names - part.names)

    def _join_places(self) -> None:
        matched = _most(self.matched)
        own = {name: _multiply([_most(parts), matched]) for name, parts in self.named.items()}
        met: list[tuple[Mapping[str, int], int]] = [(own, max(matched, _most(self.others)))]
        met += [(part.places, part.elsewhere) for part in self.together]
        met += [({}, max((part.within for part in group), default=1)) for group in self.groups]
        met = [(places, rest) for places, rest in met if places or rest > 1]
        self.elsewhere = _multiply([rest for _, rest in met])
        if len(met) == 1:
            self.places = met[0][0]
            return
        self.n_joined += sum(len(places) for places, _ in met)
        _check_n_joined(self.n_joined)
        joined: dict[str, int] = {}
        for places, rest in met:
            for name, moves in places.items():
                joined[name] = min(joined.get(name, self.elsewhere) // rest * moves, MAX_MOVES**3)
        _multiply([max(joined.values(), default=1)])
        self.n_joined += sum(joined.values())
        self.places = joined


def _sizes(parts: Iterable[Part]) -> int:
    return sum(part.size for part in parts)


def _most(parts: Iterable[Part]) -> int:
    """The moves in the places of parts, and within, of which one place has the most."""
    return max((max(part.here, part.within) for part in parts), default=1)


def _multiply(moves: Sequence[int]) -> int:
    product = 1
    for n in moves:
        product *= n
        if product > MAX_MOVES:
            raise TooWideError(
                "has patterns, formats, lengths or enums of strings that must hold at once (in allOf, $ref, "
                "patternProperties, & of tokens) and are too many or too wide together: leave some out",
            )
    return product


def _check_n_joined(n: int) -> None:
    if n > MAX_JOINED:
        raise TooWideError("has too much that must hold at once (in allOf, $ref, lengths beside patterns): simplify it")


def check_moves(parts: Iterable[Part]) -> None:
    """Refuse parts that hold at once where that would make more than the compiler can bear."""
    order = _children_first(parts)
    for _ in range(_MAX_ROUNDS):
        changed, n_joined = False, 0
        for part in order:
            changed |= part.settle()
            n_joined += part.n_joined
            _check_n_joined(n_joined)
        if not changed:
            break
    else:
        raise TooWideError("has a schema that is, by its references, one of its own anyOf or allOf: simplify it")
    for part in order:
        part.measure()


def _children_first(parts: Iterable[Part]) -> list[Part]:
    """Each part once, after its children but for those that lead back to it."""
    order: list[Part] = []
    begun: set[Part] = set()
    pending = [(part, False) for part in parts]
    while pending:
        part, ended = pending.pop()
        if ended:
            order.append(part)
        elif part not in begun:
            begun.add(part)
            pending.append((part, True))
            pending += [(child, False) for child in part.children() if child not in begun]
    return order


class SchemaReader:
    """The parts of a schema: each object that keywords or references lead to, once."""

    def __init__(self, root: dict[str, Any], objects: Sequence[dict[str, Any]], *, renamed: bool) -> None:
        """objects: all in the document. renamed: references may mean others of them than pointers from the root do."""
        self._root = root
        self.schemas: list[dict[str, Any]] = []  # those that have parts
        self._objects = objects
        self._renamed = renamed
        self._parts: dict[int, Part] = {}
        self._pending: list[tuple[dict[str, Any], Part]] = []
        self._unknown = Part(MAX_MOVES, [Part(MAX_MOVES)])
        self._leads_anywhere = False

    def read(self) -> list[Part]:
        self._read([self._root])
        if self._leads_anywhere:
            self._read(self._objects)
            n = sum(len(part.named) for part in self._parts.values())  # one object has no more properties
            n = min(n, 1 + max(MAX_PROPERTIES_BESIDE.values()))
            self._unknown.named = {f"\0{i}": [] for i in range(n)}
        return [*self._parts.values()]

    def _read(self, nodes: Sequence[dict[str, Any]]) -> None:
        for node in nodes:
            self._part(node)
        while self._pending:
            self._fill(*self._pending.pop())

    def _part(self, node: dict[str, Any]) -> Part:
        if id(node) not in self._parts:
            self._parts[id(node)] = Part(self._own(node))
            self.schemas.append(node)
            self._pending.append((node, self._parts[id(node)]))
        return self._parts[id(node)]

    def _each(self, *values: object) -> list[Part]:
        return [self._part(value) for value in values if isinstance(value, dict)]

    def _fill(self, node: dict[str, Any], part: Part) -> None:
        part.most = min([MAX_PROPERTIES, *(n for name, n in MAX_PROPERTIES_BESIDE.items() if node.get(name))])
        part.together = self._each(*as_list(node.get("allOf")))
        if isinstance(reference := node.get("$ref"), str):
            part.referred = self._referred(reference)
            part.together.append(part.referred)
        said = node.keys() - ANNOTATIONS
        if said in ({"anyOf"}, {"oneOf"}) or (len(part.together) == 1 and said in ({"$ref"}, {"allOf"})):
            part.alone = said.pop()
        part.groups = [self._each(*as_list(node[key])) for key in ("anyOf", "oneOf") if key in node]
        part.others = self._each(node.get("additionalProperties"))
        part.matched = self._each(*as_dict(node.get("patternProperties")).values())
        part.named = {name: self._each(value) for name, value in as_dict(node.get("properties")).items()}
        for name in as_list(node.get("required")):
            part.named.setdefault(str(name), part.others)
        items = [*as_list(node.get("items")), *as_list(node.get("prefixItems"))]
        if elements := self._each(node.get("items"), node.get("additionalItems"), *items):
            part.named["[]"] = elements
            part.items = (
                [self._each(item) for item in items],
                self._each(node.get("items"), node.get("additionalItems")),
            )

    def _own(self, node: dict[str, Any]) -> int:
        """Moves of its own automata: of strings, or of those names that patterns tell from each other."""
        patterns = sorted(map(_moves, as_dict(node.get("patternProperties"))))
        _multiply(patterns[-2:])
        own = [1 + len(patterns), len(as_list(node.get("enum"))) or 1]
        own.append(_moves(pattern) if isinstance(pattern := node.get("pattern"), str) else 1)
        own.append(_FORMAT_MOVES if "format" in node else 1)
        own.append(_LENGTH_MOVES if "minLength" in node or "maxLength" in node else 1)
        return _multiply([min(n, MAX_MOVES) for n in own])

    def _referred(self, reference: str) -> Part:
        """What a pointer leads to; the unknown for another document's, and for names, which may be given anywhere."""
        if self._renamed or not reference.startswith("#") or unquote(reference[1:])[:1] not in ("", "/"):
            self._leads_anywhere = True
            return self._unknown
        node = find(self._root, reference)
        return self._part(node) if isinstance(node, dict) else Part()


def find(root: dict[str, Any], reference: str) -> object:
    """What a pointer leads to; None for nothing."""
    node: Any = root
    for key in unquote(reference).split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(key)] if _INDEX.fullmatch(key) and int(key) < len(node) else None
        else:
            node = as_dict(node).get(key)
    return node


def _moves(pattern: str) -> int:
    """About how many moves a step of its automaton may have: one for each class that another may overlap."""
    return 2 + len({*_CLASS.findall(pattern)} - {""}) + len(pattern) // 32


def token_parts(tokens: Iterable[tuple[str | None, str]]) -> list[Part]:
    """The parts of a grammar's tokens. All that stands between two & is taken for alternatives."""
    parts: defaultdict[str, Part] = defaultdict(Part)
    groups = parts[""].groups  # of the token that the line belongs to
    groups.append([])
    for line in _lines(tokens):
        texts = [text for _, text in line]
        if ":" in texts:
            head = next((text for kind, text in line if kind == "word"), "")
            groups = parts[head].groups
            groups.append([])
            line = line[texts.index(":") + 1 :]
        for kind, text in line:
            if text == "&":
                groups.append([])
            elif kind == "word" and text.isupper():
                groups[-1].append(parts[text])
            elif kind in ("regex", "string", "embedded") or text == ".":
                groups[-1].append(Part(_moves(text) if kind == "regex" else 1))
    return [*parts.values()]


def _lines(tokens: Iterable[tuple[str | None, str]]) -> Iterator[list[tuple[str | None, str]]]:
    line: list[tuple[str | None, str]] = []
    for kind, text in tokens:
        if text == "\n":
            yield line
            line = []
        else:
            line.append((kind, text))
    yield line
