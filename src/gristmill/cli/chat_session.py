"""A conversation: its messages, its system message, its settings; as a file too. It knows no model and no terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from gristmill.formats.write_file import new_file
from gristmill.types import SamplingParams

MAX_FILE_BYTES: Final = 64 << 20
THINK: Final = ("on", "off", "low", "medium", "high")

_HEAD: Final = '{\n "gristmill_chat": 1,'


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def _switch(text: str) -> bool:
    if text.lower() not in ("on", "off", "true", "false"):
        raise ValueError("on or off")
    return text.lower() in ("on", "true")


def _texts(text: str) -> tuple[str, ...]:
    if not text.startswith("["):
        return (text,)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError('a text, or several as JSON: ["a", "b"]')
    return tuple(found)


SETTINGS: Final[Mapping[str, Callable[[str], Any]]] = {
    "temperature": _number,
    "top_k": _integer,
    "top_p": _number,
    "min_p": _number,
    "repetition_penalty": _number,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "seed": _integer,
    "max_tokens": _integer,
    "min_tokens": _integer,
    "stop": _texts,
    "ignore_eos": _switch,
}
"""What may be set, in SamplingParams' names, and how it is read from a text."""


def check_name(name: str) -> None:
    """ValueError with the settings that there are."""
    if name not in SETTINGS:
        raise ValueError(f"{name!r} is no setting; there are {', '.join(SETTINGS)}")


def read_setting(name: str, text: str) -> Any:
    """The value that a person wrote. ValueError naming the setting, or the settings that there are."""
    check_name(name)
    try:
        return SETTINGS[name](text)
    except ValueError as error:
        raise ValueError(f"{name}: {text!r} is not {error}") from None


@dataclass(slots=True)
class Conversation:
    """Mutable: the loop of the chat and its commands change it.

    messages  role (user or assistant), content, and an answer's reasoning_content
    settings  what was set, by SETTINGS' names; the rest is left to the model's side
    think     None, or one of THINK: what a template is told of thinking
    """

    messages: list[dict[str, str]] = field(default_factory=list)
    system: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    think: str | None = None

    def with_system(self) -> list[dict[str, str]]:
        """All messages, the system's first."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return first + self.messages

    def change(self, name: str, value: Any) -> None:
        """Set what `read_setting` gave; None sets it back. ValueError leaves everything as it was."""
        settings = {key: old for key, old in self.settings.items() if key != name}
        if value is not None:
            settings[name] = value
        params(settings)
        self.settings = settings


def params(settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> SamplingParams:
    """ValueError for a value out of range. defaults: where nothing is set."""
    return SamplingParams(**{"max_tokens": None, **(defaults or {}), **settings})


def save(path: Path, conversation: Conversation, model: str) -> None:
    """Write it whole or not at all. ValueError for a file that is there and holds something else."""
    if path.exists() and not _is_chat(path):
        raise ValueError(f"{path}: is there already and is no conversation; give another name")
    content = {
        "gristmill_chat": 1,
        "model": model,
        "system": conversation.system,
        "think": conversation.think,
        "settings": conversation.settings,
        "messages": conversation.messages,
    }
    text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    assert text.startswith(_HEAD)
    data = text.encode()
    with new_file(path, len(data)) as file:
        file.write(data)


def load(path: Path) -> Conversation:
    """What `save` wrote, or another JSON object with `messages` as OpenAI has them. ValueError naming the field."""
    with _open(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"{path}: has more than {MAX_FILE_BYTES} bytes; this is no conversation")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("messages"), list):
        raise ValueError(f"{path}: messages: there must be a list of them")
    messages = [_message(message, f"{path}: messages[{i}]") for i, message in enumerate(content["messages"])]
    system = _text_or_none(content, "system", path)
    if messages and messages[0]["role"] == "system":
        system = messages.pop(0)["content"] if system is None else system
    if any(message["role"] == "system" for message in messages):
        raise ValueError(f"{path}: messages: one system message, and that first")
    think = _text_or_none(content, "think", path)
    if think is not None and think not in THINK:
        raise ValueError(f"{path}: think: is {think!r:.40}; it must be one of {', '.join(THINK)}")
    return Conversation(messages, system, _settings(content.get("settings") or {}, path), think)


def _settings(found: Any, path: Path) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"{path}: settings: is {found!r:.40}, not an object")
    try:
        settings = {name: read_setting(name, _as_written(value)) for name, value in found.items()}
        params(settings)
    except ValueError as error:
        raise ValueError(f"{path}: settings: {error}") from None
    return settings


def _as_written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _message(message: Any, where: str) -> dict[str, str]:
    if not isinstance(message, dict):
        raise ValueError(f"{where}: is {message!r:.40}, not an object with role and content")
    if message.get("role") not in ("system", "user", "assistant"):
        raise ValueError(f"{where}.role: is {message.get('role')!r:.40}; it must be system, user or assistant")
    kept = {name: message[name] for name in ("role", "content", "reasoning_content") if name in message}
    for name in ("content", "reasoning_content"):
        if not isinstance(kept.get(name, ""), str) or "content" not in kept:
            raise ValueError(f"{where}.{name}: is {kept.get(name)!r:.40}, not text")
    return kept


def _text_or_none(content: Mapping[str, Any], name: str, path: Path) -> str | None:
    value = content.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{path}: {name}: is {value!r:.40}, not text")
    return value


def _is_chat(path: Path) -> bool:
    with _open(path) as file:
        return file.read(len(_HEAD)) == _HEAD.encode()


def _open(path: Path) -> BinaryIO:
    """ValueError for a pipe or a terminal, which would be waited for."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path}: is no regular file; give the name of one")
    return path.open("rb")
