"""Ids against llama.cpp's vectors and, on random lines, against the libraries that the models were trained with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizer_lines import random_line
from tokenizer_oracles import THOROUGH, hugging_face, our_o200k, ours, sentencepiece_oracle, tiktoken_oracle

N_LINES = 1_000_000 if THOROUGH else 3_000
BATCH = 2_000


def batches(seed: int) -> Iterator[list[str]]:
    random_ = random.Random(seed)
    for start in range(0, N_LINES, BATCH):
        yield [random_line(random_) for _ in range(min(BATCH, N_LINES - start))]


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm"])
def test_llama_cpp_vectors(data: Path, name: str) -> None:
    folder = data / "tokenizers"
    texts = (folder / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = (folder / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    assert len(texts) > 40
    for text, ids in zip(texts, expected, strict=True):
        assert ours(name).encode(text, add_special=False) == [int(i) for i in ids.split()], text


def compare(
    encode: Callable[[str], list[int]],
    decode: Callable[[list[int]], str],
    oracle: Callable[[list[str]], list[list[int]]],
    seed: int,
    as_decoded: Callable[[str], str] = str,
) -> None:
    for lines in batches(seed):
        for line, expected in zip(lines, oracle(lines), strict=True):
            ids = encode(line)
            assert ids == expected, line
            assert decode(ids) == as_decoded(line), line


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("name", ["qwen2", "llama-bpe"])
def test_random_lines_as_hugging_face(name: str) -> None:
    theirs = hugging_face(name)
    tokenizer = ours(name)
    compare(
        lambda text: tokenizer.encode(text, add_special=False),
        tokenizer.decode,
        lambda lines: [encoding.ids for encoding in theirs.encode_batch_fast(lines, add_special_tokens=False)],
        seed=11,
    )


@pytest.mark.timeout(20_000)
def test_random_lines_as_tiktoken() -> None:
    theirs = tiktoken_oracle()
    tokenizer = our_o200k()
    compare(
        lambda text: tokenizer.encode(text, add_special=False),
        tokenizer.decode,
        lambda lines: [theirs.encode_ordinary(line) for line in lines],
        seed=12,
    )


@pytest.mark.timeout(20_000)
def test_random_lines_as_sentencepiece() -> None:
    theirs = sentencepiece_oracle()
    tokenizer = ours("llama-spm")
    compare(
        lambda text: tokenizer.encode(text, add_special=False),
        tokenizer.decode,
        theirs.encode,
        seed=13,
        as_decoded=lambda text: text.replace("\u2581", " "),  # SentencePiece cannot tell the two apart
    )


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm", "o200k"])
def test_books(data: Path, name: str) -> None:
    text = (data / "text" / "childrens-books.txt").read_bytes().decode()
    text = text if THOROUGH else text[:400_000]
    tokenizer = our_o200k() if name == "o200k" else ours(name)
    ids = tokenizer.encode(text, add_special=False)
    if name == "o200k":
        expected = tiktoken_oracle().encode_ordinary(text)
    elif name == "llama-spm":
        expected = sentencepiece_oracle().encode(text)
    else:
        expected = hugging_face(name).encode(text, add_special_tokens=False).ids
    assert ids == expected
    assert tokenizer.decode(ids) == text


def test_every_character_alone_and_between_letters() -> None:
    """The character classes of the tables are those of tiktoken and of `tokenizers`, for every code point."""
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    step = 512 if THOROUGH else 4096
    theirs, tokenizer, qwen, hf_qwen = tiktoken_oracle(), our_o200k(), ours("qwen2"), hugging_face("qwen2")
    for start in range(0, len(code_points), step):
        text = "".join(f"{chr(c)}a{chr(c)}A 1" for c in code_points[start : start + step])
        assert tokenizer.encode(text, add_special=False) == theirs.encode_ordinary(text), hex(code_points[start])
        if THOROUGH or start % (8 * step) == 0:
            expected = hf_qwen.encode(text, add_special_tokens=False).ids
            assert qwen.encode(text, add_special=False) == expected, hex(code_points[start])


def check_long(name: str, text: str) -> None:
    tokenizer = our_o200k() if name == "o200k" else ours(name)
    if name == "o200k":
        expected = tiktoken_oracle().encode_ordinary(text)
    elif name == "llama-spm":
        expected = sentencepiece_oracle().encode(text)
    else:
        expected = hugging_face(name).encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text, add_special=False) == expected


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm", "o200k"])
@pytest.mark.parametrize("length", [39, 40, 41, 511, 512, 513, 1023, 1024, 1025, 1026, 2500, 20_000])
def test_long_words(name: str, length: int) -> None:
    """One pretoken longer than a window of the merging, with few and with many letters."""
    random_ = random.Random(length)
    check_long(name, "a" * length)
    check_long(name, "ab" * (length // 2))
    check_long(name, "".join(random_.choices("ab", k=length)))
    check_long(name, "".join(random_.choices("etaoinshrdlu", k=length)))
    check_long(name, "".join(random_.choices("的一是不了在人有我他", k=length)))
    check_long(name, "=" * length)
