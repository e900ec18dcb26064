"""Calls whose parameters are texts of their own: read by their schemas, forced by them, whatever the texts speak of."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import replace
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
        ("list", r"['C:\dir']", [r"C:\dir"]),
        ("list", r"['\ud83d\ude00']", ["😀"]),
        ("list", '["\\ud83d\n"]', ["\ufffd\n"]),
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
    assert json.loads(arguments.encode()) == {name: expected}
    assert type(json.loads(arguments)[name]) is type(expected)


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": ["number", "string"]}, "12", "12"),
        ({"type": ["number", "string"]}, "1.5", "1.5"),
        ({"type": ["integer", "string"]}, "12", "12"),
        ({"type": ["integer", "string"]}, "12.0", "12.0"),
        ({"type": ["integer", "string"]}, "1.5", '"1.5"'),
        ({"type": ["integer", "string"]}, "true", '"true"'),
        ({"type": ["boolean", "string"]}, "12", '"12"'),
        ({"type": ["boolean", "string"]}, "True", "true"),
        ({"anyOf": [{"type": "integer"}, {"minimum": 1}]}, "12", '"12"'),  # it might be anything
        ({"allOf": [{"type": "integer"}, {"type": ["integer", "string"]}]}, "1.5", "1.5"),
    ],
)
def test_a_text_of_several_types(schema: dict[str, Any], text: str, expected: str) -> None:
    """A value of another type than a string where it can be one."""
    tool = Tool("edit", "", {"properties": {"a": schema}})
    assert parse(KIND, call(parameter("a", text)), tools=[tool]).calls == [("edit", f'{{"a": {expected}}}')]


RECURSIVE = {
    "$ref": "#/$defs/Part",
    "$defs": {
        "Part": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "size": {"$ref": "#/$defs/Size"},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
                "whole": {"anyOf": [{"$ref": "#/$defs/Part"}, {"type": "null"}], "default": None},
            },
            "additionalProperties": {"$ref": "#/$defs/Size"},
        },
        "Size": {"type": "integer", "minimum": 1},
    },
    "required": ["name", "depth"],
}
"""As tools write what contains itself, with what is asked of the whole beside its reference."""


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (RECURSIVE, {"name": "12", "size": 12, "parts": [{"name": "12"}], "whole": None, "depth": 12}),
        ({"allOf": [{"type": "object"}, RECURSIVE["$defs"]["Part"]], "$defs": RECURSIVE["$defs"]}, {"size": 12}),  # type: ignore[index]
        ({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}}, {"a": "12", "b": 12}),
        ({"$ref": "#name", "properties": {"a": {"$ref": "#name"}}}, {"a": "12"}),  # no pointer
        ({"properties": {"a": {"$ref": "#/x%20y/1"}}, "x y": [{}, {"type": "integer"}]}, {"a": 12}),
        ({"properties": {"a": {"$ref": "#/x/2"}}, "x": [{}, {"type": "integer"}]}, {"a": "12"}),  # leads nowhere
        ({"properties": {"a": {"$ref": "#/x~1y"}}, "x/y": {"type": "integer"}}, {"a": 12}),
        ({"properties": {"a": {"$ref": "#/x~01y"}}, "x~1y": {"type": "integer"}}, {"a": 12}),
        ({"$ref": "#"}, {"a": "12"}),
    ],
)
def test_references_are_those_of_the_document(parameters: dict[str, Any], expected: dict[str, Any]) -> None:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in expected.items()}
    text = call(*(parameter(key, text) for key, text in texts.items()))
    [(_, arguments)] = parse(KIND, text, tools=[Tool("edit", "", parameters)]).calls
    assert json.loads(arguments) == expected


@pytest.mark.parametrize("step", [1, 7, 1 << 30])
@pytest.mark.parametrize(
    "value",
    [
        ["</parameter></function></tool_call>", 1],
        ["</parameter><parameter=x>"],
        ['"</parameter></function>', '\\"', '\\\\"</function></tool_call>\\'],
    ],
)
def test_tags_in_the_strings_of_a_list_are_text(value: list[Any], step: int) -> None:
    text = call(parameter("list", json.dumps(value)), parameter("whole", "1"))
    assert [json.loads(arguments) for _, arguments in read(text, step)[1]] == [{"list": value, "whole": 1}]
    unclosed = call(parameter("list", '["a, 2]'), parameter("whole", "1"))
    assert [json.loads(arguments) for _, arguments in read(unclosed, step)[1]] == [{"list": '["a, 2]', "whole": 1}]


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
        (call("<parameter=text>\na\n</parameter>\n\n \t\n"), "", [{"text": "a"}]),
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


TEXTS = [
    *("", "a", "b", "x", "ab", "abc", "abcd", "a ", "\na", "a\n", "a b", "é", "[draft] it", "[", "{1}", '"abc"', '"a'),
    *("null", "None", "NULL", " null ", "\u00a0none", "\x1cnull", "true", "True", "FALSE", "NaN", "Infinity"),
    *("1", "5", "500", "-0", "1.0", "1.5", "1e3", "007", "+5", " 5", "5\n", "123456789012345678901", "5 apples"),
    *("[]", "[1]", "[1, 2]", '["a"]', "['a']", ' ["a"]', "{}", '{"a": 1}', '{"a": "x"}', "{'a': 1}", '{"a": {"a": 1}}'),
    *("</parameter>", "a</function>b", '["</parameter><parameter=q>"]', '["</parameter></function>"]'),
]
TEXT = {"type": "string"}
LIST = {"type": "array", "items": TEXT}
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
SELF = {"type": "object", "properties": {"a": {"$ref": "#/$defs/self"}}, "additionalProperties": False}
NULL, WHOLE, NUMBER, FLAG = ({"type": name} for name in ("null", "integer", "number", "boolean"))


class Forced:
    """What may be written for the parameter `p` of a call that is forced, and the arguments that it is read as."""

    def __init__(self, schema: Any, **others: Any) -> None:
        definitions = {"letter": {"enum": ["x", "y"], **TEXT}, "self": SELF}
        self.parameters = {
            "type": "object",
            "properties": {"p": schema},
            "required": ["p"],
            "additionalProperties": False,
            "$defs": definitions,
            **others,
        }
        self._tools = [Tool("edit", "", self.parameters)]
        grammar = answer_grammar(KIND, None, self._tools, ToolChoice(ChoiceMode.REQUIRED), parallel=False)
        self._tokenizer = Bytes(["<|im_end|>"])
        compiler = GuideCompiler(self._tokenizer, self._tokenizer.vocab_size, self._tokenizer.eos_ids)
        assert grammar is not None
        self._guide = compiler.compile(grammar)

    def allows(self, text: str) -> bool:
        guide = self._guide.copy()
        for token_id in self._tokenizer.encode_all(text):
            try:
                guide.advance(token_id)
            except ValueError:
                return False
        return guide.may_end

    def values(self) -> list[str]:
        """Of TEXTS, those that are allowed: all must be read as what satisfies the schema."""
        allowed = [text for text in TEXTS if self.allows(call(parameter("p", text)))]
        for text in allowed:
            [(_, arguments)] = parse(KIND, call(parameter("p", text)), tools=self._tools).calls
            jsonschema.validate(json.loads(arguments), self.parameters)
        return allowed


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        # constants that the rest of their schema allows, and that are read as what they are
        ({**TEXT, "enum": ["a", "abcd"], "maxLength": 2}, ["a"], ["abcd"]),
        ({**TEXT, "enum": ["a", "b"], "const": "a"}, ["a"], ["b"]),
        ({**TEXT, "enum": ["a", None, 5]}, ["a"], ["null", "5"]),
        ({**WHOLE, "enum": [1, 5, "a"], "minimum": 2}, ["5"], ["1", "a"]),
        ({"enum": ["1", 5, 1.0, "None", True]}, ["5", "1.0", "None", "true"], ["1"]),
        ({"enum": ["null", None, "[]", ["a"], "a"]}, ["a", "null", '["a"]'], ["[]"]),
        ({"enum": ["a b", "a ", "a\n", "\na", "", "a</function>b"]}, ["a b", "a ", "a\n", "\na", ""], ["a"]),
        ({"type": ["string", "null"], "enum": ["a", None]}, ["a", "null"], ["None"]),
        # strings beside others: they look like none of these
        ({"anyOf": [TEXT, NULL]}, ["a", "null", "5", "[1]", '"abc"', "NaN"], ["None", "NULL"]),
        ({"type": ["string", "null"], "minLength": 4}, ["abcd", "null"], ["abc", '"abc"']),
        ({"anyOf": [TEXT, WHOLE, NULL]}, ["a", "5", "007", "5 apples", "null"], ["1.0", "1e3", " 5"]),
        ({"anyOf": [TEXT, NUMBER, FLAG]}, ["a", "1.5", "true", "null"], ["True", "FALSE"]),
        ({"type": ["string", "integer"], "maxLength": 2}, ["ab", "500"], ["abc"]),
        ({"anyOf": [TEXT, LIST]}, ["a", "[]", '["a"]', "5", "{}"], ["[1, 2]", "['a']", "[draft] it"]),
        ({"anyOf": [TEXT, {**LIST, "maxItems": 0}, NULL]}, ["a", "[]", "null"], ['["a"]', "None"]),
        ({"anyOf": [TEXT, OBJECT]}, ["a", '{"a": 1}', "[1]"], ['{"a": "x"}', "{}", "{1}"]),
        ({"anyOf": [{**TEXT, "maxLength": 1}, {"$ref": "#/$defs/self"}]}, ["a", "{}"], ["ab", '{"a": 1}']),
        ({"type": ["string", "array"], "items": WHOLE, "maxLength": 2}, ["ab", "[1, 2]"], ["abc", '["a"]']),
        ({"anyOf": [{"$ref": "#/$defs/letter"}, NULL]}, ["x", "null"], ["a", "None"]),
        ({"anyOf": [{"const": "a"}, {"const": 5}, LIST]}, ["a", "5", '["a"]'], ["b", "500"]),
        ({"anyOf": [{}, WHOLE, {"const": 5}]}, ["a", "5", "[1]"], []),
        ({"anyOf": [False, TEXT]}, ["a"], []),
        ({"anyOf": [True, {"const": "a"}, True]}, ["a", "b"], []),
        # one of several: they share nothing
        ({"oneOf": [TEXT, NULL, LIST]}, ["a", "null", '["a"]'], ["None", "[1]"]),
        ({**TEXT, "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, ["a", "b"], ["x"]),
        ({"oneOf": [TEXT, {**OBJECT, "properties": {"a": {"const": 1}}}, LIST]}, ["a", '{"a": 1}'], ["{}"]),
        ({"oneOf": [{"enum": ["a", 5]}, {"enum": ["b", "1"]}, LIST]}, ["a", "5", "b"], ["1", "[1]"]),
        # no strings
        ({"type": ["integer", "null"], "enum": [1, None]}, ["1", "null"], ["5", "None"]),
        ({**LIST, "uniqueItems": False}, ["[]", '["a"]', '["</parameter></function>"]'], ["[1]"]),
        ({"type": "array", "items": {"$ref": "#/properties/p/$defs/one"}, "$defs": {"one": WHOLE}}, ["[1]"], ['["a"]']),
        ({**SELF, "properties": {"p": WHOLE, "a": {"$ref": "#/properties/p"}}}, ["{}"], ['{"a": 1}']),
        ({"type": "array", "items": {"enum": [{"$ref": "#/$defs/letter"}]}}, ["[]"], ['["a"]']),
        ({**OBJECT, "propertyNames": TEXT}, ['{"a": 1}'], ["{}"]),
        ({**TEXT, "minLength": 2.0, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
    ],
)  # fmt: skip
def test_forced_values_satisfy_their_schemas(schema: Any, good: list[str], bad: list[str]) -> None:
    allowed = Forced(schema).values()
    assert [text for text in good if text not in allowed] == []
    assert [text for text in bad if text in allowed] == []


BRANCHES = [
    *(TEXT, NULL, WHOLE, NUMBER, FLAG, LIST, OBJECT, {}, True, False, {"type": "array"}, {"$ref": "#/$defs/letter"}),
    *(
        {"minLength": 2},
        {**TEXT, "maxLength": 3},
        {**WHOLE, "maximum": 9},
        {"type": ["string", "null"], "minLength": 3},
    ),
    *({"type": ["array", "null"]}, {"enum": ["a", "null", 1, "1", None, True, "[1]"]}, {"const": 5}, {"const": "abc"}),
    *({"enum": [1.0, "1.0", {"a": 1}, [1], "true"]}, {"anyOf": [TEXT, WHOLE]}, {"$ref": "#/$defs/self"}),
]


@pytest.mark.parametrize("seed", range(150))
def test_what_is_forced_of_random_unions_satisfies_them(seed: int) -> None:
    rng = random.Random(seed)
    schema: dict[str, Any] = {rng.choice(["anyOf", "oneOf"]): rng.sample(BRANCHES, rng.choice([2, 2, 3]))}
    if rng.random() < 0.2:
        schema["type"] = rng.choice(["string", "array", ["string", "null"], ["string", "integer", "array"]])
    with contextlib.suppress(ValueError):  # refused
        assert Forced(schema).values()


def test_parameters_that_are_required_and_not_listed_are_as_others_are() -> None:
    forced = Forced(TEXT, required=["p", "more"], additionalProperties=WHOLE)
    first = parameter("p", "a")
    assert forced.allows(call(first, parameter("more", "5")))
    assert not forced.allows(call(first, parameter("more", "a")))
    assert not forced.allows(call(first))
    assert Forced(TEXT, required=["more"], additionalProperties=True).allows(call(parameter("more", "a")))
    assert Forced(False, required=[]).allows(call())  # one that has no value is left out


@pytest.mark.parametrize("seed", range(4))
def test_forced_parameters_of_a_reference_keep_to_it_and_to_what_is_beside_it(seed: int) -> None:
    tokenizer = Bytes(["<|im_end|>"])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    tools = [Tool("edit", "", RECURSIVE)]
    grammar = answer_grammar(KIND, None, tools, ToolChoice(ChoiceMode.REQUIRED), parallel=False)
    beginning = call(parameter("name", "a"), parameter("size", "3"), parameter("parts", '[{"name": "b", "parts": []}]'))
    ids = tokenizer.encode_all(beginning[: beginning.index("</function>")])
    ids = walk(compiler, grammar, ids, tokenizer.eos_ids, tokenizer.vocab_size, seed)
    [(_, arguments)] = parse(KIND, tokenizer.decode(ids[:-1]), tools=tools).calls
    jsonschema.validate(json.loads(arguments), RECURSIVE)
    assert "depth" in json.loads(arguments)  # which is required and not listed
    with pytest.raises(ValueError, match="not allowed"):
        walk(compiler, grammar, tokenizer.encode_all(call()), tokenizer.eos_ids, tokenizer.vocab_size, seed)


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
        ({"propertyNames": {"maxLength": 3}}, "parameters of 'edit': propertyNames"),
        ({"allOf": [{"properties": {"a": {"type": "string"}}}]}, "parameters of 'edit': allOf"),
        ({"$ref": "#/$defs/b"}, "parameters of 'edit': its [$]ref '#/[$]defs/b' leads to no"),
        (
            {"$ref": "#/$defs/b", "$defs": {"b": {"properties": {"a": {}}}}, "properties": {"a": {"minLength": 1}}},
            "parameters of 'edit': properties",
        ),
        ({"$ref": "#/$defs/b", "$defs": {"b": {}}, "maxProperties": 1}, "parameters of 'edit': maxProperties"),
        ({"required": "a"}, "parameters of 'edit': required must be a list, not 'a'"),
        ({"required": [1]}, "parameters of 'edit': .* a list of names"),
        ({"required": ["a"], "additionalProperties": False}, "parameter 'a' of 'edit': no text .* leave it out"),
        ({"properties": {"a": False}, "required": ["a"]}, "parameter 'a' of 'edit': no text .* leave it out"),
        ({"properties": {"a": {"enum": ["1", 1, "</parameter>"], "const": "1"}}}, "'a' of 'edit': no text .* leave it"),
        ({"properties": {"a": {"enum": ["a"], "pattern": "b"}}}, "parameter 'a' of 'edit': pattern"),
        ({"properties": {"a": {"enum": "a"}}}, "parameter 'a' of 'edit': enum must be a list, not 'a'"),
        ({"properties": {"a": {"anyOf": {}}}}, "parameter 'a' of 'edit': anyOf must be a list"),
        ({"properties": {"a": {"anyOf": [TEXT, {**WHOLE, "maximum": 9}]}}}, "parameter 'a' of 'edit': maximum"),
        ({"properties": {"a": {"type": ["string", "number"], "minimum": 9}}}, "parameter 'a' of 'edit': minimum"),
        ({"properties": {"a": {"oneOf": [TEXT, {**TEXT, "minLength": 2}]}}}, "parameter 'a' of 'edit': oneOf"),
        ({"properties": {"a": {"oneOf": [TEXT, {"const": "a"}]}}}, "parameter 'a' of 'edit': oneOf"),
        ({"properties": {"a": {"oneOf": [{"const": "a"}, {"enum": ["b", "a"]}]}}}, "parameter 'a' of 'edit': oneOf"),
        ({"properties": {"a": {"oneOf": [{"type": ["string", "array"]}, LIST]}}}, "parameter 'a' of 'edit': oneOf"),
        ({"properties": {"a": {**TEXT, "anyOf": [TEXT, WHOLE]}}}, "parameter 'a' of 'edit': type beside anyOf"),
        ({"properties": {"a": {**TEXT, "minLength": "0}x{0"}}}, "parameter 'a' of 'edit': minLength is '0}x{0'"),
        ({"properties": {"a": {**TEXT, "maxLength": float("inf")}}}, "parameter 'a' of 'edit': maxLength is inf"),
        ({"properties": {"a": {**TEXT, "maxLength": True}}}, "parameter 'a' of 'edit': maxLength is True"),
        ({"properties": {"a": {**TEXT, "minLength": 3, "maxLength": 2}}}, "'edit': minLength 3 is over maxLength 2"),
        ({"properties": {"a": {**LIST, "items": {"$ref": "#/no"}}}}, "parameter 'a' of 'edit': its [$]ref '#/no'"),
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
    tool = Tool("edit", "", {"type": "object", **schema}, strict=True)
    with pytest.raises(ValueError, match=named):
        answer_grammar(KIND, None, [tool], ToolChoice(ChoiceMode.REQUIRED))
    assert answer_grammar(KIND, None, [replace(tool, strict=False)]) is None
