"""What a form cannot say is refused by name, and rarer things that forms can say come back as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_write_vocabularies import write_gguf
from tokenizer_lines import random_lines

from gristmill._tokenizer import Splitter
from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer import kinds
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.files import load_path, read_path
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.load import vocabulary_of
from gristmill.tokenizer.merges import BYTE_ALPHABET, merges_of, scores_of
from gristmill.tokenizer.vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED, AddedToken, Vocabulary
from gristmill.tokenizer.write import to_gguf_metadata, write_llama2c, write_tokenizer_json
from gristmill.tokenizer.write_sentencepiece import write_sentencepiece
from gristmill.train.tokenizer import make_vocabulary

SPM = make_vocabulary(["ab", "\u2581ab", "abc", "\u2581", "a", "b", "c"])
BPE = Vocabulary(
    "bpe",
    [*BYTE_ALPHABET, "ab", "abc", "<|end|>"],
    bytes([NORMAL]) * 258 + bytes([CONTROL]),
    "model.gguf",
    merges=["a b", "ab c"],
    splitter=Splitter.QWEN2,
    added=(AddedToken("<|end|>", 258, kinds.SPECIAL),),
    named_end_ids=(258,),
)


def with_tokens(vocabulary: Vocabulary, *more: tuple[str, int, int | None]) -> Vocabulary:
    """The vocabulary and further tokens: text, type, and flags for one that is found before all merging."""
    n = vocabulary.n_tokens
    return replace(
        vocabulary,
        tokens=[*map(str, vocabulary.tokens), *(text for text, _, _ in more)],
        types=vocabulary.types + bytes(kind for _, kind, _ in more),
        scores=None if vocabulary.scores is None else [*vocabulary.scores, *(-1000.0 - i for i in range(len(more)))],
        added=vocabulary.added
        + tuple(AddedToken(text, n + i, flags) for i, (text, _, flags) in enumerate(more) if flags is not None),
    )


@pytest.mark.parametrize(
    ("vocabulary", "problem"),
    [
        (replace(BPE, splitter=Splitter.NONE, patterns=(r"\w+|.",)), r"pattern '\\\\w\+\|\.' has no name in GGUF"),
        (replace(BPE, splitter=Splitter.NONE), "pre-tokenizer NONE without ignore_merges has no name"),
        (
            replace(with_tokens(BPE, ("xyz", NORMAL, None)), whole_word_first=True),
            "pre-tokenizer QWEN2 with ignore_merges has no name",
        ),
        (replace(BPE, prefix_ids=(258, 3), bos_id=258), r"the ids \(258, 3\) before and \(\) after each text"),
        (replace(SPM, scores=None, merges=["a b", "a bc", "b c"]), "merges are not SentencePiece's"),
    ],
)
def test_gguf_refuses(vocabulary: Vocabulary, problem: str) -> None:
    with pytest.raises(TokenizerError, match=problem):
        to_gguf_metadata(vocabulary)


def test_gguf_needs_no_ignore_merges_where_it_changes_nothing() -> None:
    assert to_gguf_metadata(replace(BPE, whole_word_first=True))["tokenizer.ggml.pre"] == "qwen2"
    llama3 = replace(BPE, whole_word_first=True, splitter=Splitter.LLAMA3)
    assert to_gguf_metadata(llama3)["tokenizer.ggml.pre"] == "llama-bpe"


def test_merges_refuse_equal_scores_and_bare_characters() -> None:
    tied = replace(SPM, scores=[0.0] * SPM.n_tokens)
    with pytest.raises(TokenizerError, match="'ab' and '\u2581ab' both have the score 0, which merges cannot say"):
        merges_of(tied)
    bare = make_vocabulary(["ab", "a"])
    with pytest.raises(TokenizerError, match="character 'b' of some tokens is no token itself"):
        merges_of(bare)


def test_scores_of_merges_that_are_sentencepieces() -> None:
    merges = merges_of(SPM)
    assert merges == [("a", "b"), ("\u2581", "ab"), ("ab", "c")]
    back = replace(SPM, scores=None, merges=[f"{left} {right}" for left, right in merges])
    assert merges_of(replace(back, scores=scores_of(back), merges=None)) == merges


@pytest.mark.parametrize(
    ("vocabulary", "problem"),
    [
        (BPE, "is a byte-level BPE"),
        (replace(SPM, space_first=False), "puts no space before a text"),
        (replace(SPM, bos_id=2, named_end_ids=(1,)), r"the ids of unknown, BOS and EOS are \(0, 2, 1\)"),
        (replace(SPM, types=SPM.types.replace(b"\6", b"\1")), "the tokens of bytes are not ids 3 to 258"),
        (
            with_tokens(SPM, ("[PAD]", CONTROL, kinds.SPECIAL)),
            r"token 266 \('\[PAD\]'\) is found before all merging: llama2.c's tokenizer.bin cannot say that",
        ),
    ],
)
def test_llama2c_refuses(tmp_path: Path, vocabulary: Vocabulary, problem: str) -> None:
    with pytest.raises(TokenizerError, match=problem):
        write_llama2c(vocabulary, tmp_path / "tokenizer.bin")
    assert not list(tmp_path.iterdir())


def test_sentencepiece_refuses(tmp_path: Path) -> None:
    for vocabulary, problem in ((BPE, "byte-level"), (replace(SPM, unk_id=None), "has no unknown token")):
        with pytest.raises(TokenizerError, match=problem):
            write_sentencepiece(vocabulary, tmp_path / "tokenizer.model")


@pytest.mark.parametrize("base", [BPE, replace(SPM, space_after_added=True)], ids=["bpe", "spm"])
@pytest.mark.parametrize("hole", [True, False])
def test_added_tokens_and_holes_through_json_and_gguf(tmp_path: Path, base: Vocabulary, hole: bool) -> None:
    """Special tokens, others that are found in text, and ids that nobody has."""
    tokenizers = pytest.importorskip("tokenizers")
    more = [
        ("<think>", USER_DEFINED, 0),
        *([("", UNUSED, None)] if hole else []),
        ("<|im_end|>", CONTROL, kinds.SPECIAL),
    ]
    vocabulary = with_tokens(base, *more)
    path = tmp_path / "tokenizer.json"
    write_tokenizer_json(vocabulary, path)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    write_gguf(tmp_path / "v.gguf", to_gguf_metadata(vocabulary))
    from_gguf = vocabulary_of(open_checkpoint(tmp_path / "v.gguf"))
    assert from_gguf is not None
    forms = [make_tokenizer(vocabulary), load_path(path), make_tokenizer(from_gguf)]
    assert all(form.vocab_size == vocabulary.n_tokens for form in forms)
    assert all(dict(form.special_ids) == forms[0].special_ids for form in forms)
    for line in [*random_lines(3, 200), "ab<think>abc<|im_end|> ab <|end|>abc", "<think>", "<|im_end|>"]:
        expected = forms[0].encode(line, parse_special=True)
        assert theirs.encode(line).ids == expected, line
        assert [form.encode(line, parse_special=True) for form in forms] == [expected] * 3, line


@pytest.mark.parametrize("each", [True, False])
def test_metaspace_comes_back(tmp_path: Path, each: bool) -> None:
    vocabulary = replace(SPM, space_unless_there=True, space_after_added=each, scores=None, merges=merges_of(SPM))
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    back = read_path(tmp_path)
    assert (back.space_first, back.space_after_added, back.space_unless_there) == (True, each, True)
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    mine = load_path(tmp_path)
    for line in [" ab", "ab", "  ab c", *random_lines(4, 100)]:
        assert mine.encode(line, parse_special=True) == theirs.encode(line).ids, line


def test_templates_flags_and_ids_come_back(tmp_path: Path) -> None:
    templates = {"": "{{ messages }}", "tool_use": "{{ tools }}"}
    vocabulary = replace(SPM, chat_templates=templates, pad_id=0, suffix_ids=(2,), prefix_ids=())
    write_gguf(tmp_path / "v.gguf", to_gguf_metadata(vocabulary))
    back = vocabulary_of(open_checkpoint(tmp_path / "v.gguf"))
    assert back is not None
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    from_json = vocabulary_of(open_checkpoint(tmp_path / "v.gguf"), tmp_path / "tokenizer.json")
    assert from_json is not None
    for form in (back, from_json):
        assert form.chat_templates == templates
        assert form.chat_template == "{{ messages }}"
        assert (form.pad_id, form.unk_id, form.bos_id, form.eos_id) == (0, 0, 1, 2)
        assert (form.prefix_ids, form.suffix_ids, form.adds_bos, form.adds_eos) == ((), (2,), False, True)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["pad_token"], config["add_bos_token"], config["add_eos_token"]) == ("<unk>", False, True)


def test_a_model_without_a_vocabulary_has_none(tmp_path: Path) -> None:
    write_gguf(tmp_path / "v.gguf", {})
    assert vocabulary_of(open_checkpoint(tmp_path / "v.gguf")) is None
