"""Long texts, long words, many threads: near linear, the same ids, nothing shared that must not be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from processor_time import assert_grows_less
from tokenizer_lines import random_lines
from tokenizer_oracles import our_o200k, ours


def get(name: str):  # type: ignore[no-untyped-def]
    return our_o200k() if name == "o200k" else ours(name)


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm", "o200k"])
@pytest.mark.parametrize(
    "unit", ["a", "ab", "thequickbrownfoxjumpsoverthelazydog", "天地玄黄宇宙洪荒", " ", "\n", "<|im_", "é", "'", "1"]
)
def test_a_megabyte_without_a_break_is_near_linear(name: str, unit: str) -> None:
    tokenizer = get(name)
    text = unit * (1_000_000 // len(unit.encode()))
    # Twenty times the text may take twenty times as long; quadratic would be four hundred times.
    assert_grows_less(lambda n: tokenizer.encode_array(text[:n]), len(text) // 20, len(text), 80)
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


@pytest.mark.parametrize("name", ["qwen2", "llama-spm"])
def test_threads_do_not_disturb_each_other(name: str) -> None:
    tokenizer = get(name)
    lines = [*random_lines(91, 400), "x" * 5000, "word " * 5000]
    alone = [tokenizer.encode(line) for line in lines]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(tokenizer.encode, lines)) == alone


def test_words_forgotten_by_the_cache_come_back_the_same() -> None:
    """Far more different words than the cache holds, twice."""
    tokenizer = get("qwen2")
    words = [f" w{i:x}" for i in range(150_000)]
    first = tokenizer.encode("".join(words))
    assert tokenizer.encode("".join(words)) == first
    assert tokenizer.decode(first) == "".join(words)
    sample = [tokenizer.encode(word) for word in words[::1000]]
    at = 0
    for here, there in pairwise([*range(0, 150_000, 1000), 150_000]):
        ids = tokenizer.encode("".join(words[here:there]))
        assert first[at : at + len(ids)] == ids
        assert ids[: len(sample[here // 1000])] == sample[here // 1000]
        at += len(ids)
