"""Which vocabulary a converted model gets: its own as it stands, written anew where formats differ, or another one."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import small_model
from oracles.gguf_files import copy_gguf

from gristmill import LLM
from gristmill.convert import Report, convert
from gristmill.formats.open import open_checkpoint

TEXTS = ["Hello", "äöü 日本", " a  b\n"]
OF_FOLDERS = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model",
    "vocab.json", "merges.txt", "generation_config.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip


def run(source: Path, out: Path, label: str | None = None, tokenizer: Path | None = None) -> Report:
    return convert(open_checkpoint(source), out, label=label, tokenizer=tokenizer)


def ids_of(path: Path) -> list[list[int]]:
    with LLM(path, device="cpu") as llm:
        return [llm.encode(text) for text in TEXTS]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """llama2.c's, its tokenizer.bin beside it."""
    (tmp_path / "small").mkdir()
    return small_model.write(tmp_path / "small")


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    """The same in Hugging Face's layout, its vocabulary in tokenizer.json."""
    run(model, tmp_path / "folder")
    return tmp_path / "folder"


def test_a_folder_with_llama2c_s_tokenizer_gets_one_of_its_own_kind(model: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (model.parent / "tokenizer.bin").rename(folder / "tokenizer.bin")
    report = run(folder, tmp_path / "out", "bf16")
    assert report.vocabulary
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert ids_of(tmp_path / "out") == ids_of(folder)


def test_llama2c_s_model_beside_another_tokenizer_gets_one_of_its_own_kind(
    model: Path, folder: Path, tmp_path: Path
) -> None:
    expected = ids_of(model)
    stored = (model.parent / "tokenizer.bin").read_bytes()
    (model.parent / "tokenizer.bin").unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(model.parent / name)
    (tmp_path / "out").mkdir()
    report = run(model, tmp_path / "out" / "q8.bin", "q8_0")
    assert report.vocabulary
    assert (tmp_path / "out" / "tokenizer.bin").read_bytes() == stored
    assert ids_of(tmp_path / "out" / "q8.bin") == expected


def test_bytes_of_all_files_are_told(model: Path, folder: Path, tmp_path: Path) -> None:
    outs = {"gguf": tmp_path / "gguf" / "a.gguf", "bin": tmp_path / "bin" / "a.bin", "folder": tmp_path / "out" / "a"}
    for out in outs.values():
        out.parent.mkdir()
        for source in (model, folder):
            report = run(source, out.with_name(f"{source.stem}{out.suffix}"))
            files = [path for path in out.parent.rglob("*") if path.is_file()]
            assert report.bytes_out == sum(path.stat().st_size for path in files)
            assert report.vocabulary
            for path in files:
                path.unlink()


def test_llama2c_s_groups_are_copied_to_the_last_byte(model: Path, tmp_path: Path) -> None:
    """And whoever watches sees the end."""
    run(model, tmp_path / "q8.bin", "q8_0")
    seen = list[tuple[int, int]]()
    checkpoint = open_checkpoint(tmp_path / "q8.bin")
    report = convert(checkpoint, tmp_path / "again.bin", label="q8_0", progress=lambda *at: seen.append(at))
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "q8.bin").read_bytes()
    assert seen == sorted(seen)
    assert seen[-1] == (report.bytes_in, report.bytes_in)
    assert set(report.bytes_by_type) == {"f32", "q8_groups"}
    header, scales = 256, 4
    numbers = report.bytes_by_type["q8_groups"] * 32 // (32 + scales)
    assert report.bytes_in == numbers + report.bytes_by_type["f32"]
    assert (tmp_path / "q8.bin").stat().st_size == header + sum(report.bytes_by_type.values())


