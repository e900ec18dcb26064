"""Special tokens: never parsed from a user's text unless asked for; BOS and EOS as the files say; errors that help."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_write_vocabularies import read
from tokenizer_lines import random_lines
from tokenizer_oracles import HARMONY_NAMES, our_o200k, ours, sentencepiece_oracle, tiktoken_oracle

from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.special import find_end_ids

NAMES = ["qwen2", "llama-bpe", "llama-spm", "o200k"]


def get(name: str):  # type: ignore[no-untyped-def]
    return our_o200k() if name == "o200k" else ours(name)


@pytest.mark.parametrize("name", NAMES)
def test_special_texts_stay_plain_text(name: str) -> None:
    tokenizer = get(name)
    special = set(tokenizer.special_ids.values())
    assert special
    for text in tokenizer.special_ids:
        for around in (text, f"a{text}b", f" {text} ", text * 2, f"\n{text}\n", text[:-1] + text):
            ids = tokenizer.encode(around, add_special=False)
            assert not special & set(ids), around
            assert tokenizer.decode(ids) == around


@pytest.mark.parametrize("name", NAMES)
def test_special_texts_become_ids_when_asked(name: str) -> None:
    tokenizer = get(name)
    for text, token_id in tokenizer.special_ids.items():
        ids = tokenizer.encode(f"a{text}{text}b", add_special=False, parse_special=True)
        assert ids.count(tokenizer.special_ids[text]) == 2, text
        assert tokenizer.is_special(token_id)
        if text != "<|reserved_200018|>":  # the other name of <|endofprompt|>
            assert tokenizer.decode(tokenizer.encode(text, add_special=False, parse_special=True)) == text
        assert tokenizer.decode(ids, skip_special=True).replace(" ", "") == "ab"


@given(st.lists(st.sampled_from(["<|im_start|>", "<|im_end|>", "<|", "|>", "im_end", "<", "a", " ", "\n", "é"])))
def test_no_mix_of_parts_is_parsed(parts: list[str]) -> None:
    tokenizer = ours("qwen2")
    ids = tokenizer.encode("".join(parts))
    assert not set(tokenizer.special_ids.values()) & set(ids)
    assert tokenizer.decode(ids) == "".join(parts)


def test_harmony_text_as_tiktoken() -> None:
    texts = [f"<|{name}|>" for name in HARMONY_NAMES.values()]
    for i, line in enumerate(random_lines(51, 500)):
        text = line[: i % 40] + texts[i % len(texts)] + line[i % 40 :] + texts[(i + 1) % len(texts)]
        expected = tiktoken_oracle().encode(text, allowed_special="all")
        assert our_o200k().encode(text, parse_special=True) == expected
        assert our_o200k().encode(text) == tiktoken_oracle().encode_ordinary(text)


def test_ids_of_harmony() -> None:
    tokenizer = our_o200k()
    assert tokenizer.vocab_size == 201088
    assert {name: tokenizer.special_ids[f"<|{name}|>"] for name in HARMONY_NAMES.values()} == {
        name: i for i, name in HARMONY_NAMES.items()
    }
    assert set(tokenizer.eos_ids) == {200002, 200012, 199999}
    assert not tokenizer.adds_bos


@pytest.mark.parametrize(
    ("name", "bos", "eos", "adds_bos"),
    [
        ("qwen2", 151643, (151643, 151645), False),
        ("llama-bpe", 128000, (128001, 128009), True),
        ("llama-spm", 1, (2,), True),
    ],
)
def test_special_ids_of_gguf(name: str, bos: int, eos: tuple[int, ...], adds_bos: bool) -> None:
    tokenizer = ours(name)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (bos, eos, adds_bos)
    plain = tokenizer.encode("Hello", add_special=False)
    assert tokenizer.encode("Hello") == ([bos, *plain] if adds_bos else plain)
    assert tokenizer.encode("") == ([bos] if adds_bos else [])
    assert tokenizer.encode("", add_special=False) == []


ENDS = {
    "Llama 2": ["</s>"],
    "Llama 3": ["<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"],
    "Qwen": ["<|endoftext|>", "<|im_end|>"],
    "DeepSeek": ["<｜end▁of▁sentence｜>", "<EOT>"],
    "Gemma": ["<end_of_turn>"],
    "Phi": ["<|end|>", "<|endoftext|>"],
    "gpt-oss": ["<|return|>", "<|call|>"],
}


@pytest.mark.parametrize("family", ENDS)
def test_texts_that_end_answers(family: str) -> None:
    others = ["<s>", "<|im_start|>", *(["<|end|>"] if family == "gpt-oss" else [])]
    ids = {text: i for i, text in enumerate([*others, *ENDS[family]])}
    assert sorted(find_end_ids(ids, ())) == sorted(ids[text] for text in ENDS[family])
    last = ids[ENDS[family][-1]]
    named = find_end_ids(ids, (99, last))  # those that files name come first, and each is there once
    assert named[:2] == (99, last)
    assert sorted(named) == sorted([99, *(ids[text] for text in ENDS[family])])


@pytest.mark.parametrize("name", ["ggml-vocab-llama-spm.gguf", "llama2-tokenizer.model", "llama2-tokenizer.bin"])
def test_sentencepiece_puts_a_space_after_special_tokens_as_llama_cpp(name: str) -> None:
    """And as Meta's code and llama2.c, which encode each turn of a conversation by itself."""
    tokenizer = make_tokenizer(read(name))
    assert tokenizer.encode("<s>a</s>b", add_special=False, parse_special=True) == [1, 263, 2, 289]
    turns = ["[INST] Hi [/INST] Yes? ", "[INST] No. [/INST]"]
    theirs = [[1, *ids] for ids in sentencepiece_oracle().encode(turns)]
    parts = [("<s>", True), (turns[0], False), ("</s><s>", True), (turns[1], False)]
    assert tokenizer.encode_parts(parts, add_special=False) == [*theirs[0], 2, *theirs[1]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("text", "at"), [("\ud800", 0), ("ab\udfffc", 2), ("\ude00\ud83d", 0)])
