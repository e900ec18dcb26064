"""What a compiler will meet in a schema or a grammar: parts, each with what holds in its place and within. It knows no
vocabulary and no field."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

MAX_MOVES: Final = 1 << 16
"""Of one step in automata that hold at once, their own multiplied: the compiler writes them down before it counts."""
MAX_PROPERTIES: Final = 4000
"""Of one object: the compiler looks at each pair of them."""
MAX_PROPERTIES_BESIDE: Final = {"minProperties": 64, "maxProperties": 256}
"""Of an object whose properties are counted: the compiler writes all that others need down once for each."""

ANNOTATIONS: Final = frozenset(["title", "description", "default", "examples", "deprecated", "$comment"])

_CLASS = re.compile(r"\\[^a-zA-Z]|(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\.)", re.DOTALL)
_INDEX = re.compile("[0-9]{1,9}")
_LENGTH_MOVES = 2
_FORMAT_MOVES = 8


class TooWideError(ValueError):
    """More than the compiler can bear."""


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

    def children(self) -> Iterator[Part]:
        return chain(self.together, *self.groups, *self.named.values(), self.others, self.matched)


def children_first(parts: Iterable[Part]) -> list[Part]:
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
        multiply(patterns[-2:])
        own = [1 + len(patterns), len(as_list(node.get("enum"))) or 1]
        own.append(_moves(pattern) if isinstance(pattern := node.get("pattern"), str) else 1)
        own.append(_FORMAT_MOVES if "format" in node else 1)
        own.append(_LENGTH_MOVES if "minLength" in node or "maxLength" in node else 1)
        return multiply([min(n, MAX_MOVES) for n in own])

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


def multiply(moves: Sequence[int]) -> int:
    """Moves of automata that hold at once. TooWideError for more than MAX_MOVES."""
    product = 1
    for n in moves:
        product *= n
        if product > MAX_MOVES:
            raise TooWideError(
                "has patterns, formats, lengths or enums of strings that must hold at once (in allOf, $ref, "
                "patternProperties, & of tokens) and are too many or too wide together: leave some out",
            )
    return product


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
