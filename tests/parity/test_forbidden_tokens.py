"""What SamplingParams forbid is what transformers forbids in the same words: bad_words, allowed_token_ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from gristmill import LLM, SamplingParams
from gristmill.bundled import STORY_MODEL
from gristmill.convert import convert
from gristmill.formats.open import open_checkpoint

GREEDY = SamplingParams(temperature=0, max_tokens=40)
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LLM, Any]]:
    folder: Path = tmp_path_factory.mktemp("stories") / "folder"
    convert(open_checkpoint(STORY_MODEL), folder, label="f32", n_threads=1)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with LLM(folder, threads=1, kv_type="f32") as llm:
        yield llm, theirs


def of_transformers(model: Any, ids: list[int], **options: Any) -> list[int]:
    with torch.inference_mode():
        given = torch.tensor([ids])
        found = model.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=40, do_sample=False, **options
        )
    answer: list[int] = found[0, len(ids) :].tolist()
    return answer


def test_bad_words(both: tuple[LLM, Any]) -> None:
    """Of one token and of several, one after the other forbidden until none of the free answer's is left."""
    llm, theirs = both
    ids, encode = llm.encode(PROMPT), llm.tokenizer.encode
    answer = llm.generate(ids, GREEDY)[0].outputs[0]
    assert answer.token_ids == of_transformers(theirs, ids)
    bad: list[str] = []
    kinds = set[bool]()
    for _ in range(12):
        word = max(answer.text.replace('"', " ").split(), key=lambda each: len(encode(each, add_special=False)))
        bad.append(word)
        kinds.add(len(encode(word, add_special=False)) > 1)
        forms = [encode(form, add_special=False) for each in bad for form in (each, f" {each}")]
        answer = llm.generate(ids, replace(GREEDY, bad_words=bad))[0].outputs[0]
        assert answer.token_ids == of_transformers(theirs, ids, bad_words_ids=forms)
    assert True in kinds


def test_allowed_ids(both: tuple[LLM, Any]) -> None:
    llm, theirs = both
    ids = llm.encode(PROMPT)
    free = llm.generate(ids, GREEDY)[0].outputs[0].token_ids
    allowed = sorted({*range(300, 400), *llm.tokenizer.eos_ids, *free[10:20]})
    answer = llm.generate(ids, replace(GREEDY, allowed_token_ids=allowed))[0].outputs[0]
    assert answer.token_ids == of_transformers(theirs, ids, prefix_allowed_tokens_fn=lambda _, __: allowed)
    assert answer.token_ids != free
    assert len(set(answer.token_ids)) > 1
