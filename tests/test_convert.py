"""Converting: every pair of formats says the same, other libraries read what we write, and errors leave nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

import gguf
import numpy as np
import pytest
import small_model
import torch
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from oracles import gguf_files
from oracles.families import CONFIGS, build, gpt_oss, llama, save
from oracles.gguf_files import save_gguf, to_gguf
from oracles.gpt_oss_files import save_hugging_face, save_original
from oracles.llama2c_files import save_llama2c
from oracles.measure import agreement
from oracles.oracle import Oracle
from transformers import AutoModelForCausalLM

from gristmill import LLM
from gristmill.convert import convert
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType
from gristmill.models.families import names_of
from gristmill.models.hyperparameters import read_config

Save = Callable[[Path], Oracle]
Make = Callable[[str, Save], Oracle]
DENSE = [name for name in CONFIGS if not name.startswith("gpt-oss")]
IN_GGUF = [name for name in CONFIGS if name != "qwen2-window"]
N_POSITIONS = 60


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """checkpoint(name, save): what `save` returned when it was first asked for by that name."""
    root, made = tmp_path_factory.mktemp("checkpoints"), {}

    def get(name: str, save: Save) -> Oracle:
        if name not in made:
            made[name] = save(root / name)
        return made[name]

    return get


def logits_of(path: Path, ids: list[int]) -> NDArray[np.float32]:
    with LLM(path, device="cpu", threads=2, kv_type="f32") as llm:
        return llm.logits(ids)


def run(source: Path, out: Path, label: str | None = None, out_format: str | None = None) -> Path:
    convert(open_checkpoint(source), out, label=label, out_format=out_format, n_threads=2)
    return out


def tensors_of(path: Path) -> dict[str, NDArray[np.float32]]:
    """Every tensor as float32, without what only some formats write down."""
    checkpoint = open_checkpoint(path)
    return {name: dequantize(checkpoint.get(name)) for name in checkpoint.names()}


def assert_same_tensors(a: Path, b: Path) -> None:
    first, second = tensors_of(a), tensors_of(b)
    assert set(first) == set(second)
    for name, values in first.items():
        assert np.array_equal(values.view(np.uint32), second[name].view(np.uint32)), name


# ---- what GGUF holds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IN_GGUF)
def test_folder_to_gguf(name: str, checkpoint: Make, tmp_path: Path) -> None:
    """Tensors as the oracle lays them for llama.cpp, to the bit, read by the gguf package; metadata as it writes it."""
    oracle = checkpoint(name, partial(save, name))
    out = run(oracle.path, tmp_path / "model.gguf", "f32")
    reader, expected = gguf.GGUFReader(out), to_gguf(oracle.model)
    found = {tensor.name: tensor.data for tensor in reader.tensors if tensor.name in expected}
    assert set(found) == set(expected)
    for tensor, values in expected.items():
        assert np.array_equal(found[tensor].reshape(values.shape).view(np.uint32), values.view(np.uint32)), tensor
    other = gguf.GGUFReader(save_gguf(oracle, tmp_path / "other.gguf").path)
    for key, field in other.fields.items():
        if key != "general.name" and not key.startswith("GGUF."):
            ours = reader.get_field(key)
            assert ours is not None, key
            assert ours.types == field.types, key
            assert ours.contents() == field.contents(), key
    ids = oracle.text(N_POSITIONS)
    assert np.abs(logits_of(out, ids) - logits_of(oracle.path, ids)).max() < 2e-5


@pytest.mark.parametrize("name", [name for name in IN_GGUF if name in DENSE])
def test_gguf_to_folder_is_what_transformers_loads(name: str, checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint(name, partial(save, name))
    folder = run(run(oracle.path, tmp_path / "model.gguf"), tmp_path / "folder")
    assert_same_tensors(oracle.path, folder)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()
    ids = oracle.text(N_POSITIONS)
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(logits - oracle.logits(ids)).max() < 2e-5


def of_transformers(folder: Path, ids: list[int]) -> NDArray[np.float32]:
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.inference_mode():
        logits: NDArray[np.float32] = model.eval()(torch.tensor([ids])).logits[0].numpy()
    return logits


def save_llama(folder: Path, **changes: object) -> Oracle:
    model = build(llama(**changes))
    model.save_pretrained(folder)
    return Oracle(folder, model, model.config)


@pytest.mark.parametrize("linear", get_args(gguf_files.Linear))
def test_every_way_to_say_a_linear_scaling(linear: gguf_files.Linear, checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint("llama2-linear", partial(save, "llama2-linear"))
    source = save_gguf(oracle, tmp_path / "a.gguf", linear=linear).path
    folder, again = run(source, tmp_path / "folder"), run(source, tmp_path / "b.gguf")
    ids = oracle.text(N_POSITIONS)
    assert np.abs(of_transformers(folder, ids) - oracle.logits(ids)).max() < 2e-5
    assert np.abs(logits_of(again, ids) - oracle.logits(ids)).max() < 1e-4
    said = json.loads((folder / "config.json").read_text())
    assert said["max_position_embeddings"] == oracle.config.max_position_embeddings  # before it is stretched
    contexts = {read_config(open_checkpoint(path)).max_context for path in (oracle.path, source, folder, again)}
    assert contexts == {1280}


@pytest.mark.parametrize(
    "biases", [{"attention_bias": True}, {"mlp_bias": True}, {"attention_bias": True, "mlp_bias": True}]
)
def test_biases_of_llama(biases: dict[str, bool], tmp_path: Path) -> None:
    oracle = save_llama(tmp_path / "hf", **biases)
    gguf_file = run(oracle.path, tmp_path / "model.gguf")
    folder = run(gguf_file, tmp_path / "folder")
    said, ids = json.loads((folder / "config.json").read_text()), oracle.text(N_POSITIONS)
    assert {name: said[name] for name in biases} == biases
    assert np.abs(of_transformers(folder, ids) - oracle.logits(ids)).max() < 2e-5
    assert np.abs(logits_of(gguf_file, ids) - oracle.logits(ids)).max() < 1e-4


def extended(source: Path, out: Path, keys: dict[str, float], tensors: dict[str, list[float]] | None = None) -> Path:
    """The GGUF file `source` with more float32 key-values and vectors."""

    def change(writer: gguf.GGUFWriter) -> None:
        for key, value in keys.items():
            writer.add_float32(key, value)
        for name, values in (tensors or {}).items():
            writer.add_tensor(name, np.array(values, np.float32))

    return gguf_files.copy_gguf(source, out, change)


@pytest.mark.parametrize("name", ["llama2", "llama2-linear", "llama3.1"])
def test_an_attention_factor_without_yarn(name: str, checkpoint: Make, tmp_path: Path) -> None:
    """GGUF and llama.cpp have one for every kind of scaling; config.json says it of YaRN, llama2.c never."""
    oracle = checkpoint(name, partial(save, name))
    plain = save_gguf(oracle, tmp_path / "plain.gguf").path
    source = extended(plain, tmp_path / "a.gguf", {"llama.rope.scaling.attn_factor": 1.25})
    again, ids = run(source, tmp_path / "b.gguf"), oracle.text(N_POSITIONS)
    assert np.array_equal(logits_of(again, ids), logits_of(source, ids))
    assert np.abs(logits_of(again, ids) - logits_of(plain, ids)).max() > 0.01
    of_folder = r"key 'llama\.rope\.scaling\.attn_factor': is 1.25, which config.json can say of YaRN alone"
    of_file = r"attn_factor\) of 1.25, and llama2.c" if name == "llama2" else "rotates with theta"
    for out, message in (("folder", of_folder), ("model.bin", of_file)):
        with pytest.raises(ModelFormatError, match=message):
            run(source, tmp_path / out)
        assert not (tmp_path / out).exists()


def test_an_attention_factor_with_yarn(checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint("qwen3-yarn", partial(save, "qwen3-yarn"))
    plain = save_gguf(oracle, tmp_path / "plain.gguf").path
    source = extended(plain, tmp_path / "a.gguf", {"qwen3.rope.scaling.attn_factor": 1.25})
    folder, ids = run(source, tmp_path / "folder"), oracle.text(N_POSITIONS)
    assert np.abs(of_transformers(folder, ids) - logits_of(source, ids)).max() < 1e-4


@pytest.mark.parametrize("divisors", [[1, 1, 1, 1], [1, 8, 1, 8], [1e-12, 1e12, 1, 1], [2, 4, 6, 8], [4, 3, 2, 1]])
def test_divisors_of_any_kind(divisors: list[float], tmp_path: Path) -> None:
    """A folder gets those of Llama 3.1's kind, and others are refused by name; GGUF holds them all."""
    oracle = save_llama(tmp_path / "hf", head_dim=8)
    plain = save_gguf(oracle, tmp_path / "plain.gguf").path
    source = extended(plain, tmp_path / "a.gguf", {}, {"rope_freqs.weight": divisors})
    ids = oracle.text(N_POSITIONS)
    assert np.array_equal(logits_of(run(source, tmp_path / "b.gguf"), ids), logits_of(source, ids))
    if divisors == [1, 1, 1, 1]:
        assert np.array_equal(logits_of(run(source, tmp_path / "folder"), ids), logits_of(source, ids))
        return
    with pytest.raises(ModelFormatError, match=r"tensor 'rope_freqs\.weight': slows frequencies in another way than"):
        run(source, tmp_path / "folder")


