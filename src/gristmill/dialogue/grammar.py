"""What an answer may be -> a grammar of all that is generated: a thought, then calls, or a text that is constrained,
each format in its own way. It knows no vocabulary but which marks are special tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from gristmill.dialogue import deepseek, harmony, llama, qwen, qwen3_coder, tagged
from gristmill.dialogue.parameter_rules import parameter_rules
from gristmill.dialogue.parameters import is_pointer, moved, without
from gristmill.dialogue.types import AUTO, ChoiceMode, Kind, Thought, Tool, ToolChoice
from gristmill.types import Frame, StructuredOutputsParams

_OPENINGS = {
    Kind.QWEN: qwen.HermesSyntax.openings,
    Kind.QWEN3_CODER: qwen3_coder.Qwen3CoderSyntax.openings,
    Kind.DEEPSEEK: deepseek.DeepSeekSyntax.openings,
}
"""Of calls, where answers may begin with a thought in tags."""
_HARMONY = harmony.TEXTS
_LINE = "\n"
_PLACE = re.compile(r"\bat ([0-9]{1,6})\([0-9]+\): (.*?)(?: [0-9]+ \| |$)", re.DOTALL)
_RULE_OF_TOOL = re.compile(r"(?:args|ARGS|call)_([0-9]{1,6})")
_SPACE = r"[ \t\r\n]*"
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_OF_ARRAYS = ("uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems")
_OF_OBJECTS = ("unevaluatedProperties", "dependentRequired", "dependentSchemas", "dependencies")
_UNSAID = frozenset(["not", "if", "then", "else", *_OF_ARRAYS, *_OF_OBJECTS])
"""Keywords that no grammar can say; tools that are not strict promise none of them."""


def answer_grammar(
    kind: Kind | str,
    answer: StructuredOutputsParams | None = None,
    tools: Sequence[Tool] = (),
    tool_choice: ToolChoice = AUTO,
    *,
    parallel: bool = True,
    special_tokens: Collection[str] = (),
    thought: Thought = Thought.POSSIBLE,
) -> StructuredOutputsParams | None:
    """What makes an answer call where it has to, and otherwise keep to `answer` unless it calls. None: all is free.

    A thought, where the format has one, is free text; what is constrained begins after it. What comes out is what
    `make_parser` of the same kind (`constrained` where there is an `answer`) reads as reasoning, and then as calls
    whose arguments keep to their schemas, or as content that keeps to `answer` to the letter.

    answer          of the content. A Lark grammar is the content as the model writes it: line ends after a thought are
                    left out, and where the model may think or not it describes the thought too. Only Harmony, whose
                    calls are elsewhere, has calls beside it
    tools           where any is strict, calls keep to the schemas of all of them, and text is free that is none and
                    comes before. Llama's calls, which begin with a brace, come first, and text begins with none. Of
                    schemas of tools that are not strict, what no grammar can say is left out
    tool_choice     REQUIRED or NAMED: an answer calls, and `answer` has no say. A NAMED function is called once
    parallel        one call or more; False: one. Harmony's answers end with the first
    special_tokens  texts of the vocabulary's special tokens (`Tokenizer.special_ids`): such marks are no text
    Raises ValueError for tools that are missing, for PLAIN, which has no calls, for a Lark grammar beside tools but
    in Harmony, and for a schema that a format cannot keep to (`parameter_rules`).
    Schemas are checked where the grammar is compiled.
    """
    kind = Kind(kind)
    forced = tool_choice.mode in (ChoiceMode.REQUIRED, ChoiceMode.NAMED)
    wanted = [] if tool_choice.mode is ChoiceMode.NONE else [t for t in tools if tool_choice.name in (None, t.name)]
    several = parallel and tool_choice.mode is not ChoiceMode.NAMED
    writer = _Writer(frozenset(special_tokens), wanted, several, thought)
    if forced:
        if not wanted:
            named = tool_choice.name or str(tool_choice.mode)
            raise ValueError(f"tool_choice: {named} calls none of the {len(tools)} tools")
        if kind is Kind.PLAIN:
            raise ValueError("tool_choice: this model's chat format has no calls that could be forced; give 'auto'")
        return StructuredOutputsParams(grammar=writer.write(kind, "calls"))
    if kind is Kind.PLAIN:
        return answer
    if answer is None:
        strict = any(tool.strict for tool in wanted) and not (kind is Kind.HARMONY and thought is Thought.NONE)
        return StructuredOutputsParams(grammar=writer.write(kind, "calls | @text")) if strict else None
    if answer.grammar is not None and wanted and kind is not Kind.HARMONY:  # it might write what is read as a call
        raise ValueError("structured_outputs.grammar: cannot be kept together with tools; leave one out")
    if kind is Kind.HARMONY and thought is Thought.NONE:  # it goes on within a message
        return answer
    if answer.grammar is not None and kind is not Kind.HARMONY and thought is not Thought.OPEN:
        return answer
    ends = "calls | @answer" if wanted else "@answer"
    return replace(answer, frame=Frame(writer.write(kind, ends), _not_answer(kind, bool(wanted), thought)))


def faulty_tool(grammar: str, reason: str) -> tuple[int, str] | None:
    """Of what llguidance says of a grammar that was made here: which of its tools has the schema that is wrong, and
    what is wrong with it. None: something else is."""
    if not (said := _PLACE.search(reason)):
        return None
    line = grammar.split("\n")[int(said[1]) - 1 :][:1]
    rule = _RULE_OF_TOOL.match("".join(line))
    return (int(rule[1]), said[2].removeprefix("failed to compile JSON schema: ")) if rule else None


def _not_answer(kind: Kind, calls: bool, thought: Thought) -> str | None:
    """What a parser would take for a thought or a call, and line ends that it leaves out after a thought."""
    if kind not in _OPENINGS:
        return None
    openings = _OPENINGS[kind] if calls else ()
    marks = (*openings, *(() if thought is Thought.OPEN else (tagged.THINK,)))
    found = [r"[ \t\r\n]*(?:" + "|".join(map(re.escape, marks)) + ")"] if marks else []
    found += [] if thought is Thought.NONE else [r"[\r\n]"]
    return "(?:" + "|".join(found) + ")(?s:.*)"


class _Writer:
    """Rules in Lark, as llguidance understands it."""

    def __init__(self, special: frozenset[str], tools: Sequence[Tool], several: bool, thought: Thought) -> None:
        self._special = special
        self._tools = tools
        self._several = several
        self._thought = thought

    def write(self, kind: Kind, ends: str) -> str:
        """ends: what may follow the thought, "calls" among it or not. @text: any that no parser takes for a call."""
        thoughts = kind in _OPENINGS and self._thought is not Thought.NONE
        match kind:
            case Kind.QWEN:
                rules = self._qwen()
            case Kind.QWEN3_CODER:
                rules = self._qwen3_coder()
            case Kind.DEEPSEEK:
                rules = self._deepseek()
            case Kind.LLAMA:
                rules = self._llama_beside_an_answer() if "@answer" in ends else self._llama()
            case _:
                return "\n".join(self._harmony(ends)) + "\n"
        start = {Thought.OPEN: "thought GAP ", Thought.POSSIBLE: "(thought GAP)? "}[self._thought] if thoughts else ""
        rules = rules if self._tools else []
        if "@text" in ends:
            ends, text = self._text_or_calls(kind)
            rules += text
        return "\n".join([f"start: {start}({ends})", *rules, *(self._thought_rules() if thoughts else [])]) + "\n"

    def _text_or_calls(self, kind: Kind) -> tuple[str, list[str]]:
        """What may follow the thought, and its rules. Where the mark of calls is spelled, text ends with it."""
        if kind not in _OPENINGS:
            never = _holds("{", llama.PYTHON, within=_SPACE)
            return "(calls | TEXT_ALONE)?", [_piece("TEXT_ALONE", "(?s:.+)", [never])]
        begins = [regex] if (regex := _not_answer(kind, False, self._thought)) is not None else []
        marks = _OPENINGS[kind]
        alone = _piece("TEXT_ALONE", "(?s:.+)", [_holds(*marks), *begins])
        if marks[0] in self._special:
            return "(TEXT_ALONE? calls | TEXT_ALONE)?", [alone]
        others = [_holds(*marks[1:])] if marks[1:] else []
        up_to = _piece("UP_TO_CALLS", f"(?s:.*){re.escape(marks[0])}", [*others, *begins])
        return "(up_to_calls begun | TEXT_ALONE)?", [alone, up_to, "up_to_calls[lazy]: UP_TO_CALLS"]

    def _arguments(self) -> list[str]:
        return [f"args_{i}: %json {json.dumps(_schema(tool))}" for i, tool in enumerate(self._tools)]

    def _qwen(self) -> list[str]:
        names = self._names('\n{"name": "', '", "arguments": ', "}\n")
        return [*self._hermes(names), *self._arguments()]

    def _qwen3_coder(self) -> list[str]:
        names = self._names(f"\n{qwen3_coder.FUNCTION}", ">\n", f"{qwen3_coder.END_FUNCTION}\n")
        tools = [replace(tool, parameters=_parameters(tool)) for tool in self._tools]
        arguments = [rule for i, tool in enumerate(tools) for rule in parameter_rules(f"args_{i}", tool)]
        return [*self._hermes(names), *arguments]

    def _hermes(self, names: str) -> list[str]:
        opening = self._mark(qwen.OPEN)
        opened = f"opened: ({names}) {self._mark(qwen.CLOSE)}"
        return [f"calls: {opening} begun", f"begun: opened{self._more(_LINE)}", f"call: {opening} opened", opened]

    def _deepseek(self) -> list[str]:
        begin = " ".join([self._mark(deepseek.CALL), '"function"', self._mark(deepseek.SEP)])
        names = self._names("", "\n```json\n", "\n```")
        call = f"call: {begin} ({names}) {self._mark(deepseek.END_CALL)}"
        begun = f"begun: call{self._more(_LINE)} {self._mark(deepseek.END_CALLS)}"
        return [f"calls: {self._mark(deepseek.CALLS)} begun", begun, call, *self._arguments()]

    def _llama(self) -> list[str]:
        names = self._names('{"name": "', '", "parameters": ', "}")
        return [f"calls: call{self._more('; ')}", f"call: {names}", *self._arguments()]

    def _llama_beside_an_answer(self) -> list[str]:
        """Calls as JSON: the answer may be JSON too, and of pieces that begin alike the longest would be taken."""
        names = " | ".join(f"call_{i}" for i in range(len(self._tools)))
        calls = [f"call_{i}: %json {json.dumps(_call_schema(tool))}" for i, tool in enumerate(self._tools)]
        return [f"calls: call{self._more('; ')}", f"call: {names}", *calls]

    def _harmony(self, ends: str) -> list[str]:
        start, end, message = _HARMONY[harmony.START], _HARMONY[harmony.END], _HARMONY[harmony.MESSAGE]
        channel, constrain = _HARMONY[harmony.CHANNEL], _HARMONY[harmony.CONSTRAIN]
        heads = [_quote(f"commentary to=functions.{tool.name} ") for tool in self._tools]
        calls = " | ".join(f'{head} {constrain} "json" {message} args_{i}' for i, head in enumerate(heads))
        thought = f'{channel} "analysis" {message} TEXT {end} {start} "assistant"'
        if "@text" in ends:  # a preamble, which goes before calls
            thought += f' | {channel} "commentary" {message} TEXT {end} {start} "assistant"'
        ends = ends.replace("@answer", f'"final" {message} @answer').replace("@text", f'"final" {message} TEXT')
        rules = [f"start: thought* {channel} ({ends})", f"thought: {thought}", "TEXT: /(?s:.*)/"]
        return [*rules, f"calls: {calls}", *self._arguments()] if self._tools else rules

    def _names(self, before: str, between: str, after: str) -> str:
        """Alternatives, one a tool: its name and its arguments with texts around them."""
        ends = f" {_quote(after)}" if after else ""
        heads = [_quote(f"{before}{tool.name}{between}") for tool in self._tools]
        return " | ".join(f"{head} args_{i}{ends}" for i, head in enumerate(heads))

    def _more(self, separator: str) -> str:
        return f" ({_quote(separator)} call)*" if self._several else ""

    def _mark(self, text: str) -> str:
        return text if text in self._special else _quote(text)

    def _thought_rules(self) -> list[str]:
        """A parser ends the thought at the first closing tag, whether it is a special token or spelled."""
        opening = "" if self._thought is Thought.OPEN else f"{self._mark(tagged.THINK)} "
        gap = "GAP: /\\n{0,2}/"
        if tagged.END_THINK in self._special:
            text = r"TEXT: /(?s:.*)/ & ~/(?s:.*)<\/think>(?s:.*)/"
            return [f"thought: {opening}TEXT {tagged.END_THINK}", text, gap]
        return [f"thought: {opening}closed", "closed[lazy]: /(?s:.*)<\\/think>/", gap]


def _piece(name: str, regex: str, never: Sequence[str]) -> str:
    """A terminal: what matches the first, and none of the others."""
    return f"{name}: /{regex}/" + "".join(f" & ~/{other}/" for other in never)


def _holds(*marks: str, within: str = "(?s:.*)") -> str:
    """A regex of texts that have one of these, after what matches `within`."""
    return within + "(?:" + "|".join(map(re.escape, marks)) + ")(?s:.*)"


def _schema(tool: Tool) -> dict[str, Any]:
    return {**_parameters(tool), "type": "object"} if tool.parameters else _NO_ARGUMENTS


def _parameters(tool: Tool) -> Any:
    return tool.parameters if tool.strict else without(tool.parameters, _UNSAID)


def _call_schema(tool: Tool) -> dict[str, Any]:
    """Of a whole call in Llama's words."""
    parameters = moved(_schema(tool), lambda to: f"#/properties/parameters{to[1:]}" if is_pointer(to) else to)
    properties = {"name": {"const": tool.name}, "parameters": parameters}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
