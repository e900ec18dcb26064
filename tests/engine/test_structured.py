"""Structured output through the whole engine: whatever a random model would say, its answers keep to their schemas."""

from __future__ import annotations

import json
import re
import threading

import jsonschema
import pytest
import small_model
from random_schemas import SchemaMaker

from gristmill import LLM, SamplingParams, StructuredOutputsParams
from gristmill.engine.adjust import Adjuster
from gristmill.engine.guide import Guide, GuideError
from gristmill.types import Event, Failure, Request


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(small_model.write(tmp_path_factory.mktemp("model"), context=2048), threads=1)


def params(seed: int, structured: StructuredOutputsParams) -> SamplingParams:
    return SamplingParams(temperature=2.0, max_tokens=2000, seed=seed, structured_outputs=structured)


def test_random_schemas_in_a_crowd(llm: LLM) -> None:
    """200 of them at once, beside requests without any; those that end validate, and nearly all end."""
    schemas, asked = [], []
    for seed in range(230):
        schema = SchemaMaker(seed).make()
        structured = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
        try:
            llm._open()._stream(Request((1,), params(seed, structured)), lambda _: False)
        except GuideError:
            continue  # a few random ones have no answer
        schemas.append(schema)
        asked.append(params(seed, structured))
    schemas, asked = schemas[:200], asked[:200]
    assert len(schemas) == 200
    plain = [SamplingParams(temperature=1.0, max_tokens=30, seed=i) for i in range(20)]
    outputs = llm.generate([[1, 60]] * 220, [*asked, *plain])
    n_ended = 0
    for schema, output in zip(schemas, outputs, strict=False):
        answer = output.outputs[0]
        if answer.finish_reason == "stop":
            n_ended += 1
            validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
            validator.validate(json.loads(answer.text))
    assert n_ended >= 190
    for seed in (0, 7, 19):
        assert llm.generate([[1, 60]], asked[seed])[0].outputs == outputs[seed].outputs  # alone as in the crowd


def test_the_other_constraints(llm: LLM) -> None:
    kinds = {
        "regex": StructuredOutputsParams(regex=r"[a-c]{3}-\d{2}"),
        "choice": StructuredOutputsParams(choice=["yes", "no", "perhaps"]),
        "grammar": StructuredOutputsParams(grammar='start: "(" start ")" | /[0-9]/'),
        "json_object": StructuredOutputsParams(json_object=True, disable_any_whitespace=True),
    }
    texts = {name: llm.generate("a", params(3, kind))[0].outputs[0].text for name, kind in kinds.items()}
    assert re.fullmatch(r"[a-c]{3}-\d{2}", texts["regex"])
    assert texts["choice"] in ("yes", "no", "perhaps")
    assert re.fullmatch(r"(\(*)\d(\)*)", texts["grammar"])
    assert texts["grammar"].count("(") == texts["grammar"].count(")")
    assert isinstance(json.loads(texts["json_object"]), dict)


def test_several_answers_keep_to_one_schema(llm: LLM) -> None:
    structured = StructuredOutputsParams(choice=["red", "green", "blue"])
    chosen = SamplingParams(n=8, seed=1, temperature=2.0, max_tokens=20, structured_outputs=structured)
    texts = [answer.text for answer in llm.generate("a", chosen)[0].outputs]
    assert set(texts) <= {"red", "green", "blue"}
    assert len(set(texts)) > 1


def test_a_grammar_that_fails_on_the_way_ends_its_own_request_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    mask, n = Guide.mask, [0]

    def failing(self: Guide, row: object) -> None:
        n[0] += 1
        if n[0] == 3:
            raise GuideError("regex", "has grown over its limits")
        mask(self, row)  # type: ignore[arg-type]

    monkeypatch.setattr(Guide, "mask", failing)
    structured = StructuredOutputsParams(regex="[a-c]{9}")
    plain = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    alone = llm.generate([[1, 50]], plain)[0].outputs
    with pytest.raises(GuideError, match="grown over its limits"):
        llm.generate("a", params(0, structured))
    assert llm.generate([[1, 50]], plain)[0].outputs == alone


