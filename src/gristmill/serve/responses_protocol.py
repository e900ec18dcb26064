"""Fields of /v1/responses, and the same conversation as a chat request. Nothing is kept between requests."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from gristmill.serve.chat_protocol import ChatRequest, Effort
from gristmill.serve.errors import refuse, unsupported
from gristmill.serve.protocol import Count, Label, Strict
from gristmill.serve.renaming import renaming
from gristmill.serve.wire import take_neutral, validate


class Reasoning(Strict):
    effort: Effort | None = None


class TextFormat(Strict):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class Text(Strict):
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ResponsesStreamOptions(Strict):
    include_obfuscation: Literal[False] = False


class ResponsesRequest(Strict):
    """client_metadata: labels, as Codex sends them. ignore_eos is vLLM's, for benchmarks."""

    model: Annotated[str, Field(max_length=512)] | None = None
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stream: bool = False
    stream_options: ResponsesStreamOptions | None = None
    ignore_eos: bool = False
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning: Reasoning | None = None
    text: Text | None = None
    metadata: dict[str, Label] | None = None
    client_metadata: dict[str, str] | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None


REFUSED: Final[dict[str, tuple[Any, ...]]] = {
    "background": (False,),
    "conversation": (),
    "include": ([], ["reasoning.encrypted_content"]),  # thoughts are in answers as they are
    "max_tool_calls": (),
    "previous_response_id": (),
    "prompt": (),
    "prompt_cache_retention": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Fields of the API that are not there, with the values that ask for nothing."""

_ITEMS: Final = {
    "message": {"role", "content", "status", "id", "phase"},
    "function_call": {"call_id", "name", "arguments", "status", "id"},
    "function_call_output": {"call_id", "output", "status", "id"},
    "reasoning": {"summary", "content", "status", "id"},
}
_REFUSED_IN_ITEMS: Final[dict[str, tuple[Any, ...]]] = {"encrypted_content": (None, "")}
_NAMES: Final = {
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format.schema",
    "response_format.json_schema.schema": "text.format.schema",
}
_ROLES: Final = ("user", "assistant", "system", "developer")
_TEXTS: Final = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


def as_chat(request: ResponsesRequest) -> tuple[ChatRequest, dict[str, str]]:
    """The chat request, and names for `renaming`. ApiError for what has no counterpart."""
    messages: list[dict[str, Any]] = []
    names = _NAMES | {f"tools[{i}].function": f"tools[{i}]" for i in range(len(request.tools or ()))}
    if request.instructions is not None:
        messages.append({"role": "system", "content": request.instructions})
        names["messages[0]"] = "instructions"
    items = [{"role": "user", "content": request.input}] if isinstance(request.input, str) else request.input
    for i, item in enumerate(items):
        names |= _add(messages, item, f"input[{i}]")
        names.setdefault(f"messages[{len(messages) - 1}]", f"input[{i}]")
    if not messages:
        raise refuse("input", "is an empty list; give text, or at least one item")
    for message in messages:
        if "thoughts" in message:
            message["reasoning_content"] = "\n".join(filter(None, message.pop("thoughts")))
    fields: dict[str, Any] = {
        "messages": messages,
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stream": request.stream,
        "ignore_eos": request.ignore_eos,
        "tools": _tools(request.tools) or None,
        "tool_choice": request.tool_choice,
        "parallel_tool_calls": request.parallel_tool_calls,
        "reasoning_effort": request.reasoning.effort if request.reasoning is not None else None,
        "response_format": _format(request.text.format if request.text is not None else None),
    }
    with renaming(names):
        return validate(ChatRequest, {name: value for name, value in fields.items() if value is not None}), names


def _add(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> dict[str, str]:
    """Thoughts, text and calls that follow each other are one message of the assistant's. -> for `renaming`"""
    kind = item.get("type", "message")
    if kind == "item_reference":
        problem = "'item_reference' names what this server would have stored, and it stores nothing"
        raise unsupported(f"{where}.type", f"{problem}; send the items themselves (clients do with store: false)")
    if not isinstance(kind, str) or kind not in _ITEMS:
        raise unsupported(f"{where}.type", f"{kind!r:.40} is not supported; give {', '.join(_ITEMS)}")
    item = take_neutral(item, _REFUSED_IN_ITEMS, f"{where}.")
    for name in sorted(set(item) - _ITEMS[kind] - {"type"}):
        raise unsupported(f"{where}.{name:.80}")
    if kind == "message":
        if item.get("role") not in _ROLES:
            raise refuse(f"{where}.role", f"is {item.get('role')!r:.40}; give {', '.join(_ROLES)}")
        message = {"role": item["role"], "content": _text(item.get("content"), f"{where}.content")}
        last = messages[-1] if messages else {}
        if message["role"] == "assistant" and last.get("role") == "assistant" and "content" not in last:
            last["content"] = message["content"]
        else:
            messages.append(message)
    elif kind == "function_call_output":
        text = _text(item.get("output"), f"{where}.output")
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
        return {f"messages[{len(messages) - 1}].tool_call_id": f"{where}.call_id"}
    else:
        if (
            not messages
            or messages[-1]["role"] != "assistant"
            or (kind == "reasoning" and "tool_calls" in messages[-1])
        ):
            messages.append({"role": "assistant"})
        if kind == "reasoning":
            thought = _text(item.get("content") or item.get("summary") or "", f"{where}.content")
            messages[-1].setdefault("thoughts", []).append(thought)
        else:
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            calls = messages[-1].setdefault("tool_calls", [])
            place = f"messages[{len(messages) - 1}].tool_calls[{len(calls)}]"
            calls.append(call)
            return {f"{place}.id": f"{where}.call_id", f"{place}.function": where}
    return {}


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise refuse(where, "is neither text nor a list of parts")
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _TEXTS or not isinstance(part.get("text"), str):
            raise unsupported(f"{where}[{i}].type", f"{kind!r:.40} is not supported; only parts of text are")
        for name in sorted(set(part) - {"type", "text", "annotations", "logprobs"}):
            raise unsupported(f"{where}[{i}].{name:.80}")
    return "\n".join(part["text"] for part in content)


def _tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    found = []
    for i, tool in enumerate(tools or ()):
        if tool.get("type") != "function":
            raise unsupported(f"tools[{i}].type", f"{tool.get('type')!r:.40} is not supported; only 'function' is")
        function = {name: value for name, value in tool.items() if name != "type"}
        found.append({"type": "function", "function": function})
    return found


def _format(form: TextFormat | None) -> dict[str, Any] | None:
    if form is None:
        return None
    if form.type != "json_schema" and form.schema_ is not None:
        raise refuse("text.format.schema", "is for the type json_schema")
    if form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    if form.schema_ is None:
        raise refuse("text.format.schema", "is missing", "missing_required_parameter")
    schema = {"name": form.name or "answer", "schema": form.schema_}
    schema |= {"description": form.description} if form.description is not None else {}
    return {"type": "json_schema", "json_schema": schema}
