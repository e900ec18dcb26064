"""Tools as Harmony shows them to a model: JSON schemas as TypeScript types, in namespaces. It knows no messages.

Texts equal those of openai-harmony, the reference; source: github.com/openai/harmony, docs/format.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gristmill.dialogue.types import Tool

MAX_DEPTH: Final = 64
_NAMES: Final = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class ToolNamespace:
    """Tools that a model addresses as `name.tool`; without any, as `name`, in the way that the description says."""

    name: str
    description: str = ""
    tools: tuple[Tool, ...] = ()


def functions(tools: Sequence[Tool]) -> ToolNamespace:
    """The namespace of a user's own functions."""
    return ToolNamespace("functions", tools=tuple(tools))


def render_namespaces(namespaces: Sequence[ToolNamespace]) -> str:
    """The section "# Tools", namespaces in alphabetical order. ValueError for a schema nested too deep."""
    ordered = sorted(namespaces, key=lambda namespace: namespace.name)
    return "\n\n".join(["# Tools", *("\n".join(_namespace_lines(namespace)) for namespace in ordered)])


def _namespace_lines(namespace: ToolNamespace) -> Iterator[str]:
    yield f"## {namespace.name}\n"
    for line in _lines(namespace.description):
        yield f"// {line}" if namespace.tools else line
    if not namespace.tools:
        return
    yield f"namespace {namespace.name} {{\n"
    for tool in namespace.tools:
        yield from (f"// {line}" for line in _lines(tool.description))
        parameters = "" if tool.parameters is None else f"_: {_type(tool.parameters, '', MAX_DEPTH)}"
        yield f"type {tool.name} = ({parameters}) => any;\n"
    yield f"}} // namespace {namespace.name}"


def _lines(text: str) -> list[str]:
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def _type(schema: object, indent: str, depth: int) -> str:
    """TypeScript's type for a schema; what cannot be said is `any`."""
    if depth == 0:
        raise ValueError(f"parameters: are nested more than {MAX_DEPTH} deep; simplify the schema")
    if not isinstance(schema, Mapping):
        return "any"
    kind = schema.get("type")
    if isinstance(variants := schema.get("oneOf"), list):
        return "".join(f"\n{indent} | {_variant(variant, indent, depth)}" for variant in variants)
    if isinstance(kind, list) and any(isinstance(name, str) for name in kind):
        return " | ".join("number" if name == "integer" else name for name in kind if isinstance(name, str))
    if kind == "object":
        return _object(schema, indent, depth)
    if kind == "array":
        return f"{_type(schema['items'], indent, depth - 1)}[]" if "items" in schema else "Array<any>"
    if kind == "string" and (texts := [value for value in _list(schema, "enum") if isinstance(value, str)]):
        return " | ".join(f'"{text}"' for text in texts)
    return _NAMES.get(kind, "any") if isinstance(kind, str) else "any"


def _variant(variant: object, indent: str, depth: int) -> str:
    comments = [text] if (text := _text(variant, "description")) is not None else []
    if isinstance(variant, Mapping) and "default" in variant:
        plain = isinstance(variant["default"], str) and not _list(variant, "enum")
        comments.append(f"default: {_default(variant) if plain else _json(variant['default'])}")
    return _nullable(variant, indent + "   ", depth - 1) + _comment(comments)


def _nullable(schema: object, indent: str, depth: int) -> str:
    text = _type(schema, indent, depth)
    is_nullable = isinstance(schema, Mapping) and schema.get("nullable") is True
    return f"{text} | null" if is_nullable and "null" not in text else text


def _object(schema: Mapping[str, Any], indent: str, depth: int) -> str:
    about = _text(schema, "description")
    head = f"{indent}// {about}\n{{\n" if about is not None else "{\n"
    properties = schema.get("properties")
    required = [name for name in _list(schema, "required") if isinstance(name, str)]
    body = ""
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        mark = "" if name in required else "?"
        body += _about_property(value, indent)
        choose = isinstance(value, Mapping) and isinstance(value.get("oneOf"), list)
        body += (_choice if choose else _property)(f"{indent}{name}{mark}:", value, indent, depth - 1)
    return f"{head}{body}{indent}}}"


def _about_property(schema: object, indent: str) -> str:
    """Comments above a property."""
    lines = []
    if (title := _text(schema, "title")) is not None:
        lines += [f"// {title}", "//"]
    if (about := _text(schema, "description")) is not None and not (isinstance(schema, Mapping) and "oneOf" in schema):
        lines.append(f"// {about}")
    if examples := _list(schema, "examples"):
        lines.append("// Examples:")
        lines += [f'// - "{example}"' for example in examples if isinstance(example, str)]
    return "".join(f"{indent}{line}\n" for line in lines)


def _property(name: str, schema: object, indent: str, depth: int) -> str:
    text = f"{name} {_nullable(schema, indent + '    ', depth)},"
    if isinstance(schema, Mapping) and "default" in schema and "oneOf" not in schema:
        text += f" // default: {_default(schema)}"
    return text + "\n"


def _choice(name: str, schema: Mapping[str, Any], indent: str, depth: int) -> str:
    """A property with oneOf: its description and default stand above, a line for each variant below."""
    variants: list[object] = schema["oneOf"]
    about = _text(schema, "description")
    told = about is not None and (not variants or _text(variants[0], "description") != about)
    above = f"{indent}// {about}\n" if told else ""
    if "default" in schema:
        above += f"{indent}// default: {_default(schema)}\n"
    lines = ""
    for i, variant in enumerate(variants):
        own = _text(variant, "description")
        comments = [own] if own is not None and own != about and not (i == 0 and told) else []
        if isinstance(variant, Mapping) and "default" in variant:
            comments.append(f"default: {_default(variant)}")
        lines += f"{indent} | {_nullable(variant, indent + '   ', depth)}{_comment(comments)}\n"
    return f"{above}{name}\n{lines}{indent},\n"


def _comment(parts: Sequence[str]) -> str:
    return f" // {' '.join(parts)}" if parts else ""


def _default(schema: Mapping[str, Any]) -> str:
    value = schema["default"]
    if isinstance(value, str):
        return value if _list(schema, "enum") else f'"{value}"'
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(schema: object, field: str) -> str | None:
    value = schema.get(field) if isinstance(schema, Mapping) else None
    return value if isinstance(value, str) else None


def _list(schema: object, field: str) -> list[Any]:
    value = schema.get(field) if isinstance(schema, Mapping) else None
    return value if isinstance(value, list) else []
