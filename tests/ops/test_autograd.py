"""The decoder on torch: its logits are those that are served, its gradients those of transformers' own models."""

# ruff: noqa: E402
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("transformers", reason="its models say what gradients must be")

from oracles.families import CONFIGS, save
from oracles.oracle import Oracle
from torch import nn

from gristmill import LLM
from gristmill.formats.checkpoint import Weight
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType
from gristmill.models.build import build
from gristmill.ops import autograd
from gristmill.ops.autograd import AutogradLinear, AutogradOps, whole_sequences
from gristmill.ops.reference import ReferenceOps
from gristmill.train.model import Model
from gristmill.types import RopeConfig

TRAINABLE = [name for name in CONFIGS if not name.startswith(("gpt-oss", "qwen3-moe"))]
N_SEQUENCES, LENGTH = 3, 48
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    found: dict[str, Oracle] = {}

    def of(name: str) -> Oracle:
        if name not in found:
            found[name] = save(name, tmp_path_factory.mktemp("model"))
        return found[name]

    return of


def texts(oracle: Oracle) -> torch.Tensor:
    return torch.tensor([oracle.text(LENGTH + 1, seed) for seed in range(N_SEQUENCES)])


@pytest.mark.parametrize("name", TRAINABLE)
def test_logits_are_those_of_serving_and_of_transformers(name: str, oracle: Callable[[str], Oracle]) -> None:
    made = oracle(name)
    model, tokens = Model(open_checkpoint(made.path), CPU), texts(made)[:, :-1]
    logits = model.logits(tokens).detach().numpy().reshape(N_SEQUENCES, LENGTH, -1)
    with LLM(made.path, device="cpu", threads=2, kv_type="f32") as llm:
        for ids, found in zip(tokens.tolist(), logits, strict=True):
            assert np.abs(found - made.logits(ids)).max() < 1e-4
            assert np.abs(found - llm.logits(ids)).max() < 1e-4


@pytest.mark.parametrize("name", TRAINABLE)
def test_gradients_are_those_of_transformers(name: str, oracle: Callable[[str], Oracle]) -> None:
    made = oracle(name)
    model, both = Model(open_checkpoint(made.path), CPU), texts(made)
    loss = model(both[:, :-1], both[:, 1:])
    loss.backward()
    made.model.zero_grad()
    logits = made.model(both[:, :-1], use_cache=False).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), both[:, 1:].flatten())
    expected.backward()
    assert abs(loss.item() - expected.item()) < 1e-5
    theirs = dict(made.model.named_parameters())
    ours = model.gradients()
    assert set(ours) == set(theirs)
    for key, gradient in ours.items():
        reference = theirs[key].grad
        assert (gradient - reference).norm() < 1e-4 * reference.norm(), key


def test_gpt_oss_is_refused(oracle: Callable[[str], Oracle]) -> None:
    with pytest.raises(ValueError, match="experts cannot be trained"):
        Model(open_checkpoint(oracle("gpt-oss").path), CPU)


def test_every_operation_is_the_references() -> None:
    """One operation at a time, in numbers that are no powers of two."""
    ops, reference, rng = AutogradOps(5), ReferenceOps(), np.random.default_rng(0)
    x, w, matrix = (rng.normal(size=shape).astype(np.float32) for shape in ((15, 24), (24,), (36, 24)))
    tensors = [torch.from_numpy(values) for values in (x, w, matrix)]
    gate_up = reference.put([Weight("gate and up", matrix.view(np.uint8).reshape(-1), QType.F32, matrix.shape)])
    rope = RopeConfig(tuple(float(v) for v in rng.uniform(0, 1, 4)), 1.3)
    positions = np.tile(np.arange(5, dtype=np.int32), 3)
    pairs = [
        (ops.rms_norm(tensors[0], tensors[1], 1e-5), reference.rms_norm(x, w, 1e-5)),
        (ops.add(tensors[0], tensors[0]), reference.add(x, x)),
        (
            ops.gated_linear(tensors[0], AutogradLinear(nn.Parameter(tensors[2], requires_grad=False), None), 0.0),
            reference.gated_linear(x, gate_up, 0.0),
        ),
        (ops.take_rows(tensors[0], torch.tensor([3, 1])), reference.take_rows(x, np.array([3, 1]))),
    ]
    angles = ops.rope_angles(torch.from_numpy(positions), rope)
    pairs += zip(angles, (a[:5] for a in reference.rope_angles(positions, rope)), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_sequence_sees_neither_its_neighbours_nor_what_follows(oracle: Callable[[str], Oracle]) -> None:
    made = oracle("llama2-gqa")
    model, tokens = Model(open_checkpoint(made.path), CPU), texts(made)[:, :-1]
    with torch.no_grad():
        before = model.logits(tokens).view(N_SEQUENCES, LENGTH, -1)
        tokens[0, 20:] = 7
        after = model.logits(tokens).view(N_SEQUENCES, LENGTH, -1)
    torch.testing.assert_close(after[1:], before[1:], rtol=0, atol=1e-5)
    torch.testing.assert_close(after[0, :20], before[0, :20], rtol=0, atol=1e-5)
    assert not torch.allclose(after[0, 20:], before[0, 20:], atol=1e-2)


def test_only_the_rows_that_are_wanted_get_logits(oracle: Callable[[str], Oracle]) -> None:
    made = oracle("llama2-gqa")
    model, tokens = Model(open_checkpoint(made.path), CPU), texts(made)[:1, :-1]
    torch.testing.assert_close(model.logits(tokens, slice(40, 41)), model.logits(tokens)[40:41], rtol=1e-5, atol=1e-5)


def test_a_batch_says_what_the_contract_asks_for() -> None:
    batch = whole_sequences(torch.arange(12).view(3, 4))
    assert batch.positions.tolist() == [0, 1, 2, 3] * 3
    assert batch.query_start.tolist() == [0, 4, 8, 12]
    assert batch.seq_lens.tolist() == [4, 4, 4]
    assert batch.tokens.tolist() == list(range(12))


def test_the_decoder_is_built_by_the_builder_that_serves(tmp_path: Path) -> None:
    made = save("qwen3-tied", tmp_path)
    decoder = build(open_checkpoint(made.path), AutogradOps())
    assert decoder.head is decoder.embed
    assert all(
        parameter.requires_grad for parameter in (decoder.norm, decoder.layers[0].qkv.w, decoder.layers[0].q_norm)
    )


@pytest.mark.parametrize("shape", [(6, 10), (2, 5, 3, 8)])
def test_gradients_that_are_written_out_are_those_of_differences(shape: tuple[int, ...]) -> None:
    """torch's gradcheck, in float64: each against differences of the operation itself."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)
    w = torch.randn(shape[-1], dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(autograd._RmsNorm.apply, (x, w, 1e-3))
    assert torch.autograd.gradcheck(autograd._SwiGlu.apply, (x,))
    if len(shape) == 4:
        cos, sin = (torch.randn(5, 1, 4, dtype=torch.float64, generator=generator) for _ in range(2))
        assert torch.autograd.gradcheck(autograd._Rotated.apply, (x, cos, sin))