def test_lone_surrogates_are_refused(name: str, text: str, at: int) -> None:
    with pytest.raises(TokenizerError, match=rf"lone surrogate U\+{ord(text[at]):04X} at character {at}"):
        get(name).encode(text)


@pytest.mark.parametrize("name", NAMES)
def test_ids_out_of_range(name: str) -> None:
    """Models may have rows for more tokens than the vocabulary: those have no text."""
    tokenizer = get(name)
    with pytest.raises(TokenizerError):
        tokenizer.decode([1, -1])
    for token_id in (tokenizer.vocab_size, 2**31, 2**40, 2**70):
        assert tokenizer.decode([1, token_id]) == tokenizer.decode([1])
    for token_id in (-1, tokenizer.vocab_size, 2**31, 2**40, 2**70):
        with pytest.raises(TokenizerError):
            tokenizer.token_bytes(token_id)
        assert not tokenizer.is_special(token_id)


@pytest.mark.parametrize("name", NAMES)
def test_token_bytes_join_to_the_text(name: str) -> None:
    tokenizer = get(name)
    for line in random_lines(52, 200):
        ids = tokenizer.encode(line, add_special=False)
        joined = b"".join(map(tokenizer.token_bytes, ids)).decode()
        expected = " " + line.replace("\u2581", " ") if name == "llama-spm" and line else line
        assert joined == expected
    assert tokenizer.token_text(ids[0])


def test_decode_replaces_broken_utf8() -> None:
    tokenizer = ours("qwen2")
    ids = tokenizer.encode("\U00012345", add_special=False)
    assert len(ids) > 1
    assert tokenizer.decode(ids[:1]) == "\ufffd"
    assert tokenizer.decode([*ids[:1], *tokenizer.encode("a")]) == "\ufffda"


@pytest.mark.parametrize("name", NAMES)
def test_parts_are_tokenized_as_one_text(name: str) -> None:
    tokenizer = get(name)
    special = next(text for text, i in tokenizer.special_ids.items() if i == tokenizer.eos_ids[0])
    for i, line in enumerate(random_lines(53, 300)):
        cut = i % (len(line) + 1)
        parts = [(special + "user\n", True), (line[:cut] + special, False), (line[cut:], True), (special, True)]
        ids = tokenizer.encode_parts(parts, add_special=False)
        # The same text with the user's special token made plain: split where the trusted ones stand.
        inner = tokenizer.encode_parts([(special, True), ("user\n" + line[:cut] + special + line[cut:], False)])
        assert ids.count(tokenizer.eos_ids[0]) == 2
        assert ids[:-1] == inner[len(inner) - len(ids) + 1 :]
        assert tokenizer.encode_parts([(line, True)]) == tokenizer.encode(line, parse_special=True)
        assert tokenizer.encode_parts([(line[:cut], False), (line[cut:], False)]) == tokenizer.encode(line)


def test_a_special_token_does_not_grow_over_a_border() -> None:
    tokenizer = ours("qwen2")
    special = {151643, 151644, 151645}
    assert not special & set(tokenizer.encode_parts([("<|im_", True), ("end|>", True)]))
    assert not special & set(tokenizer.encode_parts([("<|im_end", True), ("|>", False)]))
    with pytest.raises(TokenizerError, match="lone surrogate"):
        tokenizer.encode_parts([("a", True), ("\udc00", False)])
