"""class LLM on a tiny random model: what it returns, what it refuses, what it frees."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_model

from gristmill import LLM, SamplingParams, StructuredOutputsParams
from gristmill.bundled import STORY_MODEL
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint
from gristmill.llm import name_of, spare_memory
from gristmill.outputs import RequestOutput, TextReader, up_to_stop
from gristmill.tokenizer.interface import MissingTokenizerError, TokenizerError
from gristmill.types import Finish, TokenEvent

GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path, kv_type="f32", threads=1)


def greedy_by_logits(llm: LLM, ids: list[int], n: int) -> list[int]:
    ids = list(ids)
    start = len(ids)
    for _ in range(n):
        ids.append(int(llm.logits(ids)[-1].argmax()))
    return ids[start:]


def test_greedy_follows_the_logits(llm: LLM) -> None:
    output = llm.generate([[1, 50, 60]], GREEDY)[0]
    assert output.prompt_token_ids == [1, 50, 60]
    assert output.outputs[0].token_ids == greedy_by_logits(llm, [1, 50, 60], 20)
    assert output.outputs[0].finish_reason == "length"


def test_text_and_ids_mean_the_same(llm: LLM) -> None:
    by_text, by_ids = llm.generate(["ab", llm.tokenizer.encode("ab")], GREEDY)
    assert by_text.prompt == "ab"
    assert by_ids.prompt is None
    assert by_text.outputs[0] == by_ids.outputs[0]
    assert by_text.outputs[0].text == "".join(llm.stream("ab", GREEDY))


def test_special_tokens_are_parsed_where_that_is_asked_for_alone(path: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    with LLM(path, threads=1, chat_template=tmp_path / "t.jinja") as llm:
        messages = [{"role": "user", "content": "ab"}]
        text = "".join(part for part, _ in llm.chat_template.render(messages))
        ids = llm.tokenizer.encode(text, add_special=False, parse_special=True)
        assert ids == llm.encode_chat(messages)
        (plain,) = llm.generate(text, SamplingParams(max_tokens=1))
        assert [i for i in plain.prompt_token_ids if llm.tokenizer.is_special(i)] == [llm.tokenizer.bos_id]
        assert len(plain.prompt_token_ids) > len(ids)


def test_one_list_of_ids_is_one_prompt(llm: LLM) -> None:
    assert llm.generate([1, 50, 60], GREEDY)[0].outputs == llm.generate([[1, 50, 60]], GREEDY)[0].outputs


def test_a_seed_gives_the_same_text_and_another_does_not(llm: LLM) -> None:
    def text(seed: int | None) -> list[int]:
        return (
            llm.generate([[1, 50]], SamplingParams(seed=seed, max_tokens=20, ignore_eos=True))[0].outputs[0].token_ids
        )

    assert text(3) == text(3) != text(4)
    assert text(None) != text(None)


def test_logprobs_are_those_of_the_logits(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=5, logprobs=3, ignore_eos=True)
    output = llm.generate([[1, 50]], params)[0].outputs[0]
    assert output.logprobs is not None
    logits = llm.logits([1, 50, *output.token_ids])[1:-1].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, token_id, found in zip(expected, output.token_ids, output.logprobs, strict=True):
        best = np.argsort(-row)[:3]
        assert [found[int(i)].rank for i in best] == [1, 2, 3]
        assert set(found) == {token_id, *map(int, best)}
        for i, value in found.items():
            assert value.logprob == pytest.approx(row[i], abs=1e-6)


def test_logprobs_of_a_prompt_and_what_was_cached_of_it(path: Path) -> None:
    """However the answer is told: whole, or token by token to look for a stop string."""
    ids = list(range(1, 41))
    with LLM(path, kv_type="f32", threads=1) as llm:
        for params in (GREEDY, replace(GREEDY, stop=("\0\0\0",))):
            assert [llm.generate([ids], params)[0].num_cached_tokens for _ in range(2)][1] == 32
        (output,) = llm.generate([ids], replace(GREEDY, prompt_logprobs=1))
        expected = llm.score(ids)
    assert output.prompt_logprobs is not None
    first, *others = output.prompt_logprobs
    assert first is None
    found = [logprobs[token_id].logprob for token_id, logprobs in zip(ids[1:], others, strict=True) if logprobs]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_score_is_the_log_probability_of_each_next_token(llm: LLM) -> None:
    ids = [1, 50, 60, 70]
    logits = llm.logits(ids).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(llm.score(ids), [logprobs[i, ids[i + 1]] for i in range(3)], atol=1e-9)


def test_rows_from_a_start_on_are_those_of_all(llm: LLM) -> None:
    ids = [1, 50, 60, 70, 80]
    for start in range(5):
        np.testing.assert_array_equal(llm.logits(ids, start), llm.logits(ids)[start:])
        np.testing.assert_array_equal(llm.embed(ids, start), llm.embed(ids)[start:])
        np.testing.assert_array_equal(llm.score(ids, start + 1), llm.score(ids)[start:])
    head = open_checkpoint(llm.model_path).get("tok_embeddings.weight")
    np.testing.assert_allclose(llm.embed(ids) @ dequantize(head).T, llm.logits(ids), atol=1e-4)


def test_a_stop_string_ends_the_answer_and_is_left_out(llm: LLM) -> None:
    free = llm.generate(["a"], GREEDY)[0].outputs[0].text
    stop = free[4:7]
    output = llm.generate(["a"], SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, stop=stop))[0].outputs[0]
    assert output.finish_reason == "stop"
    assert output.text == free[: free.index(stop)]


def test_a_stop_token_ends_the_answer_and_its_text_is_left_out(tmp_path: Path) -> None:
    """As in vLLM: `token_ids` and `logprobs` keep it, whether a stop string has to be looked for or not."""
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    params = SamplingParams(temperature=0, max_tokens=20)
    messages = [{"role": "user", "content": "Once upon a time"}]
    with LLM(STORY_MODEL, threads=1, chat_template=tmp_path / "t.jinja") as llm:
        prompt = llm.encode_chat(messages)
        free = llm.generate(prompt, params)[0].outputs[0].token_ids
        n = next(i for i in range(4, 20) if free[i] not in free[:i])
        text = llm.tokenizer.decode(free[:n])
        for stop in ((), llm.tokenizer.token_text(free[n]).strip()):
            stopped = replace(params, stop_token_ids=[free[n]], stop=stop, logprobs=0)
            for given in (stopped, replace(stopped, logprobs=None)):
                outputs = llm.generate(prompt, given)[0].outputs + llm.chat(messages, given)[0].outputs
                for output in outputs:
                    assert (output.text, output.token_ids) == (text, free[: n + 1])
                    assert (output.finish_reason, output.stop_reason) == ("stop", free[n])
                    assert output.logprobs is None or list(output.logprobs[-1]) == [free[n]]
                    assert output.message is None or output.message["content"] == text
            assert "".join(llm.stream(prompt, stopped)) == text
            assert [piece.event.token_id for piece in llm.pieces(prompt, stopped)] == free[: n + 1]


def test_what_ends_an_answer_is_shown_where_it_is_wanted(tmp_path: Path) -> None:
    """As in vLLM: a stop string, and the text of a token in stop_token_ids."""
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    messages = [{"role": "user", "content": "Once upon a time"}]
    with LLM(STORY_MODEL, threads=1, chat_template=tmp_path / "t.jinja") as llm:
        prompt = llm.encode_chat(messages)
        shown = SamplingParams(temperature=0, max_tokens=20, include_stop_str_in_output=True)
        free = llm.generate(prompt, shown)[0].outputs[0]
        n = next(i for i in range(4, 20) if free.token_ids[i] not in free.token_ids[:i])
        word = free.text.split()[3]
        up_to_word = free.text[: free.text.index(word) + len(word)]
        for params, text, reason in (
            (replace(shown, stop=word), up_to_word, word),
            (
                replace(shown, stop_token_ids=[free.token_ids[n]]),
                llm.tokenizer.decode(free.token_ids[: n + 1]),
                free.token_ids[n],
            ),
        ):
            for output in llm.generate(prompt, params)[0].outputs + llm.chat(messages, params)[0].outputs:
                assert (output.text, output.finish_reason, output.stop_reason) == (text, "stop", reason)
                assert output.message is None or output.message["content"] == text
            assert "".join(llm.stream(prompt, params)) == text


def test_special_tokens_of_a_prompt(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    """Plain text, of which it warns once, unless the text is said to be a template's, which may have BOS already."""
    tokenizer = llm.tokenizer
    assert tokenizer.bos_id is not None
    bos, end = tokenizer.token_text(tokenizer.bos_id), tokenizer.token_text(tokenizer.eos_ids[0])
    assert llm.encode(f"a{end}b", parse_special=True).count(tokenizer.eos_ids[0]) == 1
    parsed = tokenizer.encode(f"{bos}ab{end}", add_special=False, parse_special=True)
    assert llm.encode(f"{bos}ab{end}", parse_special=True) == parsed
    assert llm.encode("ab", parse_special=True) == llm.encode("ab")
    assert not caplog.records
    with LLM(llm.model_path, threads=1) as own:  # which has not warned yet
        for _ in range(2):
            (output,) = own.generate(f"ab{end}", SamplingParams(max_tokens=1))
            assert tokenizer.eos_ids[0] not in output.prompt_token_ids
    assert [record.getMessage() for record in caplog.records] == [
        f"{end!r} in a prompt is plain text and not the special token: use chat (--chat) for conversations, and"
        " LLM.encode(text, parse_special=True) for what a template has rendered"
    ]


