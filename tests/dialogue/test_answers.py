"""Constrained answers after thoughts and beside tools: what comes out is a call, or content that keeps to it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import jsonschema
import numpy as np
import pytest
from dialogue.helpers import Bytes, Parsed, put_together
from dialogue.test_grammar import SPECIAL, THOUGHTS, TOOLS, accepts, walk

from gristmill.dialogue.grammar import answer_grammar
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.types import AUTO, ChoiceMode, Delta, Thought, Tool, ToolChoice
from gristmill.engine.guide import GuideCompiler, GuideError
from gristmill.types import StructuredOutputsParams

KINDS = ["qwen", "qwen3_coder", "deepseek", "llama", "harmony"]
TRAPS = [
    "<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
    "<function=get_time></function>",
    '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
    "<think>hm</think>\n\n",
    '\n{"name": "get_time", "parameters": {}}',
    '<|python_tag|>get_time.call(a="b")',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜>",
    "<|end|><|start|>assistant<|channel|>analysis<|message|>no",
    "```\n{",
    " \n",
]
SCHEMA = {
    "type": "object",
    "properties": {"trap": {"enum": TRAPS}, "n": {"type": "array", "items": {"enum": [1, None, "</think>"]}}},
    "required": ["trap", "n"],
    "additionalProperties": False,
}
SCHEMA["properties"]["n"]["maxItems"] = 3  # type: ignore[index]
AS_JSON = StructuredOutputsParams(json=SCHEMA)
CALLS_FIRST = {
    "qwen": "<tool_call>",
    "qwen3_coder": "<tool_call>",
    "deepseek": "<｜tool▁calls▁begin｜>",
    "llama": '{"name": "get_',
    "harmony": "<|channel|>commentary",
}


def read(tokenizer: Bytes, kind: str, ids: Sequence[int], *, cut: int = 0, **options: Any) -> Parsed:
    """cut: how many tokens of the end are missing."""
    reader = DialogueReader(tokenizer, make_parser(kind, constrained=True, **options))
    deltas: list[Delta] = []
    for token_id in ids[: len(ids) - cut]:
        deltas += reader.push(token_id)
    return put_together(deltas + reader.finish())


def answers(
    kind: str, answer: StructuredOutputsParams, thought: Thought, beginning: str, *, n_special: int = 9, **options: Any
) -> list[Parsed]:
    """What random tokens under the masks say after `beginning`."""
    tokenizer = Bytes(SPECIAL[kind][:n_special])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    grammar = answer_grammar(kind, answer, special_tokens=tokenizer.special_ids, thought=thought, **options)
    starts = thought is Thought.OPEN and kind != "harmony"
    given = tokenizer.encode_all(beginning)
    found = []
    for seed in range(8):
        ids = walk(compiler, grammar, given, tokenizer.eos_ids, tokenizer.vocab_size, seed)
        found.append(read(tokenizer, kind, ids, starts_in_reasoning=starts, **options))
    return found


def thoughts(kind: str) -> list[tuple[Thought, str]]:
    """With the beginning of an answer: a thought that is there, one that is not, one that the prompt has opened.

    A random walk that may think does so and never ends, so it is told how to begin where there is a choice."""
    if kind == "harmony":
        final = "<|channel|>final<|message|>"
        return [(Thought.POSSIBLE, final), (Thought.POSSIBLE, THOUGHTS[kind] + final)]
    if kind == "llama":
        return [(Thought.NONE, "")]
    said = "so </thin\n{ <b></think>\n\n"
    return [(Thought.NONE, ""), (Thought.POSSIBLE, "<think>" + said), (Thought.OPEN, said)]


CASES = [(k, n, *case) for k in KINDS for n in (1, 9) for case in thoughts(k) if (k, n) != ("harmony", 1)]


@pytest.mark.parametrize(("kind", "n_special", "thought", "beginning"), CASES)
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["alone", "with tools"])
def test_content_keeps_to_its_schema(
    kind: str, n_special: int, thought: Thought, beginning: str, tools: Sequence[Any]
) -> None:
    beginning += '{"t' if tools else ""  # the beginning of an answer, not of a call
    seen = set()
    for parsed in answers(kind, AS_JSON, thought, beginning, n_special=n_special, tools=tools):
        assert not parsed.calls
        jsonschema.validate(json.loads(parsed.content), SCHEMA)
        seen.add(json.loads(parsed.content)["trap"])
        assert bool(parsed.reasoning) == ("think" in beginning or "analysis" in beginning)
    assert len(seen) > 1


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_looks_like_a_mark_stays_content(kind: str, trap: str) -> None:
    """Spelled with ordinary tokens, beside tools, in a string and in a place where a string would not stop it."""
    options: dict[str, Any] = {"tools": TOOLS}
    body = json.dumps([trap, trap], ensure_ascii=False)
    final = "<|channel|>final<|message|>" if kind == "harmony" else ""
    tokenizer = Bytes(SPECIAL[kind])
    ids = [*tokenizer.encode_all(final), *tokenizer.encode(body), tokenizer.eos_ids[0]]
    assert read(tokenizer, kind, ids, **options).content == body
    ids = [*tokenizer.encode_all(final), *tokenizer.encode("x" + trap), tokenizer.eos_ids[0]]
    parsed = read(tokenizer, kind, ids, **options)
    assert (parsed.content, parsed.calls, parsed.reasoning) == ("x" + trap, [], "")


@pytest.mark.parametrize(("kind", "n_special"), [(k, n) for k in KINDS for n in (1, 9) if (k, n) != ("harmony", 1)])
def test_a_call_is_the_other_choice(kind: str, n_special: int) -> None:
    for parsed in answers(kind, AS_JSON, Thought.POSSIBLE, CALLS_FIRST[kind], n_special=n_special, tools=TOOLS):
        assert parsed.calls
        assert parsed.content == ""
        schemas = {tool.name: tool.parameters or {"type": "object"} for tool in TOOLS}
        for name, arguments in parsed.calls:
            jsonschema.validate(json.loads(arguments), schemas[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_forced_call_needs_no_other_constraint(kind: str) -> None:
    grammar = answer_grammar(kind, AS_JSON, TOOLS, ToolChoice(ChoiceMode.REQUIRED))
    assert grammar == answer_grammar(kind, None, TOOLS, ToolChoice(ChoiceMode.REQUIRED))
    assert answer_grammar(kind, None, TOOLS, AUTO) is None
    none = answer_grammar(kind, AS_JSON, TOOLS, ToolChoice(ChoiceMode.NONE))
    assert none == answer_grammar(kind, AS_JSON)


REGEX = StructuredOutputsParams(regex=r"(?s:<think>.|\n|<tool_call>|[a-c]\n)[^x]{0,3}")


@pytest.mark.parametrize("kind", ["qwen", "qwen3_coder", "deepseek"])
@pytest.mark.parametrize("case", range(3))
def test_a_regex_keeps_to_what_is_read_as_content(kind: str, case: int) -> None:
    """What would be read as a thought, or stripped after one, is no answer any more."""
    thought, beginning = thoughts(kind)[case]
    for parsed in answers(kind, REGEX, thought, beginning):
        assert re.fullmatch(REGEX.regex or "", parsed.content), parsed
    choice = StructuredOutputsParams(choice=("\nb", "<think>", "<think>x", "a\n"))
    after = {Thought.NONE: ["\nb", "a\n"], Thought.POSSIBLE: ["a\n"], Thought.OPEN: ["<think>", "<think>x", "a\n"]}
    for parsed in answers(kind, choice, thought, beginning):
        assert parsed.content in after[thought]


@pytest.mark.parametrize("kind", ["llama", "harmony"])
def test_a_regex_of_formats_without_tags(kind: str) -> None:
    for thought, beginning in thoughts(kind):
        for parsed in answers(kind, REGEX, thought, beginning):
            assert re.fullmatch(REGEX.regex or "", parsed.content), parsed


def test_grammars_follow_a_thought_that_was_opened() -> None:
    lark = StructuredOutputsParams(grammar='start: "a" NUMBER\nNUMBER: /[0-9]{3}/\n')
    for parsed in answers("deepseek", lark, Thought.OPEN, "hm</think>\n\n"):
        assert re.fullmatch(r"a[0-9]{3}", parsed.content)
    for parsed in answers("harmony", lark, Thought.POSSIBLE, "<|channel|>final<|message|>"):
        assert re.fullmatch(r"a[0-9]{3}", parsed.content)
    assert answer_grammar("qwen", lark) == lark


def test_grammars_beside_tools() -> None:
    """Where calls have a channel of their own. Elsewhere a grammar might begin as a call does: nobody could tell."""
    lark = StructuredOutputsParams(grammar='start: "<|channel|>commentary to=" NUMBER\nNUMBER: /[0-9]{3}/\n')
    for parsed in answers("harmony", lark, Thought.POSSIBLE, "<|channel|>final<|message|>", tools=TOOLS):
        assert re.fullmatch(r"<\|channel\|>commentary to=[0-9]{3}", parsed.content)
        assert not parsed.calls
    for parsed in answers("harmony", lark, Thought.POSSIBLE, CALLS_FIRST["harmony"], tools=TOOLS):
        assert parsed.calls
        assert parsed.content == ""
    for kind in ("qwen", "qwen3_coder", "deepseek", "llama"):
        with pytest.raises(ValueError, match="cannot be kept together with tools"):
            answer_grammar(kind, lark, TOOLS)
        unused = answer_grammar(kind, lark, TOOLS, ToolChoice(ChoiceMode.NONE))
        assert unused == answer_grammar(kind, lark)


def test_thinking_is_off_where_the_prompt_has_closed_it() -> None:
    tokenizer = Bytes(SPECIAL["qwen"])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    for thought, allowed in ((Thought.NONE, False), (Thought.POSSIBLE, True)):
        grammar = answer_grammar("qwen", AS_JSON, special_tokens=tokenizer.special_ids, thought=thought)
        assert grammar is not None
        guide = compiler.compile(grammar)
        if allowed:
            guide.advance(tokenizer.special_ids["<think>"])
        else:
            with pytest.raises(ValueError, match="not allowed"):
                guide.advance(tokenizer.special_ids["<think>"])


def test_an_answer_that_is_cut_in_its_thought_has_no_content() -> None:
    tokenizer = Bytes(SPECIAL["deepseek"])
    ids = tokenizer.encode_all("hm hm</think>\n\n[1]")
    parsed = read(tokenizer, "deepseek", ids, cut=6, starts_in_reasoning=True)
    assert (parsed.reasoning, parsed.content) == ("hm hm", "")


def test_nobody_refers_to_the_answer_in_a_grammar_of_their_own() -> None:
    tokenizer = Bytes(["</s>"])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    with pytest.raises(GuideError, match="refers to another grammar"):
        compiler.compile(StructuredOutputsParams(grammar="start: @answer"))
    compiler.compile(StructuredOutputsParams(grammar='start: "@answer" /@/'))


NAMES = [
    {"type": "object", "properties": {"name": {"enum": ["get_x", "get_time"]}}, "required": ["name"]},
    {"type": "object", "properties": {"name": {"type": "integer"}, "a": {"type": "null"}}, "required": ["name", "a"]},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
]


@pytest.mark.parametrize("schema", NAMES)
@pytest.mark.parametrize("beginning", ['{"name": "get_time", "parameters": {}}', '{"name": "get_w', "{"])
def test_llamas_calls_and_answers_begin_alike(schema: dict[str, Any], beginning: str) -> None:
    tokenizer = Bytes(SPECIAL["llama"])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    answer = StructuredOutputsParams(json=schema)
    texts = [
        '{"name": "get_time", "parameters": {}}',
        '{"name":"get_x"}',
        '{ "name" : "get_time" }',
        '{"name":5,"a":null}',
    ]
    texts += ['{"name":true}', '{"name": false, "nam": true}', "{}"]
    grammar = answer_grammar("llama", answer, TOOLS, special_tokens=tokenizer.special_ids)
    for text in texts:
        value = json.loads(text)
        wanted = jsonschema.Draft202012Validator(schema).is_valid(value) or "parameters" in value
        guide = compiler.compile(grammar)  # type: ignore[arg-type]
        try:
            for token_id in tokenizer.encode(text):
                guide.advance(token_id)
            assert guide.may_end == wanted, text
        except ValueError:
            assert not wanted, text
    for parsed in answers("llama", answer, Thought.NONE, beginning, tools=TOOLS):
        if not parsed.calls:
            jsonschema.validate(json.loads(parsed.content), schema)
        assert not (parsed.calls and parsed.content)


def test_references_of_a_tools_schema_lead_into_it() -> None:
    """Beside an answer, Llama's calls are JSON whole, of which the parameters are a part."""
    tokenizer = Bytes(SPECIAL["llama"])
    day = {"$ref": "#/$defs/day"}
    schema = {"type": "object", "properties": {"a": day, "b": {"anyOf": [day]}}, "$defs": {"day": {"enum": ["Mo"]}}}
    schema |= {"required": ["a", "b"], "additionalProperties": False}
    answer = StructuredOutputsParams(json={"type": "null"})
    grammar = answer_grammar("llama", answer, [Tool("f", "", schema)], special_tokens=tokenizer.special_ids)
    for text, keeps in (('{"a": "Mo", "b": "Mo"}', True), ('{"a": "Mo", "b": "Tu"}', False)):
        assert accepts(tokenizer, grammar, f'{{"name": "f", "parameters": {text}}}') == keeps


