"""Float models whose dense matrices are quantized while they load: what becomes of the logits and of the memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import small_model
import torch
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from oracles.families import save
from oracles.gguf_files import save_gguf
from oracles.llama2c_files import save_llama2c
from oracles.measure import log_softmax

from gristmill import LLM
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType, quantize_type
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.formats.write_gguf import NewTensor, write_gguf
from gristmill.formats.write_gguf_raw import raw_values
from gristmill.models.build import build, bytes_as_loaded
from gristmill.models.decoder import Decoder
from gristmill.models.hyperparameters import read_config
from gristmill.ops.cpu import N_EXACT, CpuOps
from gristmill.ops.interface import Linear

IDS = np.random.default_rng(0).integers(3, 500, 200).tolist()
Write = Callable[[str, Type], Path]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    folder = tmp_path_factory.mktemp("models")

    def write(model: str, qtype: Type) -> Path:
        path = folder / f"{model}-{qtype.name}.gguf"
        if not path.exists():
            save_gguf(save(model, folder / path.stem), path, lambda _: qtype)
        return path

    return write


def logits(path: Path, quantize: str | None) -> NDArray[np.float32]:
    with LLM(path, quantize=quantize, kv_type="f32", threads=1) as llm:
        return llm.logits(IDS)


def decoder(path: Path, quantize: str | None, n_exact: int = 0) -> Decoder:
    return build(open_checkpoint(path), CpuOps(1, n_exact=n_exact), quantize=quantize_type(quantize))


@pytest.mark.parametrize("model", ["llama-wide", "qwen3-wide"])
@pytest.mark.parametrize("quantize", ["int8", "q8_0"])
def test_the_distribution_hardly_moves(write: Write, model: str, quantize: str) -> None:
    """Mean KL to the same model in float32: 2.0e-4 and 1.6e-4 nats for int8, 1.5e-4 and 1.2e-4 for q8_0, of which int8
    activations cost 1e-4."""
    path = write(model, Type.F32)
    p, q = log_softmax(logits(path, None)), log_softmax(logits(path, quantize))
    kl = float((np.exp(p) * (p - q)).sum(axis=-1).mean())
    assert 0 < kl < 4e-4


@pytest.mark.parametrize("quantize", ["q4_0", "mxfp4"])
def test_it_is_as_if_the_file_were_quantized(write: Write, quantize: str, tmp_path: Path) -> None:
    """Bit for bit what the same blocks in a file compute."""
    path = write("llama-wide", Type.BF16)
    out = tmp_path / "quantized.gguf"
    encoder = RowQuantizer(2)
    checkpoint, qtype = open_checkpoint(path), QType[quantize.upper()]
    tensors = []
    for name in checkpoint.names():
        weight = checkpoint.get(name)
        dense = len(weight.shape) == 2 and name != "token_embd.weight" and weight.n_elements > N_EXACT
        to = qtype if dense else weight.qtype
        tensors.append(NewTensor(name, to, weight.shape, partial(encoder.encode, weight, to)))
    write_gguf(out, raw_values(path), tensors)
    assert np.array_equal(logits(path, quantize), logits(out, None))


def matrix_bytes(linear: Linear, bits_of_a_row: Callable[[int], int]) -> int:
    """Rows are kept 16 at a time."""
    return -(-linear.rows // 16) * 16 * bits_of_a_row(linear.cols) // 8


@pytest.mark.parametrize(
    ("quantize", "bits_of_a_row"),
    [
        ("int8", lambda cols: 8 * cols + 32),
        ("q8_0", lambda cols: 8 * cols + cols // 32 * 16),
        ("q4_0", lambda cols: 4 * cols + cols // 32 * 16),
        ("mxfp4", lambda cols: 4 * cols + cols // 32 * 8),
        (None, lambda cols: 16 * cols),
    ],
    ids=["int8", "q8_0", "q4_0", "mxfp4", "none"],
)
def test_memory_is_what_arithmetic_says(
    write: Write, quantize: str | None, bits_of_a_row: Callable[[int], int]
) -> None:
    """And an embedding that is not the head keeps its 16 bits."""
    path = write("llama-wide", Type.F16)
    model = decoder(path, quantize)
    dense = [model.head, *(w for layer in model.layers for w in (layer.qkv, layer.o, layer.gate_up, layer.down))]
    assert [w.n_bytes for w in dense] == [matrix_bytes(w, bits_of_a_row) for w in dense]
    assert {w.arithmetic for w in dense} == {"int8" if quantize else "f32"}
    assert model.embed.n_bytes == matrix_bytes(model.embed, lambda cols: 16 * cols)
    whole = model.embed.n_bytes + sum(w.n_bytes for w in dense)
    checkpoint = open_checkpoint(path)
    expected = sum(bytes_as_loaded(checkpoint, read_config(checkpoint), quantize_type(quantize), 0).values())
    assert expected == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("label", ["IQ1_S", "IQ2_XXS", "IQ3_S", "TQ1_0", "Q4_K", "Q1_0", "NVFP4"])
def test_types_that_are_kept_otherwise_take_what_is_expected(write: Write, label: str) -> None:
    assert_takes_what_is_expected(write("llama-wide", Type[label]))


@pytest.mark.parametrize("group_size", [64, 32])
def test_groups_of_llama2c_take_what_is_expected(tmp_path: Path, group_size: int) -> None:
    path = tmp_path / "model.bin"
    save_llama2c(save("llama2c-wide", tmp_path / "model"), path, 2, group_size)
    assert_takes_what_is_expected(path)


def test_experts_of_their_own_are_expected_as_they_are(tmp_path: Path) -> None:
    """They are not quantized, though each is a matrix like those that are."""
    path = save("qwen3-moe-wide", tmp_path / "model", dtype=torch.float16).path
    model, checkpoint = decoder(path, "q8_0"), open_checkpoint(path)
    layers = [w for layer in model.layers for w in (layer.qkv, layer.o, layer.gate_up, layer.down)]
    whole = sum(w.n_bytes for w in (model.embed, model.head, *layers))
    expected = sum(bytes_as_loaded(checkpoint, read_config(checkpoint), quantize_type("q8_0"), 0).values())
    assert expected == pytest.approx(whole, rel=0.02)


def assert_takes_what_is_expected(path: Path) -> None:
    model = decoder(path, None)
    layers = [w for layer in model.layers for w in (layer.qkv, layer.o, layer.gate_up, layer.down)]
    checkpoint = open_checkpoint(path)
    config = read_config(checkpoint)
    expected = sum(bytes_as_loaded(checkpoint, config, None, 0).values())
    assert expected == pytest.approx(sum(w.n_bytes for w in (model.embed, model.head, *layers)), rel=0.015)


def test_a_tied_embedding_is_quantized_as_the_head(tmp_path: Path) -> None:
    model = decoder(small_model.write_model(tmp_path / "tied.bin"), "int8")
    assert model.embed is model.head
    assert model.embed.n_bytes == matrix_bytes(model.embed, lambda cols: 8 * cols + 32)


def test_small_matrices_keep_their_floats(write: Write) -> None:
    path = write("llama-wide", Type.F16)
    assert [decoder(path, "int8", n).layers[0].qkv.arithmetic for n in (0, 1 << 30)] == ["int8", "f32"]


def test_experts_and_their_router_stay(write: Write) -> None:
    path = write("gpt-oss-wide", Type.F16)
    floats, quantized = decoder(path, None), decoder(path, "int8")
    for a, b in zip(floats.layers, quantized.layers, strict=True):
        for name in ("router", "gate_up", "down"):
            assert getattr(a, name).n_bytes == getattr(b, name).n_bytes
        for name in ("qkv", "o"):
            assert getattr(a, name).n_bytes > 1.8 * getattr(b, name).n_bytes


@pytest.mark.parametrize(
    ("qtype", "quantize", "messages"),
    [
        (Type.F16, "int8", []),
        (Type.Q8_0, "q8_0", []),
        (Type.Q8_0, "int8", ["15 q8_0 tensors not quantized to int8, only floats in rows of a multiple of 32 are"]),
        (Type.Q4_0, "q8_0", ["15 q4_0 tensors not quantized to q8_0, only floats in rows of a multiple of 32 are"]),
    ],
)
def test_what_stays_is_said(
    write: Write, qtype: Type, quantize: str, messages: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = write("llama-wide", qtype)
    before, after = decoder(path, None), decoder(path, quantize)
    assert caplog.messages == [f"{path.name}: {message}" for message in messages]
    if qtype is not Type.F16:
        assert after.head.n_bytes == before.head.n_bytes


def test_an_unknown_choice_is_refused_before_the_file_is_read() -> None:
    with pytest.raises(ValueError, match=r"quantize is 'q4_1', which is no type .*; use one of none, int8, q8_0, q4_0"):
        LLM("nowhere.gguf", quantize="q4_1")
