"""The whole decoder on Triton's kernels: logits as the numpy reference has them, tokens as the CPU chooses them."""

# ruff: noqa: E402
from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the GPU's memory is torch's")
pytest.importorskip("triton", reason="the GPU's kernels are Triton's")

import small_model
from click.testing import CliRunner
from device import batch_on, off
from engine_models import checkpoint
from numpy.typing import NDArray
from oracles.fp8_files import save_fp8

from gristmill import LLM
from gristmill.cli.main import main
from gristmill.engine import warm
from gristmill.engine.adjust import Adjuster
from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import quantize_type
from gristmill.kv.cache import allocate, windows_of
from gristmill.models.build import build as build_decoder
from gristmill.ops.cuda import CudaOps
from gristmill.ops.interface import BLOCK_SIZE, NO_ID, Ops
from gristmill.ops.reference import ReferenceOps
from gristmill.ops.triton import staging
from gristmill.ops.triton.common import INTERPRETED
from gristmill.types import Batch, SamplingParams

N_BLOCKS = 12
GREEDY, SAMPLED = SamplingParams(temperature=0), SamplingParams(temperature=1, seed=5)
CASES = [
    ("llama-tiny", "BF16", "int8"),
    ("llama-tiny-256", "Q4_K", None),
    ("mistral-tiny", "F16", None),
    ("qwen2-tiny", "BF16", None),
    ("qwen3-tiny", "Q8_0", None),
    ("qwen3-moe-tiny", "Q8_0", None),
    ("gpt-oss-tiny", "MXFP4", None),
]


class Machine:
    """A model on a backend, and sequences whose blocks lie in the cache in no order."""

    def __init__(self, path: Path, ops: Ops, quantize: str | None = None, kv_type: str = "f32") -> None:
        self.ops = ops
        decoder = build_decoder(open_checkpoint(path), ops, quantize=quantize_type(quantize))
        self.vocab_size = decoder.config.vocab_size
        self.n_groups = len(windows_of(decoder.config))
        self.runner = Runner(decoder, ops, allocate(ops, decoder.config, [N_BLOCKS] * self.n_groups, kv_type))
        self._free = [int(b) for b in np.random.default_rng(0).permutation(N_BLOCKS)]

    def sequence(self, tokens: list[int], params: SamplingParams | None = None) -> Sequence:
        blocks = [[self._free.pop() for _ in range(4)]] * self.n_groups
        return Sequence(0, tokens, len(tokens), params or SamplingParams(), 7, frozenset(), 100, block_ids=blocks)

    def step(self, work: list[tuple[Sequence, int]]) -> NDArray[np.float32]:
        """Logits of all tokens of each part."""
        logits = self.runner.forward(build([Part(s, n, n) for s, n in work], self.ops))
        for s, n in work:
            s.n_computed += n
        return logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def run(machine: Machine) -> list[NDArray[np.float32]]:
    """A prompt in one piece; a part of another beside one more token of the first; its rest alone; a token of each."""
    rng = np.random.default_rng(1)
    first, second = (machine.sequence(rng.integers(machine.vocab_size, size=n).tolist()) for n in (21, 20))
    steps = [[(first, 18)], [(first, 1), (second, 13)], [(second, 6)], [(second, 1), (first, 1)], [(first, 1)]]
    return [machine.step(work) for work in steps]


@pytest.mark.parametrize(("model", "qtype", "quantize"), CASES)
def test_logits(folder: Path, model: str, qtype: str, quantize: str | None) -> None:
    path = checkpoint(folder, model, qtype)
    tolerance = 1e-5 if INTERPRETED and qtype != "Q4_K" else 5e-2  # quantized again, or rounded
    for actual, expected in zip(
        run(Machine(path, CudaOps(), quantize)), run(Machine(path, ReferenceOps(), quantize)), strict=True
    ):
        assert np.abs(actual - expected).max() < tolerance * np.abs(expected).max()


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_fp8_becomes_bfloat16(tmp_path: Path, quantize: str | None) -> None:
    oracle, plain = save_fp8("qwen3-moe-tiny", tmp_path / "model", "blocks")
    first, second = (run(Machine(path, CudaOps(), quantize)) for path in (oracle.path, plain))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("model", ["qwen3-tiny", "gpt-oss-tiny"])
def test_activations_of_bfloat16(folder: Path, model: str) -> None:
    """As on a card, with keys and values in float16: near the reference as far as 8 bits of significance go."""
    path = checkpoint(folder, model, "F32")
    ours, exact = Machine(path, CudaOps(dtype=torch.bfloat16), kv_type="f16"), Machine(path, ReferenceOps())
    text = list(range(3, 23))
    sequences = [(machine, machine.sequence(text)) for machine in (ours, exact)]
    for n in (18, 1, 1):
        actual, expected = (machine.step([(sequence, n)]) for machine, sequence in sequences)
        assert 0 < np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


rounds_alike = pytest.mark.skipif(not INTERPRETED, reason="a card rounds what it multiplies, so that texts may differ")