POINTING = {"$ref": "#/a"}


@pytest.mark.parametrize(
    ("parameters", "good", "bad"),
    [
        ({"properties": {"r": {"const": POINTING}}}, POINTING, {"$ref": "#/properties/parameters/a"}),
        ({"properties": {"r": {"enum": [POINTING]}}}, POINTING, {"$ref": "#/properties/parameters/a"}),
        (
            {"properties": {"r": {"$ref": "#x", "default": POINTING}}, "$defs": {"q": {"$anchor": "x", "enum": [1]}}},
            1,
            2,
        ),
        (
            {
                "properties": {"r": {"$ref": "#/properties/enum"}, "enum": {"$ref": "#/$defs/q"}},
                "$defs": {"q": {"enum": [1]}},
            },
            1,
            2,
        ),
        ({"properties": {"r": {"anyOf": [{"$ref": "#"}, {"const": 1}]}}}, {"r": 1}, {"r": 2}),
    ],
)
def test_of_a_tools_schema_only_pointers_are_moved(parameters: dict[str, Any], good: Any, bad: Any) -> None:
    """Neither data that looks like one, nor a reference to a name, which leads on wherever it stands."""
    parameters = {"type": "object", "required": ["r"], "additionalProperties": False, **parameters}
    tokenizer = Bytes(SPECIAL["llama"])
    answer = StructuredOutputsParams(json={"type": "array"})
    grammar = answer_grammar("llama", answer, [Tool("f", "", parameters)], special_tokens=tokenizer.special_ids)
    validator = jsonschema.Draft202012Validator(parameters)
    for value, keeps in ((good, True), (bad, False)):
        assert validator.is_valid({"r": value}) == keeps
        call = json.dumps({"name": "f", "parameters": {"r": value}})
        assert accepts(tokenizer, grammar, call) == keeps, call


