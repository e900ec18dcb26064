"""What a model's files recommend for choosing its tokens is read, carried along by `convert`, and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import small_model
from recommending import folder, gguf_file

from gristmill import LLM, SamplingParams
from gristmill.convert import convert
from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.open import open_checkpoint
from gristmill.models.sampling import Recommended, read_recommended, said_by

SAID = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.05}
KEYS = ("temp", "top_k", "top_p", "min_p", "penalty_repeat")
QWEN3, UNTHINKING = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}, {"temperature": 0.7, "top_k": 20, "top_p": 0.8}


def test_what_folders_say_is_what_llama_cpps_converter_finds_there(tmp_path: Path) -> None:
    model = folder(tmp_path / "a", do_sample=True, eos_token_id=2, **SAID)
    assert read_recommended(model) == Recommended(SAID)
    assert read_recommended(model / "model.safetensors") == Recommended(SAID)
    theirs = gguf.Metadata.load(model_path=model)
    writer = gguf.GGUFWriter(None, "llama")
    theirs.set_gguf_meta_model(writer)
    convert(open_checkpoint(model), tmp_path / "ours.gguf")
    ours = {name: field for name, field in gguf.GGUFReader(tmp_path / "ours.gguf").fields.items() if "sampling" in name}
    expected = {name: value for name, value in writer.kv_data[0].items() if "sampling" in name}
    assert set(ours) == {f"general.sampling.{key}" for key in KEYS}
    assert set(ours) - set(expected) <= {"general.sampling.penalty_repeat"}  # which only newer converters know
    for name, value in expected.items():
        assert ours[name].types == [value.type]
        assert ours[name].contents() == (np.float32(value.value) if isinstance(value.value, float) else value.value)


def test_conversions_keep_it(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", **SAID)
    for i, name in enumerate(("b.gguf", "c.gguf", "d", "e")):
        out = tmp_path / str(i) / name
        out.parent.mkdir()
        convert(open_checkpoint(first), out)
        assert read_recommended(out).said == SAID, name
        first = out
    written = json.loads((first / "generation_config.json").read_text())
    assert written == {"bos_token_id": 1, "eos_token_id": [2, 1], "do_sample": True, **SAID}


def test_answers_end_in_transformers_as_well(tmp_path: Path) -> None:
    """Which asks generation_config.json alone where it is there."""
    transformers = pytest.importorskip("transformers")
    model = folder(tmp_path / "a", eos_token_id=[7, 2], **SAID)
    convert(open_checkpoint(model), tmp_path / "b.gguf")
    convert(open_checkpoint(tmp_path / "b.gguf"), tmp_path / "c")
    for name in ("c/generation_config.json", "c/config.json"):
        assert set(json.loads((tmp_path / name).read_text())["eos_token_id"]) == {7, 2}
    assert set(transformers.GenerationConfig.from_pretrained(tmp_path / "c").eos_token_id) == {7, 2}


def test_nothing_is_said_by_others(tmp_path: Path) -> None:
    model = small_model.write(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.1}')
    assert read_recommended(model) == Recommended()  # llama2c's files stand alone
    assert read_recommended(gguf_file(tmp_path / "b.gguf")) == Recommended()
    assert read_recommended(folder(tmp_path / "c", max_new_tokens=5)) == Recommended()


def test_values_that_ask_for_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_recommended(folder(tmp_path / "a", top_k=-1, temperature=0, typical_p=1.0)).said["top_k"] == 0
    assert caplog.messages == []


def test_what_cannot_be_done_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_recommended(folder(tmp_path / "a", no_repeat_ngram_size=3, num_beams=4, temperature=0.5))
    read_recommended(gguf_file(tmp_path / "b.gguf", mirostat=2, sequence="top_k;temperature", xtc_probability=0.5))
    named = [message.split(" is ")[0].split(": ")[1] for message in caplog.messages]
    assert named == ["no_repeat_ngram_size", "num_beams"] + [
        f"general.sampling.{key}" for key in ("sequence", "xtc_probability", "mirostat")
    ]


BAD: list[tuple[str, Any]] = [
    ("temperature", -1),
    ("temperature", "hot"),
    ("temperature", [0.7]),
    ("temperature", True),
    ("temperature", 10**400),
    ("top_p", 0),
    ("top_p", 1.5),
    ("top_k", 2.5),
    ("top_k", 2**31),
    ("min_p", 2),
    ("repetition_penalty", 0),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_makes_no_sense_is_refused_with_the_remedy(tmp_path: Path, name: str, value: Any) -> None:
    model = folder(tmp_path / "a", **{name: value})
    with pytest.raises(ModelFormatError, match=rf"generation_config.json.*{name}.*--generation-config none"):
        read_recommended(model)
    with LLM(model, threads=1) as llm:  # whoever says all of it is not kept from the model
        assert llm.generate("a", SamplingParams(temperature=0, max_tokens=2))[0].outputs[0].token_ids
        with pytest.raises(ModelFormatError, match=name):
            llm.get_default_sampling_params()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, "0.5", [0.5], np.array([0.5, 1.0], np.float32)])
def test_gguf_is_as_hostile(tmp_path: Path, value: Any) -> None:
    model = gguf_file(tmp_path / "a.gguf", temp=value)
    with pytest.raises(ModelFormatError, match=r"a.gguf.*general.sampling.temp"):
        read_recommended(model)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"temperature": NaN}', '{"top_k": 1, "top_k": 2}', "\xff"])
def test_broken_files(tmp_path: Path, text: str) -> None:
    model = folder(tmp_path / "a")
    (model / "generation_config.json").write_text(text, "latin-1")
    with pytest.raises(ModelFormatError, match=r"generation_config.json"):
        said_by(open_checkpoint(model))


def test_python_is_given_it_where_it_asks(tmp_path: Path) -> None:
    with LLM(gguf_file(tmp_path / "a.gguf", temp=0.3, top_k=7), threads=1) as llm:
        assert llm.get_default_sampling_params() == SamplingParams(temperature=float("0.3"), top_k=7)


@pytest.mark.parametrize(
    ("said", "thinking", "unthinking"),
    [({}, QWEN3, UNTHINKING), (QWEN3, QWEN3, UNTHINKING), (UNTHINKING, UNTHINKING, UNTHINKING), ({"top_k": 1},) * 3],
)
def test_qwen3_has_two_ways_to_answer(
    said: dict[str, float], thinking: dict[str, float], unthinking: dict[str, float]
) -> None:
    """Its makers recommend other values without a thought, which their files do not say."""
    assert Recommended(said, is_qwen3=True).in_chat(thinks=True) == thinking
    assert Recommended(said, is_qwen3=True).in_chat(thinks=False) == unthinking
    assert Recommended(said).in_chat(thinks=True) == Recommended(said).in_chat(thinks=False) == said
