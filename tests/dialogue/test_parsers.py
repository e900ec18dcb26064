"""What models write, in every format: the same deltas however it is cut, nothing lost, nothing invented."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from dialogue.helpers import TIME, TOOLS, WEATHER, Bytes, Parsed, parse, put_together
from hypothesis import example, given, settings
from hypothesis import strategies as st
from processor_time import assert_grows_less, assert_quick

from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.types import ChoiceMode, Tool, ToolCallArguments, ToolCallStart, ToolChoice

PARIS = '{"city": "Paris"}'
NASTY = (
    '{"city": "a{\\"}]\\\\ \\u00e9\\ud83d\\ude00 </tool_call> ; \\n", '
    '"deep": [[{"x": [1, -2.5e+3, true, null]}]] , "e":{}}'
)
SEP, FENCE = "<｜tool▁sep｜>", "```"


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def deepseek(name: str, arguments: str) -> str:
    return f"<｜tool▁call▁begin｜>function{SEP}{name}\n{FENCE}json\n{arguments}\n{FENCE}<｜tool▁call▁end｜>"


def llama(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def qwen3_coder(name: str, arguments: str) -> str:
    """As its template writes calls, but for values that are no texts."""
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in json.loads(arguments).items())
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


IN_JSON = {"qwen": hermes, "deepseek": deepseek, "llama": llama}
CALL = {**IN_JSON, "qwen3_coder": qwen3_coder}
"""kind, text, whether it starts in a thought, (reasoning, content, calls)"""
GOLDEN: dict[str, tuple[str, str, bool, tuple[str, str, list[tuple[str, str]]]]] = {
    "qwen, thought and text": (
        "qwen",
        "<think>\nHm.\n\nSo.\n</think>\n\nHello!\n",
        False,
        ("Hm.\n\nSo.", "Hello!\n", []),
    ),
    "qwen, thinking off": ("qwen", "Hello!", False, ("", "Hello!", [])),
    "qwen, empty thought": ("qwen", "<think>\n\n</think>\n\n  code", False, ("", "  code", [])),
    "qwen, never closed": ("qwen", "<think>\nHm <tool_call>", False, ("Hm <tool_call>", "", [])),
    "qwen, closing tag only": ("qwen", "a </think> b", False, ("", "a </think> b", [])),
    "qwen, a later opening": ("qwen", "The tag <think> opens.", False, ("", "The tag <think> opens.", [])),
    "qwen, call": ("qwen", hermes("get_weather", PARIS), False, ("", "", [("get_weather", PARIS)])),
    "qwen, all": (
        "qwen",
        f"<think>\nHm {hermes('get_time', '{}')}\n</think>\n\nSure:\n{hermes('get_weather', NASTY)}\n"
        f"{hermes('get_time', '{ }')}",
        False,
        (f"Hm {hermes('get_time', '{}')}", "Sure:", [("get_weather", NASTY), ("get_time", "{ }")]),
    ),
    "qwen, text around": (
        "qwen",
        f"A \n{hermes('get_time', '{}')}\n\n B {hermes('get_weather', PARIS)} C ",
        False,
        ("", "A \nB C ", [("get_time", "{}"), ("get_weather", PARIS)]),
    ),
    "qwen, arguments first": (
        "qwen",
        f'<tool_call>{{"arguments":{PARIS},"name":"get_weather"}}</tool_call>',
        False,
        ("", "", [("get_weather", PARIS)]),
    ),
    "qwen, arguments in a string": (
        "qwen",
        f'<tool_call>{{"name": "get_weather", "arguments": {json.dumps(NASTY)}}}</tool_call>',
        False,
        ("", "", [("get_weather", NASTY)]),
    ),
    "qwen, string before name": (
        "qwen",
        f'<tool_call>{{"arguments": {json.dumps(PARIS)}, "name": "get_\\u0077eather"}}',
        False,
        ("", "", [("get_weather", PARIS)]),
    ),
    "qwen, no arguments": (
        "qwen",
        '<tool_call>{"name": "get_time"}</tool_call><tool_call>{"name": "get_time", "arguments": null}</tool_call>'
        '<tool_call>{"name": "get_time", "arguments": ""}</tool_call>',
        False,
        ("", "", [("get_time", "{}")] * 3),
    ),
    "qwen, more keys": (
        "qwen",
        f'<tool_call>{{"id": [1, {{}}], "name": "get_weather", "arguments": {PARIS}, "why": "x"}}</tool_call>!',
        False,
        ("", "!", [("get_weather", PARIS)]),
    ),
    "qwen, several in one pair of tags": (
        "qwen",
        '<tool_call>\n{"name": "get_time", "arguments": {}}\n{"name": "get_weather", "arguments": {"a": 1}}\n'
        "</tool_call>",
        False,
        ("", "", [("get_time", "{}"), ("get_weather", '{"a": 1}')]),
    ),
    "qwen, no closing tag": ("qwen", hermes("get_time", "{}")[:-13] + "\nOk", False, ("", "Ok", [("get_time", "{}")])),
    "qwen, unescaped control characters": (
        "qwen",
        hermes("get_weather", '{"city": "a\n\tb\x01"}'),
        False,
        ("", "", [("get_weather", '{"city": "a\\n\\tb\\u0001"}')]),
    ),
    "qwen, control characters in a string of arguments": (
        "qwen",
        hermes("get_weather", r'"{\"city\": \"a\n\tb\u0001\"}"'),
        False,
        ("", "", [("get_weather", '{"city": "a\\n\\tb\\u0001"}')]),
    ),
    "qwen, ends in the arguments": (
        "qwen",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par',
        False,
        ("", "", [("get_weather", '{"city": "Par')]),
    ),
    "qwen, ends before the arguments": (
        "qwen",
        'Ok \n<tool_call>\n{"name": "get_weather", "arg',
        False,
        ("", 'Ok \n<tool_call>\n{"name": "get_weather", "arg', []),
    ),
    "qwen, ends in a tag": ("qwen", "Ok \n<tool_ca", False, ("", "Ok \n<tool_ca", [])),
    "qwen, broken arguments": (
        "qwen",
        '<tool_call>{"name": "get_weather", "arguments": {"city": Paris}}',
        False,
        ("", "Paris}}", [("get_weather", '{"city": ')]),
    ),
    "qwen, fenced JSON": (
        "qwen",
        f"```json\n{llama('get_weather', PARIS)}\n```\n",
        False,
        ("", f"```json\n{llama('get_weather', PARIS)}\n```\n", []),
    ),
    "qwen, an object in a string with text behind it": (
        "qwen",
        '<tool_call>{"arguments": "{} x", "name": "get_time"}</tool_call>',
        False,
        ("", '<tool_call>{"arguments": "{} x", "name": "get_time"}</tool_call>', []),
    ),
    "qwen, tags without a call after one": (
        "qwen",
        f"{hermes('get_time', '{}')}\n<tool_call> !</tool_call>",
        False,
        ("", "<tool_call> !</tool_call>", [("get_time", "{}")]),
    ),
    "deepseek, thought": ("deepseek", "Hm.\n</think>\n\n42", True, ("Hm.", "42", [])),
    "deepseek, opens the thought again": ("deepseek", "<think>\nHm.\n</think>\n\n42", True, ("Hm.", "42", [])),
    "deepseek, calls": (
        "deepseek",
        f"Hm.\n</think>\n\nOk\n<｜tool▁calls▁begin｜>{deepseek('get_weather', NASTY)}\n{deepseek('get_time', '{}')}"
        "<｜tool▁calls▁end｜>",
        True,
        ("Hm.", "Ok", [("get_weather", NASTY), ("get_time", "{}")]),
    ),
    "deepseek, a mark missing, no fence": (
        "deepseek",
        f"<｜tool▁call▁begin｜>function{SEP}get_weather\n{PARIS}<｜tool▁call▁end｜>.",
        False,
        ("", ".", [("get_weather", PARIS)]),
    ),
    "deepseek, a fence after the calls": (
        "deepseek",
        f"<｜tool▁calls▁begin｜>{deepseek('get_time', '{}')}<｜tool▁calls▁end｜>{FENCE}",
        False,
        ("", FENCE, [("get_time", "{}")]),
    ),
    "deepseek, ends in the arguments": (
        "deepseek",
        deepseek("get_weather", PARIS)[:-30],
        False,
        ("", "", [("get_weather", deepseek("get_weather", PARIS)[:-30].split("json\n")[1])]),
    ),
    "llama, call": ("llama", llama("get_weather", PARIS), False, ("", "", [("get_weather", PARIS)])),
    "llama, text": ("llama", "  Hello {you}\n", False, ("", "  Hello {you}\n", [])),
    "llama, after its tag": (
        "llama",
        f"<|python_tag|>{llama('get_time', '{}')}",
        False,
        ("", "", [("get_time", "{}")]),
    ),
    "llama, several": (
        "llama",
        f"{llama('get_weather', NASTY)}; {llama('get_time', '{}')} ;<|python_tag|>{llama('get_time', '{}')}\n"
        f'{{"type": "function", "name": "get_weather", "arguments": {PARIS}}};',
        False,
        ("", "", [("get_weather", NASTY), ("get_time", "{}"), ("get_time", "{}"), ("get_weather", PARIS)]),
    ),
    "llama, after text": (
        "llama",
        f"Sure.\n\n{llama('get_weather', PARIS)}\nDone",
        False,
        ("", "Sure.\n\nDone", [("get_weather", PARIS)]),
    ),
    "llama, within a line": (
        "llama",
        f"Like {llama('get_weather', PARIS)}",
        False,
        ("", f"Like {llama('get_weather', PARIS)}", []),
    ),
    "llama, fenced": (
        "llama",
        f"```json\n{llama('get_weather', PARIS)}\n```\n{llama('get_time', '{}')}",
        False,
        ("", f"```json\n{llama('get_weather', PARIS)}\n```", [("get_time", "{}")]),
    ),
    "llama, a call of code with numbers and text that JSON has not": (
        "llama",
        '<|python_tag|>get_weather.call(a=[1e999], b=[NaN], c="\\ud800", d="Zürich")',
        False,
        ("", "", [("get_weather", '{"a": "[1e999]", "b": ["NaN"], "c": "\ufffd", "d": "Zürich"}')]),
    ),
    "llama, behind a tick": ("llama", f"`{llama('get_time', '{}')}`", False, ("", f"`{llama('get_time', '{}')}`", [])),
    "llama, ticks of two lines are no fence": (
        "llama",
        f"``\n`\n{llama('get_time', '{}')}",
        False,
        ("", "``\n`", [("get_time", "{}")]),
    ),
    "llama, one semicolon between calls": (
        "llama",
        f"{llama('get_time', '{}')};;{llama('get_time', '{}')}",
        False,
        ("", f";;{llama('get_time', '{}')}", [("get_time", "{}")]),
    ),
    "llama, on the line after an object that broke off": (
        "llama",
        f'{{"a": 1,\n{llama("get_time", "{}")}',
        False,
        ("", '{"a": 1,', [("get_time", "{}")]),
    ),
    "llama, on the line after a brace": (
        "llama",
        f"{{\n{llama('get_time', '{}')}",
        False,
        ("", "{", [("get_time", "{}")]),
    ),
    "llama, built-in with numbers that JSON lacks": (
        "llama",
        "<|python_tag|>get_weather.call(a=1e999, b=-Infinity, c=[NaN], d=true)",
        False,
        ("", "", [("get_weather", '{"a": "1e999", "b": "-Infinity", "c": ["NaN"], "d": true}')]),
    ),
    "llama, built-in": (
        "llama",
        '<|python_tag|>get_weather.call(city="Paris \\"x\\"", days=3, unit=c)',
        False,
        ("", "", [("get_weather", '{"city": "Paris \\"x\\"", "days": 3, "unit": "c"}')]),
    ),
    "llama, built-in that is no tool": (
        "llama",
        '<|python_tag|>brave_search.call(query="x")',
        False,
        ("", 'brave_search.call(query="x")', []),
    ),
    "llama, code": ("llama", "<|python_tag|>import os\n{1: 2}", False, ("", "import os\n{1: 2}", [])),
    "llama, an answer in JSON": (
        "llama",
        '{"answer": {"name": "get_time"}}',
        False,
        ("", '{"answer": {"name": "get_time"}}', []),
    ),
    "llama, parameters first": (
        "llama",
        f'{{"parameters": {PARIS}, "name": "get_weather"}}',
        False,
        ("", "", [("get_weather", PARIS)]),
    ),
    "llama, an answer that looks like a call": (
        "llama",
        '{"name": "get_time"}',
        False,
        ("", '{"name": "get_time"}', []),
    ),
    "plain": (
        "plain",
        "<think>x</think>" + hermes("get_time", "{}"),
        False,
        ("", "<think>x</think>" + hermes("get_time", "{}"), []),
    ),
}


def tuple_of(parsed: Parsed) -> tuple[str, str, list[tuple[str, str]]]:
    return parsed.reasoning, parsed.content, parsed.calls


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_transcripts_split_everywhere(case: str) -> None:
    """At every pair of places, in single characters, and at random places."""
    kind, text, thinking, expected = GOLDEN[case]
    assert tuple_of(parse(kind, text, starts_in_reasoning=thinking)) == expected
    assert tuple_of(parse(kind, list(text), starts_in_reasoning=thinking)) == expected
    for i in range(len(text)):
        assert tuple_of(parse(kind, [text[:i], text[i:]], starts_in_reasoning=thinking)) == expected, i
    rng = random.Random(0)
    for _ in range(100):
        places = sorted(rng.choices(range(len(text) + 1), k=rng.randrange(2, 8)))
        pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert tuple_of(parse(kind, pieces, starts_in_reasoning=thinking)) == expected, pieces


class TwoTokens(Bytes):
    """A text in two tokens, cut anywhere: within a character, too."""

    def __init__(self, data: bytes, at: int) -> None:
        super().__init__([])
        self._bytes = {0: data[:at], 1: data[at:]}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_transcripts_split_at_every_byte(case: str) -> None:
    """From tokens: in two that meet at any byte, and in one for each byte."""
    kind, text, thinking, expected = GOLDEN[case]
    data = text.encode()

    def read(tokenizer: Bytes, ids: list[int]) -> Parsed:
        reader = DialogueReader(tokenizer, make_parser(kind, tools=TOOLS, starts_in_reasoning=thinking))
        deltas = [delta for token_id in ids for delta in reader.push(token_id)]
        return put_together(deltas + reader.finish())

    for at in range(len(data) + 1):
        assert tuple_of(read(TwoTokens(data, at), [0, 1])) == expected, at
    assert tuple_of(read(Bytes([]), list(data))) == expected


@pytest.mark.parametrize("kind", CALL)
def test_a_name_that_is_no_tool_is_content(kind: str) -> None:
    text = "Ok \n" + CALL[kind]("get_rich", PARIS) + "\nwell"
    assert tuple_of(parse(kind, text)) == ("", text, [])
    assert tuple_of(parse(kind, list(text))) == ("", text, [])


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("qwen", '<tool_call>\n{"name": "get_rich'),
        ("qwen3_coder", "<tool_call>\n<function=get_rich"),
        ("deepseek", f"<｜tool▁call▁begin｜>function{SEP}get_rich"),
        ("deepseek", "<｜tool▁calls▁begin｜>Well"),
        ("llama", '{"name": "get_rich'),
        ("llama", '{"rich'),
    ],
)
def test_a_call_that_breaks_off_hides_none_after_it(kind: str, broken: str) -> None:
    text = f"{broken}\n{CALL[kind]('get_weather', PARIS)}"
    for pieces in (text, list(text), [broken, text[len(broken) :]]):
        assert tuple_of(parse(kind, pieces)) == ("", broken, [("get_weather", PARIS)])


@pytest.mark.parametrize("kind", CALL)
def test_tool_choice(kind: str) -> None:
    first, second = CALL[kind]("get_weather", PARIS), CALL[kind]("get_time", "{}")
    text = f"{first}\n{second}"
    calls = [("get_weather", PARIS), ("get_time", "{}")]
    assert parse(kind, text, choice=ToolChoice(ChoiceMode.REQUIRED)).calls == calls
    assert tuple_of(parse(kind, text, choice=ToolChoice(ChoiceMode.NONE))) == ("", text, [])
    assert tuple_of(parse(kind, text, tools=())) == ("", text, [])
    named = parse(kind, text, choice=ToolChoice(ChoiceMode.NAMED, "get_time"))
    assert named.calls == calls[1:]
    assert named.content == first
    alone = parse(kind, text, parallel=False)
    assert alone.calls == calls[:1]
    assert alone.content == second


@pytest.mark.parametrize("kind", IN_JSON)
def test_arguments_stream(kind: str) -> None:
    """The call is there when its first argument is, and arguments come as they are written."""
    text = CALL[kind]("get_weather", PARIS)
    parser = make_parser(kind, tools=TOOLS, new_id=iter(["call_1"]).__next__)
    streamed = ""
    for n_read, char in enumerate(text, 1):
        for delta in parser.push(0, char):
            if isinstance(delta, ToolCallStart):
                assert delta == ToolCallStart(0, "call_1", "get_weather")
                assert text[n_read - 1] == "{"
            elif isinstance(delta, ToolCallArguments):
                streamed += delta.piece
                assert text[:n_read].endswith(streamed)
    assert streamed == PARIS
    assert parser.finish() == []


def test_what_can_be_no_mark_is_not_held_back() -> None:
    for kind in ("qwen", "qwen3_coder", "deepseek", "llama", "plain"):
        parser = make_parser(kind, tools=TOOLS)
        for text in ("a", "<b", "{", '{"k', "`x`"):
            assert (
                "".join(d.text for d in parser.push(0, "x\n" + text) if hasattr(d, "text")).endswith(text)
                or text == "{"
            )
    parser = make_parser("llama", tools=TOOLS)
    assert put_together(parser.push(0, '{"ans')).content == '{"ans'
    parser = make_parser("llama", tools=TOOLS)
    assert put_together(parser.push(0, '{"name": "get_wea')).content == ""
    assert put_together(parser.push(0, "r")).content == '{"name": "get_wear'


def test_ids_differ() -> None:
    ids = parse("llama", "\n".join([llama("get_time", "{}")] * 50)).ids
    assert len(set(ids)) == 50
    assert all(call_id.startswith("call_") for call_id in ids)


OPENINGS = {
    "qwen": ["<tool_call>", "<", "{", "<think>", "<tool_call>{", "```", '<tool_call>{"name":"get_time"', " ", "\n"],
    "deepseek": ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜", "```"],
    "llama": [
        "{",
        "{\n",
        "\n{",
        '{"name": ',
        "```",
        "```\n",
        "<|python_tag|>",
        "<|python_tag|>{",
        ";",
        '{"a":[',
        " ",
        "\n",
    ],
}
OPENINGS["qwen"] += [
    '<tool_call>{"a":[',
    '<tool_call>{"arguments":"\\',
    '<tool_call>{"name":"get_time","arguments":{"a":',
]
OPENINGS["qwen3_coder"] = [
    "<tool_call>",
    "<function=",
    "<function=get_time>",
    "<function=get_time> ",
    "<function=get_weather><parameter=",
    "<function=get_weather><parameter=city>",
    "<function=get_weather><parameter=city></parameter>",
    "<function=get_weather><parameter=city></parameter> ",
    "<function=get_weather><parameter=city></function> ",
    "<function=get_weather><parameter=city></parameter></function> ",
]
OPENINGS["llama"] += ['{"parameters":{"a":', '<|python_tag|>get_time.call(a="', "<|python_tag|>get_time.call(a=1,"]


@pytest.mark.parametrize(("kind", "opening"), [(kind, text) for kind, texts in OPENINGS.items() for text in texts])
@pytest.mark.parametrize("step", [4, 1 << 30])
@pytest.mark.parametrize("once", [False, True])
def test_openings_take_linear_time(kind: str, opening: str, step: int, once: bool) -> None:
    """Eight times as many openings, or of what follows one, take some eight times the time, not sixty-four times."""

    def read_openings(n: int) -> None:
        text = opening + opening[-1] * n if once else opening * (n // len(opening))
        parsed = parse(kind, [text[i : i + step] for i in range(0, len(text), step)])
        assert len(parsed.content) + len(parsed.reasoning) + sum(len(a) for _, a in parsed.calls) <= 6 * len(text)

    assert_grows_less(read_openings, 8_000, 64_000, 24)


@pytest.mark.parametrize(("kind", "opening"), [(kind, texts[0]) for kind, texts in OPENINGS.items()])
def test_a_megabyte_of_openings(kind: str, opening: str) -> None:
    text = opening * (1_000_000 // len(opening))
    parsed = list[Parsed]()
    assert_quick(lambda: parsed.append(parse(kind, [text[i : i + 5] for i in range(0, len(text), 5)])), 10)
    assert tuple_of(parsed[0]) == ("", text, [])


MARKS = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "```",
    "```json",
]
MARKS += [
    "<｜tool▁call▁begin｜>",
    "function<｜tool▁sep｜>get_time",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    ";",
    "\n",
]
MARKS += [
    '{"name": "get_weather", ',
    '"arguments": ',
    '"parameters": ',
    PARIS,
    "}",
    "{",
    '"',
    "\\",
    " ",
    "x",
    ",",
    ":",
    "[",
    "]",
]
MARKS += ["<function=", "get_weather>", "<parameter=", "city>", "</parameter>", "</function>"]
MARKS += ['{"name": "get_time"', "get_time.call(", "a=1", ")", "1", "-", "e", "null", "\\u12", '"{}"', "é", "\x00"]
ANSWERS = st.lists(st.sampled_from(MARKS) | st.text(max_size=3), max_size=24)
KINDS = st.sampled_from(["qwen", "qwen3_coder", "deepseek", "llama", "plain"])


@settings(max_examples=1500, deadline=None)
@given(KINDS, ANSWERS, st.booleans(), st.booleans(), st.integers(1, 5))
def test_random_answers(kind: str, pieces: list[str], thinking: bool, parallel: bool, step: int) -> None:
    """Never an error; the same whole, as drawn and in steps; every letter x of it comes out somewhere."""
    text = "".join(pieces)
    options: dict[str, Any] = {"starts_in_reasoning": thinking, "parallel": parallel}
    parsed = tuple_of(parse(kind, text, **options))
    assert tuple_of(parse(kind, pieces, **options)) == parsed
    assert tuple_of(parse(kind, [text[i : i + step] for i in range(0, len(text), step)], **options)) == parsed
    reasoning, content, calls = parsed
    assert all(name in ("get_weather", "get_time") for name, _ in calls)
    kept = reasoning + content + "".join(a for _, a in calls)
    if '"' not in text and "<parameter=" not in text:  # what may be keys and values that a call does not have
        assert kept.count("x") == text.count("x")
    if (
        not calls
        and not reasoning
        and "<think>" not in text
        and "</think>" not in text
        and "<|python_tag|>" not in text
    ):
        assert content == ("" if thinking and kind in ("qwen", "qwen3_coder", "deepseek") else text)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(sorted(IN_JSON)),
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.integers(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    ),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
)
def test_arguments_come_out_as_they_were_written(
    kind: str, arguments: dict[str, Any], ascii_only: bool, indent: int | None, step: int
) -> None:
    written = json.dumps(arguments, ensure_ascii=ascii_only, indent=indent)
    text = IN_JSON[kind]("get_weather", written)
    pieces = [text[i : i + step] for i in range(0, len(text), step)]
    assert tuple_of(parse(kind, pieces)) == ("", "", [("get_weather", written)])
    if kind == "qwen":
        assert tuple_of(parse(kind, IN_JSON[kind]("get_weather", json.dumps(written)))) == (
            "",
            "",
            [("get_weather", written)],
        )


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet='{}[]:,"\\ \n0123456789.eE+-truefalsnu/x\x01', max_size=12).map(lambda text: "{" + text))
@example('{},"')
def test_complete_arguments_are_json(text: str) -> None:
    """Wherever the walk says that an object is complete, Python agrees, and the other way round."""
    parsed = parse("qwen", f'<tool_call>{{"name": "get_time", "arguments": {text}}}</tool_call>')
    if parsed.calls and not parsed.content:
        arguments = parsed.calls[0][1]
        try:
            json.JSONDecoder(strict=False).raw_decode(text)  # other fields may follow
        except ValueError:
            with pytest.raises(ValueError, match=r"."):
                json.loads(arguments)
        else:
            assert isinstance(json.loads(arguments), dict)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(IN_JSON)),
    st.lists(
        st.sampled_from(["\\ud83d", "\\uDE00", "\\u00e9", "\\\\", "\\n", "u", "d83d", "\x01", "é"]), max_size=6
    ).map("".join),
    st.booleans(),
    st.integers(1, 9),
)
@example("qwen", "\\ud83d", False, 1)
def test_halves_of_pairs_do_not_come_out(kind: str, text: str, as_key: bool, step: int) -> None:
    """No text has them. What JSON's own reader finds, with U+FFFD in their place."""
    written = f'{{"{text}": 1}}' if as_key else f'{{"a": ["{text}"]}}'
    answer = IN_JSON[kind]("get_weather", written)
    ((name, arguments),) = parse(kind, [answer[i : i + step] for i in range(0, len(answer), step)]).calls
    expected = json.dumps(json.loads(written, strict=False), ensure_ascii=False)
    assert name == "get_weather"
    assert json.loads(arguments) == json.loads(expected.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def test_tools_with_odd_names() -> None:
    tool = Tool("a.b-c_1")
    for kind in CALL:
        assert parse(kind, CALL[kind]("a.b-c_1", "{}"), tools=[tool]).calls == [("a.b-c_1", "{}")]
    assert [WEATHER.name, TIME.name] == ["get_weather", "get_time"]