def test_special_tokens_are_text_where_they_are_wanted(llm: LLM) -> None:
    (end, *_) = llm.tokenizer.eos_ids
    name = llm.tokenizer.token_text(end)
    params = SamplingParams(max_tokens=3, logit_bias={end: 100.0}, ignore_eos=True)
    assert llm.generate("a", params)[0].outputs[0].text == ""
    assert llm.generate("a", replace(params, skip_special_tokens=False))[0].outputs[0].text == name * 3
    ended = replace(params, skip_special_tokens=False, ignore_eos=False)
    assert llm.generate("a", ended)[0].outputs[0].text == ""
    assert llm.generate("a", replace(ended, include_stop_str_in_output=True))[0].outputs[0].text == name


@pytest.mark.parametrize("ignored", [False, True])
def test_the_models_own_end_is_no_stop_reason(llm: LLM, ignored: bool) -> None:
    """Also where stop_token_ids has it."""
    (end, *_) = llm.tokenizer.eos_ids
    params = SamplingParams(max_tokens=5, logit_bias={end: 100.0}, stop_token_ids=[end], ignore_eos=ignored)
    output = llm.generate("a", params)[0].outputs[0]
    assert (output.token_ids, output.finish_reason) == ([end], "stop")
    assert output.stop_reason == (end if ignored else None)


