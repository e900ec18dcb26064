"""Fields of Anthropic's /v1/messages, and the same conversation as a chat request. It knows no answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from gristmill.dialogue.types import Kind
from gristmill.serve.chat_protocol import ChatRequest
from gristmill.serve.errors import refuse, unsupported
from gristmill.serve.protocol import Count, Label, Strict
from gristmill.serve.renaming import renaming
from gristmill.serve.texts import Texts
from gristmill.serve.wire import take_neutral, validate


class Turn(Strict):
    """system: what counts from there on, as Claude Code tells it."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class Metadata(Strict):
    user_id: Label | None = None


class CacheControl(Strict):
    """A hint: the cache looks at every prompt without being told, and keeps what it has room for."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Diagnostics(Strict):
    """A hint, by which answers may say why the cache had no more of the prompt; here they do not."""

    previous_message_id: Label | None = None


class Edit(Strict):
    """Takes nothing out of the conversation, or is refused. keep: 'all', which some clients say as {'type': 'all'}."""

    type: Label
    keep: Any = None

    @model_validator(mode="after")
    def _keeps_all(self) -> Edit:
        if self.keep not in ("all", {"type": "all"}):
            raise ValueError(f"{self.type!r:.40} would change the conversation; only what keeps 'all' is supported")
        return self


class ContextManagement(Strict):
    edits: list[Edit] | None = None


class Thinking(Strict):
    """budget_tokens is a target and no limit, in this API as here. display: whether thoughts are told."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Strict):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Strict):
    """effort: for models that know low, medium and high, of which xhigh and max are the last. Others answer with all
    they have, which this API calls high."""

    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Choice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class CountRequest(Strict):
    model: Annotated[str, Field(max_length=512)] | None = None
    messages: Annotated[list[Turn], Field(min_length=1, max_length=65536)]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    context_management: ContextManagement | None = None


class MessagesRequest(CountRequest):
    max_tokens: Count
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    stop_sequences: list[str] | None = None
    stream: bool = False
    metadata: Metadata | None = None
    diagnostics: Diagnostics | None = None

    @property
    def tells_thoughts(self) -> bool:
        return self.thinking is None or self.thinking.display != "omitted"


REFUSED: Final[dict[str, tuple[Any, ...]]] = {
    "container": (),
    "mcp_servers": ([],),
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
    "thread": (),
}
"""Fields of the API that are not there, with the values that ask for nothing."""

_REFUSED_IN_TOOLS: Final[dict[str, tuple[Any, ...]]] = {
    "allowed_callers": (["direct"],),
    "defer_loading": (False,),
    "eager_input_streaming": (True, False),  # inputs go out as they come in any case
    "input_examples": ([],),
}

