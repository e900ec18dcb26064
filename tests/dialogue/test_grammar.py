"""Forced calls: whatever a random model would say, it calls, and the parser of the same format reads the call."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
import small_model
from dialogue.helpers import Bytes, Parsed, put_together

from gristmill import LLM, SamplingParams
from gristmill.dialogue.deepseek import CALL, CALLS, END_CALL, END_CALLS, SEP
from gristmill.dialogue.grammar import answer_grammar, faulty_tool
from gristmill.dialogue.harmony import TEXTS
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.types import AUTO, ChoiceMode, Delta, Thought, Tool, ToolChoice
from gristmill.engine.guide import GuideCompiler, GuideError

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", 'a"}{']}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
}
CITY |= {"required": ["city", "days"], "additionalProperties": False}
TOOLS = (Tool("get_weather", "", CITY), Tool("get_time"))
REQUIRED, NAMED = ToolChoice(ChoiceMode.REQUIRED), ToolChoice(ChoiceMode.NAMED, "get_time")
SPECIAL = {
    "qwen": ["<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"],
    "qwen3_coder": ["<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"],
    "deepseek": ["<｜end▁of▁sentence｜>", "<think>", "</think>", CALL, CALLS, SEP, END_CALL, END_CALLS],
    "llama": ["<|eot_id|>", "<|python_tag|>"],
    "harmony": list(TEXTS.values()),
}
THOUGHTS = {
    "qwen": "<think>\nHm <b>{.\n</think>\n\n",
    "deepseek": "Hm.\n</think>\n\n",
    "llama": "",
    "harmony": "",
}
THOUGHTS["qwen3_coder"] = THOUGHTS["qwen"]
THOUGHTS["harmony"] = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"


def walk(
    compiler: GuideCompiler, grammar: Any, beginning: Sequence[int], eos_ids: Sequence[int], vocab_size: int, seed: int
) -> list[int]:
    """Random tokens under the masks, to an end; without one the walk is not whole, which is an error."""
    rng = random.Random(seed)
    guide = compiler.compile(grammar)
    for token_id in beginning:
        guide.advance(token_id)
    ids, row = list(beginning), np.zeros(-(-vocab_size // 32), np.uint32)
    for _ in range(3000):
        guide.mask(row)
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        allowed = [int(i) for i in np.flatnonzero(bits)]
        space = [i for i in allowed if i in (9, 10, 13, 32)]
        if len(space) < len(allowed) and rng.random() < 0.9:
            allowed = [i for i in allowed if i not in space]
        ids.append(rng.choice(allowed))
        if ids[-1] in eos_ids:
            return ids
        guide.advance(ids[-1])
    raise AssertionError("the walk does not end")


def check(parsed: Parsed, *, n_calls: Sequence[int], names: Sequence[str]) -> None:
    assert parsed.content == ""
    assert len(parsed.calls) in n_calls
    schemas = {tool.name: tool.parameters or {"type": "object", "maxProperties": 0} for tool in TOOLS}
    for name, arguments in parsed.calls:
        assert name in names
        jsonschema.validate(json.loads(arguments), schemas[name])


@pytest.mark.parametrize(("kind", "n_special"), [(k, n) for k in SPECIAL for n in (1, 9) if (k, n) != ("harmony", 1)])
@pytest.mark.parametrize("thinks", [True, False])
def test_forced_answers_are_calls(kind: str, n_special: int, thinks: bool) -> None:
    """Whether marks are special tokens or text; Harmony's are always special."""
    tokenizer = Bytes(SPECIAL[kind][:n_special])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    starts = kind == "deepseek" and thinks
    beginning = tokenizer.encode_all(THOUGHTS[kind]) if thinks else []
    for choice, parallel in ((REQUIRED, True), (REQUIRED, False), (NAMED, True)):
        several = choice is REQUIRED and parallel and kind != "harmony"
        options: dict[str, Any] = {"parallel": parallel, "starts_in_reasoning": starts}
        thought = Thought.OPEN if starts else Thought.POSSIBLE
        grammar = answer_grammar(
            kind, None, TOOLS, choice, parallel=parallel, special_tokens=tokenizer.special_ids, thought=thought
        )
        for seed in range(6):
            if not thinks:  # the walk would think at random, and not come to an end
                first = {"deepseek": CALLS, "llama": "{", "harmony": "<|channel|>commentary"}
                beginning = tokenizer.encode_all(first.get(kind, "<tool_call>"))
            ids = walk(compiler, grammar, beginning, tokenizer.eos_ids, tokenizer.vocab_size, seed)
            reader = DialogueReader(tokenizer, make_parser(kind, tools=TOOLS, tool_choice=choice, **options))
            deltas: list[Delta] = []
            for token_id in ids:
                deltas += reader.push(token_id)
            parsed = put_together(deltas + reader.finish())
            names = ["get_time"] if choice is NAMED else ["get_time", "get_weather"]
            check(parsed, n_calls=range(1, 1000) if several else [1], names=names)
            assert bool(parsed.reasoning) == (thinks and kind != "llama")


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(small_model.write(tmp_path_factory.mktemp("model"), context=1024), threads=1)


