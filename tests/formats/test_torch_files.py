"""What PyTorch saved, as a checkpoint: llama2.c's training ones and Meta's shards; what is broken is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gristmill.convert import convert
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.torch_files import is_torch_checkpoint, open_torch_checkpoint

DIM, HIDDEN, VOCAB = 16, 24, 40
ARGS = {"n_layers": 1, "n_heads": 4}
LLAMA_3_1 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
State = dict[Any, Any]


def state(**changes: object) -> State:
    """A Llama of one layer under Meta's names; None takes a tensor away."""
    shapes: dict[str, tuple[int, ...]] = {
        "tok_embeddings": (VOCAB, DIM), "norm": (DIM,), "output": (VOCAB, DIM), "layers.0.attention_norm": (DIM,),
        "layers.0.ffn_norm": (DIM,), "layers.0.feed_forward.w1": (HIDDEN, DIM),
        "layers.0.feed_forward.w2": (DIM, HIDDEN), "layers.0.feed_forward.w3": (HIDDEN, DIM),
        **{f"layers.0.attention.w{x}": (DIM, DIM) for x in "qkvo"},
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    made: State = {f"{name}.weight": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {name: tensor for name, tensor in (made | changes).items() if tensor is not None}


def save_training(folder: Path, tensors: State, **args: object) -> Path:
    torch.save({"model": tensors, "model_args": ARGS | args}, folder / "ckpt.pt")
    return folder / "ckpt.pt"


def save_meta(folder: Path, *shards: object, **params: object) -> Path:
    for i, shard in reversed(list(enumerate(shards))):
        torch.save(shard, folder / f"consolidated.{i:02}.pth")
    (folder / "params.json").write_text(json.dumps(ARGS | params))
    return folder


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"norm_eps": 1e-6}, {"rms_norm_eps": 1e-6, "rope_theta": 1e4, "max_position_embeddings": 4096}),
        ({"rope_theta": 5e5}, {"rms_norm_eps": 1e-5, "rope_theta": 5e5, "max_position_embeddings": 8192}),
        ({"rope_theta": 1e6}, {"rope_theta": 1e6, "max_position_embeddings": 16384}),
        ({"use_scaled_rope": True}, {"rope_scaling": LLAMA_3_1, "max_position_embeddings": 131072}),
        (
            {"use_scaled_rope": True, "rope_scaling_factor": 32.0},
            {"rope_scaling": LLAMA_3_1 | {"factor": 32.0}, "max_position_embeddings": 131072},
        ),
        ({"max_seq_len": 77}, {"max_position_embeddings": 77, "num_key_value_heads": 4}),
    ],
    ids=["llama2", "llama3", "codellama", "llama3.1", "llama3.2", "context"],
)
def test_params_as_meta_writes_them(params: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    found = open_torch_checkpoint(save_meta(tmp_path, state(), **params)).metadata
    assert {name: found[name] for name in expected} == expected
    assert (found["vocab_size"], found["hidden_size"], found["intermediate_size"]) == (VOCAB, DIM, HIDDEN)
    assert ("rope_scaling" in found) == ("rope_scaling" in expected)


@pytest.mark.parametrize(
    ("width", "n_layers", "factor"), [(2048, 16, 32.0), (3072, 28, 32.0), (2048, 28, 8.0), (4096, 32, 8.0)]
)
def test_llama_3_2_is_known_by_its_shape(width: int, n_layers: int, factor: float, tmp_path: Path) -> None:
    """Its params.json is as silent about the factor as Llama 3.1's, which has another."""
    tensors = state(**{"tok_embeddings.weight": torch.zeros(1).expand(VOCAB, width)})
    folder = save_meta(tmp_path, tensors, n_layers=n_layers, use_scaled_rope=True)
    assert open_torch_checkpoint(folder).metadata["rope_scaling"] == LLAMA_3_1 | {"factor": factor}


def test_the_head_is_the_embedding_where_it_is_tied_or_missing(tmp_path: Path) -> None:
    """llama2.c saves one tensor under both names."""
    trained = open_torch_checkpoint(save_training(tmp_path, state()))
    untied = open_torch_checkpoint(save_meta(tmp_path, state()))
    (tmp_path / "headless").mkdir()
    headless = open_torch_checkpoint(save_meta(tmp_path / "headless", state(**{"output.weight": None})))
    for checkpoint, tied in ((trained, True), (untied, False), (headless, True)):
        assert checkpoint.metadata["tie_word_embeddings"] is tied
        assert ("lm_head.weight" in checkpoint.names()) is not tied


def test_numbers_are_those_that_were_saved(tmp_path: Path) -> None:
    """In any of three types, whatever their order in memory; tables of rotation are left out."""
    tables = {"freqs_cos": torch.ones(2, 2, dtype=torch.complex64), "rope.freqs": torch.ones(2)}
    made = state(**tables)
    made["layers.0.attention.wv.weight"] = made["layers.0.attention.wv.weight"].T
    made["layers.0.attention.wo.weight"] = torch.nn.Parameter(made["layers.0.attention.wo.weight"].bfloat16())
    made["layers.0.feed_forward.w2.weight"] = made["layers.0.feed_forward.w2.weight"].half()
    checkpoint = open_torch_checkpoint(save_training(tmp_path, made))
    assert len(list(checkpoint.names())) == len(made) - len(tables) - 1
    names = {"attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj", "feed_forward.w2": "mlp.down_proj"}
    types = (QType.F32, QType.BF16, QType.F16)
    for (meta_name, name), qtype in zip(names.items(), types, strict=True):
        weight = checkpoint.get(f"model.layers.0.{name}.weight")
        assert weight.qtype is qtype
        expected = made[f"layers.0.{meta_name}.weight"].detach().float().numpy()
        assert np.array_equal(dequantize(weight), expected)


def test_shards_come_in_order_and_one_stands_for_all(tmp_path: Path) -> None:
    parts = [state(**{"layers.0.feed_forward.w1.weight": torch.full((8, DIM), float(i))}) for i in range(12)]
    save_meta(tmp_path, *parts)
    for path in (tmp_path, tmp_path / "consolidated.03.pth"):
        weight = open_torch_checkpoint(path).get("model.layers.0.mlp.gate_proj.weight")
        assert dequantize(weight)[:, 0].tolist() == np.repeat(np.arange(12.0), 8).tolist()


def test_which_paths_are_opened_here(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pth", "c.bin"):
        (tmp_path / name).touch()
    named = {name: is_torch_checkpoint(tmp_path / name) for name in ("a.pt", "b.pth", "c.bin", "none.pt")}
    assert named == {"a.pt": True, "b.pth": True, "c.bin": False, "none.pt": False}
    assert not is_torch_checkpoint(tmp_path)
    (tmp_path / "consolidated.00.pth").touch()
    assert is_torch_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").touch()  # the same model, in a file that runs no code
    assert not is_torch_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("changes", "args", "message"),
    [
        ({"norm.weight": None}, {}, r"tensor 'norm\.weight': is missing; give a Llama checkpoint"),
        ({"tok_embeddings.weight": None}, {}, r"tensor 'tok_embeddings\.weight': is missing"),
        ({"layers.0.feed_forward.w1.weight": None}, {}, r"tensor 'layers\.0\.feed_forward\.w1\.weight': is missing"),
        ({"layers.0.attention.wk.weight": None}, {}, r"self_attn\.k_proj\.weight': is missing"),
        ({"tok_embeddings.weight": 5}, {}, r"tensor 'tok_embeddings\.weight': is a int, not a tensor"),
        ({"tok_embeddings.weight": torch.ones(5)}, {}, r"has shape \(5,\), must have 2 dimensions"),
        ({"norm.weight": torch.tensor(1.0)}, {}, r"'norm\.weight': is torch\.float32 of shape \(\), not a matrix"),
        ({"norm.weight": torch.ones(DIM, dtype=torch.int8)}, {}, r"is torch\.int8 .*; quantized checkpoints are not"),
        ({"layers.0.attention.wv.weight": torch.ones(DIM, DIM).to_sparse()}, {}, r"wv\.weight': .* not a matrix"),
        ({"layers.0.attention.wk.weight": torch.ones(15, DIM)}, {}, r"k_proj\.weight': has shape \(15, 16\)"),
        ({"other": torch.ones(3)}, {}, "holds 1 tensors that llama does not have, among them 'other'"),
        ({}, {"n_heads": 3}, "n_heads: is 3, which does not divide the width 16"),
        ({}, {"n_heads": True}, "n_heads: is True, must be a positive integer"),
        ({}, {"n_layers": 0}, "n_layers: is 0, must be a positive integer"),
        ({}, {"n_layers": 1 << 40}, "n_layers: is .*, must be a positive integer"),
        ({}, {"n_layers": None}, "n_layers: is None, must be a positive integer"),
        ({}, {"rope_theta": [1]}, r"rope_theta: is \[1\], must be a number"),
        ({}, {"norm_eps": "small"}, "norm_eps: is 'small', must be a number"),
        ({}, {"use_scaled_rope": True, "rope_scaling_factor": 10**400}, "rope_scaling_factor: is 10+.*, must be a num"),
    ],
)
def test_what_is_broken_is_named(changes: State, args: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save_training(tmp_path, state(**changes), **args)
    with pytest.raises(ModelFormatError, match=rf"ckpt\.pt: .*{message}"):
        convert(open_torch_checkpoint(path), tmp_path / "out.gguf")
    assert [entry.name for entry in tmp_path.iterdir()] == ["ckpt.pt"]


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ([1, 2], "holds a list, not a dictionary of tensors"),
        ({"model": state()}, "has no 'model' and 'model_args'; give a checkpoint that llama2"),
        ({"model_args": ARGS}, "has no 'model' and 'model_args'"),
        (state(), "has no 'model' and 'model_args'"),
    ],
)
def test_what_is_no_training_checkpoint_is_named(saved: object, message: str, tmp_path: Path) -> None:
    torch.save(saved, tmp_path / "ckpt.pt")
    with pytest.raises(ModelFormatError, match=message):
        open_torch_checkpoint(tmp_path / "ckpt.pt")


def test_what_is_no_checkpoint_of_meta_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.pth").touch()
    with pytest.raises(ModelFormatError, match=r"holds no consolidated\.\*\.pth; give the folder of a model"):
        open_torch_checkpoint(tmp_path / "other.pth")
    whole, narrow = state(), state(**{"norm.weight": torch.ones(3)})
    for other in (state(**{"norm.weight": None}), narrow):
        with pytest.raises(ModelFormatError, match=r"'norm\.weight': is missing in a shard, or has another shape"):
            open_torch_checkpoint(save_meta(tmp_path, whole, other))
    with pytest.raises(ModelFormatError, match=r"consolidated\.00\.pth: .*'norm\.weight': is a str, not a tensor"):
        open_torch_checkpoint(save_meta(tmp_path, state(**{"norm.weight": "x"}), whole))
    for i in range(65):
        (tmp_path / f"consolidated.{i:02}.pth").touch()
    with pytest.raises(ModelFormatError, match="holds 65 shards, at most 64"):
        open_torch_checkpoint(tmp_path)
