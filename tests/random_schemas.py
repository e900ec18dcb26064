"""Random JSON schemas of what structured output supports."""

from __future__ import annotations

import random
from typing import Any


class SchemaMaker:
    """Random schemas of what llguidance supports, each property bounded so that answers stay short."""

    formats = ("date", "date-time", "ipv4", "ipv6", "uuid", "email")
    patterns = ("^[a-c]{2,4}$", "^\\d{3}-\\d{2}$", "^(foo|bar)+$", "x[yz]", '^[^"\\\\]{1,5}$')

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.defs: dict[str, Any] = {}

    def make(self) -> dict[str, Any]:
        schema = self.schema(3)
        if self.rng.random() < 0.3:
            self.defs["node"] = {
                "type": "object",
                "properties": {"v": self.scalar(), "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["v", "next"],
                "additionalProperties": False,
            }
            schema = {"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}, "more": schema}}
            schema["required"] = ["root"]
            schema["additionalProperties"] = False
        return {**schema, "$defs": self.defs} if self.defs else schema

    def schema(self, depth: int) -> dict[str, Any]:
        kinds = [self.scalar, self.scalar]
        if depth:
            kinds += [lambda: self.object(depth - 1)] * 3 + [
                lambda: self.array(depth - 1),
                lambda: self.any_of(depth - 1),
            ]
            kinds += [lambda: self.reference(depth - 1)]
        return self.rng.choice(kinds)()

    def scalar(self) -> dict[str, Any]:
        return self.rng.choice([self.string, self.integer, self.number, self.enum, self.const, self.plain])()

    def string(self) -> dict[str, Any]:
        match self.rng.randrange(4):
            case 0:
                return {"type": "string", "pattern": self.rng.choice(self.patterns), "maxLength": 6}
            case 1:
                return {"type": "string", "format": self.rng.choice(self.formats)}
            case 2:
                low = self.rng.randrange(4)
                return {"type": "string", "minLength": low, "maxLength": low + self.rng.randrange(9)}
        return {"type": "string"}

    def integer(self) -> dict[str, Any]:
        low = self.rng.randrange(-2000, 2000)
        schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": low + self.rng.randrange(50, 5000)}
        if self.rng.random() < 0.3:
            schema = {"type": "integer", "exclusiveMinimum": low, "multipleOf": self.rng.choice([2, 5, 7, 10])}
        return schema

    def number(self) -> dict[str, Any]:
        low = round(self.rng.uniform(-50, 50), 2)
        return {"type": "number", "minimum": low, "exclusiveMaximum": low + self.rng.choice([0.5, 3, 1000])}

    def enum(self) -> dict[str, Any]:
        values = ["a", "bb", 'q"uote', "é", 3, -1.5, None, True, [1, "x"], {"k": 2}]
        return {"enum": self.rng.sample(values, self.rng.randrange(1, 6))}

    def const(self) -> dict[str, Any]:
        return {"const": self.rng.choice(["only", 42, 0.25, None, False, ["a", 1], {"x": {"y": 1}}, "line\nend"])}

    def plain(self) -> dict[str, Any]:
        return {"type": self.rng.choice(["boolean", "null", "integer", "number", ["string", "null"]])}

    def object(self, depth: int) -> dict[str, Any]:
        names = self.rng.sample(
            ["name", "kind", "ünï", "a b", 'q"', "x1", "value", "the list", "n\n"], self.rng.randrange(5)
        )
        schema: dict[str, Any] = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        schema["required"] = [name for name in names if self.rng.random() < 0.6]
        match self.rng.randrange(5):
            case 0:
                schema["additionalProperties"] = self.schema(0)
            case 1:
                schema = {"type": "object", "patternProperties": {"^s_[a-z]{1,3}$": self.schema(0)}}
                schema["additionalProperties"] = False
            case 2:
                schema["required"] = names
                schema["maxProperties"] = len(names) + 2
                schema["minProperties"] = len(names) + 1
            case _:
                schema["additionalProperties"] = False
        return schema

    def array(self, depth: int) -> dict[str, Any]:
        low = self.rng.randrange(3)
        schema = {
            "type": "array",
            "items": self.schema(depth),
            "minItems": low,
            "maxItems": low + self.rng.randrange(3),
        }
        if self.rng.random() < 0.3:
            schema["prefixItems"] = [self.schema(0), self.schema(0)]
        return schema

    def any_of(self, depth: int) -> dict[str, Any]:
        return {"anyOf": [self.schema(depth) for _ in range(self.rng.randrange(2, 4))]}

    def reference(self, depth: int) -> dict[str, Any]:
        name = f"d{len(self.defs)}"
        self.defs[name] = {"type": "null"}
        self.defs[name] = self.schema(depth)
        return {"$ref": f"#/$defs/{name}"}