@pytest.mark.parametrize("kind", ["qwen", "qwen3_coder", "deepseek", "llama"])
def test_a_model_is_forced_to_call(llm: LLM, kind: str) -> None:
    """Through the engine. A thought of a random model does not end, so some answers are cut short."""
    grammar = answer_grammar(kind, None, TOOLS, REQUIRED, parallel=False, special_tokens=llm.tokenizer.special_ids)
    asked = [
        SamplingParams(temperature=1.5, seed=seed, max_tokens=400, structured_outputs=grammar) for seed in range(12)
    ]
    n_calls = 0
    for output in llm.generate(["a"] * len(asked), asked):
        answer = output.outputs[0]
        reader = DialogueReader(llm.tokenizer, make_parser(kind, tools=TOOLS))
        deltas = [delta for token_id in answer.token_ids for delta in reader.push(token_id)] + reader.finish()
        parsed = put_together(deltas)
        if answer.finish_reason == "stop":
            check(parsed, n_calls=[1], names=["get_time", "get_weather"])
            n_calls += 1
    assert n_calls >= 3


STRICT = (replace(TOOLS[0], strict=True), TOOLS[1])
CALLS_OF = {
    "qwen": '<tool_call>\n{{"name": "get_weather", "arguments": {}}}\n</tool_call>',
    "deepseek": f"{CALLS}{CALL}function{SEP}get_weather\n```json\n{{}}\n```{END_CALL}{END_CALLS}",
    "llama": '{{"name": "get_weather", "parameters": {}}}',
    "harmony": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}",
}
KEPT, BROKEN = '{"city": "Paris", "days": 3}', '{"city": "Rome", "days": 3}'
SAID = {"harmony": "<|channel|>final<|message|>{}"}


def accepts(tokenizer: Bytes, grammar: Any, text: str) -> bool:
    """Whether an answer may be just this."""
    guide = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids).compile(grammar)
    row = np.zeros(-(-tokenizer.vocab_size // 32), np.uint32)
    for token_id in [*tokenizer.encode_all(text), tokenizer.eos_ids[0]]:
        guide.mask(row)
        if not row[token_id // 32] >> (token_id % 32) & 1:
            return False
        if token_id not in tokenizer.eos_ids:
            guide.advance(token_id)
    return True


def read(tokenizer: Bytes, kind: str, text: str) -> Parsed:
    constrained = kind == "llama"  # as ChatFormat.reader has it
    parser = make_parser(kind, tools=STRICT, starts_in_reasoning=False, constrained=constrained)
    reader = DialogueReader(tokenizer, parser)
    return put_together([delta for i in tokenizer.encode_all(text) for delta in reader.push(i)] + reader.finish())


@pytest.mark.parametrize(("kind", "n_special"), [(k, n) for k in CALLS_OF for n in (1, 9) if (k, n) != ("harmony", 1)])
def test_strict_tools_leave_text_free_and_keep_calls_to_their_schemas(kind: str, n_special: int) -> None:
    """Marks are special tokens or, as most of published models are, text."""
    tokenizer = Bytes(SPECIAL[kind][:n_special])
    thought = "" if kind == "llama" else THOUGHTS["qwen" if kind == "deepseek" else kind]
    grammar = answer_grammar(kind, None, STRICT, special_tokens=tokenizer.special_ids)
    assert answer_grammar(kind, None, STRICT, ToolChoice(ChoiceMode.NONE)) is None
    text, call = SAID.get(kind, "{}"), CALLS_OF[kind]
    for before in ("", thought):
        for said in ("Just so.", "Two.\n\nLines <b>{</b>", "a\n<tool> x"):
            assert accepts(tokenizer, grammar, before + text.format(said))
            parsed = read(tokenizer, kind, before + text.format(said))
            assert (parsed.content.strip(), parsed.calls) == (said, [])
        assert accepts(tokenizer, grammar, before + call.format(KEPT))
        assert not accepts(tokenizer, grammar, before + call.format(BROKEN))
        (called,) = read(tokenizer, kind, before + call.format(KEPT)).calls
        assert called[0] == "get_weather"
        assert json.loads(called[1]) == json.loads(KEPT)
    if kind in ("qwen", "deepseek"):
        assert accepts(tokenizer, grammar, "I look.\n" + call.format(KEPT))
        assert not accepts(tokenizer, grammar, "I look.\n" + call.format(BROKEN))
        assert read(tokenizer, kind, "I look.\n" + call.format(KEPT)).content.strip() == "I look."


def test_harmony_may_say_something_before_a_strict_call() -> None:
    tokenizer = Bytes(SPECIAL["harmony"])
    grammar = answer_grammar("harmony", None, STRICT, special_tokens=tokenizer.special_ids)
    said = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    for before in (said, THOUGHTS["harmony"] + said):
        assert accepts(tokenizer, grammar, before + CALLS_OF["harmony"].format(KEPT))
        assert not accepts(tokenizer, grammar, before + CALLS_OF["harmony"].format(BROKEN))
        parsed = read(tokenizer, "harmony", before + CALLS_OF["harmony"].format(KEPT))
        assert parsed.content.strip() == "I look."
        assert len(parsed.calls) == 1


@pytest.mark.parametrize("n_special", [1, 9])
@pytest.mark.parametrize("kind", SPECIAL)
def test_whatever_is_read_as_a_call_keeps_to_a_strict_schema(kind: str, n_special: int) -> None:
    """Random walks: where marks are spelled, too."""
    if (kind, n_special) == ("harmony", 1):
        pytest.skip("Harmony's marks are always special tokens")
    tokenizer = Bytes(SPECIAL[kind][:n_special])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    grammar = answer_grammar(kind, None, STRICT, special_tokens=tokenizer.special_ids, thought=Thought.NONE)
    if kind == "harmony":  # where no thought comes, it goes on within a message
        grammar = answer_grammar(kind, None, STRICT, special_tokens=tokenizer.special_ids)
    first = {"deepseek": CALLS, "llama": "{", "harmony": "<|channel|>commentary to="}.get(kind, "<tool_call>")
    for seed in range(6):
        ids = walk(compiler, grammar, tokenizer.encode_all(first), tokenizer.eos_ids, tokenizer.vocab_size, seed)
        parser = make_parser(kind, tools=STRICT, constrained=kind == "llama")
        reader = DialogueReader(tokenizer, parser)
        parsed = put_together([delta for i in ids for delta in reader.push(i)] + reader.finish())
        check(parsed, n_calls=range(1, 1000), names=["get_weather", "get_time"])


def test_nothing_is_forced_where_nothing_has_to_be() -> None:
    assert answer_grammar("qwen", None, TOOLS, AUTO) is None
    assert answer_grammar("qwen", None, TOOLS, ToolChoice(ChoiceMode.NONE)) is None


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"pattern": "^(?!a)b"}, "pattern '^(?!a)b' has look-around, which is not supported"),
        ({"const": 2**60}, f"const or enum has the number {2**60}, beyond 2^53 it cannot be kept exactly"),
        ({"not": {}}, 'Unimplemented keys: ["not"]'),
    ],
)
def test_a_tool_is_found_by_what_is_wrong_with_its_schema(schema: dict[str, Any], said: str) -> None:
    """Whether we find it or the compiler does."""
    tools = [TOOLS[1], Tool("f", "", {"type": "object", "properties": {"a": schema}}, strict=True)]
    grammar = answer_grammar("qwen", None, tools, REQUIRED)
    assert grammar is not None
    assert grammar.grammar is not None
    tokenizer = Bytes(["</s>"])
    with pytest.raises(GuideError) as caught:
        GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids).compile(grammar)
    assert faulty_tool(grammar.grammar, str(caught.value)) == (1, said)


