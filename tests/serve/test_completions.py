"""/v1/completions and the routes around it, by OpenAI's own client and by plain HTTP."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import BadRequestError, NotFoundError
from served import serving

from gristmill import LLM, SamplingParams
from gristmill.serve.app import Settings

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
MESSAGE = {"role": "user", "content": "ab"}


def expected(running: Any, prompt: Any, **params: Any) -> Any:
    return running.llm.generate([prompt], SamplingParams(**{**GREEDY, **params}))[0]


def test_an_answer_is_the_engines(running) -> None:
    answer = running.openai.completions.create(model="tiny", prompt="ab", **GREEDY)
    own = expected(running, "ab")
    assert answer.choices[0].text == own.outputs[0].text
    assert answer.choices[0].finish_reason == own.outputs[0].finish_reason
    assert answer.usage.prompt_tokens == len(own.prompt_token_ids)
    assert answer.usage.completion_tokens == 12
    assert answer.object == "text_completion"


def test_a_stream_is_the_answer_in_pieces(running) -> None:
    stream = running.openai.completions.create(
        model="tiny", prompt="ab", stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == expected(running, "ab").outputs[0].text
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 12
    assert all(c.usage is None for c in chunks[:-1])


def test_several_prompts_and_answers_stand_in_order(running) -> None:
    answer = running.openai.completions.create(model="tiny", prompt=["ab", "cd"], n=2, seed=7, max_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    own = running.llm.generate(["ab", "cd"], SamplingParams(n=2, seed=7, max_tokens=8))
    assert [c.text for c in answer.choices] == [o.text for each in own for o in each.outputs]
    assert answer.choices[0].text != answer.choices[1].text
    assert answer.usage.completion_tokens == 32


def test_ids_are_a_prompt(running) -> None:
    ids = running.llm.tokenizer.encode("ab")
    for prompt in (ids, [ids]):
        answer = running.openai.completions.create(model="tiny", prompt=prompt, **GREEDY)
        assert answer.choices[0].text == expected(running, "ab").outputs[0].text
    long = (ids * 1500)[:1500]  # more than there may be prompts
    assert running.openai.completions.create(model="tiny", prompt=long, **GREEDY).usage.prompt_tokens == 1500
    assert running.openai.embeddings.create(model="tiny", input=long).usage.prompt_tokens == 1500


def test_the_usage_so_far_is_in_each_event_where_it_is_wanted(running) -> None:
    """As guidellm asks for it: vLLM's continuous_usage_stats."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    asks = (
        ("completions", {"prompt": ["ab", "a longer one"], "echo": True, "logprobs": 1}, 2),
        ("completions", {"prompt": "ab", "n": 2}, 2),
        ("chat/completions", {"messages": [MESSAGE], "n": 2}, 2),
    )
    for path, asked, n in asks:
        body = {**asked, **GREEDY, "ignore_eos": True, "stream": True, "stream_options": options}
        with running.http.stream("POST", f"/v1/{path}", json=body) as response:
            lines = [line[6:] for line in response.iter_lines() if line.startswith("data: {")]
        *events, last = map(json.loads, lines)
        for i in range(n):
            usages = [event["usage"] for event in events if event["choices"][0]["index"] == i]
            counts = [usage["completion_tokens"] for usage in usages]
            assert counts == sorted(counts)
            assert counts[-1] == 12
            assert all(each["total_tokens"] == each["prompt_tokens"] + each["completion_tokens"] for each in usages)
            own = len(running.llm.encode(asked["prompt"][i])) if isinstance(asked.get("prompt"), list) else None
            assert own is None or {usage["prompt_tokens"] for usage in usages} == {own}
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 24


def test_a_stop_token_has_no_text(running) -> None:
    own = expected(running, "ab").outputs[0]
    stop_id = own.token_ids[3]
    n = own.token_ids.index(stop_id)
    before = running.llm.tokenizer.decode(own.token_ids[:n])
    assert before != running.llm.tokenizer.decode(own.token_ids[: n + 1])
    asked = {"extra_body": {"stop_token_ids": [stop_id]}, **GREEDY}
    answer = running.openai.completions.create(model="tiny", prompt="ab", **asked)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (before, "stop")
    assert answer.usage.completion_tokens == n + 1


def test_what_ends_an_answer_is_shown_where_it_is_wanted(running) -> None:
    whole = expected(running, "ab", max_tokens=40).outputs[0].text
    stop = whole[10:12]
    asked = {"stop": stop, "extra_body": {"include_stop_str_in_output": True}, "temperature": 0, "max_tokens": 40}
    answer = running.openai.completions.create(model="tiny", prompt="ab", **asked)
    assert answer.choices[0].text == whole[: whole.index(stop) + len(stop)]
    chat = running.openai.chat.completions.create(model="tiny", messages=[MESSAGE], **asked)
    assert chat.choices[0].finish_reason == "length" or chat.choices[0].message.content.endswith(stop)


