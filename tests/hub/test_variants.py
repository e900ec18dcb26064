"""Names of models on the hub, and what they mean among a repository's files."""

from __future__ import annotations

import pytest

from gristmill.hub.names import HubError, HubName, as_name, parse_name
from gristmill.hub.variants import Variant, choose, variants

REPO = HubName("org/name")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubName("org/name")),
        ("Qwen/Qwen3-0.6B-GGUF:Q8_0", HubName("Qwen/Qwen3-0.6B-GGUF", "Q8_0")),
        ("a/b_c.d:UD-Q4_K_XL/model-00001-of-00002.gguf", HubName("a/b_c.d", "UD-Q4_K_XL/model-00001-of-00002.gguf")),
    ],
)
def test_names(text: str, expected: HubName) -> None:
    assert parse_name(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "a/b/c",
        "../../x",
        "a/..",
        "a/.b",
        "a/b..c",
        "a--b/c",
        "a/b:",
        "a/b:c d",
        "http://169.254.169.254/latest",
        "//169.254.169.254/x",
        "a/b?c",
        "a/b\n",
        "a/" + "b" * 200,
        "é/b",
    ],
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(HubError, match="org/name:QUANT"):
        parse_name(text)
    assert as_name(text) is None


def test_a_path_is_no_name(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_name("models/llama") == HubName("models/llama")
    (tmp_path / "models" / "llama").mkdir(parents=True)
    for path in ("models/llama", "models/none.gguf", "models/none.bin", tmp_path / "models"):
        assert as_name(path) is None
    assert as_name("mill/tiny.gguf:Q8_0") == HubName("mill/tiny.gguf", "Q8_0")


@pytest.mark.parametrize(
    ("file", "label"),
    [
        ("Qwen3-0.6B-Q8_0.gguf", "Q8_0"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("TheModel.Q5_K_S.gguf", "Q5_K_S"),
        ("BF16/Model-BF16.gguf", "BF16"),
        ("UD-Q4_K_XL/Model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("model-IQ4_NL.gguf", "IQ4_NL"),
        ("model-fp16.gguf", "FP16"),
        ("Q4_0/model.gguf", "Q4_0"),
        ("model-Q4_0_4_8.gguf", "Q4_0_4_8"),
        ("model-qat-q4_0-unquantized-BF16.gguf", "BF16"),
        ("model-Q4_K_M-imatrix.gguf", "Q4_K_M"),
        ("model-imatrix-IQ4_XS.gguf", "IQ4_XS"),
        ("my-model.gguf", "my-model"),
    ],
)
def test_labels_of_gguf_files(file: str, label: str) -> None:
    others = ("mmproj-model-f16.gguf", "imatrix_unsloth.gguf", "m.imatrix.gguf", "m-bf16-imatrix.gguf")
    assert variants([file, "README.md", *others]) == [Variant(label, (file,))]


def test_split_files_are_one_model_and_only_when_whole() -> None:
    parts = [f"Q8_0/m-Q8_0-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
    assert variants(reversed(parts)) == [Variant("Q8_0", tuple(parts))]
    assert variants(parts[:2]) == []


def test_equal_labels_are_told_apart_by_their_files() -> None:
    found = variants(["a-Q8_0.gguf", "b-Q8_0.gguf", "a-Q4_0.gguf"])
    assert [variant.label for variant in found] == ["Q4_0", "a-Q8_0.gguf", "b-Q8_0.gguf"]
    assert choose(HubName("org/name", "b-q8_0"), found, "here").files == ("b-Q8_0.gguf",)
    with pytest.raises(HubError, match=r"no Q8_0 of this model; it has Q4_0, a-Q8_0.gguf, b-Q8_0.gguf"):
        choose(HubName("org/name", "Q8_0"), found, "here")


FOLDER = ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"]


def test_a_safetensors_folder_is_what_is_needed_and_never_a_pickle() -> None:
    others = ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "original/model.safetensors", "onnx/model.onnx"]
    others += ["modeling_custom.py", "README.md", "training_args.bin", "consolidated.safetensors", ".gitattributes"]
    assert variants([*FOLDER, *others]) == [Variant("safetensors", tuple(FOLDER))]
    shards = [f"model-{i:05}-of-00002.safetensors" for i in (1, 2)]
    index = "model.safetensors.index.json"
    [sharded] = variants(["config.json", index, *shards, *others, "chat_template.jinja"])
    assert sharded.files == ("chat_template.jinja", "config.json", index, *shards)
    template = "additional_chat_templates/tool_use.jinja"
    [templated] = variants([*FOLDER, template, "docs/other.jinja"])
    assert set(templated.files) == {*FOLDER, template}
    assert variants(["config.json", index, shards[0]]) == []
    assert variants(["model.safetensors"]) == []
    assert variants(["adapter_model.safetensors", "config.json"]) == []
    assert variants(["config.json", *others[:3]]) == []


def test_six_digits_count_shards_too() -> None:
    """As in DeepSeek-R1-Distill-Qwen-7B."""
    shards = [f"model-0000{i}-of-000002.safetensors" for i in (1, 2)]
    files = ["config.json", "model.safetensors.index.json", *shards]
    [sharded] = variants([*files, "consolidated.safetensors"])
    assert sharded.files == tuple(files)
    assert variants(files[:-1]) == []


def test_what_a_name_without_quant_means() -> None:
    def label(*files: str) -> str:
        return choose(REPO, variants(files), "the hub").label

    assert label("m-Q6_K.gguf") == "Q6_K"
    assert label("m-Q6_K.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf") == "Q4_K_M"
    assert label("m-Q6_K.gguf", "m-Q8_0.gguf") == "Q8_0"
    assert label(*FOLDER) == "safetensors"
    with pytest.raises(HubError, match=r"org/name: the hub has several .* org/name:QUANT of Q2_K, Q6_K"):
        label("m-Q6_K.gguf", "m-Q2_K.gguf")
    with pytest.raises(HubError, match="of Q8_0, safetensors"):
        label("m-Q8_0.gguf", *FOLDER)
    with pytest.raises(HubError, match="has neither"):
        label("pytorch_model.bin", "config.json")
    both = variants(["m-Q8_0.gguf", *FOLDER])
    assert choose(HubName("org/name", "safetensors"), both, "the hub").entry == ""
    assert choose(HubName("org/name", "q8_0"), both, "the hub").entry == "m-Q8_0.gguf"