_NAMES: Final = {
    "reasoning_effort": "output_config.effort",
    "response_format": "output_config.format.schema",
    "response_format.json_schema.schema": "output_config.format.schema",
    "stop": "stop_sequences",
}
_BLOCKS: Final = {
    "text": {"text"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "thinking": {"thinking", "signature"},
}
_HINTS: Final = {"type", "cache_control", "citations", "caller"}


def as_chat(request: CountRequest, texts: Texts) -> tuple[ChatRequest, dict[str, str]]:
    """The chat request, and names for `renaming`. ApiError for what has no counterpart."""
    messages: list[dict[str, Any]] = []
    names = _NAMES | {
        f"tools[{i}].function{chat}": f"tools[{i}]{own}"
        for i in range(len(request.tools or ()))
        for chat, own in (("", ""), (".parameters", ".input_schema"))
    }
    is_begun = request.messages[-1].role == "assistant"
    in_place = texts.shows_later_system
    first = [_text(request.system, "system")] if request.system is not None else []
    if not in_place:
        later = [(i, turn) for i, turn in enumerate(request.messages) if turn.role == "system"]
        first += [_text(turn.content, f"messages[{i}].content") for i, turn in later]
    if first:
        messages.append({"role": "system", "content": "\n".join(first)})
        names["messages[0]"] = "system"
    for i, turn in enumerate(request.messages):
        where, n_before = f"messages[{i}].content", len(messages)
        if turn.role == "user":
            for message, block in _user(_blocks(turn.content, where, {"text", "tool_result"}), where):
                names[f"messages[{len(messages)}].tool_call_id"] = f"{block}.tool_use_id"
                messages.append(message)
        elif turn.role == "assistant":
            blocks = _blocks(turn.content, where, {"text", "tool_use", "thinking"})
            messages.append(_assistant(blocks))
            calls = [f"{where}[{n}]" for n, block in enumerate(blocks) if block["type"] == "tool_use"]
            for n, call in enumerate(calls):
                place = f"messages[{n_before}].tool_calls[{n}]"
                names |= {place: call, f"{place}.function": call}
        elif in_place:
            messages.append({"role": "system", "content": _text(turn.content, where)})
        names |= {f"messages[{n}]": f"messages[{i}]" for n in range(n_before, len(messages))}
    fields: dict[str, Any] = {"messages": messages, **_tools(request), **_thinking(request.thinking, texts)}
    if (config := request.output_config) is not None:
        fields["reasoning_effort"] = _effort(config.effort, texts)
        if config.format is not None:
            fields["response_format"] = {"type": "json_schema", "json_schema": {"schema": config.format.schema_}}
    if is_begun:
        fields |= {"add_generation_prompt": False, "continue_final_message": True}
    if isinstance(request, MessagesRequest):
        fields |= {"max_tokens": request.max_tokens, "stream": request.stream, "stop": request.stop_sequences or None}
        fields |= {"temperature": request.temperature, "top_p": request.top_p, "top_k": request.top_k}
    with renaming(names):
        return validate(ChatRequest, {name: value for name, value in fields.items() if value is not None}), names


def _blocks(content: Any, where: str, kinds: set[str]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise refuse(where, "is neither text nor a list of blocks")
    for i, block in enumerate(content):
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            raise unsupported(f"{where}[{i}].type", f"{kind!r:.40} is not supported; give {' or '.join(sorted(kinds))}")
        for name in sorted(set(block) - _BLOCKS[kind] - _HINTS):
            raise unsupported(f"{where}[{i}].{name:.80}")
        for name in ("text", "thinking", "id", "name", "tool_use_id"):
            if name in _BLOCKS[kind] and not isinstance(block.get(name), str):
                raise refuse(f"{where}[{i}].{name}", "is no text")
        if kind == "tool_use" and not isinstance(block.get("input"), dict):
            raise refuse(f"{where}[{i}].input", "is no object")
    return content


def _text(content: Any, where: str) -> str:
    return "\n".join(block["text"] for block in _blocks(content, where, {"text"}))


def _user(blocks: list[dict[str, Any]], where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Messages, each with where it is. Results of calls are messages of their own."""
    for is_text, group in groupby(enumerate(blocks), lambda each: each[1]["type"] == "text"):
        if is_text:
            yield {"role": "user", "content": "\n".join(block["text"] for _, block in group)}, where
        else:
            yield from ((_result(block, f"{where}[{i}]"), f"{where}[{i}]") for i, block in group)


def _result(block: dict[str, Any], where: str) -> dict[str, Any]:
    text = _text(block.get("content", ""), f"{where}.content")
    text = f"Error: {text}" if block.get("is_error") is True else text
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}


def _assistant(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    message["content"] = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if thoughts := [block["thinking"] for block in blocks if block["type"] == "thinking"]:
        message["reasoning_content"] = "\n".join(thoughts)
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": _json(call["input"])},
            }
            for call in calls
        ]
    return message


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _tools(request: CountRequest) -> dict[str, Any]:
    tools = []
    for i, tool in enumerate(request.tools or ()):
        if tool.get("type", "custom") != "custom":
            raise unsupported(f"tools[{i}].type", f"{tool['type']!r:.40} is not supported; only 'custom' is")
        tool = take_neutral(tool, _REFUSED_IN_TOOLS, f"tools[{i}].")
        for name in sorted(set(tool) - {"type", "name", "description", "input_schema", "cache_control", "strict"}):
            raise unsupported(f"tools[{i}].{name:.80}")
        function: dict[str, Any] = {name: tool[name] for name in ("name", "description") if name in tool}
        function |= {"parameters": tool.get("input_schema")}  # in the order that models know
        function |= {"strict": tool["strict"]} if "strict" in tool else {}
        tools.append({"type": "function", "function": function})
    choice = request.tool_choice
    if choice is None:
        return {"tools": tools or None}
    if (choice.type == "tool") != (choice.name is not None):
        raise refuse("tool_choice.name", "is to be given with the type tool, and only with it")
    named = {"type": "function", "function": {"name": choice.name}}
    chosen: Any = {"auto": "auto", "any": "required", "none": "none", "tool": named}[choice.type]
    return {"tools": tools or None, "tool_choice": chosen, "parallel_tool_calls": not choice.disable_parallel_tool_use}


def _thinking(thinking: Thinking | None, texts: Texts) -> dict[str, Any]:
    """This API's models think only where they are asked to."""
    wanted = thinking is not None and thinking.type != "disabled"
    if "enable_thinking" in texts.template_words:
        return {"chat_template_kwargs": {"enable_thinking": wanted}}
    always = texts.kind in (Kind.DEEPSEEK, Kind.HARMONY)
    if thinking is not None and wanted != always:
        raise unsupported("thinking", f"{thinking.type!r} is nothing that this model's chat template has")
    return {}


def _effort(effort: str | None, texts: Texts) -> str | None:
    if effort is None or texts.kind is Kind.HARMONY or "reasoning_effort" in texts.template_words:
        return "high" if effort in ("xhigh", "max") else effort
    if effort != "high":
        raise unsupported("output_config.effort", f"{effort!r} is nothing that this model's chat template has")
    return None