def test_what_has_ended_an_answer(llm: LLM, tmp_path: Path) -> None:
    free = llm.generate("a", GREEDY)[0].outputs[0]
    assert (free.finish_reason, free.stop_reason) == ("length", None)
    stop = free.text[4:7]
    assert llm.generate("a", replace(GREEDY, stop=["no such text", stop]))[0].outputs[0].stop_reason == stop
    bare = small_model.write_model(tmp_path / "bare.bin")
    with LLM(bare, threads=1, kv_type="f32") as without_words:
        params = replace(GREEDY, stop_token_ids=[free.token_ids[0]])
        assert without_words.generate(llm.encode("a"), params)[0].outputs[0].stop_reason == free.token_ids[0]


def test_log_probabilities_of_an_answer_add_up(llm: LLM) -> None:
    output = llm.generate([[1, 50]], replace(GREEDY, logprobs=2))[0].outputs[0]
    assert output.logprobs is not None
    own = [found[token_id].logprob for found, token_id in zip(output.logprobs, output.token_ids, strict=True)]
    assert output.cumulative_logprob == pytest.approx(sum(own))
    assert llm.generate([[1, 50]], GREEDY)[0].outputs[0].cumulative_logprob is None


def test_the_context_s_end_is_a_finish_of_its_own(llm: LLM) -> None:
    output = llm.generate([[1] * 100], SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))[0].outputs[0]
    assert output.finish_reason == "length"
    assert len(output.token_ids) == 28


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "no tokens"),
        ([1, 259], "token id 259 is outside the vocabulary of 259"),
        ([-1], "token id -1"),
        ([1] * 128, "128 tokens, which leaves no room to answer in a context of 128"),
    ],
)
def test_a_prompt_that_cannot_be_run_is_refused(llm: LLM, prompt: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate([prompt], GREEDY)


def test_what_is_only_read_may_fill_the_context(llm: LLM) -> None:
    assert len(llm.score([1] * 128)) == 127
    with pytest.raises(ValueError, match="129 tokens, which is more than a context of 128"):
        llm.score([1] * 129)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature must be at least 0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p must be over 0"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ""}, "empty string"),
        ({"top_k": -2}, "top_k"),
        ({"seed": 2**64}, "seed"),
        ({"max_tokens": 2.5}, "max_tokens must be a whole number, not 2.5"),
        ({"top_k": None}, "top_k must be a whole number"),
        ({"logprobs": 1.5}, "logprobs must be a whole number"),
        ({"stop": [5]}, "stop must be text or a list of texts, not 5"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids must be a whole number"),
        ({"stop_token_ids": [2**40]}, "stop_token_ids must be at least 0"),
        ({"logit_bias": {1.5: 2.0}}, "a token id must be a whole number"),
        ({"temperature": "1"}, "temperature must be at least"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty must be at least 0.01"),
        ({"stop": 5}, "stop must be a list, not 5"),
        ({"stop_token_ids": 5}, "stop_token_ids must be a list, not 5"),
        ({"allowed_token_ids": []}, "allowed_token_ids: is empty"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids must be at least 0"),
        ({"bad_words": [" "]}, "bad_words: one is empty or of spaces alone"),
        ({"bad_words": [5]}, "bad_words must be text or a list of texts, not 5"),
        ({"bad_words": "a", "allowed_token_ids": [5]}, "could leave no token to choose from"),
        ({"skip_special_tokens": 1}, "skip_special_tokens must be True or False, not 1"),
        ({"logit_bias": [1]}, "logit_bias must be a dict"),
        ({"ignore_eos": "no"}, "ignore_eos must be True or False"),
    ],
)
def test_sampling_params_are_checked(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**settings)


def test_vllms_spellings_of_nothing() -> None:
    params = SamplingParams(top_k=-1, seed=-1, stop=None, stop_token_ids=None)
    assert params == SamplingParams()
    assert params.seed is None


def test_numbers_may_be_numpys() -> None:
    params = SamplingParams(max_tokens=np.int64(5), temperature=np.float32(0.5), stop_token_ids=np.array([7]))
    assert params == SamplingParams(max_tokens=5, temperature=0.5, stop_token_ids=(7,))
    assert [type(v) for v in (params.max_tokens, params.temperature, params.stop_token_ids[0])] == [int, float, int]


def test_params_keep_what_was_checked() -> None:
    bias, ids, stop = {np.int64(5): np.float32(0.5)}, [7], ["a"]
    params = SamplingParams(logit_bias=bias, stop_token_ids=ids, stop=stop)
    bias[np.int64(-6)] = np.float32(np.nan)
    ids.append(-1)
    stop.append("")
    assert params == SamplingParams(logit_bias={5: 0.5}, stop_token_ids=(7,), stop=("a",))


def test_params_have_a_hash_and_a_bias_that_cannot_be_changed() -> None:
    schema = StructuredOutputsParams(json={"type": "object"})
    params = SamplingParams(logit_bias={5: 0.5, 6: -1}, stop=["a"], structured_outputs=schema)
    again = SamplingParams(logit_bias={6: -1.0, 5: 0.5}, stop="a", structured_outputs=schema)
    assert {params: 1}[again] == 1
    bias: Any = params.logit_bias
    changes: list[Callable[[], object]] = [
        lambda: bias.__setitem__(7, 1.0),
        lambda: bias.__delitem__(5),
        lambda: bias.__ior__({7: 1.0}),
        lambda: bias.update({7: 1.0}),
        lambda: bias.setdefault(7, 1.0),
        lambda: bias.pop(5),
        bias.popitem,
        bias.clear,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert params == again
    for same in (replace(params), copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
        assert (same, hash(same)) == (params, hash(params))
    assert json.loads(json.dumps(asdict(params)))["logit_bias"] == {"5": 0.5, "6": -1.0}


@pytest.mark.parametrize(
    ("given", "alike"),
    [
        (np.array([1, 60, 70]), [1, 60, 70]),
        ([np.array([1, 60, 70], np.int32)], [1, 60, 70]),
        ((1, 60, 70), [1, 60, 70]),
        ({"prompt_token_ids": [1, 60, 70]}, [1, 60, 70]),
        ([{"prompt": "ab"}], "ab"),
    ],
)
def test_prompts_as_arrays_and_as_vllm_has_them(llm: LLM, given: Any, alike: Any) -> None:
    assert ids_of(llm.generate(given, GREEDY)) == ids_of(llm.generate(alike, GREEDY))


def ids_of(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a", None, "b"], r"prompts\[1\] is of type NoneType; give text or a list of token ids"),
        (b"abc", "prompts is of type bytes"),
        (["a", b"abc"], r"prompts\[1\] is of type bytes"),
        ([[1.5, 2]], r"prompts\[0\] has 1.5 among its token ids"),
        ([True, False], r"prompts\[0\] is of type bool"),
        ([np.array([1.0])], r"prompts\[0\] is of type ndarray"),
        ([{"prompt": "a", "prompt_token_ids": [1]}], "one of the two"),
        ({"multi_modal_data": 1}, "has multi_modal_data"),
        (7, "prompts is of type int"),
        (bytearray(b"ab"), "prompts is of type bytearray"),
        ([memoryview(b"ab")], r"prompts\[0\] is of type memoryview"),
        (np.array(5), "prompts is of type ndarray"),
        ([1, "a"], "prompts has 'a' among its token ids"),
        ({"prompt_token_ids": "x"}, r"prompts\['prompt_token_ids'\] is of type str; give a list of token ids"),
        ({"prompt": [1]}, r"prompts\['prompt'\] is of type list; give text"),
    ],
)
def test_what_is_no_prompt_is_refused_by_its_place(llm: LLM, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate(given, GREEDY)


def test_other_things_of_a_wrong_type_are_refused(llm: LLM) -> None:
    for wrong in ({"temperature": 0}, {}, [None], 0):
        with pytest.raises(ValueError, match="sampling_params must be SamplingParams, not"):
            llm.generate(["a"], wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="priority must be a whole number, not None"):
        llm.generate(["a", "b"], GREEDY, priority=[None, 0])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="ids is of type str; give a list of token ids"):
        llm.score("Once")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ids is of type NoneType"):
        llm.score(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ids is of type int"):
        llm.embed(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start must be a position from 0 to 1"):
        llm.logits([1, 2], 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"prompt_ids has 2\.0 among its token ids"):
        next(llm.pieces([1, 2.0], GREEDY))  # type: ignore[call-overload]


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {}, 0])
def test_chats_and_streams_take_no_other_params_either(path: Path, tmp_path: Path, wrong: Any) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    with LLM(path, threads=1, chat_template=tmp_path / "t.jinja") as llm:
        with pytest.raises(ValueError, match="sampling_params must be SamplingParams, not"):
            llm.chat([{"role": "user", "content": "a"}], wrong)
        with pytest.raises(ValueError, match="messages: give a list of at least one message"):
            llm.chat({"role": "user", "content": "a"})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="sampling_params must be SamplingParams, not"):
            next(llm.stream("a", wrong))


@pytest.mark.parametrize("thinks", [False, True])
def test_stop_strings_end_a_chats_content_and_no_thought(tmp_path: Path, thinks: bool) -> None:
    """As a server has it: of an answer that is all thought nothing is cut."""
    opening = "{% if add_generation_prompt %}<think>\n{% endif %}" if thinks else ""
    (tmp_path / "t.jinja").write_text(f"{{# <|im_start|> #}}{{{{ messages[0].content }}}}{opening}")
    params = SamplingParams(temperature=0, max_tokens=60)
    with LLM(STORY_MODEL, threads=1, chat_template=tmp_path / "t.jinja") as llm:
        messages = [{"role": "user", "content": "Once upon a time"}]
        (free,) = llm.chat(messages, params)[0].outputs
        (stopped, again) = llm.chat(messages, replace(params, stop=["."], n=2))[0].outputs
    assert "." in free.text
    assert stopped.message is not None
    if thinks:
        assert (stopped.text, stopped.finish_reason, stopped.message["content"]) == (free.text, "length", "")
        assert "." in stopped.message["reasoning_content"]
    else:
        first, _ = free.text.split(".", 1)
        assert (stopped.text, stopped.finish_reason, stopped.message["content"]) == (first, "stop", first.lstrip("\n"))
        assert len(stopped.token_ids) < len(free.token_ids)
    assert again.text == stopped.text


@pytest.mark.parametrize(
    ("stop", "min_tokens"), [("t", 0), ("t", 4), ("e", 0), ("e", 12), ("One day", 0), (" ", 0), (" ", 4), (".", 0)]
)
def test_a_chats_text_ends_where_a_plain_text_does(tmp_path: Path, stop: str, min_tokens: int) -> None:
    """Also where one token holds the stop string twice, as " little" does."""
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    params = SamplingParams(temperature=0, max_tokens=40, stop=[stop], min_tokens=min_tokens)
    with LLM(STORY_MODEL, threads=1, chat_template=tmp_path / "t.jinja") as llm:
        messages = [{"role": "user", "content": "Once upon a time, there was a"}]
        (of_chat,) = llm.chat(messages, params)[0].outputs
        (plain,) = llm.generate([llm.encode_chat(messages)], params)[0].outputs
    assert of_chat.message is not None
    assert (of_chat.text, of_chat.message["content"], of_chat.finish_reason) == (plain.text, plain.text, "stop")


@pytest.mark.parametrize(("answer", "stop", "text"), [("Tom\n\nran", "\n", "Tom"), ("a << b", "<", "a ")])
def test_a_chats_text_ends_before_what_was_held_back(tmp_path: Path, answer: str, stop: str, text: str) -> None:
    """White space, and what may begin a call, is content only once more has come."""
    (tmp_path / "t.jinja").write_text("{# <|im_start|> <tool_call> #}{{ messages[0].content }}{{ tools }}")
    tools = [{"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}]
    params = SamplingParams(max_tokens=40, stop=[stop], structured_outputs=StructuredOutputsParams(choice=[answer]))
    with LLM(STORY_MODEL, threads=1, chat_template=tmp_path / "t.jinja") as llm:
        (output,) = llm.chat([{"role": "user", "content": "Go"}], params, tools=tools)[0].outputs
    assert output.message is not None
    assert (output.text, output.message["content"]) == (text, text)


@pytest.mark.parametrize(
    ("text", "thought", "content"),
    [
        ("<think>No. 1.</think>\n\n1|. 2. 3", "No. 1.", "1"),
        ("<think>No. 1.</think>\n\n|...", "No. 1.", ""),
        ('a<tool_call>{"name": "go", "arguments": {"x": 0.5}}</tool_call>b|.', "", "ab"),
        ("shown otherwise|", "", ""),
    ],
)
def test_what_of_a_chats_text_comes_before_its_stop(text: str, thought: str, content: str) -> None:
    before, after = text.split("|")
    message = {"role": "assistant", "content": content, "reasoning_content": thought}
    assert up_to_stop(before + after, message, ".") == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "messages: give a list of at least one message"),
        ("ab", "messages: give a list of at least one message"),
        ([object()], r"messages\[0\]: is of type object"),
        ([None, {"role": "user", "content": "a"}], r"messages\[0\]: is of type NoneType"),
        ([{"role": "user", "content": "a"}, []], r"messages\[1\]: is of type list"),
    ],
)
def test_what_is_no_conversation_is_refused(path: Path, tmp_path: Path, given: Any, message: str) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    with LLM(path, threads=1, chat_template=tmp_path / "t.jinja") as llm, pytest.raises(ValueError, match=message):
        llm.chat(given)


def test_a_named_chat_template_that_is_none_is_told_at_once(path: Path, tmp_path: Path) -> None:
    (tmp_path / "blank.jinja").write_text(" \n")
    for name, told in (("absent.jinja", "no such file"), ("blank.jinja", "is empty")):
        with pytest.raises(ValueError, match=rf"{name}: {told}; a chat template is a Jinja2 file"):
            LLM(path, threads=1, chat_template=tmp_path / name)


def test_stop_strings_mean_nothing_before_min_tokens(path: Path) -> None:
    with LLM(path, threads=1) as llm:
        plain = llm.generate(["ab"], SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))[0].outputs[0]
        stop = llm.tokenizer.decode(plain.token_ids[:3])[-2:]
        params = SamplingParams(temperature=0, max_tokens=12, min_tokens=8, stop=[stop], ignore_eos=True)
        answer = llm.generate(["ab"], params)[0].outputs[0]
        pieces = list(llm.pieces(llm.encode("ab"), params))
    assert len(answer.token_ids) >= 8
    assert stop in answer.text
    assert answer.text == "".join(piece.text for piece in pieces)


