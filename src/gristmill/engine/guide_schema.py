"""JSON schemas before they are compiled: refused by name where the compiler would pass over a keyword, understand it
differently, or not be done in bounded time and stack; and mended in place where the same can be said otherwise."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

from gristmill.engine.guide_copies import check_copies
from gristmill.engine.guide_moves import check_moves
from gristmill.engine.guide_parts import (
    ANNOTATIONS,
    MAX_PROPERTIES,
    SchemaReader,
    TooWideError,
    as_dict,
    as_list,
    check_n_properties,
    children_first,
    find,
)
from gristmill.engine.guide_patterns import UnwritableError, make_writable

MAX_SCHEMA_BYTES: Final = 256 << 10
MAX_SCHEMA_DEPTH: Final = 100
MAX_SCHEMA_PATH: Final = 20_000
"""References times depth: how deep a compiler may recurse that follows each reference once."""
MAX_PATTERN_PROPERTIES: Final = 64
"""They are compared with each other, each pair as two automata."""
MAX_MULTIPLE: Final = 10_000
"""Least common multiple of all multipleOf: an automaton has a state for each remainder."""

_EXACT_INT = 1 << 53
_FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"])
"""What the compiler knows of them; it refuses all others."""
_SCHEMAS = ("items", "additionalItems", "additionalProperties")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_DRAFT_4 = ("http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-04/schema#")
"""Where id renames objects, a name that anything may have elsewhere."""


class GuideError(ValueError):
    """A constraint that cannot be kept; the message begins with its field. `field` and `reason` give the two parts."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)  # by which it is pickled
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"structured_outputs.{self.field}: {self.reason}"


@contextmanager
def naming(field: str) -> Iterator[None]:
    try:
        yield
    except (TooWideError, UnwritableError) as error:
        raise GuideError(field, str(error)) from None


def check_size(field: str, text: str, limit: int) -> None:
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise GuideError(field, "has a lone surrogate: it is not Unicode text") from None
    if n_bytes > limit:
        raise GuideError(field, f"has {n_bytes} bytes; at most {limit} are allowed")


def parse_schema(field: str, text: object) -> dict[str, Any]:
    """A JSON schema whose every keyword will be kept, bounds tightened to numbers that are exact. Raises GuideError."""
    assert isinstance(text, str)
    check_size(field, text, MAX_SCHEMA_BYTES)
    try:
        schema = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "is nested too deep" if isinstance(error, RecursionError) else f"is not JSON: {error}"
        raise GuideError(field, reason) from None
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    check_schema(field, schema)
    assert isinstance(schema, dict)
    return schema


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def check_schema(field: str, schema: object) -> None:
    """Refuse what the compiler would get wrong or not survive; in place, tighten inexact bounds, drop what says
    nothing, and write patterns and listed propertyNames as the compiler understands them.

    Every object in the document is looked at, wherever it stands, since a reference may lead anywhere.
    """
    if not isinstance(schema, dict):
        raise GuideError(field, f"must be a JSON object, not {type(schema).__name__}")
    if "x-guidance" in schema:
        raise GuideError(field, "has x-guidance, which could switch keywords off; leave it out")
    nodes = _drop_idle(schema)
    objects: list[dict[str, Any]] = []
    references: set[str] = set()
    multiple = Fraction(1)
    n_patterns = 0
    deepest = 0
    renamed = False
    for node, depth in _walk(field, schema):
        objects.append(node)
        deepest = max(deepest, depth)
        renamed |= (depth > 1 and isinstance(node.get("$id"), str)) or node.get("$schema") in _DRAFT_4
        if isinstance(reference := node.get("$ref"), str):
            references.add(reference)
        if isinstance(patterns := node.get("patternProperties"), dict):
            n_patterns += len(patterns)
        multiple = _join_multiple(field, multiple, node.get("multipleOf"))
        _check_exact(field, node)
        _check_min_properties(field, node)
    if n_patterns > MAX_PATTERN_PROPERTIES:
        raise GuideError(field, f"has {n_patterns} patternProperties; at most {MAX_PATTERN_PROPERTIES} are allowed")
    if (len(references) + 1) * deepest > MAX_SCHEMA_PATH:
        raise GuideError(field, f"has {len(references)} references and is nested {deepest} deep: simplify it")
    if not renamed and not any("additionalProperties" in unquote(reference) for reference in references):
        _name_properties(field, nodes)
    reader = SchemaReader(schema, objects, renamed=renamed)
    with naming(field):
        order = children_first(reader.read())
        check_moves(order)
        check_copies(order)
        make_writable(reader.schemas)


