"""Conversations as OpenAI's chat API has them -> Harmony's messages. It knows no text of the format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gristmill.dialogue.harmony_render import DeveloperContent, Effort, Message, ResponseFormat, SystemContent
from gristmill.dialogue.harmony_tools import ToolNamespace, functions
from gristmill.dialogue.types import Tool

_REASONING = ("reasoning_content", "reasoning", "thinking")


def chat_messages(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Tool] = (),
    effort: str = Effort.MEDIUM,
    date: str | None = None,
    builtin: Sequence[ToolNamespace] = (),
    answer: ResponseFormat | None = None,
    begun: bool = False,
) -> list[Message]:
    """Messages of a conversation, for `render`.

    messages  `role`, `content` (text, or a list of text parts), `tool_calls`, `tool_call_id`, `reasoning_content`. What
              the user calls system is the developer here. Reasoning stays until the assistant has given the answer that
              it was for; text beside calls is commentary
    effort    low, medium or high
    date      ISO, of today
    builtin   namespaces that the model was trained with
    answer    what the final answer shall look like; that it does is not the prompt's to ensure
    begun     the last message, a user's or the assistant's, is to go on
    Raises ValueError naming the message and the field.
    """
    if effort not in list(Effort):
        raise ValueError(f"reasoning_effort: is {effort!r:.40}; give {', '.join(Effort)}")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ValueError(f"messages[{i}]: is of type {type(message).__name__}, not an object with role and content")
    system = SystemContent(date=date, effort=Effort(effort), namespaces=tuple(builtin))
    own, forms = (functions(tools),) if tools else (), (answer,) if answer is not None else ()
    n_leading = next((i for i, m in enumerate(messages) if m.get("role") not in _DEVELOPER), len(messages))
    texts = [_text(message, f"messages[{i}]") for i, message in enumerate(messages[:n_leading])]
    found = [Message("system", system)]
    if texts or own or forms:
        found.append(Message("developer", DeveloperContent("\n\n".join(texts) if texts else None, own, forms)))
    whole = messages[:-1] if begun else messages
    if begun and messages[-1].get("role") not in ("user", "assistant"):
        raise ValueError(f"messages[{len(whole)}].role: only a user's or an assistant's text can go on")
    answers = [i for i, m in enumerate(whole) if m.get("role") == "assistant" and not m.get("tool_calls")]
    last_answer = answers[-1] if answers else -1
    names: dict[str, str] = {}
    for i, message in enumerate(messages[n_leading:], n_leading):
        found += _convert(message, f"messages[{i}]", i > last_answer, names)
    return found


_DEVELOPER = ("system", "developer")


def _convert(message: Mapping[str, Any], where: str, thinks: bool, names: dict[str, str]) -> Iterator[Message]:
    role = message.get("role")
    if role == "user":
        yield Message("user", _text(message, where))
    elif role in _DEVELOPER:
        yield Message("developer", DeveloperContent(_text(message, where)))
    elif role == "tool":
        called = message.get("tool_call_id", message.get("name"))
        name = names.get(called, message.get("name")) if isinstance(called, str) else None
        if not isinstance(name, str):
            raise ValueError(f"{where}.tool_call_id: is {called!r:.80}, which no call before it has")
        yield Message(f"functions.{name}", _text(message, where), channel="commentary", recipient="assistant")
    elif role == "assistant":
        yield from _assistant(message, where, thinks, names)
    else:
        raise ValueError(f"{where}.role: is {role!r:.40}; give system, developer, user, assistant or tool")


def _assistant(message: Mapping[str, Any], where: str, thinks: bool, names: dict[str, str]) -> Iterator[Message]:
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    calls = message.get("tool_calls") or []
    if reasoning is not None and not isinstance(reasoning, str):
        raise ValueError(f"{where}.reasoning_content: is of type {type(reasoning).__name__}, not text")
    if reasoning and thinks:
        yield Message("assistant", reasoning, channel="analysis")
    content = "" if calls and message.get("content") is None else _text(message, where)
    if content or not calls:
        yield Message("assistant", content, channel="commentary" if calls else "final")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise ValueError(f"{where}.tool_calls: is of type {type(calls).__name__}, not a list of calls")
    for i, call in enumerate(calls):
        name, arguments = _call(call, f"{where}.tool_calls[{i}]")
        if isinstance(call_id := call.get("id"), str):
            names[call_id] = name
        names[name] = name
        yield Message(
            "assistant",
            arguments,
            channel="commentary",
            recipient=f"functions.{name}",
            content_type="<|constrain|>json",
        )


def _call(call: object, where: str) -> tuple[str, str]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name or len(name.split()) != 1:
        raise ValueError(f"{where}.function.name: is {name!r:.80}; give the name of the function that was called")
    arguments = function.get("arguments", "{}")
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _text(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if content is None and message.get("role") == "assistant":
        return ""
    if isinstance(content, list):
        texts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content
        ]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(text for text in texts if isinstance(text, str))
    if not isinstance(content, str):
        raise ValueError(f"{where}.content: is {content!r:.40}; give text, or a list of text parts")
    return content