@pytest.mark.parametrize(("min_tokens", "text"), [(0, " a"), (2, " a"), (3, " aba"), (5, " abab")])
def test_the_first_tokens_complete_no_stop_string(llm: LLM, min_tokens: int, text: str) -> None:
    ids = llm.encode("abab")[1:]  # a space, then four letters
    reader = TextReader(llm.tokenizer, SamplingParams(stop="b", min_tokens=min_tokens))
    pieces = [reader.push(TokenEvent(token_id, None)) for token_id in ids]
    stopped = next((i for i, piece in enumerate(pieces) if piece.finish is not None), len(pieces) - 1)
    assert "".join(piece.text for piece in pieces[: stopped + 1]) == text
    assert (pieces[stopped].finish is Finish.STOP) is (min_tokens < 5)


def test_half_a_character_ends_an_answer_as_such(llm: LLM) -> None:
    ids = llm.encode("é")[2:]
    for n, finish, text in ((1, None, ""), (1, Finish.LENGTH, "\ufffd"), (2, Finish.LENGTH, "é")):
        reader = TextReader(llm.tokenizer, SamplingParams())
        *before, last = ids[:n]
        shown = "".join(reader.push(TokenEvent(token_id, None)).text for token_id in before)
        assert shown + reader.push(TokenEvent(last, finish)).text == text