UNSAID = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "contains": {"const": 1}, "not": {}}
UNSAID |= {"if": {}, "then": {}, "else": {}, "unevaluatedItems": False}
HARD = {"type": "object", "properties": {"not": UNSAID, "k": {"const": {"not": 1}}}, "required": ["not", "k"]}
HARD |= {"dependentRequired": {"k": ["not"]}, "dependentSchemas": {"k": {}}, "unevaluatedProperties": False}


@pytest.mark.parametrize("kind", ["qwen", "deepseek", "llama", "harmony"])
def test_what_no_grammar_can_say_is_kept_by_strict_tools_or_refused(kind: str) -> None:
    """Of other tools it is left out, and the rest of the schema kept."""
    tokenizer = Bytes(SPECIAL[kind])
    tool = Tool("get_weather", "", HARD)
    grammar = answer_grammar(kind, None, [tool], REQUIRED, special_tokens=tokenizer.special_ids)
    assert accepts(tokenizer, grammar, CALLS_OF[kind].format('{"not": [1, 1], "k": {"not": 1}}'))
    assert not accepts(tokenizer, grammar, CALLS_OF[kind].format('{"not": ["1"], "k": {"not": 1}}'))
    assert not accepts(tokenizer, grammar, CALLS_OF[kind].format('{"not": [1], "k": {}}'))
    strict = answer_grammar(kind, None, [replace(tool, strict=True)], REQUIRED, special_tokens=tokenizer.special_ids)
    with pytest.raises(GuideError, match="Unimplemented keys"):
        accepts(tokenizer, strict, "")


def test_what_cannot_be_forced_is_refused() -> None:
    with pytest.raises(ValueError, match="no calls that could be forced"):
        answer_grammar("plain", None, TOOLS, REQUIRED)
    with pytest.raises(ValueError, match="calls none of the 0 tools"):
        answer_grammar("qwen", None, (), REQUIRED)
    with pytest.raises(ValueError, match="get_rich"):
        answer_grammar("qwen", None, TOOLS, ToolChoice(ChoiceMode.NAMED, "get_rich"))
    tokenizer = Bytes(["</s>"])
    compiler = GuideCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    bad = answer_grammar(
        "qwen", None, [Tool("f", "", {"type": "object", "properties": {"a": {"pattern": "("}}})], REQUIRED
    )
    assert bad is not None
    with pytest.raises(GuideError):
        compiler.compile(bad)
