"""Unchecked JSON files: reading within limits, and fields whose types are checked when they are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gristmill.tokenizer.interface import TokenizerError

_MAX_FILE_BYTES = 256 << 20


class Fields:
    """One JSON object. `where` is the file and the path to the object, for errors."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def fail(self, name: str, problem: str) -> TokenizerError:
        return TokenizerError(f"{self.where}.{name} {problem}")

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fail(name, f"is {value!r:.80}, not a string")
        return value

    def need_text(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise self.fail(name, "is missing or empty")
        return value

    def token_text(self, name: str) -> str | None:
        """A token as tokenizer_config.json writes it: a string, or an object with the string in `content`."""
        return self.child(name).text("content") if isinstance(self.values.get(name), dict) else self.text(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, f"is {value!r:.80}, not true or false")
        return value

    def child(self, name: str) -> Fields:
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self.fail(name, "is missing" if value is None else f"is {value!r:.80}, not an object")
        return Fields(value, f"{self.where}.{name}")

    def children(self, name: str) -> list[Fields]:
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fail(name, f"is {value!r:.80}, not a list of objects")
        return [Fields(item, f"{self.where}.{name}[{i}]") for i, item in enumerate(value)]

    def sequence(self, name: str, list_name: str) -> list[Fields]:
        """The steps of a component that is absent, one step, or a (nested) `Sequence` of steps."""
        if self.values.get(name) is None:
            return []
        return _flatten(self.child(name), list_name)


def _flatten(step: Fields, list_name: str, depth: int = 0) -> list[Fields]:
    if step.text("type") != "Sequence":
        return [step]
    if depth > 8:
        raise step.fail("type", "is a Sequence nested too deeply")
    return [flat for item in step.children(list_name) for flat in _flatten(item, list_name, depth + 1)]


def read_json(path: Path) -> Fields:
    """The object in a JSON file. Raises TokenizerError for anything else."""
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise TokenizerError(f"{path}: has more than {_MAX_FILE_BYTES} bytes")
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise TokenizerError(f"{path}: is not a JSON object")
    return Fields(values, f"{path}: $")


def read_optional(path: Path) -> Fields:
    """The same of a file that need not be there: then no fields."""
    return read_json(path) if path.is_file() else Fields({}, f"{path}: $")
