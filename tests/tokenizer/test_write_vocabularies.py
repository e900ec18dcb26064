"""Real vocabularies through every form they can take, read back by us and by the libraries of others."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizer_lines import random_lines
from tokenizer_oracles import DATA, THOROUGH

from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.files import load_path, read_path
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.load import load_tokenizer, vocabulary_of
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.tokenizer.write import to_gguf_metadata, write_llama2c, write_tokenizer_json

BPE = ("ggml-vocab-qwen2.gguf", "ggml-vocab-llama-bpe.gguf", "o200k_base.tiktoken.gz")
SPM = ("ggml-vocab-llama-spm.gguf", "llama2-tokenizer.model", "llama2-tokenizer.bin", "aidreams-tok512.bin")


@cache
def read(name: str) -> Vocabulary:
    path = DATA / ("models" if name.startswith("aidreams") else "tokenizers") / name
    if not path.is_file():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    if path.suffix != ".gguf":
        return read_path(path)
    vocabulary = vocabulary_of(open_checkpoint(path))
    assert vocabulary is not None
    return vocabulary


@cache
def texts() -> list[str]:
    """llama.cpp's test texts, which are the same for all of its vocabularies, and random lines."""
    path = DATA / "tokenizers" / "ggml-vocab-qwen2.gguf.inp"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    known = path.read_bytes().decode().split("\n__ggml_vocab_test__\n")
    assert len(known) > 40
    return known + random_lines(91, 20_000 if THOROUGH else 600)


@cache
def expected_ids(name: str) -> list[list[int]]:
    tokenizer = make_tokenizer(read(name))
    return [tokenizer.encode(text) for text in texts()]


def names(tokenizer: Any) -> dict[int, str]:
    return {token_id: text for text, token_id in tokenizer.special_ids.items()}


def check_same(name: str, tokenizer: Any) -> None:
    original = make_tokenizer(read(name))
    for text, expected in zip(texts(), expected_ids(name), strict=True):
        assert tokenizer.encode(text) == expected, text
        assert tokenizer.decode(expected) == original.decode(expected), text
    assert tokenizer.vocab_size == original.vocab_size
    assert (tokenizer.bos_id, tokenizer.adds_bos) == (original.bos_id, original.adds_bos)
    assert set(tokenizer.eos_ids) == set(original.eos_ids)
    # Harmony has two names for one id; files hold the later one.
    assert names(tokenizer) == names(original)
    assert len(tokenizer.special_ids) == len(names(original))
    for token_id in (*range(0, original.vocab_size, 97), original.vocab_size - 1):
        assert tokenizer.token_bytes(token_id) == original.token_bytes(token_id)


def write_gguf(path: Path, metadata: dict[str, Any]) -> None:
    """A GGUF file without tensors, by the format's own package."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, np.uint32):
            writer.add_uint32(key, int(value))
        else:
            writer.add_array(key, value if isinstance(value, list) else value.tolist())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", [*BPE, *SPM])
def test_through_gguf(tmp_path: Path, name: str) -> None:
    metadata = to_gguf_metadata(read(name))
    path = tmp_path / "vocabulary.gguf"
    write_gguf(path, metadata)
    check_same(name, load_tokenizer(open_checkpoint(path)))


@pytest.mark.parametrize("name", ["ggml-vocab-qwen2.gguf", "ggml-vocab-llama-bpe.gguf", "ggml-vocab-llama-spm.gguf"])
def test_gguf_keys_are_the_originals(name: str) -> None:
    """What llama.cpp's own converter wrote into a vocabulary, we write again, key for key."""
    path = DATA / "tokenizers" / name
    written = to_gguf_metadata(read(name))
    theirs = {key: value for key, value in open_checkpoint(path).metadata.items() if key.startswith("tokenizer.")}
    for key, value in theirs.items():
        mine = written[key]
        if isinstance(value, str | bytes | bool | int):
            assert mine == value, key
        else:
            assert [x for x in mine] == [x for x in value], key  # noqa: C416, a loop is faster than numpy's comparison
    optional = {f"tokenizer.ggml.{name}" for name in ("add_bos_token", "add_eos_token", "add_space_prefix", "pre")}
    assert set(written) - set(theirs) <= optional


@pytest.mark.parametrize("name", [*BPE, *SPM])
def test_through_tokenizer_json(tmp_path: Path, name: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    write_tokenizer_json(read(name), path)
    check_same(name, load_path(tmp_path))
    theirs = tokenizers.Tokenizer.from_file(str(path))
    for text, found in zip(texts(), theirs.encode_batch(texts()), strict=True):
        assert found.ids == make_tokenizer_once(name).encode(text, parse_special=True), text
    assert theirs.get_vocab_size() == read(name).n_tokens
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]


@cache
def make_tokenizer_once(name: str) -> Any:
    return make_tokenizer(read(name))


@pytest.mark.parametrize("name", ["ggml-vocab-qwen2.gguf", "ggml-vocab-llama-bpe.gguf", "llama2-tokenizer.model"])
def test_auto_tokenizer_loads_it(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    vocabulary = read(name)
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    mine = make_tokenizer_once(name)
    for text, expected in zip(texts()[:120], expected_ids(name), strict=False):
        if not any(special in text for special in mine.special_ids):
            assert theirs.encode(text) == expected, text
            assert theirs.decode(expected, skip_special_tokens=True) == mine.decode(expected, skip_special=True), text
    assert (theirs.bos_token_id, theirs.eos_token_id) == (vocabulary.bos_id, vocabulary.eos_id)
    assert theirs.pad_token_id == vocabulary.pad_id
    assert theirs.chat_template == vocabulary.chat_template


@pytest.mark.parametrize("name", SPM)
def test_through_llama2c(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokenizer.bin"
    write_llama2c(read(name), path)
    check_same(name, load_path(path))
    if name.startswith("llama2"):
        assert path.read_bytes() == (DATA / "tokenizers" / "llama2-tokenizer.bin").read_bytes()


@pytest.mark.parametrize("name", SPM)
def test_scores_of_merges(tmp_path: Path, name: str) -> None:
    """tokenizer.json has merges and no scores: they come back as scores that do the same."""
    write_tokenizer_json(read(name), tmp_path / "tokenizer.json")
    vocabulary = read_path(tmp_path)
    assert vocabulary.scores is None
    write_llama2c(vocabulary, tmp_path / "tokenizer.bin")
    check_same(name, load_path(tmp_path / "tokenizer.bin"))


@pytest.mark.parametrize("name", BPE)
def test_llama2c_refuses_byte_level(tmp_path: Path, name: str) -> None:
    with pytest.raises(TokenizerError, match="byte-level BPE"):
        write_llama2c(read(name), tmp_path / "tokenizer.bin")
    assert not list(tmp_path.iterdir())
