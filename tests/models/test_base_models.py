"""What transformers' AutoModel saved, as most models for embeddings are: names without `model.`, and no head."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles.families import edit_config, save
from oracles.oracle import Oracle
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM

from gristmill import LLM
from gristmill.convert import convert
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType
from gristmill.models.build import bytes_as_loaded
from gristmill.models.hyperparameters import read_config

N_POSITIONS = 60
TOLERANCE = 1e-4
MODELS = ["qwen3-tied", "qwen3-untied", "qwen2-untied", "llama2", "qwen3-moe", "gpt-oss"]


def save_base(name: str, folder: Path) -> Oracle:
    """The model `name` without its head, as AutoModel saves it."""
    oracle = save(name, folder)
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    names = load_file(folder / "model.safetensors")
    assert "embed_tokens.weight" in names
    assert not any(name.startswith(("model.", "lm_head")) for name in names)
    return oracle


def hidden(oracle: Oracle, ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        return oracle.model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].numpy()


@pytest.mark.parametrize("name", MODELS)
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    oracle = save_base(name, tmp_path)
    ids = oracle.text(N_POSITIONS)
    with LLM(tmp_path, device="cpu", threads=2, kv_type="f32") as llm:
        assert np.abs(llm.embed(ids) - hidden(oracle, ids)).max() < TOLERANCE
        if oracle.config.tie_word_embeddings:
            assert np.abs(llm.logits(ids) - oracle.logits(ids)).max() < TOLERANCE
    assert ("has no lm_head.weight" in caplog.text) == (not oracle.config.tie_word_embeddings)


def test_a_head_that_is_there_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    oracle = save_base("qwen3-untied", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors") | {"lm_head.weight": oracle.model.lm_head.weight.detach()}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ids = oracle.text(N_POSITIONS)
    with LLM(tmp_path, device="cpu", threads=2, kv_type="f32") as llm:
        assert np.abs(llm.logits(ids) - oracle.logits(ids)).max() < TOLERANCE
    assert "has no lm_head.weight" not in caplog.text


def test_only_such_files_may_lack_a_head(tmp_path: Path) -> None:
    save("qwen3-untied", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFormatError, match=r"tensor 'lm_head\.weight': is missing"):
        LLM(tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["qwen3-tied", "qwen3-untied"])
def test_what_is_missing_is_named_as_the_file_would(name: str, tmp_path: Path) -> None:
    save_base(name, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["layers.1.self_attn.k_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelFormatError, match=r"tensor 'layers\.1\.self_attn\.k_proj\.weight': is missing"):
        LLM(tmp_path, device="cpu")


def test_memory_is_told_without_a_head(tmp_path: Path) -> None:
    save_base("qwen3-untied", tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert bytes_as_loaded(checkpoint, read_config(checkpoint), QType.Q8_0, 0)["q8_0"] > 0


@pytest.mark.parametrize("name", ["qwen3-tied", "qwen3-untied"])
def test_conversion(name: str, tmp_path: Path) -> None:
    """GGUF without a head has it from the embedding; a folder gets the names that AutoModelForCausalLM gives."""
    oracle = save_base(name, tmp_path / "base")
    ids = oracle.text(N_POSITIONS)
    for out in ("model.gguf", "folder"):
        convert(open_checkpoint(tmp_path / "base"), tmp_path / out)
        with LLM(tmp_path / out, device="cpu", threads=2, kv_type="f32") as llm:
            assert np.abs(llm.embed(ids) - hidden(oracle, ids)).max() < TOLERANCE
            logits = llm.logits(ids)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "folder", attn_implementation="eager").float().eval()
    with torch.inference_mode():
        assert np.abs(model(torch.tensor([ids])).logits[0].numpy() - logits).max() < TOLERANCE


def test_one_file_of_it(tmp_path: Path) -> None:
    oracle = save_base("qwen3-tied", tmp_path)
    ids = oracle.text(N_POSITIONS)
    with LLM(tmp_path / "model.safetensors", device="cpu", threads=2, kv_type="f32") as llm:
        assert np.abs(llm.embed(ids) - hidden(oracle, ids)).max() < TOLERANCE
    edit_config(tmp_path, {"tie_word_embeddings": False})
    with LLM(tmp_path, device="cpu", threads=2, kv_type="f32") as llm:
        assert np.abs(llm.logits(ids) - oracle.logits(ids)).max() < TOLERANCE


def memory_of(folder: Path) -> int:
    checkpoint = open_checkpoint(folder)
    return bytes_as_loaded(checkpoint, read_config(checkpoint), None, 0)["f32"]


@pytest.mark.parametrize("save_it", [save, save_base])
@pytest.mark.parametrize("differs", [False, True])
def test_a_head_of_other_numbers_is_used_though_it_is_said_to_be_tied(
    save_it: Callable[[str, Path], Oracle], differs: bool, tmp_path: Path
) -> None:
    oracle = save_it("qwen3-tied", tmp_path / "model")
    (file,) = (tmp_path / "model").glob("*.safetensors")
    tensors = load_file(file)
    embed = next(x for name, x in tensors.items() if name.endswith("embed_tokens.weight"))
    n_bytes = memory_of(tmp_path / "model")
    head = embed.flip(0) if differs else embed.clone()
    save_file({**tensors, "lm_head.weight": head}, file, metadata={"format": "pt"})
    assert memory_of(tmp_path / "model") == n_bytes + differs * head.nbytes
    convert(open_checkpoint(tmp_path / "model"), tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "config.json").read_text())["tie_word_embeddings"] != differs
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    ids = oracle.text(N_POSITIONS)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    for name in ("model", "copy"):
        with LLM(tmp_path / name, device="cpu", threads=2, kv_type="f32") as llm:
            assert np.abs(llm.logits(ids) - expected).max() < TOLERANCE