@pytest.mark.parametrize("name", ["forced", "rollback"])
def test_a_grammar_that_fails_while_it_is_guessed_along_ends_its_own_request_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def failing(*_: object) -> None:
        raise GuideError("regex", "has grown over its limits")

    plain = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    alone = llm.generate([[1, 50]], plain)[0].outputs
    monkeypatch.setattr(Guide, name, failing)
    events: list[Event] = []
    structured = StructuredOutputsParams(regex="[a-c]{9}")
    llm._open().submit(Request((1, 60), params(0, structured)), lambda event: bool(events.append(event)))
    assert llm.generate([[1, 50]], plain)[0].outputs == alone
    assert isinstance(events[-1], Failure)
    assert "grown over its limits" in str(events[-1].error)


def test_a_grammar_that_fails_in_a_step_with_others_ends_its_own_request_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise GuideError("regex", "has grown over its limits")

    monkeypatch.setattr(Adjuster, "fill_masks", failing)
    engine, ended = llm._open(), threading.Event()
    plain = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    structured = Request((1, 60), params(0, StructuredOutputsParams(regex="[a-c]{9}")))
    told: list[Event] = []
    failed: list[Event] = []

    def take(event: Event) -> bool:
        if not told:  # so that it is there at the next step
            engine.submit(structured, lambda event: bool(failed.append(event)))
        told.append(event)
        if isinstance(event, Failure) or len(told) == 20:
            ended.set()
        return False

    engine.submit(Request((1, 50), plain), take)
    assert ended.wait(60)
    assert not any(isinstance(event, Failure) for event in told)
    assert isinstance(failed[-1], Failure)


def test_what_cannot_be_kept_together_is_refused() -> None:
    with pytest.raises(ValueError, match="min_tokens cannot be kept together with structured_outputs"):
        SamplingParams(min_tokens=3, structured_outputs=StructuredOutputsParams(regex="a"))


PENALIZED = (
    SamplingParams(temperature=0, max_tokens=60, ignore_eos=True, repetition_penalty=1.3),
    SamplingParams(temperature=1, seed=1, max_tokens=60, ignore_eos=True, presence_penalty=1.0, frequency_penalty=0.3),
    SamplingParams(temperature=0, max_tokens=60, min_tokens=20, logit_bias={70: 3.0, 2: 50.0}, logprobs=2),
    SamplingParams(temperature=0, max_tokens=60, ignore_eos=True),
)
SHAPED = (
    StructuredOutputsParams(
        json='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, '
        '"colours": {"type": "array", "items": {"enum": ["magenta", "ultramarine"]}, "minItems": 3, "maxItems": 5}}, '
        '"required": ["name", "colours"], "additionalProperties": false}',
        disable_any_whitespace=True,
    ),
    StructuredOutputsParams(regex="(abcabc){3,8}[0-9]{2}"),
    StructuredOutputsParams(choice=["a rather long choice", "a rather short one"]),
)


@pytest.mark.parametrize("guesser", ["the text", "a model", "both"])
def test_drafts_change_no_answer(llm: LLM, guesser: str) -> None:
    """Neither under penalties, biases and a least length nor within a grammar; alone and in a crowd."""
    asked = [*PENALIZED, *(params(seed, shape) for seed, shape in enumerate(SHAPED))]
    prompts = [[1, 60, 61, 62, 60, 61, 62, 60, 61 + i % 2] for i in range(len(asked))]
    expected = [output.outputs for output in llm.generate(prompts, asked)]
    draft = None if guesser == "the text" else llm.model_path
    with LLM(llm.model_path, threads=1, speculate=guesser != "a model", draft=draft) as guessing:
        n_right = []
        for prompt, one, answers in zip(prompts, asked, expected, strict=True):
            before = guessing._open()._scheduler.n_accepted
            assert guessing.generate([prompt], one)[0].outputs == answers
            n_right.append(guessing._open()._scheduler.n_accepted - before)
        assert [output.outputs for output in guessing.generate(prompts, asked)] == expected
    assert sum(n_right[: len(PENALIZED) - 1]) > 0, n_right  # otherwise nothing was tested
    assert all(n_right[len(PENALIZED) :]), n_right


def test_what_a_grammar_leaves_no_choice_about_takes_few_steps(llm: LLM) -> None:
    scheduler = llm._open()._scheduler
    before = scheduler.n_drafted, scheduler.n_accepted
    answer = llm.generate("a", params(0, StructuredOutputsParams(regex="x{40}(y|z)")))[0].outputs[0]
    n_drafted, n_accepted = scheduler.n_drafted - before[0], scheduler.n_accepted - before[1]
    assert re.fullmatch("x{40}(y|z)", answer.text)
    assert n_drafted == n_accepted >= 36