@rounds_alike
@pytest.mark.parametrize("model", ["qwen3-tiny", "gpt-oss-tiny"])
def test_texts_are_those_of_the_cpu(folder: Path, model: str) -> None:
    """Through the engine: prompts together and one that waits, greedy and sampled, into blocks that a step begins."""
    path = checkpoint(folder, model, "F32")
    prompts = [[5, 60, 33], list(range(3, 17)), [9]]
    params = [
        SamplingParams(temperature=0.9, top_k=20, top_p=0.95, seed=3, max_tokens=4, ignore_eos=True),
        SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=2),
        SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, repetition_penalty=1.3),
    ]
    answers = []
    for device in ("cpu", "cuda"):
        with LLM(path, device=device, kv_type="f32", max_context=64, max_sequences=2, threads=1) as llm:
            answers.append(llm.generate(prompts, params))
    for expected, actual in zip(*answers, strict=True):
        assert actual.outputs[0].token_ids == expected.outputs[0].token_ids
        for ours, theirs in zip(actual.outputs[0].logprobs or [], expected.outputs[0].logprobs or [], strict=True):
            assert ours.keys() == theirs.keys()
            assert all(abs(ours[i].logprob - theirs[i].logprob) < 1e-4 for i in ours)


WAYS = ("as it is", "padded", "going on", "ahead")


def test_recorded_steps(folder: Path) -> None:
    """Padded, replayed, fed on the device with the ids that they chose, into new blocks too: bit for bit as without."""
    path = checkpoint(folder, "gpt-oss-tiny", "F32")
    texts, logits, caches = ([] for _ in range(3))
    for way in WAYS:
        ops = CudaOps()
        machine = Machine(path, ops)
        crowd = [machine.sequence([7 + i] * 15, SAMPLED if i else GREEDY) for i in range(3)]
        for s in crowd:
            s.n_computed = 14  # what came before is whatever the cache was made with: the same for all
        for layer in machine.runner._kv.layers:
            for cache in layer:
                cache.zero_()
        if way == "as it is":
            ops.batch_sizes = ()
        for step in range(4):
            begun = [[s.block_ids[0][1] for s in crowd] if step == 2 else []] * machine.n_groups

            def batch(crowd: list[Sequence] = crowd, ops: Ops = ops) -> Batch:
                return build([Part(s, 1, 1) for s in crowd], ops)

            if way == "as it is" or way == "padded" or not step:
                ids, _ = machine.runner.step(batch())
            elif way == "going on":
                ids, _ = machine.runner.go_on(begun, 2, batch)
            else:
                assert machine.runner.begin(begun, 2)
                ids = machine.runner.finish()
            assert len(ids) == 3
            for s, token_id in zip(crowd, ids, strict=True):
                s.n_computed += 1
                s.tokens.append(token_id)
        (recording,) = machine.runner._recordings.values()
        assert len(recording.batch.tokens) == (3 if way == "as it is" else 4)
        texts.append([s.tokens for s in crowd])
        logits.append(ops.get(recording.logits)[:3])
        caches.append([ops.get(part) for layer in machine.runner._kv.layers for part in layer])
    for way, text, last, cache in zip(WAYS, texts, logits, caches, strict=True):
        assert text == texts[0], way
        np.testing.assert_array_equal(last, logits[0], way)
        np.testing.assert_array_equal(cache, caches[0], way)


def test_padding_is_the_first_sequence_again(folder: Path) -> None:
    """So that it goes to experts that are read anyway, and what changes logits is no part of a recording."""
    machine = Machine(checkpoint(folder, "gpt-oss-tiny", "F32"), CudaOps())
    sequences = [machine.sequence([7 + i] * 3, GREEDY) for i in range(3)]
    machine.step([(s, 2) for s in sequences])
    batch = build([Part(s, 1, 1) for s in sequences], machine.ops)
    assert batch.n_padding == 1
    chosen, logits = machine.runner.step(batch)
    assert len(chosen) == 3
    np.testing.assert_array_equal(off(logits)[3], off(logits)[0])
    params = SamplingParams(temperature=0, logit_bias={9: 100.0})
    adjuster = Adjuster(params, (), machine.vocab_size, None)
    biased = build([Part(s, 1, 1) for s in sequences], machine.ops, {0: adjuster})  # all of them have this number
    assert machine.runner.step(biased)[0] == [9, 9, 9]
    assert machine.runner.step(batch)[0] == chosen
    assert len(machine.runner._recordings) == 1


