"""The steps that `bench model` times are the model's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_model
from engine_models import checkpoint
from gguf import GGMLQuantizationType as Type
from oracles.families import save
from oracles.gguf_files import save_gguf

from gristmill import LLM, SamplingParams
from gristmill.bench.machine import Machine
from gristmill.bench.model import Case, ModelBench, Row, _row, main_arithmetic, model_cost, multiplied, plan
from gristmill.bench.work import Span, Work, step_work
from gristmill.formats.open import open_checkpoint
from gristmill.models.build import build
from gristmill.ops.cpu import CpuOps


def bench(folder: Path, *cases: Case) -> ModelBench:
    ops = CpuOps(1)
    decoder = build(open_checkpoint(small_model.write_model(folder / "tiny.bin")), ops)
    assert main_arithmetic(decoder) == "f32"
    return ModelBench(decoder, "f32", cases, lambda _: ops, Machine(1 << 20))


def test_a_batch_generates_what_its_sequences_generate_alone(tmp_path: Path) -> None:
    case = Case("tg", 20, 3, 17, 1)
    made = bench(tmp_path, case)
    together = made.sequences(case)
    made.compute(case, together)
    for i, one in enumerate(together):
        alone = made.sequences(case)[i : i + 1]
        made.compute(case, alone)
        assert one.tokens == alone[0].tokens
        assert len(one.tokens) == 17 + 1 + 20
    assert len({tuple(sequence.tokens[-20:]) for sequence in together}) == 3


def test_without_depth_it_generates_what_the_engine_does(tmp_path: Path) -> None:
    case = Case("tg", 10, 2, 0, 1)
    made = bench(tmp_path, case)
    sequences = made.sequences(case)
    prompts = [list(sequence.tokens) for sequence in sequences]
    made.compute(case, sequences)
    with LLM(tmp_path / "tiny.bin", threads=1, kv_type="f32") as llm:
        outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=10, ignore_eos=True))
    assert [s.tokens[1:] for s in sequences] == [output.outputs[0].token_ids for output in outputs]


def test_with_experts_a_depth_is_what_its_tokens_make_it(tmp_path: Path) -> None:
    path, case = checkpoint(tmp_path, "qwen3-moe-tiny", "F32"), Case("tg", 6, 2, 19, 1)
    ops = CpuOps(1)
    made = ModelBench(build(open_checkpoint(path), ops), "f32", [case], lambda _: ops, Machine(1 << 20))
    made.run(case, 1)
    sequences = made.sequences(case)
    prompts = [list(sequence.tokens) for sequence in sequences]
    made.compute(case, sequences)
    with LLM(path, threads=1, kv_type="f32") as llm:
        outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
    assert [s.tokens[20:] for s in sequences] == [output.outputs[0].token_ids for output in outputs]


def test_the_last_layer_is_counted_for_rows_with_logits(tmp_path: Path) -> None:
    decoder = build(open_checkpoint(small_model.write_model(tmp_path / "tiny.bin")), CpuOps(1))
    m, cost = small_model, model_cost(CpuOps(1), decoder, "f32")
    qkv = m.DIM * (m.DIM + 2 * m.DIM * m.KV_HEADS // m.HEADS)
    after_attention = m.DIM * m.DIM + 3 * m.DIM * m.HIDDEN
    attention = m.LAYERS * 2 * m.DIM * (1 + 2 + 3 + 4 + 5)  # scores and values
    for n_logits in (0, 1, 5):
        ends = n_logits * (after_attention + m.VOCAB * m.DIM)
        expected = 2 * (5 * (m.LAYERS * qkv + (m.LAYERS - 1) * after_attention) + ends + attention)
        assert step_work(cost, [Span(0, 5)], n_logits).n_operations == expected


def test_experts_count_as_often_as_a_token_uses_them(tmp_path: Path) -> None:
    """One expert has fewer weights than attention here, as in the published gpt-oss; the four of a token have more."""
    path = tmp_path / "mixed.gguf"
    save_gguf(save("gpt-oss-wide", tmp_path / "hf"), path, lambda name: Type.MXFP4 if "_exps" in name else Type.F32)
    decoder = build(open_checkpoint(path), CpuOps(1))
    layer = decoder.layers[0]
    attention, expert = (sum(w.rows * w.cols for w in x) for x in ((layer.qkv, layer.o), (layer.gate_up, layer.down)))
    assert expert < attention < 4 * expert
    assert main_arithmetic(decoder) == "int8"
    assert sum(rows * cols for rows, cols in multiplied(decoder)) == len(decoder.layers) * (attention + 4 * expert)


def test_a_row_is_the_mean_of_its_repetitions() -> None:
    work = Work(n_bytes=4e9, n_operations=8e9)
    row = _row(Case("tg", 10, 2, 5, 1), [1.0, 2.0], work, read_limit=10.0, peak=12.0)
    assert row == Row("tg10", 2, 5, 1, 15.0, pytest.approx(50**0.5), 3.0, 0.3, 6.0, 0.5)  # speeds of 20 and 10
    assert _row(Case("pp", 10, 1, 5, 1), [1.0], work, 10.0, 12.0).stddev == 0


def test_too_large_for_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"the cache would take .* GB and .* of memory may be used"):
        bench(tmp_path, *plan([0], [100], [2**31 - 1], [0], [1]))
    monkeypatch.setattr("gristmill.llm._free_in_container", lambda: 10_000)
    with pytest.raises(ValueError, match=r"the cache would take .* GB and 0\.0 GB of memory may be used"):
        bench(tmp_path, *plan([0], [100], [1], [0], [1]))
