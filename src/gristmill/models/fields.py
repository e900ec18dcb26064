"""Reading a model's hyperparameters one by one, each checked: what is missing or absurd is named with its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.formats.checkpoint import ModelFormatError, bad_file, shown

LIMIT_WIDTH = 1 << 20
LIMIT_COUNT = 1 << 16
LIMIT_LAYERS = 1 << 12
LIMIT_CONTEXT = 1 << 28
LIMIT_VOCAB = 1 << 24
_REMEDY = "the model's configuration is damaged, or of a kind that gristmill does not know"


class Fields:
    """A mapping of hyperparameters, read under a prefix; an absent one and null are the same."""

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    def has(self, name: str) -> bool:
        return self._values.get(self._prefix + name) is not None

    def names(self) -> set[str]:
        return set(self._values)

    def raw(self, name: str) -> Any:
        return self._values.get(self._prefix + name)

    def int(self, name: str, high: int, default: int | None = None, low: int = 1) -> int:
        """An integer in [low, high]; `default` where it is absent or null, and an error when there is none."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if isinstance(value, np.ndarray):
            problem = f"is {shown(value)}: it differs from layer to layer, and gristmill computes layers that are alike"
            raise self.error(name, problem, "use another model")
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(name, f"is {shown(value)}, must be an integer from {low} to {high}")
        return value

    def float(self, name: str, default: float | None = None, low: float = 1e-12, high: float = 1e12) -> float:
        """A number in [low, high]."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.error(name, f"is {shown(value)}, must be a number from {low:g} to {high:g}")
        return float(value)

    def bool(self, name: str, default: bool) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"is {shown(value)}, must be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(name, f"is {shown(value)}, must be text")
        return value

    def error(self, name: str, problem: str, remedy: str = _REMEDY) -> ModelFormatError:
        return bad_file(self.path, f"field {self._prefix + name!r}", problem, remedy)

    def unsupported(self, name: str) -> ModelFormatError:
        return self.error(name, f"is {shown(self.raw(name))}, which gristmill does not compute", "use another model")
