"""What a converted model says of itself beside its tensors, and which models a format has no words for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import small_model
from oracles.families import build, llama, mistral, qwen2, qwen3, qwen3_moe
from oracles.gguf_files import copy_gguf
from transformers import AutoConfig, PretrainedConfig

from gristmill.convert import OUT_FORMATS, convert, format_of
from gristmill.convert.rope import find_llama3
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.llama2c import Llama2cCheckpoint
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType
from gristmill.formats.write_gguf import NewTensor, write_gguf
from gristmill.formats.write_gguf_raw import raw_values
from gristmill.formats.write_types import CONVERT_TYPES, Mixture
from gristmill.models import rope as angles
from gristmill.models.hyperparameters import read_config
from gristmill.models.rope_fields import Rope, read_rope

LLAMA_3_1 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def save(config: PretrainedConfig, folder: Path) -> Path:
    build(config).save_pretrained(folder)
    return folder


def run(source: Path, out: Path, label: str | None = None, out_format: str | None = None) -> Path:
    convert(open_checkpoint(source), out, label=label, out_format=out_format)
    return out


def said(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


# ---- names, types and versions ---------------------------------------------------------------------------------------


def test_formats_by_ending(tmp_path: Path) -> None:
    (tmp_path / "there.pt").mkdir()
    names = {"a.gguf": "gguf", "A.GGUF": "gguf", "a.bin": "llama2c", "a": "safetensors", "Qwen3-0.6B": "safetensors"}
    names |= {"model.v2": "safetensors", "there.pt": "safetensors", "folder.": "safetensors"}
    assert {name: format_of(tmp_path / name) for name in names} == names
    with pytest.raises(ValueError, match=r"'\.pt' names no format; end it in \.gguf or \.bin, in / for a folder"):
        format_of(tmp_path / "other.pt")


@pytest.mark.parametrize(
    ("out", "label", "out_format", "message"),
    [
        ("a", None, "pytorch", f"format is 'pytorch'; use one of {', '.join(OUT_FORMATS)}"),
        ("a.gguf", "q4_1", None, f"type is 'q4_1'; use one of {', '.join(CONVERT_TYPES)}"),
        ("folder", None, "gguf", "folder: is a folder; gguf is one file"),
        ("tokenizer.bin", None, None, "tokenizer.bin: is the name of the vocabulary beside a model; give another name"),
        ("a.bin", "q8_0", "llama2c-v1", "type q8_0 has no place in llama2.c's version 1, which holds f32"),
        ("a.bin", "f32", "llama2c-v2", "type f32 has no place in llama2.c's version 2, which holds q8_0"),
    ],
)
def test_what_cannot_be_asked_for(
    out: str, label: str | None, out_format: str | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    model = small_model.write_model(tmp_path / "m.bin")
    with pytest.raises(ValueError, match=message):
        run(model, tmp_path / out, label, out_format)


def test_versions_of_llama2c(tmp_path: Path) -> None:
    model = small_model.write_model(tmp_path / "m.bin")
    asked = {(None, None): 0, ("q8_0", None): 2, ("f32", "llama2c-v1"): 1, (None, "llama2c-v2"): 2, ("f32", None): 0}
    for (label, out_format), version in asked.items():
        checkpoint = open_checkpoint(run(model, tmp_path / "out.bin", label, out_format))
        assert isinstance(checkpoint, Llama2cCheckpoint)
        assert checkpoint.metadata["version"] == version


@pytest.mark.parametrize("label", CONVERT_TYPES)
def test_a_file_s_type_is_called_as_llama_cpp_calls_it(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"f32": "ALL_F32", "mxfp4": "MOSTLY_MXFP4_MOE"}
    monkeypatch.setattr(small_model, "DIM", 256)
    monkeypatch.setattr(small_model, "HIDDEN", 256)
    out = run(small_model.write_model(tmp_path / "my.model.bin"), tmp_path / "out.gguf", label)
    reader = gguf.GGUFReader(out)
    keys = {key: field.contents() for key, field in reader.fields.items()}
    assert keys["general.file_type"] == gguf.LlamaFileType[names.get(label, f"MOSTLY_{label.upper()}")]
    is_quantized = any(tensor.tensor_type.name not in ("F32", "F16", "BF16") for tensor in reader.tensors)
    assert is_quantized == (label not in ("f32", "f16", "bf16"))
    assert keys.get("general.quantization_version") == (gguf.GGML_QUANT_VERSION if is_quantized else None)
    assert keys["general.name"] == "my.model"
    folder = run(out, tmp_path / "a.folder", "f32", "safetensors")
    monkeypatch.chdir(folder)
    snapshot = tmp_path / "models--org--a-model" / "snapshots" / "5f0b02c7"
    snapshot.parent.mkdir(parents=True)
    shutil.copytree(folder, snapshot)
    for path, name in ((Path(), "a.folder"), (snapshot, "a-model")):
        named = gguf.GGUFReader(run(path, tmp_path / "again.gguf")).get_field("general.name")
        assert named is not None
        assert named.contents() == name


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_a_folder_s_number_type_keeps_its_name(name: str, tmp_path: Path) -> None:
    """Of which earlier versions of transformers know one alone."""
    folder = run(small_model.write_model(tmp_path / "a.bin"), tmp_path / "a")
    fields = {key: value for key, value in said(folder).items() if key != "torch_dtype"}
    (folder / "config.json").write_text(json.dumps({**fields, name: "float32"}))
    written = said(run(folder, tmp_path / "b", "bf16"))
    assert {key: written[key] for key in ("dtype", "torch_dtype") if key in written} == {name: "bfloat16"}


def test_a_file_s_type_stays_while_its_tensors_do(tmp_path: Path) -> None:
    plain = open_checkpoint(run(small_model.write_model(tmp_path / "a.bin"), tmp_path / "a.gguf"))

    def copy(qtype: QType) -> Path:
        """With one tensor of nothing, in this type, and said to be of a type."""

        def tensor(name: str) -> NewTensor:
            weight = plain.get(name)
            if name != "blk.0.ffn_down.weight":
                return NewTensor(name, weight.qtype, weight.shape, lambda: [weight.data])
            n_bytes = weight.n_elements // qtype.block_size * qtype.block_bytes
            return NewTensor(name, qtype, weight.shape, lambda: [bytes(n_bytes)])

        path = tmp_path / f"{qtype.label}.gguf"
        keys = {**raw_values(tmp_path / "a.gguf"), "general.file_type": 39}
        write_gguf(path, keys, map(tensor, plain.names()))
        return path

    for qtype, kept in ((QType.Q4_1, 39), (QType.NVFP4, None)):  # of which the other becomes Q8_0
        out = open_checkpoint(run(copy(qtype), tmp_path / "out.gguf"))
        assert out.metadata.get("general.file_type") == kept
        assert (out.get("blk.0.ffn_down.weight").qtype is qtype) == (kept is not None)


def test_a_mixture_of_80_layers() -> None:
    """As llama-quantize has Llama 2 70B, whose value heads eight others share; and what is no layer's."""
    shared, own = (Mixture("q4_k_m", 80, tied_head=False, has_experts=False, grouped_heads=g) for g in (True, False))
    kinds = {mixture.type_of("blk.10.attn_v.weight", (1024, 8192), QType.F16) for mixture in (shared, own)}
    assert kinds == {QType.Q5_K, QType.Q4_K}
    assert shared.type_of("blk.12.attn_v.weight", (1024, 8192), QType.F16) is QType.Q6_K
    assert shared.type_of("blk.10.attn_k.weight", (1024, 8192), QType.F16) is QType.Q4_K
    assert shared.type_of("token_embd.weight", (32000, 8192), QType.F16) is QType.Q4_K
    assert shared.type_of("output.weight", (32000, 8192), QType.F16) is QType.Q6_K


