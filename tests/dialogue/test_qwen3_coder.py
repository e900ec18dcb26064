"""Calls whose parameters are texts of their own: read by their schemas, forced by them, whatever the texts speak of."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import numpy as np
import pytest
from dialogue.helpers import Bytes, parse
from dialogue.test_grammar import walk
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.dialogue.detect import detect
from gristmill.dialogue.grammar import answer_grammar
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.types import ChoiceMode, Kind, Tool, ToolCallArguments, ToolChoice
from gristmill.engine.guide import GuideCompiler

KIND = "qwen3_coder"
SCHEMAS: dict[str, Any] = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "list": {"type": "array"},
    "object": {"type": "object"},
    "maybe": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "one": {"oneOf": [{"$ref": "#/$defs/name"}, {"type": "array"}]},
    "all": {"allOf": [{"description": "a size"}, {"type": "integer"}]},
    "choice": {"enum": ["a", "b"]},
    "digit": {"enum": [1, 2]},
    "fixed": {"const": True},
    "round": {"$ref": "#/properties/round"},
    "any": {},
}
PARAMETERS = {"type": "object", "properties": SCHEMAS, "$defs": {"name": {"type": "string"}}}
TOOLS = (Tool("edit", "", PARAMETERS), Tool("now"))
TEMPLATE = "{{ '<tool_call>\\n<function=' + name + '>' }}{{ '<parameter=' + key + '>\\n' + value + '\\n</parameter>' }}"


def parameter(name: str, text: str) -> str:
    return f"<parameter={name}>\n{text}\n</parameter>\n"


def call(*parameters: str, name: str = "edit") -> str:
    return f"<tool_call>\n<function={name}>\n{''.join(parameters)}</function>\n</tool_call>"


def read(text: str, step: int = 1 << 30) -> tuple[str, list[tuple[str, str]]]:
    parsed = parse(KIND, [text[i : i + step] for i in range(0, len(text), step)], tools=TOOLS)
    return parsed.content, parsed.calls


def test_it_is_known_by_its_template() -> None:
    assert detect(TEMPLATE) is Kind.QWEN3_CODER
    assert detect(TEMPLATE.replace("parameter=", "arg=")) is Kind.QWEN


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("text", "two\n\nlines ", "two\n\nlines "),
        ("text", "", ""),
        ("text", "\n", "\n"),
        ("text", "12", "12"),
        ("text", "null", "null"),
        ("text", 'a "b" \\ \t é 😀', 'a "b" \\ \t é 😀'),
        ("unknown", "12", "12"),
        ("any", "12", "12"),
        ("round", "12", "12"),
        ("whole", "12", 12),
        ("whole", " -3\n", -3),
        ("whole", "twelve", "twelve"),
        ("whole", "1.5", 1.5),
        ("whole", "None", None),
        ("number", "-2.5e-7", -2.5e-7),
        ("number", "NaN", "NaN"),
        ("flag", "True", True),
        ("flag", "false", False),
        ("flag", "yes", "yes"),
        ("list", '[1, "a\\n", null]', [1, "a\n", None]),
        ("list", "['a', None, {'b': True}]", ["a", None, {"b": True}]),
        ("list", "[1, 2", "[1, 2"),
        ("list", "\"['a']\"", ["a"]),
        ("object", '{"a": "line\nline"}', {"a": "line\nline"}),
        ("object", "[" * 100_000, "[" * 100_000),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "nullable", "nullable"),
        ("maybe", "12", "12"),
        ("either", "12", 12),
        ("either", "null", None),
        ("one", "[1]", [1]),
        ("one", "[1", "[1"),
        ("one", "12", "12"),
        ("all", "12", 12),
        ("choice", "a", "a"),
        ("digit", "2", 2),
        ("fixed", "true", True),
    ],
)
def test_a_text_stands_for_what_its_schema_says(name: str, text: str, expected: Any) -> None:
    content, [(called, arguments)] = read(call(parameter(name, text)))
    assert (content, called) == ("", "edit")
    assert json.loads(arguments) == {name: expected}
    assert type(json.loads(arguments)[name]) is type(expected)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Sure.\n\n" + call(parameter("text", "a")) + "\n", "Sure.", [{"text": "a"}]),
        (call(), "", [{}]),
        (call() + "\n" + call(parameter("whole", "1"), parameter("text", "b")), "", [{}, {"whole": 1, "text": "b"}]),
        # as these models leave tags out
        (call(parameter("text", "a")).removeprefix("<tool_call>\n"), "", [{"text": "a"}]),
        (call(parameter("text", "a")).removesuffix("\n</tool_call>"), "", [{"text": "a"}]),
        ("<tool_call><function=edit><parameter=text>a</parameter></function></tool_call>!", "!", [{"text": "a"}]),
        (call("<parameter=text>\na\n"), "", [{"text": "a"}]),
        ("<tool_call>\n<function=edit>\n" + parameter("text", "a") + "</tool_call>", "", [{"text": "a"}]),
        ("<tool_call><function=edit></function>\n<function=edit>\n</function></tool_call>", "", [{}, {}]),
        # texts that speak of tags
        (call(parameter("text", "a </parameter> b")), "", [{"text": "a </parameter> b"}]),
        (call(parameter("text", "<parameter=x>\ny")), "", [{"text": "<parameter=x>\ny"}]),
        (call(parameter("text", "</function>\n</function>")), "", [{"text": "</function>\n</function>"}]),
        (call(parameter("text", "</tool_call><tool_call>")), "", [{"text": "</tool_call><tool_call>"}]),
        # what is no call
        ("<function=edit(1)>", "<function=edit(1)>", []),
        ("<tool_call>\n<function=edit>\nHm.", "<tool_call>\n<function=edit>\nHm.", []),
        ("<tool_call>\n<function=edit>\n<para", "<tool_call>\n<function=edit>\n<para", []),
        (call(name="rm"), call(name="rm"), []),
    ],
)
def test_calls_as_they_are_written(text: str, content: str, calls: list[Any]) -> None:
    for step in (1, 2, 7, 1 << 30):
        read_content, read_calls = read(text, step)
        assert (read_content, [json.loads(arguments) for _, arguments in read_calls]) == (content, calls)


@pytest.mark.parametrize("end", range(20, len(call(parameter("whole", "12"), parameter("text", 'a "b"')))))
def test_an_answer_that_ends_early_leaves_the_beginning_of_json(end: int) -> None:
    whole = call(parameter("whole", "12"), parameter("text", 'a "b"'))
    content, calls = read(whole[:end])
    arguments = '{"whole": 12, "text": "a \\"b\\""}'
    assert [arguments.startswith(beginning) for _, beginning in calls] == [True] * len(calls)
    assert content in ("", whole[:end] if not calls else "</tool_call>"[: end - whole.rindex("</tool_call>")])


def test_texts_stream() -> None:
    """A text comes out as it is written, but for what may be its end."""
    parser = make_parser(KIND, tools=TOOLS)
    beginning = "<tool_call>\n<function=edit>\n<parameter=text>\n"
    assert parser.push(0, beginning)[1:] == [ToolCallArguments(0, '{"text": "')]
    assert parser.push(0, "first\nsec") == [ToolCallArguments(0, "first\\nsec")]
    assert parser.push(0, "ond\n</para") == [ToolCallArguments(0, "ond")]
    assert parser.push(0, "graph>") == [ToolCallArguments(0, "\\n</paragraph>")]
    assert parser.push(0, "\n</parameter>\n") == []
    assert parser.push(0, "</function>") == [ToolCallArguments(0, '"}')]


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(),
    "whole": st.integers(),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.booleans(),
    "list": st.lists(st.recursive(st.none() | st.text(), st.lists, max_leaves=5)),
    "object": st.dictionaries(st.text(), st.integers() | st.text()),
    "maybe": st.none() | st.text().filter(lambda text: text.strip().lower() not in ("null", "none")),
}


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional=VALUES), st.integers(1, 40))
def test_what_a_template_writes_is_read_again(arguments: dict[str, Any], step: int) -> None:
    """Texts as they are, lists and objects as JSON, anything else as Python's str writes it."""
    texts = {key: json.dumps(v) if isinstance(v, list | dict) else str(v) for key, v in arguments.items()}
    content, calls = read("Ok\n" + call(*(parameter(key, text) for key, text in texts.items())), step)
    assert (content, [(name, json.loads(written)) for name, written in calls]) == ("Ok", [("edit", arguments)])


