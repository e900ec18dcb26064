"""From ids to deltas: special tokens of the format are read, others hidden; stop strings end the content alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dialogue.helpers import TOOLS, Bytes, Parsed, put_together

from gristmill.dialogue.harmony import TEXTS
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.types import Delta, Tool

CALL = '<tool_call>{"name": "get_time", "arguments": {"a": "é"}}</tool_call>'


def read(
    text: str, special: Sequence[str], stop: Sequence[str] = (), min_tokens: int = 0, ends: Sequence[int] = ()
) -> Parsed:
    """ends: ids that end answers, beside those of special tokens."""
    tokenizer = Bytes(special)
    tokenizer.eos_ids += tuple(ends)
    reader = DialogueReader(tokenizer, make_parser("qwen", tools=TOOLS), stop, min_tokens)
    deltas: list[Delta] = []
    for token_id in tokenizer.encode_all(text):
        deltas += reader.push(token_id)
        if reader.stopped:
            break
    return put_together(deltas + reader.finish())


def test_special_tokens() -> None:
    """The same whether marks are special tokens or not; the end of turn and the like are no text."""
    text = f"<think>é</think>日本 <|box|>\n{CALL}<|im_end|>"
    plain = read(text, ["<|im_end|>", "<|box|>"])
    assert (plain.reasoning, plain.content, plain.calls) == ("é", "日本", [("get_time", '{"a": "é"}')])
    marked = read(text, ["<|im_end|>", "<|box|>", "<think>", "</think>", "<tool_call>", "</tool_call>"])
    assert (marked.reasoning, marked.content, marked.calls) == ("é", "日本", plain.calls)


def test_stop_strings() -> None:
    """They are found across tokens and calls, and not in thoughts and arguments; all before them comes out."""
    text = f"<think>stop</think>on {CALL} st{CALL} stop and on"
    parsed = read(text, ["<|im_end|>"], stop=["stop", "é"])
    assert (parsed.reasoning, parsed.content) == ("stop", "on st")
    assert len(parsed.calls) == 2
    assert read("ends in sto", ["<|im_end|>"], stop=["stop"]).content == "ends in sto"


@pytest.mark.parametrize(("min_tokens", "content"), [(0, "a"), (2, "a"), (3, "a<>b"), (5, "a<>b"), (6, "a<>b<>c")])
def test_a_stop_string_within_the_first_tokens_is_text(min_tokens: int, content: str) -> None:
    """Three tokens complete the first, six the second."""
    assert read("a<>b<>c", [], stop=["<>"], min_tokens=min_tokens).content == content


HARMONY = tuple(TEXTS.values())


@pytest.mark.parametrize(
    ("kind", "special", "text", "tools"),
    [
        ("plain", (), "a\n", ()),
        ("qwen", (), "<think>b\n</think>\n\na\n", ()),
        ("deepseek", (), "a\n", ()),
        ("llama", (), "a\n", ()),
        ("harmony", HARMONY, "<|channel|>final<|message|>a\n", ()),
        ("harmony", HARMONY, "<|channel|>final<|message|>a\n", TOOLS),
    ],
)
def test_a_stop_string_of_white_space_ends_content_at_once(
    kind: str, special: Sequence[str], text: str, tools: Sequence[Tool]
) -> None:
    """Where no call can follow that it would stand beside: what comes after it may be white space without end."""
    tokenizer = Bytes(special)
    reader = DialogueReader(tokenizer, make_parser(kind, tools=tools), ["\n"])
    *before, last = tokenizer.encode_all(text)
    deltas = [delta for token_id in before for delta in reader.push(token_id)]
    assert not reader.stopped
    assert put_together([*deltas, *reader.push(last)]).content == "a"
    assert reader.stopped


def test_an_id_that_ends_answers_is_no_text() -> None:
    """Whether the vocabulary says that it is special or not."""
    assert read("Well.", [], ends=[ord(".")]).content == "Well"


def test_an_incomplete_character_at_the_end() -> None:
    tokenizer = Bytes(["<|im_end|>"])
    reader = DialogueReader(tokenizer, make_parser("qwen"))
    deltas = [*reader.push(ord("a")), *reader.push("é".encode()[0]), *reader.finish()]
    assert put_together(deltas).content == "a\ufffd"