def test_gpt_oss_without_yarn(tmp_path: Path) -> None:
    """Where config.json says nothing, it has YaRN: that it has none must be said."""
    rope = {"rope_type": "default", "rope_theta": 150000.0}
    model = build(gpt_oss(rope_parameters=rope, max_position_embeddings=512))
    model.save_pretrained(tmp_path / "hf")
    oracle = Oracle(tmp_path / "hf", model, model.config)
    folder = run(run(oracle.path, tmp_path / "model.gguf"), tmp_path / "folder")
    ids = oracle.text(N_POSITIONS)
    assert np.abs(of_transformers(folder, ids) - oracle.logits(ids)).max() < 2e-5
    assert np.abs(logits_of(folder, ids) - oracle.logits(ids)).max() < 1e-4


def test_a_swiglu_limit_that_gguf_cannot_say(tmp_path: Path) -> None:
    model = build(gpt_oss(swiglu_limit=5.0))
    model.save_pretrained(tmp_path / "hf")
    with pytest.raises(
        ModelFormatError, match="field 'swiglu_limit': is 5, and GGUF has no word for another one than 7"
    ):
        run(tmp_path / "hf", tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()
    folder = run(tmp_path / "hf", tmp_path / "folder")
    assert read_config(open_checkpoint(folder)).swiglu_limit == 5


def llama2c(oracle: Oracle, version: int, path: Path) -> Oracle:
    return save_llama2c(oracle, path.with_suffix(".bin"), version)


FORMATS = {"folder": "", "gguf": ".gguf", "llama2c-v0": ".bin", "llama2c-v1": ".bin"}


@pytest.mark.parametrize("after", FORMATS)
@pytest.mark.parametrize("before", FORMATS)
def test_every_pair_of_formats(before: str, after: str, checkpoint: Make, tmp_path: Path) -> None:
    """There and back again: the same bits, and the same logits on the way."""
    oracle = checkpoint("llama2-gqa", partial(save, "llama2-gqa"))
    first = tmp_path / f"first{FORMATS[before]}"
    run(oracle.path, first, "f32", None if before in ("folder", "gguf") else before)
    second = run(first, tmp_path / f"second{FORMATS[after]}", None, None if after in ("folder", "gguf") else after)
    back = run(second, tmp_path / "back", "f32")
    assert_same_tensors(oracle.path, back)
    ids = oracle.text(N_POSITIONS)
    assert np.abs(logits_of(second, ids) - logits_of(oracle.path, ids)).max() < 2e-5


@pytest.mark.parametrize("version", [0, 1])
def test_llama2c_files_are_those_of_the_oracle(version: int, checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint("llama2", partial(save, "llama2"))
    theirs = save_llama2c(oracle, tmp_path / "theirs.bin", version).path.read_bytes()
    ours = run(oracle.path, tmp_path / "ours.bin", "f32", f"llama2c-v{version}").read_bytes()
    tables = 0 if version else oracle.config.max_position_embeddings * oracle.config.head_dim * 4
    head = oracle.config.vocab_size * oracle.config.hidden_size * 4
    start = len(theirs) - head - tables  # of version 0's tables, which nothing reads
    assert ours[:start] == theirs[:start]
    assert ours[start + tables :] == theirs[start + tables :]


def test_llama2c_int8_is_that_of_the_oracle(checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint("llama2c-wide", partial(save, "llama2c-wide"))
    theirs = save_llama2c(oracle, tmp_path / "theirs.bin", 2).path
    ours = run(oracle.path, tmp_path / "ours.bin", "q8_0")
    assert ours.read_bytes() == theirs.read_bytes()
    again = run(ours, tmp_path / "again.bin", "q8_0")
    assert again.read_bytes() == theirs.read_bytes()


def test_gguf_stays_as_it_is(checkpoint: Make, tmp_path: Path) -> None:
    """Without a type nothing changes: keys with their types, tensors with their bytes."""
    oracle = checkpoint("qwen3-wide", partial(save, "qwen3-wide"))
    choose = {"attn_q": Type.Q4_K, "attn_k": Type.Q5_1, "ffn_up": Type.Q2_K, "ffn_down": Type.IQ4_NL}
    source = save_gguf(
        oracle,
        tmp_path / "a.gguf",
        lambda name: next((qtype for part, qtype in choose.items() if part in name), Type.BF16),
        vocabulary=True,
    ).path
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(run(source, tmp_path / "b.gguf"))
    for key, field in before.fields.items():
        if not key.startswith("GGUF."):
            ours = after.get_field(key)
            assert ours is not None
            assert (ours.types, ours.contents()) == (field.types, field.contents()), key
    theirs = {tensor.name: tensor for tensor in before.tensors}
    assert {tensor.name for tensor in after.tensors} == set(theirs)
    for tensor in after.tensors:
        assert tensor.tensor_type == theirs[tensor.name].tensor_type
        assert tensor.data.tobytes() == theirs[tensor.name].data.tobytes()


# ---- types -----------------------------------------------------------------------------------------------------------


def types_of(path: Path) -> dict[str, str]:
    return {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("label", ["f16", "bf16", "q8_0", "q4_0", "q4_k_m", "q6_k", "mxfp4"])
def test_types_of_gguf(label: str, checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint("qwen3-wide", partial(save, "qwen3-wide"))
    out = run(oracle.path, tmp_path / "out.gguf", label)
    types = types_of(out)
    base = {"q4_k_m": "Q4_K"}.get(label, label.upper())
    embed = "Q8_0" if label == "mxfp4" else base
    head = embed if label in ("f16", "bf16", "q8_0", "mxfp4") else "Q6_K"
    assert types["token_embd.weight"] == embed
    assert types["output.weight"] == head
    assert types["blk.1.attn_q.weight"] == types["blk.0.ffn_up.weight"] == base
    assert types["blk.0.attn_norm.weight"] == types["blk.0.attn_q_norm.weight"] == "F32"
    ids = oracle.text(N_POSITIONS)
    allowed = {"f16": 0.01, "bf16": 0.1, "q8_0": 0.15, "q6_k": 0.3}.get(label, 3.0)
    assert np.abs(logits_of(out, ids) - oracle.logits(ids)).max() < allowed


def test_mixture_of_q4_k_m() -> None:
    """As llama-quantize chose for a model of 28 layers with a tied head."""
    from gristmill.formats.write_types import Mixture

    mixture = Mixture("q4_k_m", 28, tied_head=True, has_experts=False, grouped_heads=True)
    more = [i for i in range(28) if mixture.type_of(f"blk.{i}.ffn_down.weight", (1024, 3072), QType.F16) is QType.Q6_K]
    assert more == [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    assert mixture.type_of("token_embd.weight", (151936, 1024), QType.F16) is QType.Q6_K
    assert mixture.type_of("blk.3.attn_v.weight", (1024, 1024), QType.F16) is QType.Q4_K
    assert mixture.type_of("blk.3.ffn_up.weight", (100, 96), QType.F16) is QType.Q5_0
    assert mixture.type_of("blk.0.ffn_down.weight", (100, 96), QType.F16) is QType.Q8_0
    assert mixture.type_of("blk.3.ffn_up.weight", (100, 100), QType.F16) is QType.F16


def test_quantized_tensors_are_not_made_larger(
    checkpoint: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oracle = checkpoint("qwen3-wide", partial(save, "qwen3-wide"))
    source = save_gguf(oracle, tmp_path / "a.gguf", lambda n: Type.Q4_0 if "ffn" in n else Type.F32).path
    types = types_of(run(source, tmp_path / "b.gguf", "q8_0"))
    assert types["blk.0.ffn_up.weight"] == "Q4_0"
    assert "tensors stay q4_0, as q8_0 would take more room and hold no more" in caplog.text
    assert types["blk.0.attn_q.weight"] == "Q8_0"
    assert "general.file_type" not in open_checkpoint(tmp_path / "b.gguf").metadata  # llama.cpp then counts tensors
    assert set(types_of(run(source, tmp_path / "c.gguf", "f16")).values()) == {"F16", "F32"}


def test_rows_that_are_no_whole_blocks_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that has hardly anything of the type that was asked for is not called that."""
    for dim, hidden, n_float16, called in ((24, 48, 15, None), (256, 80, 2, 2)):
        monkeypatch.setattr(small_model, "DIM", dim)
        monkeypatch.setattr(small_model, "HIDDEN", hidden)
        model = small_model.write_model(tmp_path / f"{dim}.bin")
        caplog.clear()
        out = run(model, tmp_path / f"{dim}.gguf", "q4_0")
        assert "tensors become f16, as their rows are no multiple of the 32 numbers of a block of q4_0" in caplog.text
        assert list(types_of(out).values()).count("F16") == n_float16
        assert open_checkpoint(out).metadata.get("general.file_type") == called


def test_a_second_rounding_is_told(checkpoint: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    oracle = checkpoint("qwen3-wide", partial(save, "qwen3-wide"))
    source = run(oracle.path, tmp_path / "a.gguf", "q8_0")
    run(source, tmp_path / "b.gguf", "q4_0")
    assert "tensors go from q8_0 to q4_0 and lose twice" in caplog.text


@pytest.mark.parametrize("layout", [save_hugging_face, save_original])
@pytest.mark.parametrize("label", [None, "bf16", "q8_0", "mxfp4"])
def test_experts_stay_mxfp4(label: str | None, layout: Callable[..., Oracle], checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint(f"gpt-oss-wide {layout.__name__}", partial(layout, name="gpt-oss-wide"))
    out = run(oracle.path, tmp_path / "out.gguf", label)
    types = types_of(out)
    assert {types[f"blk.{i}.ffn_{part}_exps.weight"] for i in range(2) for part in ("gate", "up", "down")} == {"MXFP4"}
    assert types["blk.0.ffn_gate_inp.weight"] == types["blk.0.ffn_up_exps.bias"] == "F32"
    assert types["blk.0.attn_q.weight"] == ("Q8_0" if label in ("q8_0", "mxfp4") else "BF16")
    found = tensors_of(out)
    for name, values in to_gguf(oracle.model).items():  # what the source's blocks and bfloat16 stand for
        if types[name] != "Q8_0":
            assert np.array_equal(found[name], values), name
    ids = oracle.text(400)
    assert agreement(oracle, ids, logits_of(out, ids)).top1 > 0.98


# ---- what PyTorch saved ----------------------------------------------------------------------------------------------


def meta_state(oracle: Oracle) -> dict[str, torch.Tensor]:
    """The model's tensors under Meta's names and in Meta's order of rows."""
    parts = {
        "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
        "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    top = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output"}
    state = {}
    for name, tensor in oracle.model.state_dict().items():
        values = tensor.numpy()
        if "q_proj" in name:
            values = gguf_files.interleave(values, oracle.config.num_attention_heads)
        if "k_proj" in name:
            values = gguf_files.interleave(values, oracle.config.num_key_value_heads)
        stem = name.removesuffix(".weight")
        if stem in top:
            meta = top[stem]
        else:
            _, _, layer, rest = stem.split(".", 3)
            meta = f"layers.{layer}.{parts[rest]}"
        state[f"{meta}.weight"] = torch.from_numpy(np.ascontiguousarray(values))
    return state


def cli(*args: str, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill", *args]
    return subprocess.run(command, capture_output=True, text=True, **settings)  # type: ignore[call-overload,no-any-return]


def test_training_checkpoint(checkpoint: Make, tmp_path: Path) -> None:
    """llama2.c's ckpt.pt, saved by a compiled model, with its optimizer beside it."""
    oracle = checkpoint("llama2-gqa", partial(save, "llama2-gqa"))
    c = oracle.config
    args = {"dim": c.hidden_size, "n_layers": c.num_hidden_layers, "n_heads": c.num_attention_heads,
            "n_kv_heads": c.num_key_value_heads, "vocab_size": c.vocab_size, "multiple_of": 32,
            "max_seq_len": c.max_position_embeddings, "dropout": 0.0}  # fmt: skip
    state = {f"_orig_mod.{name}": tensor for name, tensor in meta_state(oracle).items()}
    torch.save({"model": state, "model_args": args, "optimizer": {"state": {}}, "iter_num": 5}, tmp_path / "ckpt.pt")
    done = cli("convert", "-m", str(tmp_path / "ckpt.pt"), "-o", str(tmp_path / "model.bin"))
    assert done.returncode == 0, done.stderr
    assert_same_tensors(run(oracle.path, tmp_path / "direct.bin"), tmp_path / "model.bin")


def test_a_training_checkpoint_s_stories_end(tmp_path: Path) -> None:
    """Where the next one begins, as llama2.c's `run` has it: whatever the checkpoint becomes."""
    model = build(llama(vocab_size=259))
    oracle, c = Oracle(tmp_path, model, model.config), model.config
    args = {"dim": c.hidden_size, "n_layers": c.num_hidden_layers, "n_heads": c.num_attention_heads, "multiple_of": 32,
            "n_kv_heads": c.num_key_value_heads, "vocab_size": c.vocab_size, "max_seq_len": 64}  # fmt: skip
    (tmp_path / "trained").mkdir()
    source = tmp_path / "trained" / "ckpt.pt"
    torch.save({"model": meta_state(oracle), "model_args": args}, source)
    small_model.write_tokenizer(source.with_name("tokenizer.bin"))
    for name in ("model.bin", "model.gguf", "folder"):
        out = tmp_path / name.partition(".")[2] / name
        out.parent.mkdir(exist_ok=True)
        done = cli("convert", "-m", str(source), "-o", str(out))
        assert done.returncode == 0, done.stderr
        with LLM(out, device="cpu", threads=1) as llm:
            assert llm.tokenizer.bos_id in llm.tokenizer.eos_ids, name


@pytest.mark.parametrize("embedding_axis", [0, 1])
def test_shards_of_meta_are_joined(embedding_axis: int, tmp_path: Path) -> None:
    """Llama 3 divides its embedding by rows, Llama 2 by columns."""
    folder = tmp_path / "meta"
    folder.mkdir()
    model = build(llama(vocab_size=512))
    oracle = Oracle(folder, model, model.config)
    axes = {"wo": 1, "w2": 1, "tok_embeddings": embedding_axis}
    shards: list[dict[str, torch.Tensor]] = [{}, {}]
    for name, tensor in meta_state(oracle).items():
        axis = next((axis for part, axis in axes.items() if part in name), 0)
        halves = [tensor, tensor] if tensor.dim() == 1 else tensor.chunk(2, dim=axis)
        for shard, half in zip(shards, halves, strict=True):
            shard[name] = half.clone()
    for i, shard in enumerate(shards):
        torch.save(shard, folder / f"consolidated.{i:02}.pth")
    c = model.config
    params = {"dim": c.hidden_size, "n_layers": c.num_hidden_layers, "n_heads": c.num_attention_heads,
              "norm_eps": c.rms_norm_eps, "vocab_size": -1, "multiple_of": 256}  # fmt: skip
    (folder / "params.json").write_text(json.dumps(params))
    done = cli("convert", "-m", str(folder), "-o", str(tmp_path / "model.gguf"), "--json")
    assert done.returncode == 0, done.stderr
    found = tensors_of(tmp_path / "model.gguf")
    for name, values in to_gguf(model).items():
        assert np.array_equal(found[name], values), name


def test_a_pickle_with_code_is_refused(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "harm"),)

    torch.save({"model": Harm(), "model_args": {}}, tmp_path / "ckpt.pt")
    done = cli("convert", "-m", str(tmp_path / "ckpt.pt"), "-o", str(tmp_path / "model.bin"))
    assert done.returncode == 1
    assert "only files of tensors and plain values are opened" in done.stderr
    assert not (tmp_path / "harm").exists()


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "out", "label", "message"),
    [
        ("llama2", "folder", "q4_k_m", "type q4_k_m has no place in safetensors; use f32, f16, bf16"),
        ("llama2", "model.bin", "q4_0", "type q4_0 has no place in llama2.c's version 0, which holds f32"),
        ("llama2", "model.pt", None, r"'\.pt' names no format"),
        ("llama2", "model.ggfu", None, r"'\.ggfu' names no format; end it in \.gguf"),
        ("llama3", "model.bin", None, "rotates with theta 500000 and scaling none, not 10000"),
        ("qwen2-tied", "model.bin", None, "is qwen2, and llama2.c runs Llama 2 alone; write GGUF instead"),
        ("llama2-gqa-tied", "model.bin", None, "heads of 20 dimensions, which is not its width of 108"),
        ("gpt-oss", "folder", "q8_0", "type q8_0 has no place in safetensors; use f32, f16, bf16, mxfp4"),
        ("gpt-oss-odd", "folder", "mxfp4", "rows of 100 numbers are not whole blocks of mxfp4"),
        ("llama2", "folder", "mxfp4", "type mxfp4 has no place in safetensors; use f32, f16, bf16,"),
        ("qwen2-window", "model.gguf", None, "sliding windows in an order that GGUF cannot say"),
        ("llama2", "nowhere/model.gguf", None, "the folder .*nowhere is not there"),
    ],
)
def test_refusals(name: str, out: str, label: str | None, message: str, checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint(name, partial(save, name))
    with pytest.raises((ValueError, OSError), match=message):
        run(oracle.path, tmp_path / out, label)
    assert list(tmp_path.iterdir()) == []


def test_it_does_not_write_over_what_it_reads(tmp_path: Path) -> None:
    model = small_model.write_model(tmp_path / "a.bin")
    with pytest.raises(ValueError, match="is the model that is read"):
        run(model, model)
    vocabulary = small_model.write_tokenizer(tmp_path / "vocabulary.bin")
    before = vocabulary.read_bytes()
    with pytest.raises(ValueError, match="is the vocabulary that is read"):
        convert(open_checkpoint(model), vocabulary, tokenizer=vocabulary)
    assert vocabulary.read_bytes() == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("kept")
    with pytest.raises(OSError, match="is there already and not an empty folder"):
        run(model, tmp_path / "full")


# ---- whole or not at all ---------------------------------------------------------------------------------------------


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    model = small_model.write_model(tmp_path / "a.bin")
    for out in ("b.gguf", "b.bin", "folder"):
        place = tmp_path / out
        if place.suffix:
            place.write_bytes(b"before")

        def stop(done: int, total: int) -> None:
            if done > total // 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert(open_checkpoint(model), place, progress=stop)
        assert not place.exists() or place.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "b.bin", "b.gguf"]


def test_a_vocabulary_that_cannot_be_said_leaves_what_was_there(checkpoint: Make, tmp_path: Path) -> None:
    """It is looked at before the model is written: a file of it alone would be of no use."""
    oracle = checkpoint("llama2", partial(save, "llama2"))
    source = save_gguf(oracle, tmp_path / "a.gguf", vocabulary=True).path
    for before in (None, b"before"):
        if before is not None:
            (tmp_path / "b.bin").write_bytes(before)
        with pytest.raises(ValueError, match=r"is a byte-level BPE: llama2\.c's tokenizer\.bin cannot say that"):
            run(source, tmp_path / "b.bin")
        assert {path.name: path.read_bytes() for path in tmp_path.glob("*.bin")} == (
            {"b.bin": before} if before else {}
        )


@pytest.mark.parametrize("out", ["b.gguf", "b.bin", "folder"])
def test_a_file_that_grows_too_large(out: str, tmp_path: Path) -> None:
    """The system's limit on files stands for a disk that becomes full."""
    model = small_model.write_model(tmp_path / "a.bin")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000));"
        "from gristmill.cli.main import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "convert", "-m", str(model), "-o", str(tmp_path / out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{out}: cannot be written: File too large; nothing of it was kept" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_a_small_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        done = cli("convert", "-m", str(small_model.write_model(tmp_path / "a.bin")), "-o", str(disk / "b.gguf"))
        assert done.returncode == 1
        assert "its disk has 65536 left; free some or write elsewhere" in done.stderr
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def large_model(path: Path, n_layers: int = 24) -> Path:
    """A llama2.c v0 file of some 200 MB without writing its zeros."""
    dim, hidden, heads, vocab, context = 768, 2048, 12, 4096, 256
    numbers = vocab * dim + n_layers * (2 * dim + 4 * dim * dim + 3 * dim * hidden) + dim + context * dim // heads
    with path.open("wb") as file:
        file.write(np.array([dim, hidden, n_layers, heads, heads, vocab, context], "<i4").tobytes())
        file.truncate(28 + 4 * numbers)
    return path


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    model = large_model(tmp_path / "a.bin", 60)
    command = [sys.executable, "-m", "gristmill", "convert", "-m", str(model), "-o", str(tmp_path / "b.gguf")]
    with subprocess.Popen([*command, "--type", "q4_k_m"], stderr=subprocess.DEVNULL) as process:
        while not any(path.suffix == ".part" for path in tmp_path.iterdir()):
            assert process.poll() is None, "it should still be starting"
        process.send_signal(signal.SIGINT)
        assert process.wait(120) != 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_memory_stays_far_below_the_model(tmp_path: Path) -> None:
    model = large_model(tmp_path / "a.bin")
    code = (
        "import resource, sys; from pathlib import Path; from gristmill.formats.open import open_checkpoint;"
        "from gristmill.convert import convert;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "convert(open_checkpoint(Path(sys.argv[1])), Path(sys.argv[2]), label=sys.argv[3], n_threads=2);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    for label in ("q8_0", "f32"):
        command = [sys.executable, "-c", code, str(model), str(tmp_path / f"{label}.gguf"), label]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert int(done.stdout) * 1024 < 0.4 * model.stat().st_size


# ---- vocabularies and the command ------------------------------------------------------------------------------------


def test_the_vocabulary_goes_along(tmp_path: Path) -> None:
    """From tokenizer.bin to GGUF, to a folder, and back: the same ids for a text."""
    model = small_model.write(tmp_path)
    gguf_file = run(model, tmp_path / "b.gguf")
    folder = run(gguf_file, tmp_path / "folder")
    (tmp_path / "back").mkdir()
    back = run(folder, tmp_path / "back" / "c.bin")
    texts = ["Hello", "äöü 日本", " a  b\n"]
    with LLM(model, device="cpu") as llm:
        expected = [llm.encode(text) for text in texts]
    for path in (gguf_file, folder, back):
        with LLM(path, device="cpu") as llm:
            assert [llm.encode(text) for text in texts] == expected, path


def test_another_tokenizer_is_not_written_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gguf_file = run(small_model.write(tmp_path), tmp_path / "b.gguf")
    run(gguf_file, tmp_path / "same.bin")
    assert caplog.messages == []
    (tmp_path / "tokenizer.bin").write_bytes(b"mine")
    run(gguf_file, tmp_path / "other.bin")
    assert "tokenizer.bin is there already and was kept; the model's own differs" in caplog.text
    assert (tmp_path / "tokenizer.bin").read_bytes() == b"mine"


def test_an_embedding_with_more_rows_than_tokens(checkpoint: Make, tmp_path: Path) -> None:
    """llama.cpp wants a token for each row; they are filled up with unused ones."""
    oracle = checkpoint("llama2-gqa", partial(save, "llama2-gqa"))
    tokenizer = small_model.write_tokenizer(tmp_path / "tokenizer.bin")
    convert(open_checkpoint(oracle.path), tmp_path / "b.gguf", tokenizer=tokenizer)
    reader = gguf.GGUFReader(tmp_path / "b.gguf")
    tokens, types = (reader.get_field(f"tokenizer.ggml.{key}").contents() for key in ("tokens", "token_type"))
    assert len(tokens) == len(types) == oracle.config.vocab_size
    assert tokens[259] == "[PAD259]"
    assert types[259] == gguf.TokenType.UNUSED


def test_command(tmp_path: Path) -> None:
    model = small_model.write(tmp_path)
    done = cli("quantize", "-m", str(model), "-o", str(tmp_path / "b.gguf"), "--type", "q8_0", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["format"] == "gguf"
    assert report["bytes_out"] == (tmp_path / "b.gguf").stat().st_size
    assert set(report["bytes_by_type"]) == {"q8_0", "f32"}
    assert report["vocabulary"] is True
    done = cli("convert", "-m", str(model), "-o", str(tmp_path / "c.gguf"))
    assert "c.gguf: " in done.stdout
    done = cli("quantize", "-m", str(model), "-o", str(tmp_path / "d.gguf"))
    assert done.returncode == 2
    assert "Missing option '--type'" in done.stderr
    settings = {**os.environ, "GRISTMILL_TYPE": "q4_0"}
    done = cli("quantize", "-m", str(model), "-o", str(tmp_path / "e.gguf"), env=settings)
    assert "q4_0" in done.stdout


def test_a_model_without_a_vocabulary_is_told(tmp_path: Path) -> None:
    done = cli("convert", "-m", str(small_model.write_model(tmp_path / "a.bin")), "-o", str(tmp_path / "b.gguf"))
    assert done.returncode == 0
    assert "no vocabulary was found in or beside it" in done.stderr


def test_parts_of_a_split_model_become_one_file(checkpoint: Make, tmp_path: Path) -> None:
    oracle = checkpoint("qwen3-tied", partial(save, "qwen3-tied"))
    whole = run(oracle.path, tmp_path / "whole.gguf")
    source = open_checkpoint(whole)
    names = list(source.names())
    for number, part in enumerate((names[:10], names[10:])):
        writer = gguf.GGUFWriter(tmp_path / f"m-{number + 1:05}-of-00002.gguf", "qwen3")
        if number == 0:
            for key, value in source.metadata.items():
                if isinstance(value, int):
                    writer.add_uint32(key, value)
                elif isinstance(value, float):
                    writer.add_float32(key, value)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(names))
        for name in part:
            writer.add_tensor(name, dequantize(source.get(name)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    joined = run(tmp_path / "m-00002-of-00002.gguf", tmp_path / "joined.gguf")
    assert_same_tensors(whole, joined)
    assert not any(key.startswith("split.") for key in open_checkpoint(joined).metadata)
    assert read_config(open_checkpoint(joined)) == read_config(source)
    assert names_of(open_checkpoint(joined), read_config(source)).embed in names
    first = (tmp_path / "m-00001-of-00002.gguf").read_bytes()
    with pytest.raises(ValueError, match="is a part of the model that is read; give another name"):
        run(tmp_path / "m-00002-of-00002.gguf", tmp_path / "m-00001-of-00002.gguf")
    assert (tmp_path / "m-00001-of-00002.gguf").read_bytes() == first
