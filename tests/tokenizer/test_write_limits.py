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
from gristmill.tokenizer.vocabulary import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, AddedToken, Vocabulary
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
        (replace(BPE, suffix_ids=(258, 3)), r"the ids \(\) before and \(258, 3\) after each text"),
        (replace(SPM, scores=None, merges=["a b", "a bc", "b c"]), "merges are not SentencePiece's"),
    ],
)
def test_gguf_refuses(vocabulary: Vocabulary, problem: str) -> None:
    with pytest.raises(TokenizerError, match=problem):
        to_gguf_metadata(vocabulary)


def test_gguf_has_keys_for_three_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """So they are for those that no reader finds by their text."""
    for ends, found in (((7, 258, 8, 9), {7, 258, 8, 9}), ((7, 258, 8, 9, 10), {7, 258, 8, 9})):
        assert caplog.messages == []
        write_gguf(tmp_path / "a.gguf", to_gguf_metadata(replace(BPE, named_end_ids=ends)))
        read = vocabulary_of(open_checkpoint(tmp_path / "a.gguf"), None)
        assert read is not None
        assert (read.eos_id, set(read.eos_ids)) == (7, found)
    assert caplog.messages == ["model.gguf: GGUF has keys for 3 ids that end an answer: 10 will end none"]


def test_gguf_needs_no_ignore_merges_where_it_changes_nothing() -> None:
    assert to_gguf_metadata(replace(BPE, whole_word_first=True))["tokenizer.ggml.pre"] == "qwen2"
    llama3 = replace(BPE, whole_word_first=True, splitter=Splitter.LLAMA3)
    assert to_gguf_metadata(llama3)["tokenizer.ggml.pre"] == "llama-bpe"