FORCED = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 20},
        "short": {"type": "string", "minLength": 1, "maxLength": 3, "description": "short"},
        "choice": {"enum": ["a\nb", "<c>"]},
        "digit": {"enum": [1, None]},
        "number": {"type": "integer", "minimum": 3, "maximum": 17},
        "list": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 2},
        "maybe": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}]},
        "named": {"$ref": "#/$defs/item"},
    },
    "required": ["short", "number", "more"],
    "$defs": {"item": {"enum": ["x", "y"]}},
    "additionalProperties": False,
}
FORCED["properties"]["more"] = {"type": "boolean"}  # type: ignore[index]


@pytest.mark.parametrize("seed", range(12))
def test_forced_parameters_keep_to_their_schemas(seed: int) -> None:
    tokenizer = Bytes(["<|im_end|>"])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    tools = [Tool("edit", "", FORCED)]
    grammar = answer_grammar(KIND, None, tools, ToolChoice(ChoiceMode.REQUIRED), parallel=False)
    beginning = "<tool_call>\n<function=edit>\n" + ("<parameter=short>\n" if seed % 2 else "")
    ids = walk(compiler, grammar, tokenizer.encode_all(beginning), tokenizer.eos_ids, tokenizer.vocab_size, seed)
    parsed = parse(KIND, tokenizer.decode(ids[:-1]), tools=tools)
    assert parsed.content == ""
    [(_, arguments)] = parsed.calls
    jsonschema.validate(json.loads(arguments), FORCED)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("", True),
        ("a\n\n<b> é 😀\n", True),
        ("<parameter=x>\n</tool_call>", True),
        ("a </parameter> b", False),
        ("</function>", False),
    ],
)
def test_forced_texts_are_any_but_those_that_speak_of_ends(text: str, ends: bool) -> None:
    tokenizer = Bytes(["<|im_end|>"])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    tools = [Tool("edit", "", {"type": "object", "properties": {"text": {"type": "string"}}})]
    grammar = answer_grammar(KIND, None, tools, ToolChoice(ChoiceMode.REQUIRED), parallel=False)
    guide, row = compiler.compile(grammar), np.zeros(-(-tokenizer.vocab_size // 32), np.uint32)

    def allowed(token_id: int) -> bool:
        guide.mask(row)
        return bool(row[token_id // 32] >> token_id % 32 & 1)

    def write(text: str) -> bool:
        for token_id in tokenizer.encode_all(text):
            if not allowed(token_id):
                return False
            guide.advance(token_id)
        return True

    written = call(parameter("text", text))
    assert write(written[: written.index(text + "\n</parameter>")])
    assert write(written[written.index(text + "\n</parameter>") :]) is ends
    assert not ends or allowed(tokenizer.eos_ids[0])


def test_references_that_lead_everywhere_take_no_time() -> None:
    """Each schema is looked at once, by however many ways it is reached."""
    names = [str(i) for i in range(12)]
    choice = [*({"$ref": f"#/$defs/{name}"} for name in names), {"type": "string"}, {"type": "integer"}]
    definitions = {name: {"anyOf": choice} for name in names}
    tool = Tool("edit", "", {"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": definitions})
    assert parse(KIND, call(parameter("a", "12")), tools=[tool]).calls == [("edit", '{"a": 12}')]
    assert answer_grammar(KIND, None, [tool], ToolChoice(ChoiceMode.REQUIRED)) is not None


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "^a"}}}, "parameter 'a' of 'edit': pattern"),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, "parameter 'a' of 'edit': format"),
        ({"properties": {"a": {"not": {}}}}, "parameter 'a' of 'edit': not"),
        ({"minProperties": 1}, "parameters of 'edit': minProperties"),
        ({"properties": {"a>b": {"type": "string"}}}, "parameter 'a>b' of 'edit': .* rename it"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "parameter 'a' of 'edit': its [$]ref '#/[$]defs/b' leads to no"),
        (
            {"properties": {"a": {"$ref": "#/$defs/b", "minLength": 1}}, "$defs": {"b": {"type": "string"}}},
            "parameter 'a' of 'edit': minLength",
        ),
        ({"properties": {"a": {"anyOf": [{"type": "string"}], "minLength": 1}}}, "'edit': minLength"),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/0"}},
                "$defs": {f"{i}": {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}, {"type": "string"}]} for i in range(2000)},
            },
            "'edit': its schemas lie more than 16 deep",
        ),
    ],
)
def test_what_no_text_can_be_held_to_is_refused(schema: dict[str, Any], named: str) -> None:
    tools = [Tool("edit", "", {"type": "object", **schema})]
    with pytest.raises(ValueError, match=named):
        answer_grammar(KIND, None, tools, ToolChoice(ChoiceMode.REQUIRED))
    assert answer_grammar(KIND, None, tools) is None