def _drop_idle(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Keywords that refuse no value, wherever keywords hold schemas: the compiler has no uniqueItems, no propertyNames
    and few formats; those that it does not know are annotations, as is any beside a pattern.
    Gives the schemas that it has looked at, each before those within."""
    nodes: list[dict[str, Any]] = []
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        nodes.append(node)
        if node.get("uniqueItems") is False:
            del node["uniqueItems"]
        if _allows_any_name(node.get("propertyNames")):
            del node["propertyNames"]
        if isinstance(name := node.get("format"), str) and (name not in _FORMATS or "pattern" in node):
            del node["format"]
        pending += [node.get(key) for key in _SCHEMAS]
        pending += chain(*(as_list(node.get(key)) for key in _SCHEMA_LISTS))
        pending += chain(*(as_dict(node.get(key)).values() for key in _SCHEMA_MAPS))
    return nodes


def _allows_any_name(schema: object) -> bool:
    if isinstance(schema, dict):
        return schema.get("type", "string") == "string" and schema.keys() <= {"type", *ANNOTATIONS}
    return schema is True


def _name_properties(field: str, nodes: list[dict[str, Any]]) -> None:
    """List the properties of objects whose propertyNames are listed, each with the schema that all of them have."""
    n_bytes = 0
    for node in reversed(nodes):  # what is within first, since it is copied
        names = _listed(node.get("propertyNames"), nodes[0])
        if names is None or "properties" in node or "patternProperties" in node:
            continue
        schema = json.dumps(node.get("additionalProperties", True))
        n_bytes += len(schema) * len(names)
        if n_bytes > MAX_SCHEMA_BYTES:
            raise GuideError(field, f"propertyNames: what all have, for each, takes over {MAX_SCHEMA_BYTES} bytes")
        del node["propertyNames"]
        node |= {"properties": {name: json.loads(schema) for name in names}, "additionalProperties": False}


def _listed(schema: object, root: dict[str, Any] | None = None) -> list[str] | None:
    """The strings that a schema lists, or the one in `root` that it refers to; None where it is no list."""
    if not isinstance(schema, dict):
        return None
    match {key: value for key, value in schema.items() if key not in ANNOTATIONS}:
        case {"$ref": str(reference), **others} if root is not None and reference.startswith("#/") and not others:
            return _listed(find(root, reference))
        case {"anyOf": [first, never], **others} if (
            never == {"not": {}} and not others
        ):  # as zod has names that may be missing
            return _listed(first)
        case {"const": value, **others} if others in ({}, {"type": "string"}):
            return _listed({"enum": [value]})
        case {"enum": list(values), **others} if others in ({}, {"type": "string"}):
            return [value for value in values if isinstance(value, str)]
    return None


def _walk(field: str, document: object) -> Iterator[tuple[dict[str, Any], int]]:
    """Every object in a JSON document, with its depth."""
    pending = [(document, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise GuideError(field, f"is nested more than {MAX_SCHEMA_DEPTH} deep")
        if isinstance(node, float) and not math.isfinite(node):
            raise GuideError(field, "has a number beyond the range of a double")
        if isinstance(node, dict):
            yield node, depth
            pending += [(child, depth + 1) for child in node.values()]
        elif isinstance(node, list):
            pending += [(child, depth + 1) for child in node]


def _join_multiple(field: str, multiple: Fraction, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) == math.inf:
        return multiple  # absent, or of a type that the compiler refuses
    if value <= 0:
        raise GuideError(field, f"multipleOf must be over 0, not {value!s:.40}")
    step = Fraction(str(value))
    joined = Fraction(math.lcm(multiple.numerator, step.numerator), math.gcd(multiple.denominator, step.denominator))
    if max(joined.numerator, step.numerator, step.denominator) > MAX_MULTIPLE:
        raise GuideError(
            field,
            f"multipleOf {value!s:.40}: as a fraction, it and the least common multiple of all may have numbers up to "
            f"{MAX_MULTIPLE}",
        )
    return joined


def _check_exact(field: str, node: dict[str, Any]) -> None:
    """The compiler counts in doubles: a constant must be exact there, a bound moves inwards to the next that is."""
    for name, towards in (("minimum", 1), ("maximum", -1), ("exclusiveMinimum", 1), ("exclusiveMaximum", -1)):
        value = node.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT_INT:
            node[name] = _inwards(field, value, towards)
    pending = [node.get("const"), node.get("enum")]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            with naming(field):
                check_n_properties(len(value), MAX_PROPERTIES)
            pending += value.values()
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > _EXACT_INT:
            raise GuideError(
                field, f"const or enum has the number {value!s:.40}, beyond 2^53 it cannot be kept exactly"
            )


def _inwards(field: str, value: int, towards: int) -> int:
    try:
        nearest = float(value)
        if (int(nearest) - value) * towards < 0:
            nearest = math.nextafter(nearest, math.inf * towards)
        return int(nearest)
    except OverflowError:
        raise GuideError(field, f"has a bound of {len(str(abs(value)))} digits, beyond the range of a double") from None


def _check_min_properties(field: str, node: dict[str, Any]) -> None:
    """A key beyond the listed ones may be written twice: two such keys are not surely two properties."""
    wanted, required = node.get("minProperties"), node.get("required")
    n_required = len(set(map(str, required))) if isinstance(required, list) else 0
    if isinstance(wanted, int) and wanted > n_required + 1:
        raise GuideError(
            field,
            f"minProperties {wanted!s:.40} cannot be kept with {n_required} required properties; name them in required",
        )
