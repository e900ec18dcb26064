"""Structured output through the whole engine: whatever a random model would say, its answers keep to their schemas."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import small_model
from random_schemas import SchemaMaker

from gristmill import LLM, SamplingParams, StructuredOutputsParams
from gristmill.engine.guide import Guide, GuideError
from gristmill.types import Request


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


def test_what_cannot_be_kept_together_is_refused() -> None:
    with pytest.raises(ValueError, match="min_tokens cannot be kept together with structured_outputs"):
        SamplingParams(min_tokens=3, structured_outputs=StructuredOutputsParams(regex="a"))
