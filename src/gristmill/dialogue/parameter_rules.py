"""A grammar of a call's parameters as texts of their own: rules in Lark, as llguidance understands it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gristmill.dialogue.parameters import MOST_NESTED, quote, resolved, types_of
from gristmill.dialogue.qwen3_coder import LINE, PARAMETER
from gristmill.dialogue.types import Tool

_CLOSE: Final = r"\n<\/parameter>\n"
_EARLIER: Final = r"(?s:.*)<\/(parameter|function)>(?s:.*)" + _CLOSE  # a tag in the text could be read as its end
_DEFINITIONS: Final = ("$defs", "definitions")
_SAY_NOTHING: Final = frozenset(
    ["title", "description", "default", "examples", "deprecated", "$schema", "$id", "$comment"]
)
_OF_OBJECTS: Final = _SAY_NOTHING | {"type", "properties", "required", "additionalProperties", *_DEFINITIONS}
_OF_TEXTS: Final = _SAY_NOTHING | {"type", "minLength", "maxLength"}


def parameter_rules(prefix: str, tool: Tool) -> list[str]:
    """The rule `prefix`, of all that a call of `tool` says, in the order of its schema, and those that it is made of.

    Raises ValueError for a schema that no such text can be held to.
    """
    root = resolved(tool.parameters or {}, tool.parameters)
    _refuse_others(root, _OF_OBJECTS, f"tools: the parameters of {tool.name!r}")
    properties, required = root.get("properties") or {}, root.get("required") or []
    rules, parts = [], []
    for i, name in enumerate([*properties, *(name for name in required if name not in properties)]):
        rule = f"{prefix}_{i}"
        where = f"tools: the parameter {name!r} of {tool.name!r}"
        if ">" in name:
            raise ValueError(f"{where}: a call in this model's format ends a parameter's name with >; rename it")
        values = list(_values(properties.get(name, {}), root, where, set(), MOST_NESTED))
        names = [f"{rule}_{k}" if value[0] != "/" else f"{rule}_{k}".upper() for k, value in enumerate(values)]
        rules.append(f"{rule}: {quote(f'{PARAMETER}{name}>{LINE}')} ({' | '.join(names)})")
        rules += [f"{value_rule}: {value}" for value_rule, value in zip(names, values, strict=True)]
        parts.append(rule if name in required else f"{rule}?")
    return [f"{prefix}: {' '.join(parts) or quote('')}", *rules]


def _values(schema: Any, root: Mapping[str, Any], where: str, seen: set[int], depth: int) -> Iterator[str]:
    """What a value may be, with what ends it: each a rule, or a terminal, a regular expression, that is one.

    seen: schemas whose values have been told; depth: how many may still lie in one another.
    """
    if isinstance(schema, Mapping) and "$ref" in schema:
        _refuse_others(schema, _SAY_NOTHING | {"$ref"}, where)
        if not (target := resolved(schema, root)):
            raise ValueError(f"{where}: its $ref {schema['$ref']!r} leads to no schema")
        schema = target
    schema = resolved(schema, root)
    if id(schema) in seen:
        return
    if not depth:
        raise ValueError(f"{where}: its schemas lie more than {MOST_NESTED} deep in one another")
    seen.add(id(schema))
    types = types_of(schema, root)
    close = quote(f"{LINE}</parameter>{LINE}")
    choice = next((key for key in ("anyOf", "oneOf") if key in schema), None)
    if "enum" in schema or "const" in schema:
        for value in schema.get("enum", [schema.get("const")]):
            yield f"{quote(value if isinstance(value, str) else json.dumps(value))} {close}"
    elif choice and (not types or "string" in types):
        _refuse_others(schema, _SAY_NOTHING | {choice, "type"}, where)
        for branch in schema[choice]:
            yield from _values(branch, root, where, seen, depth - 1)
    elif types and "string" not in types:
        definitions = {key: root[key] for key in _DEFINITIONS if key in root}
        yield f"%json {json.dumps({**schema, **definitions})} {close}"
    else:
        _refuse_others(schema, _OF_TEXTS, where)
        length = f"{schema.get('minLength', 0)},{schema.get('maxLength', '')}"
        yield rf"/(?s:.{{{length}}}){_CLOSE}/ & ~/{_EARLIER}/"


def _refuse_others(schema: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if others := sorted(set(schema) - known):
        keys = ", ".join(others)
        raise ValueError(f"{where}: {keys}: a call in this model's format cannot be held to that; leave it out")