def test_special_tokens_of_prompts_where_the_server_allows_them(model_path: Path) -> None:
    """For code completion, say. BOS is there once, and conversations are as ever."""
    with LLM(model_path, kv_type="f32", threads=1, chat_template=model_path.parent / "chat.jinja") as llm:
        tokenizer = llm.tokenizer
        assert tokenizer.bos_id is not None
        bos, end = tokenizer.token_text(tokenizer.bos_id), tokenizer.token_text(tokenizer.eos_ids[0])
        text, chat = f"{bos}ab{end}c", {"messages": [{"role": "user", "content": f"ab{end}c"}]}
        parsed = tokenizer.encode(text, add_special=False, parse_special=True)
        assert parsed.count(tokenizer.eos_ids[0]) == 1
        chats = []
        for settings, ids in ((Settings(parse_special=True), parsed), (Settings(), tokenizer.encode(text))):
            with serving(llm, settings) as running:
                assert running.http.post("/tokenize", json={"prompt": text}).json()["tokens"] == ids
                bare = {"prompt": text, "add_special_tokens": False}
                own = tokenizer.encode(text, add_special=False, parse_special=settings.parse_special)
                assert running.http.post("/tokenize", json=bare).json()["tokens"] == own
                for path, body in (("completions", {"prompt": text, "max_tokens": 1}), ("embeddings", {"input": text})):
                    usage = running.http.post(f"/v1/{path}", json=body).json()["usage"]
                    assert usage["prompt_tokens"] == len(ids)
                chats.append(running.http.post("/tokenize", json=chat).json()["tokens"])
        assert chats[0] == chats[1]


def test_which_tokens_may_be_chosen(running) -> None:
    ids = running.llm.tokenizer.encode("xyz", add_special=False)
    for path, asked in (("completions", {"prompt": "ab"}), ("chat/completions", {"messages": [MESSAGE]})):
        body = {**asked, **GREEDY, "allowed_token_ids": ids}
        choice = running.http.post(f"/v1/{path}", json=body).json()["choices"][0]
        text = choice["text"] if path == "completions" else choice["message"]["content"]
        assert text
        assert set(text) <= set("xyz ")
    space, q = running.llm.tokenizer.encode("q", add_special=False)
    often = {"prompt": "ab", **GREEDY, "logit_bias": {str(space): 50, str(q): 45}, "frequency_penalty": 2}
    for bad_words in ([], ["q"]):
        body = {**often, "bad_words": bad_words}
        text = running.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        assert (" q" in text) != bool(bad_words)


def test_what_vllms_clients_send_and_asks_for_nothing_passes(running) -> None:
    neutral = {"best_of": 1, "use_beam_search": False, "length_penalty": 1.0, "skip_special_tokens": True}
    neutral |= {"spaces_between_special_tokens": True, "truncate_prompt_tokens": None, "bad_words": []}
    neutral |= {"include_stop_str_in_output": False, "allowed_token_ids": None, "return_token_ids": False}
    for path, asked in (("completions", {"prompt": "ab"}), ("chat/completions", {"messages": [MESSAGE]})):
        given = {**asked, **GREEDY, **neutral, "add_special_tokens": path == "completions", "echo": False}
        assert running.http.post(f"/v1/{path}", json=given).status_code == 200
        for name, value in (("best_of", 2), ("use_beam_search", True), ("length_penalty", 2.0)):
            refused = running.http.post(f"/v1/{path}", json={**given, name: value}).json()["error"]
            assert refused["param"] == name
    refused = running.http.post("/v1/chat/completions", json={"messages": [MESSAGE], "skip_special_tokens": False})
    assert refused.json()["error"]["param"] == "skip_special_tokens"