@pytest.mark.parametrize("n", [1, 5])
def test_advance(n: int) -> None:
    """As the reference does it, where some sequences begin a block and others do not."""
    rng = np.random.default_rng(n)
    positions = np.array([15, 3, 31, 47, 20], np.int32)[:n]
    tables = tuple(rng.integers(1, 90, (n, 4)).astype(np.int32) for _ in range(2))
    none = np.zeros(0, np.float32)
    batch = Batch(
        np.zeros(n, np.int32), positions, tuple(np.zeros(n, np.int32) for _ in range(2)), none, positions + 1, tables,
        none, none, none, none, none, none, (positions + 1).astype(np.int64), *[none] * 6,
    )  # fmt: skip
    ids, n_begun = rng.integers(NO_ID, 500, size=n).astype(np.int32), int(((positions + 1) % BLOCK_SIZE == 0).sum())
    begun = [list(range(100, 100 + n_begun)), list(range(200, 200 + n_begun))]
    ops, on_device = CudaOps(), batch_on(deepcopy(batch))
    ops.advance(on_device, ops.array(ids), begun)
    ReferenceOps().advance(batch, ids, begun)
    for name in ("tokens", "positions", "seq_lens", "next_positions"):
        np.testing.assert_array_equal(ops.get(getattr(on_device, name)), getattr(batch, name))
    for name in ("slots", "block_tables"):
        for actual, expected in zip(getattr(on_device, name), getattr(batch, name), strict=True):
            np.testing.assert_array_equal(ops.get(actual), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpu_memory_fraction": 0.0}, "gpu_memory_fraction must be above 0"),
        ({"kv_type": "q8_0"}, "kv_type q8_0 is for device cpu"),
    ],
)
def test_what_is_refused(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LLM(checkpoint(folder, "llama-tiny", "F32"), device="cuda", **settings)


def test_types_without_a_kernel_are_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    build_decoder(open_checkpoint(checkpoint(folder, "llama-tiny-256", "Q5_0")), CudaOps())
    assert "q5_0 tensors re-quantized to q8_0, no kernel reads them as they are" in caplog.text


@pytest.mark.parametrize("n", [0, 5, 10, 37])
def test_bytes_go_through_two_buffers(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the last is filled."""

    class Event:
        def record(self) -> None: ...

        def synchronize(self) -> None: ...

    monkeypatch.setattr(staging, "_STAGED", 10)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    data = np.random.default_rng(n).integers(256, size=n, dtype=np.uint8)
    data.flags.writeable = False  # as a file's map is
    np.testing.assert_array_equal(staging.Staging(torch.device("cpu"))(data).numpy(), data)


def test_a_card_that_is_not_there() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    code = "from gristmill.llm import pick_backend; pick_backend('cuda', None)"
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "ValueError: device is 'cuda', and torch finds no CUDA card here: use device cpu" in done.stderr


def test_a_card_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(name="Tesla T4", major=7, minor=5, total_memory=16 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    with pytest.raises(ValueError, match=r"Tesla T4 has compute capability 7\.5: kernels need 8\.0"):
        CudaOps(device=torch.device("cuda"))


@pytest.mark.parametrize(
    ("taking", "what"), [("matrix_of", "the weights"), ("kv.kv_layer", "the key-value cache"), (None, "the weights")]
)
def test_a_card_that_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taking: str | None, what: str
) -> None:
    def take(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")

    if taking is None:
        monkeypatch.setattr(CudaOps, "spare_memory", lambda _: 1000)
        said = "the weights take 0.0 GiB, and 0.0 GiB of the card's memory may be taken: choose a smaller"
    else:
        monkeypatch.setattr(f"gristmill.ops.cuda.{taking}", take)
        said = f"the card has no room for {what}: 1.0 of its 12.0 GiB are free. Take a smaller"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 12 << 30))
    result = CliRunner().invoke(main, ["generate", "-m", str(small_model.write(tmp_path)), "--device", "cuda"])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {said}")
    assert result.stderr.count("\n") == 1


@rounds_alike
def test_from_the_command_line(tmp_path: Path) -> None:
    """With a vocabulary, on the processor and on the kernels: the same text."""
    model = small_model.write(tmp_path)
    arguments = ["generate", "-m", str(model), "-p", "ab", "-n", "3", "--temp", "0", "--kv-type", "f32", "--json"]
    texts = []
    for more in (["--device", "cpu"], ["--device", "cuda", "--gpu-memory-fraction", "0.5"]):
        result = CliRunner().invoke(main, arguments + more)
        assert result.exit_code == 0, result.output
        texts.append(json.loads(result.stdout)["text"])
    assert texts[0] == texts[1]


def test_warming_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through LLM, of every step; and what is warmed answers as before."""
    monkeypatch.setattr(CudaOps, "needs_warming", True)
    monkeypatch.setattr(CudaOps, "batch_sizes", (1,))
    monkeypatch.setattr(warm, "_PROMPTS", (3,))
    told: list[tuple[int, int]] = []
    path, params = checkpoint(folder, "llama-tiny", "F32"), SamplingParams(temperature=0, max_tokens=2)
    texts = []
    for device in ("cpu", "cuda"):
        how: dict[str, Any] = {"device": device, "kv_type": "f32", "max_context": 32, "max_sequences": 1}
        with LLM(path, **how, warming=lambda done, total: told.append((done, total))) as llm:
            texts.append([output.outputs[0].token_ids for output in llm.generate([[5, 6]], params)])
    n = told[-1][1]
    assert told == [(i + 1, n) for i in range(n)]
    assert texts[0] == texts[1]
