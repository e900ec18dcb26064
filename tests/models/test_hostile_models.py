"""Sound files of unsound models: wrong shapes, types and hyperparameters are refused by name before a kernel runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.open import open_checkpoint
from gristmill.models.build import build, bytes_as_loaded
from gristmill.models.hyperparameters import read_config
from gristmill.ops.reference import ReferenceOps

D, FF, HEADS, KV, HEAD_DIM, VOCAB = 32, 48, 4, 2, 8, 20
LLAMA_GGUF = {
    "token_embd.weight": (VOCAB, D),
    "output_norm.weight": (D,),
    "output.weight": (VOCAB, D),
    "blk.0.attn_norm.weight": (D,),
    "blk.0.attn_q.weight": (HEADS * HEAD_DIM, D),
    "blk.0.attn_k.weight": (KV * HEAD_DIM, D),
    "blk.0.attn_v.weight": (KV * HEAD_DIM, D),
    "blk.0.attn_output.weight": (D, HEADS * HEAD_DIM),
    "blk.0.ffn_norm.weight": (D,),
    "blk.0.ffn_gate.weight": (FF, D),
    "blk.0.ffn_up.weight": (FF, D),
    "blk.0.ffn_down.weight": (D, FF),
}
LLAMA_HF = {
    "model.embed_tokens.weight": (VOCAB, D),
    "model.norm.weight": (D,),
    "lm_head.weight": (VOCAB, D),
    "model.layers.0.input_layernorm.weight": (D,),
    "model.layers.0.self_attn.q_proj.weight": (HEADS * HEAD_DIM, D),
    "model.layers.0.self_attn.k_proj.weight": (KV * HEAD_DIM, D),
    "model.layers.0.self_attn.v_proj.weight": (KV * HEAD_DIM, D),
    "model.layers.0.self_attn.o_proj.weight": (D, HEADS * HEAD_DIM),
    "model.layers.0.post_attention_layernorm.weight": (D,),
    "model.layers.0.mlp.gate_proj.weight": (FF, D),
    "model.layers.0.mlp.up_proj.weight": (FF, D),
    "model.layers.0.mlp.down_proj.weight": (D, FF),
}
QWEN3_MOE_HF = {name: shape for name, shape in LLAMA_HF.items() if ".mlp." not in name} | {
    "model.layers.0.self_attn.q_norm.weight": (HEAD_DIM,),
    "model.layers.0.self_attn.k_norm.weight": (HEAD_DIM,),
    "model.layers.0.mlp.gate.weight": (2, D),
    **{
        f"model.layers.0.mlp.experts.{e}.{part}_proj.weight": (D, FF) if part == "down" else (FF, D)
        for e in range(2)
        for part in ("gate", "up", "down")
    },
}
GGUF_KEYS: Mapping[str, Any] = {
    "block_count": 1,
    "context_length": 64,
    "embedding_length": D,
    "feed_forward_length": FF,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
}
HF_CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": D,
    "intermediate_size": FF,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
QWEN3_MOE_CONFIG: Mapping[str, Any] = {
    **HF_CONFIG,
    "model_type": "qwen3_moe",
    "head_dim": HEAD_DIM,
    "moe_intermediate_size": FF,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
Shapes = Mapping[str, tuple[int, ...]]
Write = Callable[[Path, Shapes, Mapping[str, Any]], Path]


def write_gguf(
    folder: Path, shapes: Shapes, keys: Mapping[str, Any], dtype: str = "float32", arch: str = "llama"
) -> Path:
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        name = f"{arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_int64(name, value)
        elif isinstance(value, float):
            writer.add_float64(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_hf(folder: Path, shapes: Shapes, config: Mapping[str, Any], dtype: str = "float32") -> Path:
    save_file({name: np.zeros(shape, dtype) for name, shape in shapes.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


FORMATS = {
    "gguf": (write_gguf, LLAMA_GGUF, GGUF_KEYS),
    "safetensors": (write_hf, LLAMA_HF, HF_CONFIG),
    "experts": (write_hf, QWEN3_MOE_HF, QWEN3_MOE_CONFIG),
}
TENSORS = [(label, name) for label, (_, shapes, _) in FORMATS.items() for name in shapes]


def test_a_number_for_each_layer_is_one_where_all_are_alike(tmp_path: Path) -> None:
    """As some converters write them; a layer of its own shape is nothing that is computed."""
    keys = {**GGUF_KEYS, "attention.head_count_kv": [KV], "feed_forward_length": [FF]}
    load(write_gguf(tmp_path, LLAMA_GGUF, keys))
    for name in ("feed_forward_length", "attention.head_count", "attention.head_count_kv"):
        path = write_gguf(tmp_path, LLAMA_GGUF, {**keys, "block_count": 2, name: [KV, FF]})
        with pytest.raises(ModelFormatError, match=rf"llama\.{name}'.*it differs from layer to layer"):
            load(path)


def load(path: Path) -> None:
    build(open_checkpoint(path), ReferenceOps())


@pytest.mark.parametrize("label", FORMATS)
def test_the_model_itself_is_sound(tmp_path: Path, label: str) -> None:
    write, shapes, keys = FORMATS[label]
    load(write(tmp_path, shapes, keys))


@pytest.mark.parametrize(("label", "name"), TENSORS)
def test_every_dimension_is_checked(tmp_path: Path, label: str, name: str) -> None:
    write, shapes, keys = FORMATS[label]
    right = shapes[name]
    wrong = [(*right[:i], size + by, *right[i + 1 :]) for i, size in enumerate(right) for by in (-1, 1, size)]
    wrong += [(*right, 1), (int(np.prod(right)),), right[::-1], ()]
    for shape in {shape for shape in wrong if shape != right}:
        # GGUF: the embedding's rows are the vocabulary, so that it is the head that does not fit
        other = "output.weight" if name == "token_embd.weight" and shape[1:] == right[1:] else name
        with pytest.raises(ModelFormatError, match=other.replace(".", r"\.")):
            load(write(tmp_path, {**shapes, name: shape}, keys))


@pytest.mark.parametrize(("label", "name"), [t for t in TENSORS if t[1] not in ("output.weight", "token_embd.weight")])
def test_a_missing_tensor_is_named(tmp_path: Path, label: str, name: str) -> None:
    write, shapes, keys = FORMATS[label]
    with pytest.raises(ModelFormatError, match=name.replace(".", r"\.")):
        load(write(tmp_path, {n: s for n, s in shapes.items() if n != name}, keys))


@pytest.mark.parametrize("label", FORMATS)
def test_a_tensor_that_no_one_asked_for_is_named(tmp_path: Path, label: str) -> None:
    write, shapes, keys = FORMATS[label]
    with pytest.raises(ModelFormatError, match=r"'another\.weight'"):
        load(write(tmp_path, {**shapes, "another.weight": (3, 3)}, keys))


@pytest.mark.parametrize("label", FORMATS)
def test_memory_is_told_of_a_scalar_too(tmp_path: Path, label: str) -> None:
    write, shapes, keys = FORMATS[label]
    checkpoint = open_checkpoint(write(tmp_path, {**shapes, "another": ()}, keys))
    n_bytes = 4 * sum(int(np.prod(shape)) for shape in shapes.values()) + 4
    assert bytes_as_loaded(checkpoint, read_config(checkpoint), None, 0) == {"f32": n_bytes}


@pytest.mark.parametrize(("label", "name"), TENSORS)
def test_a_type_that_cannot_be_computed_is_named(tmp_path: Path, label: str, name: str) -> None:
    write, shapes, keys = FORMATS[label]
    folder = write(tmp_path, shapes, keys, "int32") if label == "gguf" else write(tmp_path, shapes, keys, "int64")  # type: ignore[call-arg]
    with pytest.raises(ModelFormatError, match="tensor '"):
        load(folder)


YARN = {"rope_type": "yarn", "factor": 4.0}
BAD_VALUES: list[Any] = [0, -1, 2**31, 2**62, 1.5, 1e300, "x", True, [1, 2]]


@pytest.mark.parametrize("key", GGUF_KEYS)
def test_every_gguf_key_is_checked(tmp_path: Path, key: str) -> None:
    for value in BAD_VALUES:
        if key == "rope.freq_base" and value in (1.5, 2**31):
            continue  # a frequency base may be so
        with pytest.raises(ModelFormatError, match=r"model\.gguf: "):
            load(write_gguf(tmp_path, LLAMA_GGUF, {**GGUF_KEYS, key: value}))


@pytest.mark.parametrize("key", [k for k in HF_CONFIG if k not in ("tie_word_embeddings", "model_type")])
def test_every_config_field_is_checked(tmp_path: Path, key: str) -> None:
    for value in [*BAD_VALUES, {}, 10**400]:
        if key == "rope_theta" and value in (1.5, 2**31):
            continue
        with pytest.raises(ModelFormatError):
            load(write_hf(tmp_path, LLAMA_HF, {**HF_CONFIG, key: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "'mamba', gristmill runs"),
        ({"model_type": None}, "model_type"),
        ({"model_type": ["llama"]}, r"field 'model_type': is \['llama'\], gristmill runs"),
        ({"model_type": {"llama": 1}}, "field 'model_type'"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"is_causal": False}, "field 'is_causal': is False, which"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "'longrope'; gristmill knows"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "'factor'"),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, "'factor'"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4, "high_freq_factor": 1}},
            "high_freq",
        ),
        ({"head_dim": 7}, "heads of 7 dimensions"),
        ({"head_dim": 7, "rope_scaling": YARN}, "heads of 7 dimensions"),
        ({"num_key_value_heads": 3}, "cannot share"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"partial_rotary_factor": 0.5}, "field 'partial_rotary_factor': is 0.5, which"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "field 'partial_rotary_factor': is 0.5, which"),
        ({"rope_parameters": {"partial_rotary_factor": [1]}}, r"field 'partial_rotary_factor': is \[1\], must be"),
        ({"rope_scaling": {"rope_type": ["yarn"]}}, r"field 'rope_type': is \['yarn'\], must be text"),
        ({"rope_theta": 1.0, "rope_scaling": YARN}, "field 'rope_theta': is 1, must be over 1 with YaRN"),
        ({"rope_scaling": {**YARN, "rope_theta": 0.5}}, "field 'rope_theta': is 0.5, must be over 1 with YaRN"),
        ({"rope_scaling": {**YARN, "mscale": 1.0}}, "field 'mscale': is 1.0, which"),
        ({"rope_scaling": {**YARN, "attn_factor": "x"}}, "field 'attn_factor': is 'x', must be"),
        ({"rope_scaling": {**YARN, "mscale_all_dim": 0.7}}, "field 'mscale_all_dim': is 0.7, which"),
        ({"quantization_config": [1]}, "field 'quantization_config'"),
        ({"model_type": "mistral", "sliding_window": -4}, "sliding_window"),
        ({"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["linear_attention"]}, "layer_types"),
    ],
)
def test_what_is_not_known_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        load(write_hf(tmp_path, LLAMA_HF, {**HF_CONFIG, **changes}))


GPT_OSS_CONFIG = {**HF_CONFIG, "model_type": "gpt_oss", "head_dim": HEAD_DIM}


@pytest.mark.parametrize("changes", [{"swiglu_alpha": 1.0}, {"swiglu_alpha": "x"}, {"swiglu_limit": [7.0]}])
def test_another_swiglu_is_refused_by_name(tmp_path: Path, changes: dict[str, Any]) -> None:
    read_config(open_checkpoint(write_hf(tmp_path, LLAMA_HF, {**GPT_OSS_CONFIG, "swiglu_alpha": 1.702})))
    (name,) = changes
    with pytest.raises(ModelFormatError, match=f"field '{name}'"):
        load(write_hf(tmp_path, LLAMA_HF, {**GPT_OSS_CONFIG, **changes}))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            {"quant_method": "bitnet", "quantization_mode": "online"},
            "field 'quant_method': is 'bitnet', gristmill reads",
        ),
        (
            {"quant_method": "gptq", "bits": 4},
            "field 'quant_method': is 'gptq', gristmill reads fp8, fbgemm_fp8, mxfp4,",
        ),
        ({"quant_method": ["fp8"]}, "field 'quant_method'"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "field 'quant_algo': is 'NVFP4'"),
        ({"quant_method": "compressed-tensors", "format": "int-quantized"}, "field 'format': is 'int-quantized'"),
        (
            {"quant_method": "compressed-tensors", "format": "float-quantized", "transform_config": {"a": 1}},
            "field 'transform_config'",
        ),
        (None, ""),
        ({}, ""),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ""),
        ({"quant_method": "fbgemm_fp8"}, ""),
        ({"quant_method": "compressed-tensors", "format": "dense"}, ""),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, ""),
        ({"quant_method": "compressed-tensors", "format": "float-quantized", "transform_config": {}}, ""),
    ],
)
def test_only_ways_to_quantize_that_are_read(tmp_path: Path, said: Any, message: str) -> None:
    folder = write_hf(tmp_path, LLAMA_HF, {**HF_CONFIG, "quantization_config": said})
    if not message:
        return load(folder)
    with pytest.raises(ModelFormatError, match=message):
        load(folder)
    return None


NUMBERS = [[1, 2], [0.5], list(range(40))]


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize(
    "key", ["rope.scaling.type", "rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor"]
)
def test_an_array_is_no_number_and_no_text(tmp_path: Path, key: str, numbers: list[Any]) -> None:
    with pytest.raises(ModelFormatError, match=f"field 'llama.{key}': is array") as caught:
        load(write_gguf(tmp_path, LLAMA_GGUF, {**GGUF_KEYS, key: numbers}))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("numbers", NUMBERS)
def test_an_architecture_of_numbers(tmp_path: Path, numbers: list[Any]) -> None:
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.kv_data[0].pop("general.architecture")
    writer.add_array("general.architecture", numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFormatError, match=r"key 'general\.architecture': is array") as caught:
        load(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rope.freq_base": 1.0}, "field 'llama.rope.freq_base': is 1, must be over 1 with YaRN"),
        ({"rope.scaling.factor": None}, "field 'llama.rope.scaling.factor': is None"),
        ({"rope.scaling.type": "longrope"}, "field 'llama.rope.scaling.type': is 'longrope'"),
    ],
)
def test_yarn_of_gguf(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    with pytest.raises(ModelFormatError, match=message):
        load(write_gguf(tmp_path, LLAMA_GGUF, {**GGUF_KEYS, **yarn, **keys}))


@pytest.mark.parametrize(
    "changes",
    [
        {"attention.value_length": 2 * HEAD_DIM},
        {"rope.dimension_count": HEAD_DIM // 2},
        {"expert_count": 2},
        {"attention.causal": False},
    ],
)
def test_what_gguf_asks_for_and_is_not_computed_is_refused_by_name(tmp_path: Path, changes: dict[str, int]) -> None:
    ((key, value),) = changes.items()
    usual = {"attention.value_length": HEAD_DIM, "rope.dimension_count": HEAD_DIM, "expert_count": 0}
    usual["attention.causal"] = True
    load(write_gguf(tmp_path, LLAMA_GGUF, {**GGUF_KEYS, **usual}))
    with pytest.raises(ModelFormatError, match=rf"model\.gguf: field 'llama\.{key}': is {value}, which"):
        load(write_gguf(tmp_path, LLAMA_GGUF, {**GGUF_KEYS, **usual, **changes}))


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-38, np.inf, np.nan])
def test_frequencies_are_divided_by_numbers(tmp_path: Path, value: float) -> None:
    def file(divisor: float) -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, number in GGUF_KEYS.items():
            add = writer.add_float32 if isinstance(number, float) else writer.add_uint32
            add(f"llama.{key}", number)
        for name, shape in LLAMA_GGUF.items():
            writer.add_tensor(name, np.zeros(shape, np.float32))
        writer.add_tensor("rope_freqs.weight", np.array([1, 1, divisor, 1], np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    load(file(8.0))
    with pytest.raises(ModelFormatError, match=rf"tensor 'rope_freqs\.weight': holds {value:g}, must hold numbers"):
        load(file(value))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm_topk_prob", False),
        ("norm_topk_prob", None),
        ("decoder_sparse_step", 2),
        ("mlp_only_layers", [0]),
        ("use_sliding_window", True),
        ("num_experts", 0),
        ("num_experts", "two"),
        ("num_experts_per_tok", -1),
        ("moe_intermediate_size", 1.5),
    ],
)
def test_experts_of_another_kind_are_refused_by_name(tmp_path: Path, field: str, value: Any) -> None:
    with pytest.raises(ModelFormatError, match=f"field '{field}'"):
        load(write_hf(tmp_path, QWEN3_MOE_HF, {**QWEN3_MOE_CONFIG, field: value}))


def test_more_active_experts_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="3 active experts of 2"):
        load(write_hf(tmp_path, QWEN3_MOE_HF, {**QWEN3_MOE_CONFIG, "num_experts_per_tok": 3}))


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFormatError, match="'mamba', gristmill runs llama, qwen2, qwen3, qwen3moe, gpt-oss"):
        load(path)


def test_weights_without_what_says_which_model_they_are(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, LLAMA_HF, HF_CONFIG)
    load(folder / "model.safetensors")
    (folder / "config.json").unlink()
    with pytest.raises(ModelFormatError, match=r"model\.safetensors: config\.json: is not beside it"):
        load(folder / "model.safetensors")


def test_gpt_oss_has_a_window(tmp_path: Path) -> None:
    """As llama.cpp has it: half of its layers would attend to everything."""
    keys = {**GGUF_KEYS, "expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": FF}
    said = {**keys, "attention.sliding_window": 16}
    config = read_config(open_checkpoint(write_gguf(tmp_path, LLAMA_GGUF, said, arch="gpt-oss")))
    assert config.windows == (16,)
    with pytest.raises(ModelFormatError, match=r"'gpt-oss\.attention\.sliding_window': is None, must be an integer"):
        read_config(open_checkpoint(write_gguf(tmp_path, LLAMA_GGUF, keys, arch="gpt-oss")))
