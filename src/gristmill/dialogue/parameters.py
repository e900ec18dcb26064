"""A call's parameters as texts of their own: the JSON that each stands for, by its schema. It knows no marks."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from gristmill.tokenizer.interface import without_halves

_LONGEST_LITERAL: Final = 65536  # characters of what may be Python's notation and is no JSON
MOST_NESTED: Final = 16  # schemas of a parameter in one another
NOTHING: Final[Mapping[str, Any]] = {}  # a schema that allows any value
DEFINITIONS: Final = ("$defs", "definitions")
_MAPS: Final = (*DEFINITIONS, "properties", "patternProperties", "dependentSchemas")
_DATA: Final = ("enum", "const", "default", "examples")
_INDEX: Final = re.compile("[0-9]{1,9}")
_NULL: Final = (None, "null")
_SPELLED: Final = {"true": (True, "boolean"), "false": (False, "boolean"), "null": _NULL, "none": _NULL}


def objects_of(parameters: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """What all parameters satisfy together: the schema at the root, those that it joins, that to which it refers."""
    pending: list[Any] = [parameters]
    seen: set[int] = set()
    while pending:
        schema = pending.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        if "$ref" in schema:
            pending.append(target_of(schema["$ref"], parameters))
        if isinstance(parts := schema.get("allOf"), Sequence):
            pending += reversed(parts)


def schema_of(parameters: Mapping[str, Any] | None, name: str) -> Any:
    """The schema of a parameter, by its name or as one of the others; {} where there is none."""
    objects = list(objects_of(parameters))
    for schema in objects:
        if isinstance(properties := schema.get("properties"), Mapping) and name in properties:
            return properties[name]
    others = (schema.get("additionalProperties") for schema in objects)
    return next((other for other in others if isinstance(other, Mapping)), NOTHING)


def is_pointer(reference: str) -> bool:
    """Whether it leads from the root of its own document; another leads to a name or another document."""
    return reference == "#" or reference.startswith("#/")


def moved(schema: Any, lead: Callable[[str], str]) -> Any:
    """A schema in another document, where `lead` says what each of its references is."""

    def move(part: dict[str, Any]) -> dict[str, Any]:
        return {**part, "$ref": lead(part["$ref"])} if isinstance(part.get("$ref"), str) else part

    return _changed(schema, move)


def without(schema: Any, keywords: Collection[str]) -> Any:
    """A schema without some keywords, wherever it holds schemas."""
    return _changed(schema, lambda part: {key: value for key, value in part.items() if key not in keywords})


def _changed(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """`change` of a schema and of all that it holds."""
    if isinstance(schema, list):
        return [_changed(item, change) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    parts: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, Mapping):
            parts[key] = {name: _changed(part, change) for name, part in value.items()}
        else:
            parts[key] = value if key in _DATA else _changed(value, change)
    return change(parts)


def target_of(reference: Any, root: Mapping[str, Any] | None) -> Any:
    """What a pointer into `root` leads to; None where that is nothing."""
    if not isinstance(reference, str) or not is_pointer(reference):
        return None
    found: Any = root
    for part in unquote(reference).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, Sequence) and _INDEX.fullmatch(part) and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found


def resolved(schema: Any, root: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The schema that a reference into `root` stands for; {} where it leads nowhere."""
    seen: set[int] = set()
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
        if id(schema) in seen:
            return NOTHING
        seen.add(id(schema))
        schema = target_of(schema["$ref"], root)
    return schema if isinstance(schema, Mapping) else NOTHING


def types_of(schema: Any, root: Mapping[str, Any] | None) -> frozenset[str]:
    """JSON's names of the types that a schema allows; none where it doesn't say, or only in too many others."""
    return _types(resolved(schema, root), root, set(), MOST_NESTED)


def _types(schema: Any, root: Mapping[str, Any] | None, seen: set[int], depth: int) -> frozenset[str]:
    """seen: schemas that need not be looked at again, as references may lead to one by very many ways."""
    seen.add(id(schema))
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset([declared])
    if isinstance(declared, Sequence):
        return frozenset(name for name in declared if isinstance(name, str))
    if isinstance(values := schema.get("enum"), Sequence):
        return frozenset(map(type_of, values))
    if "const" in schema:
        return frozenset([type_of(schema["const"])])
    for key in ("anyOf", "oneOf", "allOf"):
        if depth and isinstance(parts := schema.get(key), Sequence):
            others = (resolved(part, root) for part in parts)
            found = [_types(part, root, seen, depth - 1) for part in others if id(part) not in seen]
            if key == "allOf":
                found = [types for types in found if types][:1]
            return frozenset().union(*found) if all(found) else frozenset()
    return frozenset()


def is_text(types: frozenset[str]) -> bool:
    """Whether a parameter of these types is a string to the letter."""
    return not types or types == {"string"}


def json_of(text: str, types: frozenset[str]) -> str:
    """The JSON of a parameter that was written as `text`: a string, or a value of one of its types where the text is
    one, as JSON or as Python writes it. What is of none of its types stays what it is: JSON, or else a string.
    """
    if is_text(types):
        return quote(text)
    bare = text.strip()
    if bare.lower() in _SPELLED:
        value, name = _SPELLED[bare.lower()]
        return json.dumps(value) if name in types or "string" not in types else quote(text)
    try:
        value, written = json.loads(bare, parse_constant=_refuse), bare
    except (ValueError, RecursionError):
        value, written = _literal(bare)
    if isinstance(value, str) and types <= {"object", "array"} and (inner := _literal(value))[1]:
        value, written = inner
    if written and ("string" not in types or is_of(value, types)):
        return written
    return quote(text)


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> tuple[Any, str]:
    """A list or an object with line ends in its strings or in Python's notation, and its JSON; "" for anything else."""
    if text[:1] not in ("[", "{") or len(text) > _LONGEST_LITERAL:
        return None, ""
    for read in (_loosely, ast.literal_eval):
        try:
            with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
                value = read(text)
            return value, without_halves(json.dumps(value, ensure_ascii=False, allow_nan=False))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            pass
    return None, ""


def _loosely(text: str) -> Any:
    return json.loads(text, strict=False)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case Mapping():
            return "object"
        case _:
            return "array"


def is_of(value: Any, types: frozenset[str]) -> bool:
    name = type_of(value)
    whole = isinstance(value, float) and value.is_integer()
    return name in types or (name == "integer" and "number" in types) or (whole and "integer" in types)