def test_a_stop_string_ends_the_answer_and_what_is_behind_it(running) -> None:
    whole = expected(running, "ab", max_tokens=40).outputs[0].text
    stop = whole[10:12]
    answer = running.openai.completions.create(model="tiny", prompt="ab", temperature=0, max_tokens=40, stop=stop)
    assert answer.choices[0].text == whole[: whole.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens < 40


def test_logprobs_are_the_models(running) -> None:
    answer = running.openai.completions.create(model="tiny", prompt="ab", logprobs=3, **GREEDY)
    own = expected(running, "ab", logprobs=3).outputs[0]
    found = answer.choices[0].logprobs
    assert found.token_logprobs == pytest.approx([own.logprobs[i][t].logprob for i, t in enumerate(own.token_ids)])
    assert all(len(top) <= 3 for top in found.top_logprobs)
    assert found.text_offset[0] == 0
    assert len(found.tokens) == 12


def test_echo_with_logprobs_scores_the_prompt(running) -> None:
    ids = running.llm.tokenizer.encode("hello")
    scores = running.llm.score(ids)
    for max_tokens in (0, 2):
        answer = running.openai.completions.create(
            model="tiny", prompt="hello", echo=True, logprobs=1, max_tokens=max_tokens, temperature=0
        )
        found = answer.choices[0].logprobs
        assert found.token_logprobs[0] is None
        assert found.token_logprobs[1 : len(ids)] == pytest.approx(list(scores), rel=1e-4)
        assert len(found.tokens) == len(ids) + max_tokens
        assert answer.choices[0].text.startswith("hello")
        assert answer.usage.completion_tokens == max_tokens


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_offsets_go_on_from_token_to_token(running, echo: bool, stream: bool) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "hello", "echo": echo, "logprobs": 0, "stream": stream}
    answer = running.openai.completions.create(**asked, **GREEDY)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    found = [choice.logprobs for choice in choices if choice.logprobs is not None]
    tokens = [token for each in found for token in each.tokens]
    assert len(tokens) == 12 + (len(running.llm.tokenizer.encode("hello")) if echo else 0)
    offsets = [offset for each in found for offset in each.text_offset]
    text = "".join(choice.text for choice in choices)
    written = [i for i, token in enumerate(tokens) if "\ufffd" not in token and not token.startswith("<")]
    assert len(written) > 1
    for i in written:
        assert text.startswith(token := tokens[i].lstrip() if offsets[i] == 0 and echo else tokens[i], offsets[i]), (
            token
        )
    assert all(each.top_logprobs is None for each in found)  # none were asked for


@pytest.mark.parametrize(("min_tokens", "text"), [(0, "ab"), (3, "abcab"), (6, "abcabcab")])
def test_a_stop_string_within_the_first_tokens_is_text(says, min_tokens: int, text: str) -> None:
    asked: dict[str, Any] = {"prompt": "ab", "stop": "c", "min_tokens": min_tokens}
    answer = says("abcabcabcd").http.post("/v1/completions", json=asked).json()
    assert answer["choices"][0]["text"] == text


