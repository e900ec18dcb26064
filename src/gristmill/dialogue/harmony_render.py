"""Conversations in Harmony's format, as gpt-oss reads them: messages -> text of known origin, for `encode_parts`.

Texts equal those of openai-harmony, the reference; source: github.com/openai/harmony, docs/format.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gristmill.dialogue.harmony import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, START, TEXTS
from gristmill.dialogue.harmony_tools import ToolNamespace, render_namespaces
from gristmill.tokenizer.chat import Parts

IDENTITY: Final = "You are ChatGPT, a large language model trained by OpenAI."
CHANNELS: Final = ("analysis", "commentary", "final")


class Effort(StrEnum):
    """How much a model shall think."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class SystemContent:
    """What the first message says; fields that are None or empty are left out.

    date              ISO, of the conversation
    knowledge_cutoff  year and month
    namespaces        tools that the model was trained with; a user's own functions are a developer's
    """

    identity: str | None = IDENTITY
    knowledge_cutoff: str | None = "2024-06"
    date: str | None = None
    effort: Effort | None = Effort.MEDIUM
    namespaces: tuple[ToolNamespace, ...] = ()
    channels: tuple[str, ...] = CHANNELS


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """What a final answer shall look like. schema: of JSON."""

    name: str
    schema: Mapping[str, Any]
    description: str = ""


@dataclass(frozen=True, slots=True)
class DeveloperContent:
    """What is elsewhere called the system prompt, and a user's own functions and formats of answers."""

    instructions: str | None = None
    namespaces: tuple[ToolNamespace, ...] = ()
    formats: tuple[ResponseFormat, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """role: system, developer, user, assistant, or for a tool's result the tool's name, such as functions.f."""

    role: str
    content: str | SystemContent | DeveloperContent
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


def render(
    messages: Sequence[Message], *, for_answer: bool = True, drop_analysis: bool = True, goes_on: bool = False
) -> Parts:
    """The conversation's text; special tokens are trusted, everything else is not.

    for_answer     end with the beginning of the assistant's next message
    goes_on        end within the last message, all of which is kept
    drop_analysis  where the assistant's last message is final, leave out analysis before the first that is
    Raises ValueError for a tool's schema that is nested too deep.
    """
    kept = _without_old_analysis(messages) if drop_analysis and not goes_on else list(messages)
    has_functions = any(
        namespace.name == "functions" and namespace.tools
        for message in messages
        if isinstance(message.content, DeveloperContent)
        for namespace in message.content.namespaces
    )
    parts: Parts = []
    for message in kept:
        parts += _message(message, has_functions)
    if goes_on:
        return parts[:-1]
    return [*parts, *_header("assistant")] if for_answer else parts


def _without_old_analysis(messages: Sequence[Message]) -> list[Message]:
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    first_final = next((i for i, message in enumerate(messages) if message.channel == "final"), 0)
    if last is None or last.channel != "final":
        return list(messages)
    return [message for i, message in enumerate(messages) if i >= first_final or message.channel != "analysis"]


def _message(message: Message, has_functions: bool) -> Parts:
    recipient = message.recipient
    parts = _header(message.role + (f" to={recipient}" if recipient and recipient != "all" else ""))
    if message.channel is not None:
        parts += [(TEXTS[CHANNEL], True), (message.channel, False)]
    if message.content_type is not None:
        constrained = message.content_type.removeprefix(TEXTS[CONSTRAIN])
        marked = constrained != message.content_type
        parts += [(" ", False), (TEXTS[CONSTRAIN], True)] if marked else [(" ", False)]
        parts.append((constrained, False))
    parts += [(TEXTS[MESSAGE], True), (_content(message.content, has_functions), False)]
    calls = message.role == "assistant" and recipient is not None
    return [*((text, trusted) for text, trusted in parts if text), (TEXTS[CALL if calls else END], True)]


def _header(role: str) -> Parts:
    return [(TEXTS[START], True), (role, False)]


def _content(content: str | SystemContent | DeveloperContent, has_functions: bool) -> str:
    if isinstance(content, str):
        return content
    sections = []
    if isinstance(content, SystemContent):
        dates = (("Knowledge cutoff", content.knowledge_cutoff), ("Current date", content.date))
        top = [content.identity] if content.identity is not None else []
        top += [f"{name}: {value}" for name, value in dates if value is not None]
        sections += ["\n".join(top)] if top else []
        sections += [f"Reasoning: {content.effort}"] if content.effort is not None else []
    elif content.instructions is not None:
        sections += ["# Instructions", content.instructions]
    if content.namespaces:
        sections.append(render_namespaces(content.namespaces))
    if isinstance(content, SystemContent) and content.channels:
        channels = ", ".join(content.channels)
        sections.append(f"# Valid channels: {channels}. Channel must be included for every message.")
        if has_functions:
            sections[-1] += "\nCalls to these tools must go to the commentary channel: 'functions'."
    if isinstance(content, DeveloperContent) and content.formats:
        sections += ["# Response Formats", *map(_format, content.formats)]
    return "\n\n".join(sections)


def _format(form: ResponseFormat) -> str:
    about = [f"// {line}" for line in form.description.splitlines()]
    schema = json.dumps(form.schema, ensure_ascii=False, separators=(",", ":"))
    return "\n".join([f"## {form.name}", "", *about, schema])
