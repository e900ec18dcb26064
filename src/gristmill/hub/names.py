"""`org/name` and `org/name:QUANT`: what a model of the hub is called. It knows neither the network nor the disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"({_PART}/{_PART})(?::([\w./+-]{{1,200}}))?", re.ASCII)
_FILES = (".gguf", ".bin", ".safetensors", ".pt", ".pth", ".json")


class HubError(ValueError):
    """A model of the hub that cannot be had; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class HubName:
    """repo: org/name. quant: which of its models, as a label (`Q8_0`, `safetensors`) or a file's name; None: any."""

    repo: str
    quant: str | None = None

    def __str__(self) -> str:
        return self.repo if self.quant is None else f"{self.repo}:{self.quant}"


def parse_name(text: str) -> HubName:
    """HubError for what is no name."""
    match = _NAME.fullmatch(text)
    if match is None or "--" in match[1] or ".." in match[1]:
        raise HubError(f"{text!r:.200} is no name of a model on the hub; give org/name or org/name:QUANT")
    return HubName(match[1], match[2])


def as_name(model: str | Path) -> HubName | None:
    """The name that -m gives; None for a path: a Path, what exists, and what is called like a file, without QUANT."""
    if not isinstance(model, str) or Path(model).exists() or (":" not in model and model.lower().endswith(_FILES)):
        return None
    try:
        return parse_name(model)
    except HubError:
        return None
