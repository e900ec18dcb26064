"""Tools and tool_choice of a request, as OpenAI's APIs have them: checked JSON -> Tool, ToolChoice. No format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gristmill.dialogue.types import AUTO, ChoiceMode, Tool, ToolChoice

MAX_TOOLS: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


def read_tools(tools: object, where: str = "tools") -> tuple[Tool, ...]:
    """Of `[{"type": "function", "function": {"name", "description", "parameters", "strict"}}]`, or the same without
    the inner object as the Responses API has it. None is no tools. ValueError naming the field, its value and the
    remedy.
    """
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ValueError(f"{where}: is of type {type(tools).__name__}; give a list of tools")
    if len(tools) > MAX_TOOLS:
        raise ValueError(f"{where}: has {len(tools)} tools; at most {MAX_TOOLS} are allowed")
    found = tuple(_read_tool(tool, f"{where}[{i}]") for i, tool in enumerate(tools))
    names = [tool.name for tool in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{where}: {twice!r} is there more than once; names tell tools apart")
    return found


def _read_tool(tool: object, where: str) -> Tool:
    if not isinstance(tool, Mapping):
        raise ValueError(f"{where}: is of type {type(tool).__name__}, not an object")
    if tool.get("type") != "function":
        raise ValueError(f"{where}.type: is {tool.get('type')!r:.40}; only 'function' is supported")
    if "function" in tool:
        tool, where = tool["function"], f"{where}.function"
        if not isinstance(tool, Mapping):
            raise ValueError(f"{where}: is of type {type(tool).__name__}, not an object")
    name, description = tool.get("name"), tool.get("description")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{where}.name: is {name!r:.80}; give 1 to 64 letters, digits, '_', '-' and '.'")
    if description is not None and not isinstance(description, str):
        raise ValueError(f"{where}.description: is of type {type(description).__name__}, not text")
    strict = tool.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise ValueError(f"{where}.strict: is {strict!r:.40}; give true or false")
    parameters = _read_parameters(tool.get("parameters"), f"{where}.parameters")
    return Tool(name, description or "", parameters, strict is True)


def _read_parameters(parameters: object, where: str) -> Mapping[str, Any] | None:
    if parameters is None:
        return None
    if not isinstance(parameters, Mapping):
        raise ValueError(f"{where}: is of type {type(parameters).__name__}; give a JSON schema, an object")
    if parameters.get("type", "object") != "object":
        raise ValueError(f"{where}.type: is {parameters['type']!r:.40}; a call's arguments are always an object")
    return parameters


def read_tool_choice(choice: object, tools: Sequence[Tool], where: str = "tool_choice") -> ToolChoice:
    """Of "auto", "none", "required", `{"type": "function", "function": {"name": ...}}` or the same without the inner
    object. None is "auto". ValueError for anything else, and for a call that is asked for but cannot be.
    """
    if choice is None:
        return AUTO
    if choice in ("auto", "none"):
        return ToolChoice(ChoiceMode(choice))
    if choice == "required":
        if not tools:
            raise ValueError(f"{where}: is 'required', but there are no tools")
        return ToolChoice(ChoiceMode.REQUIRED)
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or all(tool.name != name for tool in tools):
            raise ValueError(f"{where}: names {name!r:.80}, which is none of the tools")
        return ToolChoice(ChoiceMode.NAMED, name)
    raise ValueError(
        f"{where}: is {choice!r:.80}; give 'auto', 'none', 'required' or"
        " {'type': 'function', 'function': {'name': '...'}}"
    )


def callable_names(tools: Sequence[Tool], choice: ToolChoice) -> frozenset[str]:
    """What an answer may call."""
    if choice.mode is ChoiceMode.NONE:
        return frozenset()
    if choice.name is not None:
        return frozenset([choice.name])
    return frozenset(tool.name for tool in tools)