def test_ids_that_the_vocabulary_lacks_have_no_text(tmp_path: Path) -> None:
    """Models may have rows for more tokens than their vocabulary has."""
    wide = small_model.write_model(tmp_path / "wide.bin", vocab=300)
    with LLM(wide, threads=1, tokenizer=small_model.write_bytes(tmp_path / "bytes.json")) as llm:
        lacking = llm.tokenizer.vocab_size
        assert lacking < llm.config.vocab_size
        for stop in ((), ("no such text",)):
            params = SamplingParams(max_tokens=4, logit_bias={lacking: 100.0}, ignore_eos=True, stop=stop, logprobs=0)
            (output,) = llm.generate(["ab"], params)
            assert [logprobs[lacking].decoded_token for logprobs in output.outputs[0].logprobs or ()] == [None] * 4
            assert output.outputs[0].token_ids == [lacking] * 4
            assert output.outputs[0].text == ""
            assert list(llm.stream("ab", params)) == []


def test_a_vocabulary_that_is_larger_than_the_models_is_refused(tmp_path: Path) -> None:
    small = small_model.write_model(tmp_path / "small.bin", vocab=200)
    with pytest.raises(ValueError, match=r"tokenizer\.bin: has more tokens than the model's 200"):
        LLM(small, threads=1, tokenizer=small_model.write_tokenizer(tmp_path / "tokenizer.bin"))
    with pytest.raises(ValueError, match=r"bytes\.json: has 256 tokens, and the model 200"):
        LLM(small, threads=1, tokenizer=small_model.write_bytes(tmp_path / "bytes.json"))
    as_large = small_model.write_model(tmp_path / "as_large.bin", vocab=256)
    assert LLM(as_large, threads=1, tokenizer=tmp_path / "bytes.json").tokenizer.vocab_size == 256