def test_files_of_a_folder_are_copied_as_they_are(folder: Path, tmp_path: Path) -> None:
    for name in OF_FOLDERS:
        if name != "tokenizer.json":
            (folder / name).write_text("{}\n" if name.endswith(".json") else "x\n")
    (folder / "generation_config.json").write_text('{"top_k": 3, "eos_token_id": 2}')
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("x\n")
    (folder / "notes.txt").write_text("x\n")
    for source in (folder, folder / "model.safetensors"):
        out = tmp_path / f"of {source.stem}"
        run(source, out, "f16")
        for name in (*OF_FOLDERS, "additional_chat_templates/tools.jinja"):
            assert (out / name).read_bytes() == (folder / name).read_bytes(), name
        assert not (out / "notes.txt").exists()


def test_another_vocabulary_takes_the_place_of_all_that_was_said_of_the_old(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "a.gguf")
    pieces = bytearray(small_model.write_tokenizer(tmp_path / "tokenizer.bin").read_bytes())
    pieces[4:8] = np.float32(-5).tobytes()
    (tmp_path / "tokenizer.bin").write_bytes(pieces)
    copy_gguf(tmp_path / "a.gguf", tmp_path / "b.gguf", lambda writer: writer.add_mask_token_id(5))
    run(tmp_path / "b.gguf", tmp_path / "kept.gguf")
    run(tmp_path / "b.gguf", tmp_path / "new.gguf", tokenizer=tmp_path / "tokenizer.bin")
    kept, new = (gguf.GGUFReader(tmp_path / name) for name in ("kept.gguf", "new.gguf"))
    assert "tokenizer.ggml.mask_token_id" in kept.fields
    assert "tokenizer.ggml.mask_token_id" not in new.fields
    assert kept.fields["tokenizer.ggml.scores"].contents()[0] == 0
    assert new.fields["tokenizer.ggml.scores"].contents()[0] == -5


def test_rows_beyond_the_vocabulary(tmp_path: Path) -> None:
    """GGUF has a token for each, less likely than any; tokenizer.json does without."""
    model = small_model.write_model(tmp_path / "a.bin", vocab=300)
    tokenizer = small_model.write_tokenizer(tmp_path / "one.bin")
    run(model, tmp_path / "a.gguf")
    run(tmp_path / "a.gguf", tmp_path / "b.gguf", tokenizer=tokenizer)
    scores = gguf.GGUFReader(tmp_path / "b.gguf").fields["tokenizer.ggml.scores"].contents()
    assert len(scores) == 300
    assert max(scores[259:]) < min(scores[:259])
    run(tmp_path / "a.gguf", tmp_path / "folder", tokenizer=tokenizer)
    assert len(json.loads((tmp_path / "folder" / "tokenizer.json").read_text())["model"]["vocab"]) == 259


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    tokenizer = small_model.write_tokenizer(tmp_path / "one.bin")
    smaller = small_model.write_model(tmp_path / "b.bin", vocab=250)
    run(smaller, tmp_path / "b.gguf")
    message = r"one\.bin: has 259 tokens, the model 250: it belongs to another model; give the right one with --token"
    for out in ("c.gguf", "folder"):
        with pytest.raises(ValueError, match=message):
            run(tmp_path / "b.gguf", tmp_path / out, tokenizer=tokenizer)


def test_a_file_without_one_stays_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(small_model.write_model(tmp_path / "a.bin"), tmp_path / "a.gguf")
    caplog.clear()
    assert not run(tmp_path / "a.gguf", tmp_path / "b.gguf").vocabulary
    assert "a.gguf: no vocabulary was found in or beside it" in caplog.text


def test_what_lies_beside_a_gguf_file_is_not_its_own(model: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    run(model, place / "with.gguf")
    run(small_model.write_model(tmp_path / "a.bin"), place / "without.gguf")
    (place / "tokenizer.json").write_text("another model's")
    assert run(place / "with.gguf", tmp_path / "out").vocabulary
    assert ids_of(tmp_path / "out") == ids_of(model)
    assert not run(place / "without.gguf", tmp_path / "bare").vocabulary
    assert sorted(path.name for path in (tmp_path / "bare").iterdir()) == ["config.json", "model.safetensors"]
