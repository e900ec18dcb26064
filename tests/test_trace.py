"""What `gristmill trace` says a model computed is what transformers computes, and what the engine itself answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from oracles.families import save
from oracles.oracle import Oracle, router_of

from gristmill import LLM
from gristmill.formats.open import open_checkpoint
from gristmill.models.build import build
from gristmill.models.decoder import Decoder
from gristmill.ops.cpu import CpuOps
from gristmill.tracing.forward import MAX_TOKENS, Trace, Tracer, norms

FAMILIES = ("llama2-gqa", "mistral", "qwen3-tied", "qwen3-moe", "gpt-oss")
N_PROMPT, N_ANSWER = 45, 5  # longer than the windows of mistral (23) and gpt-oss (19), and than a head is wide
N = N_PROMPT + N_ANSWER
TOLERANCE = 1e-4
Arrays = list[NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Truth:
    """What transformers computed for N tokens: of each layer, and all hidden states."""

    hidden: Arrays  # [L + 1] of [N, d_model], the last after the final norm
    weights: Arrays  # [L] of [H, N, N]
    attention: Arrays  # [L] of [N, d_model]
    ffn: Arrays
    routers: Arrays  # [L] of [N, E]; none without experts
    probabilities: NDArray[np.float64]  # [N, vocab_size]


@dataclass(frozen=True, slots=True)
class Case:
    oracle: Oracle
    decoder: Decoder
    ops: CpuOps
    tracer: Tracer
    trace: Trace
    truth: Truth


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    torch.set_num_threads(1)
    root, made = tmp_path_factory.mktemp("trace"), dict[str, Case]()

    def get(name: str) -> Case:
        if name not in made:
            made[name] = make(save(name, root / name))
        return made[name]

    return get


@pytest.fixture(params=FAMILIES)
def case(request: pytest.FixtureRequest, cases: Callable[[str], Case]) -> Case:
    return cases(request.param)


def make(oracle: Oracle) -> Case:
    ops = CpuOps(1)
    decoder = build(open_checkpoint(oracle.path), ops)
    tracer = Tracer(decoder, ops, "f32")
    prompt, _ = oracle.clear_greedy(N_PROMPT, N_ANSWER + 1)
    trace = tracer.run(prompt, N_ANSWER)
    return Case(oracle, decoder, ops, tracer, trace, ask(oracle, list(trace.ids)))


def ask(oracle: Oracle, ids: list[int]) -> Truth:
    noted: dict[str, Arrays] = {"attention": [], "ffn": [], "router": []}

    def note(name: str, _module: Any, _inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        noted[name].append(first.reshape(len(ids), -1).numpy())

    hooks = []
    for layer in oracle.model.model.layers:
        hooks += [layer.self_attn.register_forward_hook(partial(note, "attention"))]
        hooks += [layer.mlp.register_forward_hook(partial(note, "ffn"))]
        if (router := router_of(layer)) is not None:
            hooks += [router.register_forward_hook(partial(note, "router"))]
    with torch.inference_mode():
        said = oracle.model(torch.tensor([ids]), use_cache=False, output_hidden_states=True, output_attentions=True)
    for hook in hooks:
        hook.remove()
    return Truth(
        hidden=[x[0].numpy() for x in said.hidden_states],
        weights=[x[0].numpy() for x in said.attentions],
        attention=noted["attention"],
        ffn=noted["ffn"],
        routers=noted["router"],
        probabilities=torch.softmax(said.logits[0].double(), dim=-1).numpy(),
    )


def test_answer_is_the_engines(case: Case) -> None:
    assert case.trace.n_prompt == N_PROMPT
    assert len(case.trace.ids) == N
    answer = case.oracle.greedy(list(case.trace.ids[:N_PROMPT]), N_ANSWER + 1)
    assert [*case.trace.ids[N_PROMPT:], case.trace.next_id] == answer


def test_residual_streams(case: Case) -> None:
    record, truth = case.trace.record, case.truth
    layers = [layer.residual for layer in record.layers]
    with torch.inference_mode():
        layers[-1] = case.oracle.model.model.norm(torch.from_numpy(layers[-1])).numpy()
    for ours, theirs in zip([record.embedded, *layers], truth.hidden, strict=True):
        assert np.abs(ours - theirs).max() < TOLERANCE


@pytest.mark.parametrize("position", [0, 20, N_PROMPT - 1, N - 1])
def test_norms(case: Case, position: int) -> None:
    found, truth = norms(case.trace, position), case.truth
    lengths = [[np.linalg.norm(x[position]) for x in rows] for rows in (truth.attention, truth.ffn)]
    np.testing.assert_allclose(found[:, 1:].T, lengths, rtol=1e-4)
    residual = [np.linalg.norm(x[position]) for x in truth.hidden[1:-1]]
    np.testing.assert_allclose(found[:-1, 0], residual, rtol=1e-4)


@pytest.mark.parametrize("position", [0, 3, 22, 41, N - 1])
def test_attention_weights(case: Case, position: int) -> None:
    """Transformers leaves a sink's share out too: each row sums to 1 less that."""
    for i, theirs in enumerate(case.truth.weights):
        found = case.tracer.attention(case.trace, i, position)
        assert found.weights.shape == (case.decoder.config.n_heads, position + 1)
        np.testing.assert_allclose(found.weights, theirs[:, position, : position + 1], atol=1e-5)
        window = case.decoder.config.windows[i]
        assert not window or not found.weights[:, : max(0, position + 1 - window)].any()
        if case.decoder.layers[i].sinks is None:
            assert found.sinks is None
        else:
            assert found.sinks is not None
            np.testing.assert_allclose(found.sinks, 1 - theirs[:, position].sum(axis=-1), atol=1e-5)
            assert found.sinks.max() > 1e-3


