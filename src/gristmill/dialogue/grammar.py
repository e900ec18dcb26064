"""Forced calls: tool_choice -> a grammar of answers that call, each format in its own way. It knows no vocabulary but
which marks are special tokens."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from gristmill.dialogue import deepseek, harmony, qwen, tagged
from gristmill.dialogue.types import ChoiceMode, Kind, Tool, ToolChoice
from gristmill.types import StructuredOutputsParams

_HARMONY = harmony.TEXTS
_LINE = "\n"
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def tool_grammar(
    kind: Kind | str,
    tools: Sequence[Tool],
    tool_choice: ToolChoice,
    *,
    parallel: bool = True,
    special_tokens: Collection[str] = (),
    starts_in_reasoning: bool = False,
) -> StructuredOutputsParams | None:
    """What makes an answer call: a thought where the format has one, then calls whose arguments keep to their schemas.

    tool_choice          for AUTO and NONE there is nothing to force: None. A NAMED function is called once
    parallel             REQUIRED: one call or more; False: one. Harmony's answers end with the first
    special_tokens       texts of the vocabulary's special tokens (`Tokenizer.special_ids`): such marks are no text
    starts_in_reasoning  the prompt has opened the thought: see `ends_in_thinking`
    What comes out is what `make_parser` of the same kind reads as calls and, before them, reasoning. Raises ValueError
    for tools that are missing, and for PLAIN, which has no calls. Schemas are checked where the grammar is compiled.
    """
    if tool_choice.mode in (ChoiceMode.AUTO, ChoiceMode.NONE):
        return None
    wanted = [tool for tool in tools if tool_choice.name in (None, tool.name)]
    if not wanted:
        raise ValueError(f"tool_choice: {tool_choice.name or tool_choice.mode!s} calls none of the {len(tools)} tools")
    several = parallel and tool_choice.mode is ChoiceMode.REQUIRED
    writer = _Writer(frozenset(special_tokens), wanted, several, starts_in_reasoning)
    match Kind(kind):
        case Kind.QWEN:
            rules = writer.qwen()
        case Kind.DEEPSEEK:
            rules = writer.deepseek()
        case Kind.LLAMA:
            rules = writer.llama()
        case Kind.HARMONY:
            rules = writer.harmony()
        case Kind.PLAIN:
            raise ValueError("tool_choice: this model's chat format has no calls that could be forced; give 'auto'")
    return StructuredOutputsParams(grammar="\n".join([*rules, *writer.arguments()]) + "\n")


class _Writer:
    """Rules in Lark, as llguidance understands it."""

    def __init__(
        self, special: frozenset[str], tools: Sequence[Tool], several: bool, starts_in_reasoning: bool
    ) -> None:
        self._special = special
        self._tools = tools
        self._several = several
        self._starts_in_reasoning = starts_in_reasoning

    def qwen(self) -> list[str]:
        names = self._names('\n{"name": "', '", "arguments": ', "}\n")
        call = f"call: {self._mark(qwen.OPEN)} ({names}) {self._mark(qwen.CLOSE)}"
        calls = self._calls(_LINE)
        return [f"start: {self._thought()} {calls}", call, *self._thought_rules()]

    def deepseek(self) -> list[str]:
        begin = " ".join([self._mark(deepseek.CALL), '"function"', self._mark(deepseek.SEP)])
        names = self._names("", "\n```json\n", "\n```")
        call = f"call: {begin} ({names}) {self._mark(deepseek.END_CALL)}"
        calls = f"{self._mark(deepseek.CALLS)} {self._calls(_LINE)} {self._mark(deepseek.END_CALLS)}"
        return [f"start: {self._thought()} {calls}", call, *self._thought_rules()]

    def llama(self) -> list[str]:
        names = self._names('{"name": "', '", "parameters": ', "}")
        calls = self._calls("; ")
        return [f"start: {calls}", f"call: {names}"]

    def harmony(self) -> list[str]:
        start, end, message = _HARMONY[harmony.START], _HARMONY[harmony.END], _HARMONY[harmony.MESSAGE]
        channel, constrain = _HARMONY[harmony.CHANNEL], _HARMONY[harmony.CONSTRAIN]
        heads = [_quote(f"commentary to=functions.{tool.name} ") for tool in self._tools]
        calls = " | ".join(f'{head} {constrain} "json" {message} args_{i}' for i, head in enumerate(heads))
        thought = f'{channel} "analysis" {message} TEXT {end} {start} "assistant"'
        return [f"start: thought* {channel} ({calls})", f"thought: {thought}", "TEXT: /(?s:.*)/"]

    def arguments(self) -> list[str]:
        """A rule for each tool's arguments."""
        return [f"args_{i}: %json {json.dumps(_schema(tool))}" for i, tool in enumerate(self._tools)]

    def _names(self, before: str, between: str, after: str) -> str:
        """Alternatives, one a tool: its name and its arguments with texts around them."""
        ends = f" {_quote(after)}" if after else ""
        heads = [_quote(f"{before}{tool.name}{between}") for tool in self._tools]
        return " | ".join(f"{head} args_{i}{ends}" for i, head in enumerate(heads))

    def _calls(self, separator: str) -> str:
        return f"call ({_quote(separator)} call)*" if self._several else "call"

    def _mark(self, text: str) -> str:
        return text if text in self._special else _quote(text)

    def _thought(self) -> str:
        return "thought GAP" if self._starts_in_reasoning else "(thought GAP)?"

    def _thought_rules(self) -> list[str]:
        opening = "" if self._starts_in_reasoning else f"{self._mark(tagged.THINK)} "
        gap = "GAP: /\\n{0,2}/"
        if tagged.END_THINK in self._special:
            return [f"thought: {opening}TEXT {tagged.END_THINK}", "TEXT: /(?s:.*)/", gap]
        return [f"thought: {opening}closed", "closed[lazy]: /(?s:.*)<\\/think>/", gap]


def _schema(tool: Tool) -> dict[str, Any]:
    return {**tool.parameters, "type": "object"} if tool.parameters else _NO_ARGUMENTS


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