@pytest.mark.parametrize(
    ("label", "stored", "cols", "expected"),
    [
        (None, QType.Q8_GROUPS, 64, QType.Q8_0),
        (None, QType.Q8_GROUPS, 48, QType.F16),
        (None, QType.FP8_GROUPS, 64, QType.BF16),
        (None, QType.MXFP4_SPLIT, 64, QType.MXFP4),
        (None, QType.Q2_K, 256, QType.Q2_K),
        ("q4_0", QType.Q4_K, 256, QType.Q4_K),
        ("q4_0", QType.Q4_1, 256, QType.Q4_0),
        ("q4_0", QType.Q8_GROUPS, 256, QType.Q4_0),
        ("q8_0", QType.Q8_GROUPS, 256, QType.Q8_0),
        ("q6_k", QType.Q8_0, 256, QType.Q6_K),
        ("q6_k", QType.Q8_0, 96, QType.Q8_0),
        ("q8_0", QType.Q6_K, 256, QType.Q6_K),
        ("f16", QType.Q6_K, 256, QType.F16),
        ("bf16", QType.MXFP4_SPLIT, 64, QType.MXFP4),
        ("f32", QType.MXFP4, 64, QType.F32),
        ("mxfp4", QType.F16, 64, QType.MXFP4),
    ],
)
def test_what_becomes_of_what_is_stored(label: str | None, stored: QType, cols: int, expected: QType) -> None:
    """Nothing has more bits than it had, but for floats, which are asked for by name."""
    mixture = Mixture(label, 4, tied_head=False, has_experts=False, grouped_heads=False)
    assert mixture.type_of("blk.0.ffn_up.weight", (8, cols), stored) is expected