def test_what_a_model_is_called(tmp_path: Path) -> None:
    (tmp_path / "folder-1.5").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder-1.5")
    names = {"folder-1.5": "folder-1.5", "link": "folder-1.5", "model-1.5.gguf": "model-1.5", "b\udcfe.bin": "b\ufffd"}
    assert {name: name_of(tmp_path / name, tmp_path / name) for name in names} == names


def test_a_stream_is_of_one_answer(llm: LLM) -> None:
    for params in (SamplingParams(n=2), SamplingParams(prompt_logprobs=0)):
        with pytest.raises(ValueError, match="a stream has one answer and no prompt_logprobs"):
            next(llm.stream("a", params))


FORKED = """
import os, sys
from gristmill import LLM, SamplingParams
from gristmill.engine.engine import EngineClosedError
llm = LLM(threads=1)
llm.generate(["a"], SamplingParams(max_tokens=1))
if os.fork() == 0:
    try:
        llm.generate(["a"], SamplingParams(max_tokens=1))
    except EngineClosedError as error:
        os._exit(7 if "after the fork" in str(error) else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_fork_of_an_engines_process_is_told_that_it_has_none() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=120, check=False).returncode == 7


def test_as_many_params_as_prompts(llm: LLM) -> None:
    with pytest.raises(ValueError, match="1 sampling_params for 2 prompts"):
        llm.generate(["a", "b"], [GREEDY])


def test_a_closed_llm_says_so(path: Path) -> None:
    with LLM(path, threads=1) as llm:
        llm.generate(["a"], GREEDY)
    with pytest.raises(ValueError, match="closed"):
        llm.generate(["a"], GREEDY)


def test_a_closed_llm_keeps_no_memory(path: Path) -> None:
    """The backend keeps what weights lie in, so it goes too, and at once."""
    with LLM(path, threads=1, draft=path, speculate=True) as llm:
        backend = weakref.ref(llm._ops)
        assert list(llm.stream("a", GREEDY))
        llm.generate(["a"], GREEDY)
    assert backend() is None
    assert llm.packing_s == 0


def test_threads_may_call_at_once(path: Path) -> None:
    """Each gets what it would get alone (one context holds only so much, so the requests are short)."""
    llm = LLM(path, threads=2)
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    prompts = [[1, 50 + i] for i in range(4)]
    alone = [llm.generate([p], params)[0].outputs[0].token_ids for p in prompts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(25):
            together = list(pool.map(lambda p: llm.generate([p], params)[0].outputs[0].token_ids, prompts))
            assert together == alone


def test_an_abandoned_stream_frees_its_blocks(path: Path) -> None:
    llm = LLM(path, threads=1, max_context=32)
    for _ in range(5):
        stream = llm.stream("abcdefghijklmnop", GREEDY)
        next(stream)
        stream.close()
    assert llm.generate(["abcdefghijklmnop"], SamplingParams(temperature=0, max_tokens=5))[0].outputs[0].token_ids


@pytest.mark.parametrize(("context", "threads", "device", "kv"), [(1, 1, "cpu", "f16"), (129, 1, "cpu", "f16")])
def test_a_context_out_of_range(path: Path, context: int, threads: int, device: str, kv: str) -> None:
    with pytest.raises(ValueError, match="between 2 and the model's 128"):
        LLM(path, max_context=context, threads=threads, device=device, kv_type=kv)


def test_options_are_checked(path: Path) -> None:
    with pytest.raises(ValueError, match="device must be"):
        LLM(path, device="tpu")
    with pytest.raises(ValueError, match="kv_type must be"):
        LLM(path, kv_type="q4_0")
    with pytest.raises(ValueError, match="threads must be"):
        LLM(path, threads=0)
    with pytest.raises(ValueError, match="kv_type q8_0 is for device cpu"):
        LLM(path, device="cuda", kv_type="q8_0")
    for n in ("4GB", -1, 0, float("nan")):
        with pytest.raises(ValueError, match=f"kv_budget must be a number of bytes over 0, not {n!r}"):
            LLM(path, kv_budget=n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lazy must be True or False, not 'no'"):
        LLM(path, lazy="no")  # type: ignore[arg-type]
    for option in ("model", "draft", "tokenizer", "chat_template"):
        with pytest.raises(ValueError, match=f"{option} must be text or a path, not 5"):
            LLM(**{"model": path, option: 5})  # type: ignore[arg-type]
    for n in (0, 4097, 4.0, "4"):
        with pytest.raises(ValueError, match=f"max_sequences must be between 1 and 4096, not {n!r}"):
            LLM(path, max_sequences=n)  # type: ignore[arg-type]
    for n in (-1, 16, 1.5, 3.0, "3"):
        with pytest.raises(ValueError, match=f"speculate must be True, False or a number .* up to 15, not {n!r}"):
            LLM(path, speculate=n)  # type: ignore[arg-type]
    for n in (64.0, "64"):
        with pytest.raises(ValueError, match=f"the context must be between 2 and the model's 128 tokens, not {n!r}"):
            LLM(path, max_context=n)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"threads must be between 1 and 1024, not {n!r}"):
            LLM(path, threads=n)  # type: ignore[arg-type]
    assert LLM(path, threads=np.int64(1), max_context=np.int64(64), max_sequences=np.int32(2)).max_context == 64


def test_what_nobody_asked_for(path: Path, tmp_path: Path) -> None:
    long = small_model.write(tmp_path, 20_000)
    assert [LLM(model, threads=1).max_context for model in (path, long)] == [128, 8192]
    found = [LLM(path, threads=1, speculate=asked).engine.settings.speculate for asked in (False, 3, True)]
    assert found == [0, 3, 15]


def test_keys_and_values_may_take_four_fifths_of_what_weights_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "MemTotal:  9000 kB\nMemAvailable:  1000 kB\n"
    monkeypatch.setattr(Path, "read_text", lambda path: said)
    assert [spare_memory(n) for n in (0, 24_000, 1 << 40)] == [819_200, 800_000, 0]
    said = "MemTotal:  9000 kB\n"
    assert spare_memory(0) == 1 << 30


def test_a_draft_models_weights_leave_less_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[int]()

    def spare(n_bytes: int) -> int:
        told.append(n_bytes)
        return 1 << 30

    monkeypatch.setattr("gristmill.llm.spare_memory", spare)
    for draft in (None, path):
        LLM(path, threads=1, draft=draft).close()
    assert told[1] == 2 * told[0]


@pytest.mark.parametrize(
    ("folder", "limit", "used", "prefix"),
    [
        ("/sys/fs/cgroup", "memory.max", "memory.current", ""),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ],
)
def test_and_of_what_a_container_may_take(
    monkeypatch: pytest.MonkeyPatch, folder: str, limit: str, used: str, prefix: str
) -> None:
    """Files that it has read can be let go."""
    stat = f"anon 5\n{prefix}inactive_file 30000\n{prefix}active_file 20000\n"
    files = {"/proc/meminfo": "MemAvailable:  1000 kB\n", f"{folder}/memory.stat": stat, f"{folder}/{used}": "250000\n"}

    def read(path: Path) -> str:
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read)
    files[f"{folder}/{limit}"] = "700000\n"
    assert [spare_memory(n) for n in (0, 100_000, 600_000)] == [400_000, 320_000, 0]
    for unlimited in ("max\n", "9223372036854771712\n"):
        files[f"{folder}/{limit}"] = unlimited
        assert spare_memory(0) == 819_200


def test_without_a_vocabulary_ids_still_work(tmp_path: Path) -> None:
    llm = LLM(small_model.write_model(tmp_path / "alone.bin"), threads=1)
    assert llm.generate([[1, 2]], GREEDY)[0].outputs[0].text == ""
    with pytest.raises(MissingTokenizerError, match="--tokenizer FILE"):
        llm.generate(["text"], GREEDY)
    with pytest.raises(ValueError, match="stop strings need a vocabulary, and this model has none"):
        llm.generate([[1, 2]], SamplingParams(stop="a"))


def test_what_no_token_ends_cannot_be_constrained(path: Path, tmp_path: Path) -> None:
    constrained = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    with (
        LLM(path, threads=1, tokenizer=small_model.write_bytes(tmp_path / "tokenizer.json")) as llm,
        pytest.raises(ValueError, match="a token of it that ends answers; this model lacks them"),
    ):
        llm.generate("a", constrained)


def test_a_broken_vocabulary_is_told_before_the_weights_are_there(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(checkpoint: object, ops: object, progress: Callable[[int, int], None], quantize: object) -> None:
        for _ in range(30_000):
            progress(0, 1)
            time.sleep(0.001)
        raise AssertionError("the weights are there and nothing was told")

    broken = tmp_path / "tokenizer.model"
    broken.write_bytes(b"\x0a\xff")
    monkeypatch.setattr("gristmill.llm.build", build)
    with pytest.raises(TokenizerError, match=r"tokenizer\.model"):
        LLM(path, threads=1, tokenizer=broken)


def test_progress_ends_at_the_file_s_weights(path: Path) -> None:
    calls: list[tuple[int, int]] = []
    LLM(path, threads=1, progress=lambda done, total: calls.append((done, total)))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1] > 0


_GENERATES_WITHOUT_ITS_FILE = """
import os, sys, time
from gristmill import LLM, SamplingParams
llm = LLM(sys.argv[1], threads=2, lazy=sys.argv[2] == "lazy")
if sys.argv[2] == "lazy":
    with llm.packing():
        time.sleep(1)