@pytest.mark.parametrize(
    ("change", "param"),
    [({"max_tokens": 0}, "max_tokens"), ({"prompt": ["a", [1]]}, "prompt"), ({"best_of": 2}, "best_of")],
)
def test_what_cannot_be_kept_is_refused_by_name(running, change: dict[str, Any], param: str) -> None:
    response = running.http.post("/v1/completions", json={"prompt": "ab", **change})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_ids_are_of_the_vocabulary(running) -> None:
    n_ids = running.llm.tokenizer.vocab_size
    asked: dict[str, Any] = {"max_tokens": 1, "prompt": [1, n_ids - 1]}
    assert running.http.post("/v1/completions", json=asked).status_code == 200
    refused = running.http.post("/v1/completions", json={**asked, "prompt": [1, n_ids]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
    assert f"token id {n_ids} " in refused.json()["error"]["message"]


def test_echo_in_a_stream_comes_first(running) -> None:
    stream = running.openai.completions.create(model="tiny", prompt="hello", echo=True, stream=True, **GREEDY)
    assert "".join(c.choices[0].text for c in stream) == "hello" + expected(running, "hello").outputs[0].text


def test_cached_tokens_are_told(running) -> None:
    prompt = "a text that is long enough for a block of the cache and one more of them"
    first, second = (running.openai.completions.create(model="tiny", prompt=prompt, **GREEDY) for _ in range(2))
    assert second.usage.prompt_tokens_details.cached_tokens >= 32
    assert second.choices[0].text == first.choices[0].text
    salted = running.openai.completions.create(model="tiny", prompt=prompt, extra_body={"cache_salt": "x"}, **GREEDY)
    assert salted.usage.prompt_tokens_details.cached_tokens == 0


def test_a_bias_forces_a_token(running) -> None:
    token = running.llm.tokenizer.encode("z", add_special=False)[-1]
    answer = running.openai.completions.create(
        model="tiny", prompt="ab", temperature=0, max_tokens=5, logit_bias={str(token): 100}
    )
    assert answer.choices[0].text == "zzzzz"


def test_what_does_not_fit_is_refused_with_both_numbers(running) -> None:
    with pytest.raises(BadRequestError) as caught:
        running.openai.completions.create(model="tiny", prompt="a" * 3000)
    assert caught.value.code == "context_length_exceeded"
    assert "2048" in caught.value.message
    assert "3002" in caught.value.message or "3001" in caught.value.message
    with pytest.raises(BadRequestError, match="2048"):
        running.openai.completions.create(model="tiny", prompt="a", max_tokens=2048)


def test_where_nothing_is_generated_a_prompt_may_fill_the_context(running) -> None:
    scoring = {"max_tokens": 0, "echo": True, "logprobs": 0}
    for path, name, more in (("/v1/completions", "prompt", scoring), ("/v1/embeddings", "input", {})):
        assert running.http.post(path, json={name: [5] * 2048, **more}).status_code == 200
        refused = running.http.post(path, json={name: [5] * 2049, **more}).json()["error"]
        assert refused["code"] == "context_length_exceeded"
        assert "2049 tokens" in refused["message"]


def test_a_text_too_long_for_any_context_is_not_tokenized(running) -> None:
    response = running.http.post("/v1/completions", json={"prompt": "a" * 1_000_000})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert "at least" in response.json()["error"]["message"]


def test_another_model_is_not_here(running) -> None:
    with pytest.raises(NotFoundError) as caught:
        running.openai.completions.create(model="gpt-4", prompt="ab")
    assert caught.value.code == "model_not_found"


def test_models_are_listed(running) -> None:
    assert [model.id for model in running.openai.models.list()] == ["tiny"]
    assert running.openai.models.retrieve("tiny").id == "tiny"
    with pytest.raises(NotFoundError):
        running.openai.models.retrieve("other")


def test_tokens_go_there_and_back(running) -> None:
    http = running.http
    tokens = http.post("/tokenize", json={"prompt": "ab", "return_token_strs": True}).json()
    assert tokens["tokens"] == running.llm.tokenizer.encode("ab")
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
    assert http.post("/detokenize", json={"tokens": tokens["tokens"][1:]}).json()["prompt"].strip() == "ab"
    chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": "ab"}]}).json()
    assert chat["tokens"] == running.llm.encode_chat([{"role": "user", "content": "ab"}])
    assert http.post("/detokenize", json={"tokens": [999999]}).status_code == 400


def test_embeddings_are_the_hidden_states(running) -> None:
    rows = running.llm.embed(running.llm.tokenizer.encode("hello"))
    mean = rows.mean(axis=0)
    found = running.openai.embeddings.create(model="tiny", input="hello", encoding_format="float").data[0].embedding
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-6)
    raw = running.http.post(
        "/v1/embeddings",
        json={"input": ["hello", "x"], "encoding_format": "base64", "pooling": "last", "normalize": False},
    ).json()
    last = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(last, rows[-1], rtol=1e-4, atol=1e-6)
    assert [each["index"] for each in raw["data"]] == [0, 1]
    assert len(running.openai.embeddings.create(model="tiny", input="hello").data[0].embedding) == len(mean)


def test_what_can_be_asked_for_can_be_looked_for(running) -> None:
    """HEAD is GET without its body, as `curl -I` and `wget --spider` ask whether a server is there."""
    paths = (
        "/health",
        "/healthz",
        "/v1/models",
        "/v1/models/",
        "/v1/models/tiny",
        "/metrics",
        "/",
        "/docs",
        "/web/app.js",
    )
    for path in (*paths, "/openapi.json"):
        asked, looked = running.http.get(path), running.http.head(path)
        assert (asked.status_code, looked.status_code, looked.content) == (200, 200, b"")
        assert looked.headers["content-type"] == asked.headers["content-type"]
        assert "content-length" in looked.headers
    assert running.http.head("/v1/models/other").status_code == 404
    assert running.http.head("/v1/completions").status_code == 405
    assert running.http.get("/health").json() == {"status": "ok"}  # the connection is as it was


def test_health_metrics_and_description(running) -> None:
    http = running.http
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/healthz").status_code == 200
    http.post("/v1/completions", json={"prompt": "ab", "max_tokens": 3, "ignore_eos": True})
    text = http.get("/metrics").text
    for name in ("num_requests_running", "kv_cache_usage_perc", "generation_tokens_total"):
        assert f'gristmill:{name}{{model_name="tiny"}}' in text
    assert 'gristmill:request_success_total{finished_reason="length",model_name="tiny"}' in text
    assert "ChatRequest" in http.get("/openapi.json").json()["components"]["schemas"]
    assert http.get("/docs").status_code == 200
    assert http.get("/nothing").json()["error"]["code"] == "not_found"
    assert http.get("/v1/completions").status_code == 405
