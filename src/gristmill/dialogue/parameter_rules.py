"""A grammar of a call's parameters as texts of their own: rules in Lark, as llguidance understands it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gristmill.dialogue.parameters import (
    DEFINITIONS,
    MOST_NESTED,
    NOTHING,
    is_of,
    is_text,
    json_of,
    moved,
    objects_of,
    quote,
    target_of,
    type_of,
    types_of,
)
from gristmill.dialogue.qwen3_coder import LINE, PARAMETER
from gristmill.dialogue.types import Tool

_END: Final = f"{LINE}</parameter>{LINE}"
_CLOSE: Final = r"\n<\/parameter>\n"
_TAG: Final = re.compile("</(?:parameter|function)>")  # in a text it could be read as its end
_EARLIER: Final = r"(?s:.*)<\/(parameter|function)>(?s:.*)" + _CLOSE
_SPACE: Final = r"[\s\x1c-\x1f]*"  # what reading leaves out around all that is no string

_MOST_CHARACTERS: Final = 64 << 10  # a grammar has no more
_SAY_NOTHING: Final = frozenset(
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment"]
)
_AT_THE_ROOT: Final = _SAY_NOTHING | {"type", "required", "$ref", *DEFINITIONS}
_OF_OBJECTS: Final = _AT_THE_ROOT | {"properties", "additionalProperties"}
_OF_LENGTHS: Final = ("minLength", "maxLength")
_OF_TEXTS: Final = _SAY_NOTHING | {"type", *_OF_LENGTHS}
_OF_CONSTANTS: Final = _OF_TEXTS | {"enum", "const"}
_OF_ARRAYS: Final = frozenset(["items", "prefixItems", "minItems", "maxItems", "uniqueItems"])
_OF_COMPOSITES: Final = _OF_ARRAYS | {"properties", "required", "additionalProperties", "propertyNames"}

_COMPOSITE: Final = frozenset(["array", "object"])
_SCALARS: Final = {
    "null": "null",
    "boolean": "(true|false)",
    "integer": "-?(0|[1-9][0-9]{0,14})",
    "number": r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+\-]?[0-9]{1,2})?",
}
"""As they are written beside strings: JSON whose numbers are exact."""
_READ_AS: Final = {
    "null": "(?i:null|none)",
    "boolean": "(?i:true|false)",
    "integer": r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?",
    "number": r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?",
    "array": r"\[(?s:.*)",
    "object": r"\{(?s:.*)",
}
"""Texts that may be read as such a value and not as a string; a composite ends where its own grammar says."""
_QUOTED: Final = r'"([^"\\]|\\(?s:.))*"'
"""Texts that may be read as a string without its quotes, which is shorter."""


def parameter_rules(prefix: str, tool: Tool) -> list[str]:
    """The rule `prefix`, of all that a call of `tool` says, in the order of its schema, and those that it is made of.

    Raises ValueError for a schema that no such text can be held to.
    """
    schemas, required = _named(tool)
    rules, parts, n_characters = [], [], 0
    for i, (name, schema) in enumerate(schemas.items()):
        rule = f"{prefix}_{i}"
        where = f"tools: the parameter {name!r} of {tool.name!r}"
        if ">" in name:
            raise ValueError(f"{where}: a call in this model's format ends a parameter's name with >; rename it")
        values = list(_Values(tool.parameters or {}, where, schema).of(schema))
        if not values and schema is False and name not in required:
            continue
        if not values:
            raise ValueError(f"{where}: no text of this model's format can be one of its values; leave it out")
        names = [f"{rule}_{k}" if value[0] != "/" else f"{rule}_{k}".upper() for k, value in enumerate(values)]
        rules.append(f"{rule}: {quote(f'{PARAMETER}{name}>{LINE}')} ({' | '.join(names)})")
        rules += [f"{value_rule}: {value}" for value_rule, value in zip(names, values, strict=True)]
        n_characters += sum(map(len, values))
        if n_characters > _MOST_CHARACTERS:
            raise ValueError(f"{where}: what the parameters may be takes over {_MOST_CHARACTERS} characters to say")
        parts.append(rule if name in required else f"{rule}?")
    return [f"{prefix}: {' '.join(parts) or quote('')}", *rules]


def _named(tool: Tool) -> tuple[dict[str, Any], frozenset[str]]:
    """The schemas of a tool's parameters and of all that it requires, and which these are.

    Raises ValueError for what else is asked of them together.
    """
    where = f"tools: the parameters of {tool.name!r}"
    objects = list(objects_of(tool.parameters))
    listing = [schema for schema in objects if "properties" in schema or "additionalProperties" in schema][-1:]
    for schema in objects:
        _refuse_others(schema, _OF_OBJECTS if listing and schema is listing[0] else _AT_THE_ROOT, where)
        if "$ref" in schema and not isinstance(target_of(schema["$ref"], tool.parameters), Mapping):
            raise ValueError(f"{where}: its $ref {schema['$ref']!r} leads to no schema")
    required = [name for schema in objects if "required" in schema for name in _list(schema, "required", where)]
    properties = listing[0].get("properties", {}) if listing else {}
    if not isinstance(properties, Mapping) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"{where}: properties must be an object, and required a list of names")
    others = listing[0].get("additionalProperties", True) if listing else True
    return {**properties, **{name: others for name in required if name not in properties}}, frozenset(required)


class _Values:
    """What a parameter may be, with what ends it: each a rule or, between slashes, a terminal.

    One that may be a string is read as what it looks like, if it may be that too. So a string must look like none of
    that, and all that is no string must end with its last character: its terminal, else that of strings, goes on.
    """

    def __init__(self, root: Mapping[str, Any], where: str, schema: Any) -> None:
        self._root = root
        self._where = where
        self._types = types_of(schema, root)  # by which it is read
        self._seen: set[int] = set()

    def of(self, schema: Any, depth: int = MOST_NESTED) -> Iterator[str]:
        """Each schema once; depth: how many may lie in one another."""
        if not is_text(self._types) and "string" not in self._types:
            yield self._json(schema)
            return
        schema = self._followed(schema)
        if schema is None or id(schema) in self._seen:
            return
        if not depth:
            raise ValueError(f"{self._where}: its schemas lie more than {MOST_NESTED} deep in one another")
        self._seen.add(id(schema))
        choice = next((key for key in ("anyOf", "oneOf") if key in schema), None)
        if "enum" in schema or "const" in schema:
            yield from self._constants(schema)
        elif choice:
            yield from self._choice(schema, choice, depth)
        else:
            yield from self._typed(schema, types_of(schema, self._root))

    def _followed(self, schema: Any) -> Mapping[str, Any] | None:
        """The schema that a reference stands for. None: no value satisfies it."""
        seen: set[int] = set()
        while isinstance(schema, Mapping) and "$ref" in schema:
            _refuse_others(schema, _SAY_NOTHING | {"$ref"}, self._where)
            target = target_of(schema["$ref"], self._root)
            if not isinstance(target, Mapping | bool) or id(schema) in seen:
                raise ValueError(f"{self._where}: its $ref {schema['$ref']!r} leads to no schema")
            seen.add(id(schema))
            schema = target
        if isinstance(schema, Mapping):
            return schema
        return None if schema is False else NOTHING

    def _constants(self, schema: Mapping[str, Any]) -> Iterator[str]:
        """Those that satisfy the rest of the schema, and that reading gives back."""
        _refuse_others(schema, _OF_CONSTANTS, self._where)
        values = self._listed(schema)
        texts = [(value, value if isinstance(value, str) else json.dumps(value)) for value in values]
        kept = [text for value, text in texts if self._satisfies(value, schema) and self._is_read(text, value)]
        yield from (quote(text + _END) for text in dict.fromkeys(kept))

    def _listed(self, schema: Mapping[str, Any]) -> Sequence[Any]:
        return _list(schema, "enum", self._where) if "enum" in schema else [schema["const"]]

    def _satisfies(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if "type" in schema and not is_of(value, types_of({"type": schema["type"]}, None)):
            return False
        if "const" in schema and _canonical(schema["const"]) != _canonical(value):
            return False
        low, high = self._lengths(schema)
        return not isinstance(value, str) or (low <= len(value) and (high is None or len(value) <= high))

    def _is_read(self, text: str, value: Any) -> bool:
        return not _TAG.search(text) and _canonical(json.loads(json_of(text, self._types))) == _canonical(value)

    def _choice(self, schema: Mapping[str, Any], key: str, depth: int) -> Iterator[str]:
        _refuse_others(schema, _SAY_NOTHING | {key, "type"}, self._where)
        branches = [branch for branch in map(self._followed, _list(schema, key, self._where)) if branch is not None]
        types = [types_of(branch, self._root) for branch in branches]
        if "type" in schema and not all(_within(found, types_of({"type": schema["type"]}, None)) for found in types):
            raise ValueError(f"{self._where}: type beside {key}: give it in each of its schemas instead")
        composite = [branch for branch, found in zip(branches, types, strict=True) if found and found <= _COMPOSITE]
        others = [branch for branch, found in zip(branches, types, strict=True) if not found or found - _COMPOSITE]
        if key == "oneOf":
            self._refuse_overlaps([*others, *({"type": ["array", "object"]} for _ in composite[:1])])
        for branch in others:
            yield from self.of(branch, depth - 1)
        if composite and not is_text(self._types):
            yield self._json({key: composite})

    def _refuse_overlaps(self, branches: Sequence[Mapping[str, Any]]) -> None:
        """What one of `branches` allows, no other may: neither a type nor a constant."""
        constant = [branch for branch in branches if "enum" in branch or "const" in branch]
        values = [value for branch in constant for value in self._listed(branch)]
        free = [types_of(branch, self._root) for branch in branches if not ("enum" in branch or "const" in branch)]
        names = ["number" if name == "integer" else name for types in free for name in types]
        taken = {"number" if name == "integer" else name for name in map(type_of, values)}
        twice = len(set(names)) < len(names) or len({*map(_canonical, values)}) < len(values)
        if twice or taken & set(names) or (not all(free) and len(branches) > 1):
            raise ValueError(f"{self._where}: oneOf: its schemas may allow the same value; give anyOf")

    def _typed(self, schema: Mapping[str, Any], types: frozenset[str]) -> Iterator[str]:
        composite = types & _COMPOSITE
        if types and types == composite:
            if not is_text(self._types):
                yield self._json(schema)
            return
        _refuse_others(schema, _OF_TEXTS | (_OF_COMPOSITES if composite else frozenset()), self._where)
        if not types or "string" in types:
            yield self._text(schema)
        if is_text(self._types):
            return
        for name in sorted(_SCALARS.keys() & types):
            yield f"/{_SCALARS[name]}{_CLOSE}/"
        if composite:
            others = {key: value for key, value in schema.items() if key not in _OF_LENGTHS}
            yield self._json({**others, "type": sorted(composite)})

    def _text(self, schema: Mapping[str, Any]) -> str:
        low, high = self._lengths(schema)
        if high is not None and low > high:
            raise ValueError(f"{self._where}: minLength {low} is over maxLength {high}")
        text = rf"/(?s:.{{{low},{'' if high is None else high}}}){_CLOSE}/ & ~/{_EARLIER}/"
        if is_text(self._types):
            return text
        looks = [_READ_AS[name] for name in sorted(self._types - {"string"})]
        looks += [_QUOTED] if (low, high) != (0, None) else []
        return rf"{text} & ~/{_SPACE}({'|'.join(dict.fromkeys(looks))}){_SPACE}{_CLOSE}/"

    def _lengths(self, schema: Mapping[str, Any]) -> tuple[int, int | None]:
        for key in _OF_LENGTHS:
            value = schema.get(key, 0)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
                raise ValueError(f"{self._where}: {key} is {value!r:.40}; give a whole number that is not negative")
        return int(schema.get("minLength", 0)), int(schema["maxLength"]) if "maxLength" in schema else None

    def _json(self, schema: Mapping[str, Any]) -> str:
        try:
            return f"%json {json.dumps(self._alone(schema))} {quote(_END)}"
        except RecursionError:
            raise ValueError(f"{self._where}: its schema is nested too deep") from None

    def _alone(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A document of its own, with all that its references lead to in the root."""
        numbers: dict[int, int] = {}
        targets: list[Mapping[str, Any] | bool] = []

        def lead(reference: str) -> str:
            """To a definition that is called by a number: one a target, however it is spelled."""
            target = target_of(reference, self._root)
            if not isinstance(target, Mapping | bool):
                raise ValueError(f"{self._where}: its $ref {reference!r} leads to no schema")
            if id(target) not in numbers:
                numbers[id(target)] = len(targets)
                targets.append(target)
            return f"#/$defs/{numbers[id(target)]}"

        document: dict[str, Any] = moved(schema, lead)
        definitions: list[Any] = []
        while len(definitions) < len(targets):
            definitions.append(moved(targets[len(definitions)], lead))
        if definitions:
            document["$defs"] = {str(number): definition for number, definition in enumerate(definitions)}
        return document


def _list(schema: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    value = schema[key]
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(f"{where}: {key} must be a list, not {value!r:.40}")
    return value


def _within(types: frozenset[str], others: frozenset[str]) -> bool:
    return types <= (others | {"integer"} if "number" in others else others)


def _canonical(value: Any) -> str:
    """A text that values share which JSON Schema takes for equal."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _refuse_others(schema: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if others := sorted(key for key in schema if key not in known and not _is_idle(key, schema[key])):
        keys = ", ".join(others)
        raise ValueError(f"{where}: {keys}: a call in this model's format cannot be held to that; leave it out")


def _is_idle(key: str, value: Any) -> bool:
    """Whether a keyword refuses nothing."""
    if key == "propertyNames" and isinstance(value, Mapping):
        return value.get("type", "string") == "string" and set(value) <= _SAY_NOTHING | {"type"}
    return (key, value) in (("propertyNames", True), ("uniqueItems", False))