ask = SamplingParams(max_tokens=8, temperature=0)
before = llm.generate("once upon", ask)
os.truncate(sys.argv[1], 0)
assert llm.generate("something else", ask)
assert llm.generate("once upon", ask) == before
"""


@pytest.mark.parametrize("loading", ["at once", "lazy"])
@pytest.mark.parametrize("model", ["gguf", "llama2.c"])
def test_a_loaded_model_never_reads_its_file_again(tmp_path: Path, model: str, loading: str) -> None:
    """A lazy one, once all of it was packed while its caller waited."""
    path = tmp_path / "model.gguf"
    if model == "gguf":
        shutil.copy(STORY_MODEL, path)
    else:
        path = small_model.write(tmp_path)
    command = [sys.executable, "-c", _GENERATES_WITHOUT_ITS_FILE, str(path), loading]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr or f"ended by signal {-finished.returncode}"


@pytest.mark.parametrize("between", ["nothing", "packing"])
def test_a_lazy_model_gives_the_same(path: Path, between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers side by side, each step replayed and compared; packed on the way or while waiting."""
    monkeypatch.setenv("GRISTMILL_REPLAY", "check")
    prompts = [[1, 50, 60], list(range(1, 40)), [1, 50, 60, 70]]
    with LLM(path, threads=2) as now, LLM(path, threads=2, lazy=True) as lazy:
        if between == "packing":
            with lazy.packing():
                time.sleep(0.2)
        assert lazy.packing_s == 0
        for _ in range(2):
            expected, found = now.generate(prompts, GREEDY), lazy.generate(prompts, GREEDY)
            assert [r.outputs for r in found] == [r.outputs for r in expected]
            assert (lazy.packing_s > 0) is (between == "nothing")
        assert now.packing_s == 0