def test_ranks_ignore_merges(tmp_path: Path) -> None:
    """Words that are tokens are those, whatever smaller tokens there are."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"abc"]
    ranked = replace(BPE, tokens=tokens, types=bytes([NORMAL]) * 257, merges=None, is_ranked=True, added=())
    ranked = replace(ranked, named_end_ids=(), splitter=Splitter.LLAMA3)
    assert to_gguf_metadata(ranked)["tokenizer.ggml.pre"] == "llama-bpe"
    with pytest.raises(TokenizerError, match="QWEN2 with ignore_merges has no name"):
        to_gguf_metadata(replace(ranked, splitter=Splitter.QWEN2))
    check_json(tmp_path, ranked, {"abc": [256], "abcd": [*b"abcd"]})


def test_normalization_is_in_tokenizer_json(tmp_path: Path) -> None:
    check_json(tmp_path, replace(BPE, nfc=True), {"e\u0301": [*"\u00e9".encode()]})
    check_json(tmp_path, BPE, {"e\u0301": [*"e\u0301".encode()]})


def test_characters_that_nothing_stands_for_are_one_unknown_token(tmp_path: Path) -> None:
    small = replace(
        SPM,
        tokens=["<unk>", "<s>", "</s>", "\u2581", "a"],
        types=bytes([UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL]),
        scores=[0.0, 0.0, 0.0, -1.0, -2.0],
        prefix_ids=(),
    )
    check_json(tmp_path, small, {"a": [3, 4], "a\u00e9\u00e9 a": [3, 4, 0, 3, 4]})


def check_json(folder: Path, vocabulary: Vocabulary, expected: dict[str, list[int]]) -> None:
    """Texts have these ids as they are, through tokenizer.json, and there for the `tokenizers` library too."""
    tokenizers = pytest.importorskip("tokenizers")
    write_tokenizer_json(vocabulary, folder / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text, ids in expected.items():
        assert make_tokenizer(vocabulary).encode(text) == ids, text
        assert load_path(folder).encode(text) == theirs.encode(text).ids == ids, text


def test_flags_of_added_tokens_come_back(tmp_path: Path) -> None:
    flags = {
        "<l>": kinds.SPECIAL | kinds.LEFT_STRIP,
        "<r>": kinds.SPECIAL | kinds.RIGHT_STRIP,
        "word": kinds.SINGLE_WORD,
        "<b>": kinds.LEFT_STRIP | kinds.RIGHT_STRIP,
    }
    more = [(text, CONTROL if flag & kinds.SPECIAL else USER_DEFINED, flag) for text, flag in flags.items()]
    write_tokenizer_json(with_tokens(BPE, *more), tmp_path / "tokenizer.json")
    assert {token.text: token.flags for token in read_path(tmp_path).added} == flags | {"<|end|>": kinds.SPECIAL}


def test_an_end_of_two_names_comes_back(tmp_path: Path) -> None:
    vocabulary = replace(BPE, added=(*BPE.added, AddedToken("<|stop|>", 258, kinds.SPECIAL)))
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    assert read_path(tmp_path).eos_id == 258


def test_texts_of_a_pair_have_types_of_their_own(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = replace(BPE, bos_id=258, prefix_ids=(258,))
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert (theirs.encode("ab").ids, theirs.encode("ab").type_ids) == ([258, 256], [0, 0])
    pair = theirs.encode("ab", "abc")
    assert (pair.ids, pair.type_ids) == ([258, 256, 258, 257], [0, 0, 1, 1])


def test_sentencepiece_models_name_their_ids(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    vocabulary = replace(with_tokens(SPM, ("<pad>", CONTROL, kinds.SPECIAL)), pad_id=266)
    write_sentencepiece(vocabulary, tmp_path / "tokenizer.model")
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    assert (theirs.unk_id(), theirs.bos_id(), theirs.eos_id(), theirs.pad_id()) == (0, 1, 2, 266)
    back = read_path(tmp_path)
    assert (back.unk_id, back.bos_id, back.eos_id, back.pad_id) == (0, 1, 2, 266)


def test_tokens_that_nothing_uses_are_not_in_tokenizer_json(tmp_path: Path) -> None:
    base = replace(SPM, merges=merges_of(SPM), scores=None)
    vocabulary = with_tokens(base, ("d", UNUSED, None), ("<t>", CONTROL, kinds.SPECIAL))
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    back = read_path(tmp_path)
    assert back.types[-2:] == bytes([UNUSED, CONTROL])
    assert make_tokenizer(back).encode("d") == make_tokenizer(vocabulary).encode("d")


@pytest.mark.parametrize("space", [True, False])
def test_whether_a_space_comes_first_comes_back(tmp_path: Path, space: bool) -> None:
    vocabulary = replace(SPM, space_first=space, space_after_added=space, strips_first_space=space)
    write_gguf(tmp_path / "v.gguf", to_gguf_metadata(vocabulary))
    from_gguf = vocabulary_of(open_checkpoint(tmp_path / "v.gguf"))
    assert from_gguf is not None
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    write_sentencepiece(vocabulary, tmp_path / "tokenizer.model")
    original = make_tokenizer(vocabulary)
    for back in (from_gguf, read_path(tmp_path / "tokenizer.json"), read_path(tmp_path / "tokenizer.model")):
        tokenizer = make_tokenizer(back)
        for line in ("ab", " ab", "  abc", *random_lines(5, 100)):
            ids = original.encode(line)
            assert tokenizer.encode(line) == ids, line
            assert tokenizer.decode(ids) == original.decode(ids), line


def test_gguf_names_ids_that_nobody_has() -> None:
    metadata = to_gguf_metadata(with_tokens(BPE, ("<|reserved|>", UNUSED, None), ("", UNUSED, None)))
    assert metadata["tokenizer.ggml.tokens"][-2:] == [b"<|reserved|>", b"[PAD260]"]
    assert list(metadata["tokenizer.ggml.token_type"][-2:]) == [UNUSED, UNUSED]


def test_gguf_has_a_type_for_the_unknown_token() -> None:
    """tokenizer.json knows it only as one of the special tokens."""
    types = bytes([CONTROL]) + SPM.types[1:]
    assert list(to_gguf_metadata(replace(SPM, types=types))["tokenizer.ggml.token_type"][:2]) == [UNKNOWN, CONTROL]


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