def test_mxfp4_is_for_experts_where_there_are_some() -> None:
    names = ("blk.0.ffn_up_exps.weight", "blk.0.attn_q.weight", "token_embd.weight", "output.weight")
    found = [
        Mixture("mxfp4", 4, False, has, False).type_of(n, (8, 64), QType.F16) for has in (True, False) for n in names
    ]
    assert found == [QType.MXFP4, *[QType.Q8_0] * 3, QType.MXFP4, QType.MXFP4, *[QType.Q8_0] * 2]
    always = ("blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.attn_q.bias")
    assert {Mixture("f16", 4, False, True, False).type_of(n, (8, 64), QType.F16) for n in always} == {QType.F32}


def test_another_alignment_is_left_behind(tmp_path: Path) -> None:
    """What is written has GGUF's usual one, and must not say another."""
    source = run(small_model.write_model(tmp_path / "m.bin", vocab=257), tmp_path / "a.gguf")
    aligned = copy_gguf(source, tmp_path / "b.gguf", lambda writer: writer.add_custom_alignment(128))
    found = gguf.GGUFReader(run(aligned, tmp_path / "c.gguf"))
    assert found.get_field("general.alignment") is None
    for ours, theirs in zip(found.tensors, gguf.GGUFReader(source).tensors, strict=True):
        assert ours.name == theirs.name
        assert np.array_equal(ours.data, theirs.data)


# ---- rotation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", [4, 6, 8, 16, 64, 128])
@pytest.mark.parametrize(
    ("factor", "low", "high", "original"),
    [
        (8.0, 1.0, 4.0, 8192),
        (32.0, 1.0, 4.0, 8192),
        (4.0, 1.0, 16.0, 131072),
        (2.5, 1.0, 2.0, 300000),
        (8.0, 1.0, 4.0, 4),
    ],
)
def test_divisors_become_what_they_came_from(
    head_dim: int, factor: float, low: float, high: float, original: int, tmp_path: Path
) -> None:
    """However few frequencies lie between the bounds."""
    rope = Rope(5e5, "llama3", factor, original, low=low, high=high)
    divisors = angles.plain(rope.theta, head_dim) / rope.inv_freq(head_dim)
    checkpoint = open_checkpoint(small_model.write_model(tmp_path / "m.bin"))
    found = find_llama3(checkpoint, Rope(5e5, divisors=tuple(map(float, divisors))), head_dim)
    np.testing.assert_allclose(found.inv_freq(head_dim), rope.inv_freq(head_dim), rtol=1e-4)
    between = (divisors > 1.001) & (divisors < factor * 0.999)
    if found.kind == "llama3" and between.sum() > 3:
        assert (found.factor, round(found.high / found.low, 2)) == (factor, high / low)
        assert found.original_context * found.high / high == pytest.approx(original, rel=0.01)


def test_divisors_beside_a_scaling_are_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(small_model.write_model(tmp_path / "m.bin"))
    with pytest.raises(ModelFormatError, match=r"'rope_freqs\.weight': is there beside a scaling of type 'linear'"):
        find_llama3(checkpoint, Rope(1e4, "linear", 2.0, divisors=(1.0, 8.0)), 4)


