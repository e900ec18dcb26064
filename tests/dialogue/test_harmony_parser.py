"""Harmony's answers: golden ones in pieces, what openai-harmony makes of random and broken ones, and linear time."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from itertools import chain, cycle, islice
from typing import Any

import pytest
from dialogue.harmony_oracle import DATA, load_oracle, o200k
from dialogue.helpers import TOOLS, Parsed, put_together
from processor_time import assert_grows_less

from gristmill.dialogue.harmony import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, TEXTS
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.types import Delta, Tool
from gristmill.tokenizer.interface import Tokenizer

IDS = {text: token_id for token_id, text in TEXTS.items()}
PARIS = '{"city": "Paris"}'


def tokens_of(text: str) -> list[tuple[int, str]]:
    """(id, text) of special tokens as they are, of all else character by character."""
    tokens: list[tuple[int, str]] = []
    while text:
        mark = next((mark for mark in IDS if text.startswith(mark)), text[0])
        tokens.append((IDS.get(mark, 1), mark))
        text = text[len(mark) :]
    return tokens


def parse_text(text: str, *, join: bool, tools: Sequence[Tool] = TOOLS, parallel: bool = True) -> Parsed:
    """In characters, or with all text between special tokens in one piece."""
    tokens = tokens_of(text)
    if join:
        joined: list[tuple[int, str]] = []
        for token_id, piece in tokens:
            if token_id == 1 and joined and joined[-1][0] == 1:
                joined[-1] = (1, joined[-1][1] + piece)
            else:
                joined.append((token_id, piece))
        tokens = joined
    parser = make_parser("harmony", tools=tools, parallel=parallel)
    deltas: list[Delta] = []
    for token_id, piece in tokens:
        deltas += parser.push(token_id, piece)
    return put_together(deltas + parser.finish())


ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
CALLED = [("get_weather", PARIS)]
GOLDEN = {
    "thought and answer": (f"{ANALYSIS}<|channel|>final<|message|> 4.\n<|return|>", ("Hm.", " 4.\n", [])),
    "recipient in the channel": (
        f"{ANALYSIS}<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{PARIS}<|call|>",
        ("Hm.", "", CALLED),
    ),
    "recipient in the role": (
        f"{ANALYSIS} to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{PARIS}<|call|>",
        ("Hm.", "", CALLED),
    ),
    "first of all, recipient in the role": (
        f" to=functions.get_weather<|channel|>commentary<|constrain|>json<|message|>{PARIS}<|call|>",
        ("", "", CALLED),
    ),
    "in the channel of thoughts": (
        f"<|channel|>analysis to=get_weather code<|message|> {PARIS} <|call|>",
        ("", "", CALLED),
    ),
    "two channels in a header": (
        f"<|channel|>commentary to=functions.get_weather<|channel|>commentary json<|message|>{PARIS}<|call|>",
        ("", "", CALLED),
    ),
    "several calls": (
        f"<|channel|>commentary to=functions.get_weather<|message|>{PARIS}<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.get_time<|message|><|call|>",
        ("", "", [*CALLED, ("get_time", "{}")]),
    ),
    "commentary for the user": (
        f"<|channel|>commentary<|message|>I look.\n<|end|><|start|>assistant to=functions.get_weather<|channel|>"
        f"commentary json<|message|>{PARIS}<|call|>",
        ("", "I look.\n", CALLED),
    ),
    "no such function": (
        f"<|channel|>commentary to=functions.get_rich<|message|>{PARIS}<|call|>",
        ("", PARIS, []),
    ),
    "a built-in tool in thoughts": (
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        ("print(1)", "", []),
    ),
    "a message that is no object": (
        "<|channel|>commentary to=functions.get_weather<|message|> Paris<|call|>",
        ("", " Paris", []),
    ),
    "broken arguments": (
        '<|channel|>commentary to=functions.get_weather<|message|>{"city": Paris}<|call|>',
        ("", "Paris}", [("get_weather", '{"city": ')]),
    ),
    "ends in the arguments": (
        '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Pa',
        ("", "", [("get_weather", '{"city": "Pa')]),
    ),
    "ends before the arguments": ("<|channel|>commentary to=functions.get_weather<|message|>", ("", "", [])),
    "ends in a thought": ("<|channel|>analysis<|message|>Hm. ", ("Hm. ", "", [])),
    "no header": ("Hello, how are you?", ("", "Hello, how are you?", [])),
    "one word": ("Hello", ("", "Hello", [])),
    "no header, then one": (
        "Hello, how are you?<|channel|>analysis<|message|>x<|end|>and you, my friend<|start|>assistant<|channel|>final"
        "<|message|>!<|return|>",
        ("x", "Hello, how are you?and you, my friend!", []),
    ),
    "no message token": ("<|channel|>commentary Hello there<|end|>", ("", "Hello there", [])),
    "no start token": ("<|channel|>analysis<|message|>x<|end|><|channel|>final<|message|>y<|return|>", ("x", "y", [])),
    "a header without a channel": (f"{ANALYSIS}<|message|>y<|return|>", ("Hm.", "y", [])),
    "special tokens in a message": (
        "<|channel|>final<|message|>a<|start|>b<|channel|>c<|message|>d<|return|>",
        ("", "a<|start|>b<|channel|>c<|message|>d", []),
    ),
    "somebody else calls": (
        f"{ANALYSIS[:-9]}browser.search to=functions.get_weather<|channel|>commentary<|message|>{PARIS}<|end|>",
        ("Hm.", PARIS, []),
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_answers(case: str) -> None:
    text, expected = GOLDEN[case]
    for join in (False, True):
        parsed = parse_text(text, join=join)
        assert (parsed.reasoning, parsed.content, parsed.calls) == expected


def test_one_call_where_calls_are_not_parallel() -> None:
    parsed = parse_text(GOLDEN["several calls"][0], join=False, parallel=False)
    assert (parsed.calls, parsed.content) == (CALLED, "")


def read(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str] = (), tools: Sequence[Tool] = TOOLS) -> Parsed:
    reader = DialogueReader(tokenizer, make_parser("harmony", tools=tools), stop)
    deltas: list[Delta] = []
    for token_id in ids:
        deltas += reader.push(token_id)
    return put_together(deltas + reader.finish())


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_oracle(tmp_path_factory)


def expected_of(messages: Sequence[Any], tools: Sequence[Tool]) -> tuple[str, str, list[str]]:
    """What our deltas should be, by the messages of the reference: reasoning, content, names and arguments."""
    names = {tool.name for tool in tools}
    reasoning = content = ""
    calls: list[str] = []
    for message in messages:
        text = "".join(part.text for part in message.content)
        recipient = (message.recipient or "").removeprefix("functions.").partition("<")[0]
        if message.author.role.value == "assistant" and recipient in names and text.strip(" \t\r\n")[:1] in ("{", ""):
            calls.append(f"{recipient} {text}")
        elif message.channel == "analysis":
            reasoning += text
        else:
            content += text
    return reasoning, content, calls


def test_files_of_the_reference(oracle: Any) -> None:
    """Answers that its own tests parse."""
    tokenizer = o200k()
    texts = {name: (DATA / "harmony" / f"test_{name}.txt").read_text() for name in ("simple_reasoning_response",)}
    ids = [int(word) for word in texts["simple_reasoning_response"].split()]
    parsed = read(tokenizer, ids)
    assert (parsed.reasoning, parsed.content) == (
        'User asks: "What is 2 + 2?" Simple arithmetic. Provide answer.',
        "2 + 2 = 4.",
    )
    lookup = Tool("lookup_weather")
    called = [int(word) for word in (DATA / "harmony" / "test_simple_tool_call.txt").read_text().split()]
    called = [*called[:22], END, *called[23:]]  # a <|return|> stands there in the middle of the answer
    parsed = read(tokenizer, called, tools=[lookup])
    assert parsed.calls == [("lookup_weather", '{"location": "Tokyo"}')]
    text = (DATA / "harmony" / "test_streamable_parser.txt").read_text().strip()
    ids = oracle.encode(text, allowed_special="all")
    parsed = read(tokenizer, ids, tools=[Tool("browser.search")])
    assert parsed.calls == [
        ("browser.search", '{"query": "current US president July 2025", "topn": 10, "source": "news"}')
    ]
    assert parsed.reasoning.startswith('User asks "Who')
    assert parsed.content == '{"result": "https://openai.com/"}'


class Maker:
    """Random answers, well-formed and then broken at random places."""

    words = ("Hm.", " the", "\n", "é", "日本", "{", "}", '"', " 💖", "json", " to", "=", "functions", ".", " ", "final")

    def __init__(self, seed: int, encode: Any) -> None:
        self.rng = random.Random(seed)
        self.encode = encode

    def text(self) -> list[int]:
        return [i for _ in range(self.rng.randrange(6)) for i in self.encode(self.rng.choice(self.words))]

    def message(self, first: bool) -> list[int]:
        rng = self.rng
        recipients = ("functions.get_weather", "get_time", "functions.nobody", "python", "assistant")
        recipient = f" to={rng.choice(recipients)}" if rng.random() < 0.5 else ""
        channel = rng.choice(["analysis", "commentary", "final", "final", "other"])
        kind = rng.choice(["", "", " json", "<|constrain|>json", " <|constrain|>json", " code"]) if recipient else ""
        in_role = rng.random() < 0.5
        header = recipient if in_role else ""
        header += "<|channel|>" + channel if rng.random() < 0.9 else ""
        header += ("" if in_role else recipient) + kind
        role = rng.choice(["assistant"] * 8 + ["user", "functions.get_weather to=assistant"])
        ids = [] if first else [START, *self.encode(role)]
        ids += [i for token, piece in tokens_of(header) for i in ([token] if token != 1 else self.encode(piece))]
        body = self.encode(PARIS) if recipient and rng.random() < 0.7 else self.text()
        return [*ids, MESSAGE, *body, rng.choice([END, END, CALL, RETURN])]

    def answer(self) -> list[int]:
        ids = [i for n in range(self.rng.randrange(1, 5)) for i in self.message(n == 0)]
        for _ in range(self.rng.choice([0, 0, 1, 1, 2, 4])):
            at = self.rng.randrange(len(ids))
            match self.rng.randrange(5):
                case 0:
                    del ids[at]
                case 1:
                    ids.insert(at, self.rng.choice([START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL]))
                case 2:
                    ids[at] = self.rng.randrange(199_998)
                case 3:
                    ids.insert(at, self.rng.randrange(199_998))
                case 4:
                    ids = ids[:at]
            if not ids:
                break
        return ids


def test_random_answers_agree_with_the_reference(oracle: Any) -> None:
    """Wherever it parses at all, strictly and not; and we parse everything."""
    import openai_harmony as oh

    tokenizer, encode = o200k(), functools.cache(oracle.encode)
    n_parsed = n_calls = 0
    for seed in range(1000):
        ids = Maker(seed, encode).answer()
        parsed = read(tokenizer, ids)
        try:
            messages = oracle.parse_messages_from_completion_tokens(ids, oh.Role.ASSISTANT)
            if messages != oracle.parse_messages_from_completion_tokens(ids, oh.Role.ASSISTANT, strict=False):
                continue  # it does not agree with itself about an end within a header
        except oh.HarmonyError:
            continue
        n_parsed += 1
        reasoning, content, calls = expected_of(messages, TOOLS)
        if ids[-1] not in (END, CALL, RETURN) and expected_of(messages[-1:], TOOLS)[2] in (
            ["get_weather "],
            ["get_time "],
        ):
            calls.pop()  # it has no end, so more might have come
        n_calls += len(calls)
        where = f"seed {seed}: {tokenizer.decode(ids)!r}"
        # Arguments that go on after the object, or break, leave text behind, which is where its channel says.
        ours = [f"{name} {arguments}" for name, arguments in parsed.calls]
        assert [c.split()[0] for c in ours] == [c.split()[0] for c in calls], where
        if all(c.split(" ", 1)[1] in (PARIS, "") for c in calls):
            if any("<|start|>" in (message.recipient or "") for message in messages):
                content = parsed.content[: len(parsed.content) - len(content)] + content  # it has lost a text there
            assert (parsed.reasoning, parsed.content) == (reasoning, content), where
            assert [c.replace("{}", "") for c in ours] == calls, where
    assert n_parsed > 500
    assert n_calls > 100


def test_incomplete_characters_stay_in_their_message(oracle: Any) -> None:
    tokenizer = o200k()
    ids = [CHANNEL, *oracle.encode("analysis"), MESSAGE, 9552, 9552, END, START, *oracle.encode("assistant"), CHANNEL]
    ids += [*oracle.encode("final"), MESSAGE, *oracle.encode("Hi"), 9552]
    parsed = read(tokenizer, ids)
    assert parsed.reasoning == " \ufffd \ufffd"
    assert parsed.content == "Hi \ufffd"


def test_stop_strings_end_the_content(oracle: Any) -> None:
    """Not the thought, and not the arguments."""
    tokenizer = o200k()
    text = "<|channel|>analysis<|message|>no Paris here<|end|><|start|>assistant to=functions.get_weather<|channel|>"
    text += (
        f"commentary<|message|>{PARIS}<|end|><|start|>assistant<|channel|>final<|message|>In Paris it rains.<|return|>"
    )
    ids = oracle.encode(text, allowed_special="all")
    reader = DialogueReader(tokenizer, make_parser("harmony", tools=TOOLS), ["Paris"])
    deltas: list[Delta] = []
    for token_id in ids:
        assert not reader.stopped or not reader.push(token_id)
        deltas += reader.push(token_id) if not reader.stopped else []
    parsed = put_together(deltas + reader.finish())
    assert reader.stopped
    assert (parsed.reasoning, parsed.content, parsed.calls) == ("no Paris here", "In ", CALLED)
    assert read(tokenizer, ids, stop=["rains!"]).content == "In Paris it rains."


@pytest.mark.parametrize("piece", [*TEXTS.values(), "<|start|>assistant<|channel|>", "a", "<|channel|>a", "{", "<"])
@pytest.mark.parametrize("head", ["", "<|channel|>final<|message|>", "<|channel|>", "<|start|>"])
def test_linear_time(head: str, piece: str) -> None:
    """Eight times as many tokens take some eight times the time, not sixty-four times."""
    first, more = tokens_of(head), tokens_of(piece)

    def read_pieces(n: int) -> None:
        parser = make_parser("harmony", tools=TOOLS)
        for token_id, text in chain(first, islice(cycle(more), n * len(more))):
            parser.push(token_id, text)
        parser.finish()

    assert_grows_less(read_pieces, 2_000, 16_000, 24)