class Spy(CpuOps):
    """Notes what attention gives for each layer of the first step: [N_PROMPT, H D]."""

    def __init__(self) -> None:
        super().__init__(1)
        self.given: Arrays = []

    def attention(self, *args: Any) -> Any:
        y = super().attention(*args)
        self.given.append(y.copy())
        return y


@pytest.mark.parametrize(
    ("name", "kv_type", "tolerance"),
    [("mistral", "f32", 2e-6), ("mistral", "f16", 0.02), ("gpt-oss", "f32", 2e-6), ("gpt-oss", "q8_0", 0.05)],
)  # of values as they were before the cache rounded them to 24, 8 (AVX-512) or 7 bits
def test_weights_times_values_are_what_attention_gave(
    cases: Callable[[str], Case], name: str, kv_type: str, tolerance: float
) -> None:
    case, spy = cases(name), Spy()
    c = case.decoder.config
    tracer = Tracer(case.decoder, spy, kv_type)
    trace = tracer.run(list(case.trace.ids[:N_PROMPT]))
    given = spy.given.copy()
    for i, layer in enumerate(trace.record.layers):
        heads = layer.qkv[:, (c.n_heads + c.n_kv_heads) * c.head_dim :].reshape(N_PROMPT, c.n_kv_heads, c.head_dim)
        values = np.repeat(heads, c.n_heads // c.n_kv_heads, axis=1)  # [N, H, D]
        for position in (0, 25, N_PROMPT - 1):
            weights = tracer.attention(trace, i, position).weights
            y = np.einsum("hn,nhd->hd", weights, values[: position + 1]).reshape(-1)
            assert np.abs(y - given[i][position]).max() < tolerance * max(1, np.abs(values).max())


def test_lens_ends_with_the_real_probabilities(case: Case) -> None:
    for position in (7, N_PROMPT - 1, N - 1):
        lens, truth = case.tracer.lens(case.trace, position, 5), case.truth.probabilities[position]
        order = np.argsort(-truth)[:5]
        assert lens.top_ids[-1].tolist() == order.tolist()
        np.testing.assert_allclose(lens.probabilities[-1], truth[order], rtol=1e-3)
        successor = case.trace.successor(position)
        np.testing.assert_allclose(lens.next_probabilities[-1], truth[successor], rtol=1e-3)
        assert lens.ranks[-1] == (truth >= truth[successor]).sum()
    assert lens.top_ids[-1][0] == case.trace.next_id
    assert lens.ranks[-1] == 1


def test_lens_is_bit_for_bit_the_engines(case: Case) -> None:
    """Another engine, another cut of the text: the same numbers."""
    with LLM(case.oracle.path, kv_type="f32", threads=2) as llm:
        logits = llm.logits(case.trace.ids)
    for position in (0, N_PROMPT - 1, N - 1):
        next_id = np.array([case.trace.successor(position)], np.int32)
        expected = case.ops.logprobs(logits[position : position + 1], next_id, 3)
        lens = case.tracer.lens(case.trace, position, 3)
        assert lens.probabilities[-1].tolist() == np.exp(expected[3][0]).tolist()
        assert lens.next_probabilities[-1] == np.exp(expected[0][0])


def test_lens_between_layers(case: Case) -> None:
    """The final norm and the head on transformers' own hidden states."""
    lens = case.tracer.lens(case.trace, N - 1, 3)
    for i, hidden in enumerate(case.truth.hidden[:-1]):
        with torch.inference_mode():
            x = case.oracle.model.model.norm(torch.from_numpy(hidden[N - 1 : N]))
            truth = torch.softmax(case.oracle.model.lm_head(x)[0].double(), dim=-1).numpy()
        np.testing.assert_allclose(lens.probabilities[i], np.sort(truth)[::-1][:3], rtol=1e-3)


def test_experts(cases: Callable[[str], Case]) -> None:
    case = cases("gpt-oss")
    for layer, router in enumerate(case.truth.routers):
        for position in (0, N - 1):
            logits = torch.from_numpy(router[position])
            best = logits.topk(4)
            experts, weights = zip(*case.tracer.experts(case.trace, layer, position), strict=True)
            assert list(experts) == best.indices.tolist()
            np.testing.assert_allclose(weights, torch.softmax(best.values, dim=0), rtol=1e-4)
    assert cases("mistral").tracer.experts(cases("mistral").trace, 0, 0) == ()


def test_what_cannot_be_traced(cases: Callable[[str], Case]) -> None:
    tracer, trace = cases("mistral").tracer, cases("mistral").trace
    assert trace.position(-1) == N - 1
    assert trace.position(-N) == 0
    for position in (N, -N - 1):
        with pytest.raises(ValueError, match=f"position {position} is outside the {N} tokens: give 0 to {N - 1}"):
            trace.position(position)
    with pytest.raises(ValueError, match=f"510 tokens of prompt and 3 to generate are more than the {MAX_TOKENS}"):
        tracer.run([1] * 510, 3)
    with pytest.raises(ValueError, match="no tokens"):
        tracer.run([])
    with pytest.raises(ValueError, match="token id 517 is outside the vocabulary of 517"):
        tracer.run([1, 517])


def test_answer_ends_at_eos(cases: Callable[[str], Case]) -> None:
    """The token that ends it is chosen and not computed."""
    case = cases("mistral")
    prompt, stop = list(case.trace.ids[:N_PROMPT]), case.trace.ids[N_PROMPT + 2]
    assert stop not in case.trace.ids[N_PROMPT : N_PROMPT + 2]
    trace = case.tracer.run(prompt, N_ANSWER, (stop,))
    assert trace.ids == case.trace.ids[: N_PROMPT + 2]
    assert trace.next_id == stop