def test_numbers_of_yarn_go_to_gguf_and_back(tmp_path: Path) -> None:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 4.0,
        "beta_fast": 24.0,
        "beta_slow": 2.0,
        "original_max_position_embeddings": 256,
    }
    source = save(qwen3(rope_parameters=rope, max_position_embeddings=1024), tmp_path / "a")
    back = run(run(source, tmp_path / "a.gguf"), tmp_path / "back")
    assert read_rope(open_checkpoint(back), "qwen3", 40) == read_rope(open_checkpoint(source), "qwen3", 40)
    assert {name: said(back)["rope_scaling"][name] for name in rope if name != "rope_theta"} == {
        name: value for name, value in rope.items() if name != "rope_theta"
    }
    assert "attention_factor" not in said(back)["rope_scaling"]
    other = save(qwen3(rope_parameters=rope | {"truncate": False}), tmp_path / "b")
    with pytest.raises(ModelFormatError, match="has YaRN with truncate False, which GGUF cannot say for qwen3"):
        run(other, tmp_path / "b.gguf")


# ---- windows and biases ----------------------------------------------------------------------------------------------


def test_windows_of_qwen(tmp_path: Path) -> None:
    """GGUF has one for all layers; config.json says so in Qwen's own way."""
    config = qwen2(use_sliding_window=True, sliding_window=21, max_window_layers=0)
    source = save(config, tmp_path / "a")
    folder = run(run(source, tmp_path / "a.gguf"), tmp_path / "folder")
    assert read_config(open_checkpoint(folder)).windows == (21, 21, 21)
    theirs = AutoConfig.from_pretrained(folder)
    assert (theirs.sliding_window, theirs.layer_types) == (21, ["sliding_attention"] * 3)


def test_windows_of_mistral(tmp_path: Path) -> None:
    folder = run(run(save(mistral(), tmp_path / "a"), tmp_path / "a.gguf"), tmp_path / "folder")
    assert (said(folder)["model_type"], said(folder)["sliding_window"]) == ("mistral", 23)
    assert AutoConfig.from_pretrained(folder).sliding_window == 23


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (llama(rms_norm_eps=1e-6), "has norms with epsilon 1e-06, not 1e-05"),
        (llama(attention_bias=True), r"has biases \(layers\.0\.attention\.wq\.bias\)"),
        (mistral(head_dim=24), "has sliding windows"),
        (llama(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}), "and scaling linear"),
        (llama(rope_parameters=LLAMA_3_1), "rotates with theta 10000 and scaling llama3"),
    ],
    ids=["epsilon", "biases", "windows", "linear", "llama3"],
)
def test_what_llama2c_takes_for_granted(config: PretrainedConfig, message: str, tmp_path: Path) -> None:
    """A GGUF calls Mistral a Llama too."""
    source = run(save(config, tmp_path / "a"), tmp_path / "a.gguf")
    with pytest.raises(ModelFormatError, match=rf"{message}.*, and llama2\.c runs Llama 2 alone; write GGUF instead"):
        run(source, tmp_path / "out.bin")
    assert not (tmp_path / "out.bin").exists()


def test_biases_that_a_configuration_cannot_say(tmp_path: Path) -> None:
    """Mistral's has no word for any, Llama's for all of attention or none."""
    source = save(llama(attention_bias=True), tmp_path / "a")
    whole = run(source, tmp_path / "a.gguf")
    some = copy_gguf(whole, tmp_path / "b.gguf", lambda writer: None, without="attn_output.bias")
    message = "has biases on k_proj, q_proj, v_proj, which config.json cannot say for llama; write GGUF instead"
    with pytest.raises(ModelFormatError, match=message):
        run(some, tmp_path / "out")


@pytest.mark.parametrize("config", [qwen3, qwen3_moe])
def test_biases_that_llama_cpp_does_not_take_are_told(
    config: Callable[..., PretrainedConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of queries, keys and values it takes."""
    arch = config.__name__.replace("_", "")
    whole = run(save(config(attention_bias=True), tmp_path / "a"), tmp_path / "a.gguf")
    told = f"a: has attn_output.bias, which llama.cpp does not take for {arch}: it will not load the GGUF"
    assert [message.startswith(told) for message in caplog.messages].count(True) == 1
    caplog.clear()
    run(copy_gguf(whole, tmp_path / "b.gguf", lambda writer: None, without="attn_output.bias"), tmp_path / "c.gguf")
    assert "llama.cpp" not in caplog.text