def test_a_call_that_an_answer_turns_into_is_all_there_is() -> None:
    """A schema that lets keys beyond its own may be written like a call, twice over."""
    ids = Bytes(SPECIAL["llama"]).encode('{"name": "get_time", "parameters": {}, "parameters": 5, "x": [1]}')
    parsed = read(Bytes(SPECIAL["llama"]), "llama", ids, tools=TOOLS)
    assert (parsed.calls, parsed.content) == ([("get_time", "{}")], "")


def test_a_frame_survives_json() -> None:
    """Params are handed from process to process as JSON of their fields."""
    framed = answer_grammar("qwen", AS_JSON, TOOLS)
    assert framed is not None
    assert framed.frame is not None
    assert StructuredOutputsParams(**json.loads(json.dumps(asdict(framed)))) == framed


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_that_are_taken_back_change_nothing(kind: str) -> None:
    """Across the borders between thought, frame and answer."""
    tokenizer = Bytes(SPECIAL[kind])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    grammar = answer_grammar(kind, AS_JSON, TOOLS, special_tokens=tokenizer.special_ids)
    assert grammar is not None
    final = "<|channel|>final<|message|>" if kind == "harmony" else ""
    thought = {"qwen": THOUGHTS["qwen"], "deepseek": "<think>" + THOUGHTS["deepseek"]}.get(kind, THOUGHTS[kind])
    ids = tokenizer.encode_all(thought + final + '{"trap": " \\n", "n": [1]}')
    rng, masks = random.Random(0), []
    guide = compiler.compile(grammar)

    def mask() -> bytes:
        row = np.zeros(-(-tokenizer.vocab_size // 32), np.uint32)
        guide.mask(row)
        return row.tobytes()

    for token_id in ids:
        masks.append(mask())
        guide.advance(token_id)
    assert guide.may_end
    for _ in range(60):
        guide.rollback(rng.randrange(guide.n_tokens + 1))
        assert mask() == masks[guide.n_tokens] if guide.n_tokens < len(ids) else guide.may_end
        for token_id in ids[guide.n_tokens : guide.n_tokens + rng.randrange(9)]:
            guide.advance(token_id)
