"""llama2.c's tokenizer.bin: its own published examples, and the SentencePiece model that it was made from."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tokenizer_lines import random_lines
from tokenizer_oracles import sentencepiece_oracle

from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer.files import load_path
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.llama2c import load_llama2c
from gristmill.tokenizer.load import load_tokenizer

# Prompts and ids of llama2.c's test.c, which has them from Meta's Llama 2 code.
PUBLISHED = [
    ("", [1]),
    ("I believe the meaning of life is", [1, 306, 4658, 278, 6593, 310, 2834, 338]),
    (
        "Simply put, the theory of relativity states that ",
        [1, 3439, 17632, 1925, 29892, 278, 6368, 310, 14215, 537, 5922, 393, 29871],
    ),
    (
        "A brief message congratulating the team on the launch:\n\n        Hi everyone,\n\n        I just ",
        [
            *(1, 319, 11473, 2643, 378, 629, 271, 18099, 278, 3815, 373, 278, 6826, 29901, 13, 13, 4706, 6324),
            *(14332, 29892, 13, 13, 4706, 306, 925, 29871),
        ],
    ),
]


@pytest.mark.parametrize(("text", "ids"), PUBLISHED)
def test_published_examples(data: Path, text: str, ids: list[int]) -> None:
    tokenizer = load_llama2c(data / "tokenizers" / "llama2-tokenizer.bin", 32000)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids, skip_special=True) == text


def test_same_ids_as_sentencepiece(data: Path) -> None:
    tokenizer = load_llama2c(data / "tokenizers" / "llama2-tokenizer.bin", 32000)
    for line in random_lines(21, 2000):
        assert tokenizer.encode(line, add_special=False) == sentencepiece_oracle().encode(line), line


def test_small_vocabulary(data: Path) -> None:
    tokenizer = load_llama2c(data / "models" / "aidreams-tok512.bin", 512)
    assert tokenizer.vocab_size == 512
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (1, (2,), True)
    # llama2.c's run: prompt "I dream", ids as its encode prints them
    assert tokenizer.encode("I dream") == [1, 303, 281, 269, 435, 447]
    assert tokenizer.decode([1, 303, 281, 269, 435, 447], skip_special=True) == "I dream"


def test_a_character_outside_of_the_vocabulary_is_its_bytes(data: Path) -> None:
    tokenizer = load_llama2c(data / "models" / "aidreams-tok512.bin", 512)
    ids = tokenizer.encode("\U0001f600", add_special=False)
    assert ids[-4:] == [byte + 3 for byte in "\U0001f600".encode()]
    assert tokenizer.decode(ids) == "\U0001f600"


def write(path: Path, pieces: list[tuple[float, bytes]]) -> Path:
    body = b"".join(struct.pack("<fi", score, len(piece)) + piece for score, piece in pieces)
    path.write_bytes(struct.pack("<i", 8) + body)
    return path


GOOD = [(0.0, b"<unk>"), (0.0, b"\n<s>\n"), (0.0, b"\n</s>\n"), (0.0, b" "), (-1.0, b"a"), (-2.0, b" a")]


def test_unknown_without_byte_pieces(tmp_path: Path) -> None:
    tokenizer = load_llama2c(write(tmp_path / "t.bin", GOOD))
    assert tokenizer.encode("a?!a") == [1, 5, 0, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "truncated"),
        (lambda data: data + b"\0", "truncated"),
        (lambda data: data[:4], "has 0 tokens"),
        (lambda data: data[:8] + struct.pack("<i", -1) + data[12:], "length -1"),
        (lambda data: data[:8] + struct.pack("<i", 2**31 - 1) + data[12:], "length 2147483647"),
        (lambda data: data[:4] + struct.pack("<f", float("nan")) + data[8:], "score 0 is not a number"),
    ],
)
def test_broken_files(tmp_path: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    path = write(tmp_path / "t.bin", GOOD)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(TokenizerError, match=message) as error:
        load_llama2c(path)
    assert str(path) in str(error.value)


def test_fewer_tokens_than_the_model(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="has 6 tokens, but the model has 7"):
        load_llama2c(write(tmp_path / "t.bin", GOOD), 7)


def test_the_configuration_beside_says_what_else_ends_a_text(data: Path, tmp_path: Path) -> None:
    """A folder that training writes: SentencePiece's file, and texts that end where the next begins."""
    (tmp_path / "tokenizer.model").write_bytes((data / "tokenizers" / "llama2-tokenizer.model").read_bytes())
    assert load_path(tmp_path).eos_ids == (2,)
    (tmp_path / "config.json").write_text('{"eos_token_id": [2, 1]}')
    assert load_path(tmp_path).eos_ids == (2, 1)
    (tmp_path / "config.json").write_text('{"eos_token_id": 32000}')
    with pytest.raises(TokenizerError, match="eos_token_id 32000"):
        load_path(tmp_path)


def test_a_checkpoint_of_llama2c_ends_its_texts_at_bos_too(data: Path) -> None:
    """As llama2.c's run does: the next text would begin."""
    checkpoint = open_checkpoint(data / "models" / "aidreams260K.bin")
    tokenizer = load_tokenizer(checkpoint, data / "models" / "aidreams-tok512.bin")
    assert tokenizer.eos_ids == (2, 1)
