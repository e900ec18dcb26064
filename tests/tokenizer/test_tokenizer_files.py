"""Finding and reading vocabulary files: SentencePiece, tiktoken, GGUF, folders; and what broken ones say."""

from __future__ import annotations

import base64
import gzip
import json
import random
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_write_vocabularies import write_gguf
from tokenizer_lines import random_lines
from tokenizer_oracles import THOROUGH, our_o200k, ours, read_metadata, sentencepiece_oracle
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from gristmill._tokenizer import Splitter
from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.files import load_path, read_path
from gristmill.tokenizer.gguf_vocab import load_gguf_vocabulary, read_gguf_vocabulary
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.load import load_tokenizer, vocabulary_of
from gristmill.tokenizer.sentencepiece_file import load_sentencepiece, read_sentencepiece
from gristmill.tokenizer.stream import StreamDecoder
from gristmill.tokenizer.tiktoken_file import load_tiktoken
from gristmill.tokenizer.write import to_gguf_metadata, write_tokenizer_json
from gristmill.tokenizer.write_sentencepiece import write_sentencepiece


@dataclass
class FakeCheckpoint:
    """As much of a checkpoint as loading a tokenizer looks at."""

    path: Path
    format: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


def load(path: Path, format_: str, metadata: Mapping[str, Any] | None = None, override: Path | None = None) -> Any:
    return load_tokenizer(FakeCheckpoint(path, format_, metadata or {}), override)  # type: ignore[arg-type]


def test_sentencepiece_model(data: Path) -> None:
    tokenizer = load_sentencepiece(data / "tokenizers" / "llama2-tokenizer.model")
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (32000, 1, (2,))
    for line in random_lines(71, 1000):
        expected = sentencepiece_oracle().encode(line)
        assert tokenizer.encode(line, add_special=False) == expected, line
        assert tokenizer.encode(line) == [1, *expected]
        assert tokenizer.decode(expected) == sentencepiece_oracle().decode(expected)


@pytest.mark.parametrize(
    "user_defined",
    [["ab", "abc", "\u2581x", "\n"], ["\u2581\u2581", "\u2581\u2581\u2581", "<x>"], ["e c", "a b", "<x>"], []],
)
def test_trained_sentencepiece_models(tmp_path: Path, user_defined: list[str]) -> None:
    """Models of other shapes than Llama's: user-defined symbols, no byte pieces, no dummy prefix."""
    sentencepiece = pytest.importorskip("sentencepiece")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat on the mat, abc abcabc\nwho let the dogs out? x xx\n" * 50)
    for byte_fallback in (False, True):
        for prefix in (False, True):
            sentencepiece.SentencePieceTrainer.train(
                input=str(corpus),
                model_prefix=str(tmp_path / "m"),
                model_type="bpe",
                vocab_size=320 if byte_fallback else 60,
                hard_vocab_limit=False,
                byte_fallback=byte_fallback,
                add_dummy_prefix=prefix,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                user_defined_symbols=user_defined,
                minloglevel=2,
            )
            theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "m.model"))
            mine = load_sentencepiece(tmp_path / "m.model")
            write_sentencepiece(read_sentencepiece(tmp_path / "m.model"), tmp_path / "again.model")
            again = sentencepiece.SentencePieceProcessor(str(tmp_path / "again.model"))
            known = ["the cat", "abcabx x", "  a\nb ", "\u2581x?!", "zzé😀qq", "xabc", "if x:\n    the", " x  <x>   "]
            for line in [*known, *spaced_lines(300), *random_lines(72, 300)]:
                expected = theirs.encode(line)
                assert mine.encode(line, add_special=False) == expected, line
                assert again.encode(line) == expected, line
                if theirs.unk_id() not in expected:  # SentencePiece prints two question marks for it
                    assert mine.decode(expected) == theirs.decode(expected), line
                    assert streamed(mine, expected) == theirs.decode(expected), line


def test_user_defined_spaces_in_gguf(tmp_path: Path) -> None:
    """Spelt with spaces, as llama.cpp's converter writes them and its tokenizer finds them."""
    (tmp_path / "m.model").write_bytes(message(*PIECES, piece("\u2581\u2581", 0, 4), TRAINER, NORMALIZER))
    metadata = to_gguf_metadata(read_sentencepiece(tmp_path / "m.model"))
    assert metadata["tokenizer.ggml.tokens"] == [b"<unk>", b"<s>", b"</s>", b"\xe2\x96\x81", b"a", b"  "]
    write_gguf(tmp_path / "m.gguf", metadata)
    tokenizer = load_tokenizer(open_checkpoint(tmp_path / "m.gguf"))
    assert 5 in tokenizer.encode("a  a")
    assert tokenizer.decode([4, 5, 4]) == "a  a"


def spaced_lines(n: int) -> list[str]:
    random_ = random.Random(73)
    pieces = ["a", "the", "x", "<x>", "<", "\n", " ", "  ", "   ", "\u2581", "\u2581\u2581", "<s>", "ab"]
    return ["".join(random_.choices(pieces, k=random_.randint(1, 9))) for _ in range(n)]


def streamed(tokenizer: CodecTokenizer, ids: list[int]) -> str:
    decoder = StreamDecoder(tokenizer, at_start=True)
    return "".join(map(decoder.push, ids)) + decoder.flush()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(*fields: tuple[int, int | bytes]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value & (1 << 64) - 1)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def piece(text: str, score: float, kind: int = 1) -> tuple[int, bytes]:
    return (1, message((1, text.encode())) + varint(2 << 3 | 5) + struct.pack("<f", score) + message((3, kind)))


PIECES = [piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3), piece("\u2581", 0), piece("a", -1)]
TRAINER = (2, message((3, 2)))
NORMALIZER = (3, message((4, 0)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "model_type"),
        (b"\xff" * 30, "no SentencePiece model"),
        (message(*PIECES, TRAINER, NORMALIZER)[:-1], "no SentencePiece model"),
        (message(*PIECES, (2, message((3, 1))), NORMALIZER), "model_type is 1"),
        (message(*PIECES, TRAINER), "remove_extra_whitespaces"),
        (message(*PIECES, TRAINER, (3, message((4, 0), (2, b"map")))), "character map"),
        (message(*PIECES, TRAINER, (3, message((4, 0), (5, 0)))), "escape_whitespaces"),
        (message(*PIECES, (2, message((3, 2), (24, 1))), NORMALIZER), "treat_whitespace_as_suffix"),
        (message(*PIECES, (2, message((3, 2), (41, 5))), NORMALIZER), r"ids \[0, 5, 2\], but there are 5 pieces"),
        (message(TRAINER, NORMALIZER), "there are 0 pieces"),
        (message(*PIECES, piece("<0x-1>", 0, 6), TRAINER, NORMALIZER), "token 5 is of the type byte"),
        (message(*PIECES, piece("x", float("nan")), TRAINER, NORMALIZER), "score 5 is not a number"),
        (message(*PIECES, piece("x", 0, 9), TRAINER, NORMALIZER), "no SentencePiece model"),
        (message((1, 5), TRAINER, NORMALIZER), "no SentencePiece model"),
        (message(*PIECES, piece("x", 0, 5), TRAINER, NORMALIZER), "piece 5 is of the type unused"),
    ],
)
def test_broken_sentencepiece_models(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=problem) as error:
        load_sentencepiece(path)
    assert str(path) in str(error.value)


def test_the_unbroken_model_loads(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(message(*PIECES, TRAINER, NORMALIZER))
    assert load_sentencepiece(path).encode("a a") == [1, 3, 4, 3, 4]
    vocabulary = read_sentencepiece(path)  # the file says no ids, so those of the schema count
    assert (vocabulary.unk_id, vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id) == (0, 1, 2, None)


def test_a_sentencepiece_model_may_have_no_bos_nor_eos(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(message(*PIECES, (2, message((3, 2), (41, -1), (42, -1), (43, 2))), NORMALIZER))
    vocabulary = read_sentencepiece(path, adds_bos=True, adds_eos=True)
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id) == (None, None, 2)
    assert (vocabulary.prefix_ids, vocabulary.suffix_ids) == ((), ())


@settings(max_examples=5000 if THOROUGH else 300, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_mutated_sentencepiece_models(tmp_path_factory: pytest.TempPathFactory, at: int, patch: bytes) -> None:
    good = message(*PIECES, TRAINER, NORMALIZER)
    at %= len(good)
    path = tmp_path_factory.getbasetemp() / "mutated.model"
    path.write_bytes(good[:at] + patch + good[at + len(patch) :])
    try:
        tokenizer = load_sentencepiece(path)
        tokenizer.decode(tokenizer.encode("a b\u00e9"))
    except TokenizerError:
        pass


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "0 ranks"),
        (b"YQ== 0\nYg==", "line 2 is not a token"),
        (b"YQ== 0\nYg== x", "line 2 is not a token"),
        (b"YQ 0", "line 1 is not a token"),
        (b"YQ==\t0", "line 1 is not a token"),
        (b"= 0", "line 1 has an empty token"),
        (b"YQ== 0\nYg== 0", "line 2"),
        (b"YQ== -1", "line 1"),
        (b"YQ== 99999999999", "line 1"),
        (b"YQ== 0\nYg== 2", "lines are missing"),
        (b"YQ== 0\nYg== 1", "has 2 ranks; known are 199998"),
    ],
)
def test_broken_tiktoken_files(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=problem) as error:
        load_tiktoken(path)
    assert str(path) in str(error.value)
    zipped = tmp_path / "x.tiktoken.gz"
    zipped.write_bytes(gzip.compress(content)[:-3])
    with pytest.raises(TokenizerError, match="gzip"):
        load_tiktoken(zipped)


def small_gguf() -> dict[str, Any]:
    tokens = ["a", "b", "ab", "\u0120", *(f"<0x{i:02X}>" for i in range(3)), "<s>", "x y"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1, 1, 1, 1, 1, 1, 1, 3, 4],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.bos_token_id": 7,
    }


BROKEN_GGUF: list[tuple[str, Any, str]] = [
    ("model", None, "model is None"),
    ("model", "bert", "model is 'bert'"),
    ("model", 3, "model is 3, not a string"),
    ("pre", None, "pre is None"),
    ("pre", "nope", "pre is 'nope'; supported are .*qwen2"),
    ("tokens", None, "tokens is missing"),
    ("tokens", [], "tokens is missing"),
    ("tokens", "abc", "tokens is 'abc', not an array"),
    ("tokens", 5, "tokens is 5, not an array"),
    ("tokens", [1] * 9, "neither str nor bytes"),
    ("tokens", ["c"] * 9, "merge 0 joins"),
    ("tokens", ["a"], "token_type has 9 entries"),
    ("token_type", [1] * 8, "has 8 entries"),
    ("token_type", [7] * 9, "something else"),
    ("token_type", [-1] * 9, "something else"),
    ("token_type", ["x"] * 9, "something else"),
    ("token_type", [1] * 8 + [[1, 2]], "something else"),
    ("token_type", [1] * 8 + [2**70], "something else"),
    ("token_type", [1.0] * 9, "something else"),
    ("token_type", [6] * 9, "token 0 is of the type byte"),
    ("merges", None, "merges is missing"),
    ("merges", ["a"], "merge 0 is not two tokens"),
    ("merges", [""], "merge 0 is not two tokens"),
    ("merges", ["a q"], "merge 0 joins or makes"),
    ("merges", [b"\xff a"], "merge 0 joins or makes"),
    ("bos_token_id", 9, "bos_token_id is 9, but the vocabulary has 9 tokens: mend the file"),
    ("bos_token_id", -1, "bos_token_id is -1"),
    ("bos_token_id", "1", "bos_token_id is '1'"),
    ("eos_token_id", 2**32, "eos_token_id is 4294967296"),
    ("eot_token_id", 99, "eot_token_id is 99"),
    ("add_bos_token", "yes", "add_bos_token is 'yes', not a bool"),
]


@pytest.mark.parametrize(("key", "value", "problem"), BROKEN_GGUF)
def test_broken_gguf_vocabularies(key: str, value: Any, problem: str) -> None:
    metadata = small_gguf()
    metadata["tokenizer.ggml." + key] = value
    with pytest.raises(TokenizerError, match=problem) as error:
        load_gguf_vocabulary(metadata, "model.gguf")
    assert "model.gguf" in str(error.value)


WRONG_KINDS = {
    "strings": ["x"] * 9,
    "whole numbers": np.array([7] * 9, np.int32),
    "numbers": np.array([0.5] * 9, np.float32),
    "a string": "x",
    "a number": np.uint32(99),
}


@pytest.mark.parametrize("model", ["gpt2", "llama"])
@pytest.mark.parametrize("kind", WRONG_KINDS)
def test_values_of_a_wrong_kind_in_a_gguf_file(tmp_path: Path, model: str, kind: str) -> None:
    """As the file's own reader gives them, which are no lists."""
    value = WRONG_KINDS[kind]
    keys = ["tokens", "token_type", "model", "bos_token_id", "eos_token_id", "add_bos_token"]
    keys += ["pre", "merges"] if model == "gpt2" else ["scores", "add_space_prefix", "unknown_token_id"]
    good = small_gguf() | {"tokenizer.ggml.model": model}
    arrays = {"tokenizer.ggml.scores": np.float32, "tokenizer.ggml.token_type": np.int32}
    good |= {key: np.array(good[key], dtype) for key, dtype in arrays.items()}
    good["tokenizer.ggml.bos_token_id"] = np.uint32(7)
    write_gguf(tmp_path / "good.gguf", good)
    assert load_tokenizer(open_checkpoint(tmp_path / "good.gguf")).vocab_size == 9
    right = {("tokens", "strings"), ("scores", "numbers"), ("scores", "whole numbers")}
    right |= {("add_bos_token", "a number"), ("add_space_prefix", "a number")}
    for key in keys:
        if (key, kind) in right:
            continue
        path = tmp_path / f"{key}.gguf"
        write_gguf(path, good | {f"tokenizer.ggml.{key}": value})
        for read in (load_tokenizer, vocabulary_of):
            if (key, kind, read) == ("merges", "strings", vocabulary_of):
                continue  # nothing looks into them yet
            with pytest.raises(TokenizerError) as error:
                read(open_checkpoint(path))
            assert str(path) in str(error.value)
            assert key in str(error.value)
            assert "arguments" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("scores", None, "scores is missing"),
        ("scores", [0.0], "but 1 scores"),
        ("scores", [float("nan")] * 9, "score 0 is not a number"),
        ("scores", ["x"] * 9, "tokens or scores"),
        ("unknown_token_id", 9, "unknown_token_id is 9"),
        ("token_type", [6] * 9, "token 0 is of the type byte"),
    ],
)
def test_broken_sentencepiece_vocabularies_in_gguf(key: str, value: Any, problem: str) -> None:
    metadata = small_gguf() | {"tokenizer.ggml.model": "llama"}
    metadata["tokenizer.ggml." + key] = value
    with pytest.raises(TokenizerError, match=problem):
        load_gguf_vocabulary(metadata, "model.gguf")


def test_the_unbroken_metadata_load() -> None:
    tokenizer = load_gguf_vocabulary(small_gguf(), "model.gguf")
    assert tokenizer.encode("abba b") == [2, 1, 0, 3, 1]
    # User-defined tokens are ordinary vocabulary and always found; control tokens only when asked for.
    assert tokenizer.encode("ax yb") == [0, 8, 1]
    assert tokenizer.encode("a<s>", parse_special=True) == [0, 7]


def test_ends_of_answers_are_special_whatever_their_type() -> None:
    """As in llama.cpp, but for what merging makes too."""
    tokens = [*small_gguf()["tokenizer.ggml.tokens"][:-1], "<|im_end|>"]
    for kind, eos_ids in ((4, (8,)), (3, (8,)), (1, ())):
        types = {"tokenizer.ggml.token_type": [1] * 8 + [kind]}
        tokenizer = load_gguf_vocabulary(small_gguf() | {"tokenizer.ggml.tokens": tokens} | types, "model.gguf")
        assert (tokenizer.eos_ids, tuple(tokenizer.special_ids.values())) == (eos_ids, eos_ids)


def test_tokens_that_are_unused_have_no_text() -> None:
    """As in llama.cpp; files name them all the same. Merges may too."""
    metadata = small_gguf() | {"tokenizer.ggml.token_type": [1, 1, 5, 1, 1, 1, 1, 3, 0]}
    tokenizer = load_gguf_vocabulary(metadata, "model.gguf")
    assert tokenizer.encode("ab") == [0, 1]
    for skip_special in (False, True):
        assert tokenizer.decode([0, 2, 8, 1], skip_special=skip_special) == "ab"
    assert [tokenizer.token_bytes(token_id) for token_id in (0, 2, 8)] == [b"a", b"", b""]


def test_the_unknown_token_is_special() -> None:
    metadata = small_gguf() | {"tokenizer.ggml.token_type": [1, 1, 1, 1, 1, 1, 1, 2, 4]}
    tokenizer = load_gguf_vocabulary(metadata, "model.gguf")
    assert tokenizer.special_ids == {"<s>": 7}
    assert tokenizer.encode("a<s>", parse_special=True) == [0, 7]


def test_of_special_tokens_with_one_text_the_first_is_found() -> None:
    tokens = [*small_gguf()["tokenizer.ggml.tokens"][:-1], "<s>"]
    metadata = small_gguf() | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * 7 + [3, 3]}
    tokenizer = load_gguf_vocabulary(metadata, "model.gguf")
    assert tokenizer.special_ids == {"<s>": 7}
    assert tokenizer.encode("a<s>", parse_special=True) == [0, 7]


@pytest.mark.parametrize(("said", "pad_id"), [(0, 0), (8, 8), (9, None), (-1, None), (True, None), ("0", None)])
def test_a_padding_id_out_of_range_is_none(said: object, pad_id: int | None) -> None:
    metadata = small_gguf() | {"tokenizer.ggml.padding_token_id": said}
    assert read_gguf_vocabulary(metadata, "model.gguf").pad_id == pad_id


@pytest.mark.parametrize("pre", ["llama-bpe", "dbrx"])
def test_a_gguf_file_says_what_begins_and_ends_texts(pre: str) -> None:
    ids = {"eos_token_id": 0, "eot_token_id": 1, "eom_token_id": 2}
    said = small_gguf() | {"tokenizer.ggml.pre": pre} | {f"tokenizer.ggml.{key}": value for key, value in ids.items()}
    tokenizer = load_gguf_vocabulary(said, "model.gguf")
    assert tokenizer.eos_ids == (0, 1, 2)
    assert tokenizer.encode("b") == ([7, 1] if pre == "llama-bpe" else [1])
    for bos in (False, True):
        for eos in (False, True):
            flags = {"tokenizer.ggml.add_bos_token": bos, "tokenizer.ggml.add_eos_token": eos}
            tokenizer = load_gguf_vocabulary(said | flags, "model.gguf")
            assert tokenizer.encode("b") == [*([7] if bos else []), 1, *([0] if eos else [])]


PRE_TOKENIZERS = {
    Splitter.LLAMA3: ["llama3", "llama-v3", "llama-bpe", "dbrx", "smaug-bpe"],
    Splitter.QWEN2: ["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"],
    Splitter.GPT2: ["gpt-2", "phi-2"],
    Splitter.O200K: ["gpt-4o", "llama4"],
}


def test_names_of_pre_tokenizers() -> None:
    """As llama.cpp understands them: src/llama-vocab.cpp, `llama_vocab::impl::load`."""
    for splitter, names in PRE_TOKENIZERS.items():
        for name in names:
            vocabulary = read_gguf_vocabulary(small_gguf() | {"tokenizer.ggml.pre": name}, "model.gguf")
            is_llama3 = name in ("llama3", "llama-v3", "llama-bpe")
            assert vocabulary.splitter == splitter, name
            assert (vocabulary.whole_word_first, vocabulary.adds_bos) == (is_llama3, is_llama3), name


def test_pieces_too_long_to_merge_are_refused() -> None:
    metadata = small_gguf() | {"tokenizer.ggml.tokens": [*small_gguf()["tokenizer.ggml.tokens"][:-1], "x" * 5000]}
    metadata["tokenizer.ggml.token_type"] = [1] * 9
    with pytest.raises(TokenizerError, match="token 8 has 5000 bytes"):
        load_gguf_vocabulary(metadata, "model.gguf")


@settings(max_examples=2000 if THOROUGH else 200, deadline=None)
@given(st.data())
def test_mutated_gguf_metadata(data: st.DataObject) -> None:
    metadata: dict[str, Any] = small_gguf() | {
        "tokenizer.ggml.model": data.draw(st.sampled_from(["gpt2", "llama"])),
        "tokenizer.ggml.eos_token_id": 2,
    }
    junk = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64),
        st.floats(),
        st.text(),
        st.binary(),
        st.lists(st.one_of(st.text(), st.binary(), st.integers(-1, 300), st.floats()), max_size=10),
    )
    key = data.draw(st.sampled_from(sorted(metadata)))
    if data.draw(st.booleans()) and isinstance(metadata[key], list):
        metadata[key] = list(metadata[key])
        metadata[key][data.draw(st.integers(0, len(metadata[key]) - 1))] = data.draw(junk)
    else:
        metadata[key] = data.draw(junk)
    try:
        tokenizer = load_gguf_vocabulary(metadata, "model.gguf")
        tokenizer.decode(tokenizer.encode("ab a <s>x y", parse_special=True))
    except TokenizerError:
        pass


def test_checkpoint_with_the_vocabulary_inside() -> None:
    tokenizer = load(Path("model.gguf"), "gguf", read_metadata("qwen2"))
    assert tokenizer.encode("Hello world") == [9707, 1879]


def test_a_tokenizer_that_the_user_names_counts_before_the_one_inside(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(message(*PIECES, TRAINER, NORMALIZER))
    assert load(Path("model.gguf"), "gguf", small_gguf()).vocab_size == 9
    assert load(Path("model.gguf"), "gguf", small_gguf(), path).vocab_size == 5


def test_llama2c_checkpoint_and_its_tokenizer(data: Path, tmp_path: Path) -> None:
    model = data / "models" / "aidreams260K.bin"
    metadata = {"vocab_size": -512}
    tokenizer = load(model, "llama2c", metadata, data / "models" / "aidreams-tok512.bin")
    assert tokenizer.vocab_size == 512
    shutil.copyfile(data / "models" / "aidreams-tok512.bin", tmp_path / "tokenizer.bin")
    beside = load(tmp_path / "model.bin", "llama2c", metadata)
    assert beside.encode("I dream") == tokenizer.encode("I dream")
    with pytest.raises(TokenizerError, match="has 512 tokens, but the model has 32000"):
        load(tmp_path / "model.bin", "llama2c", {"vocab_size": 32000})
    trained = load(tmp_path / "ckpt.pt", "safetensors", {"vocab_size": 512})
    assert trained.eos_ids == tokenizer.eos_ids
    assert trained.bos_id in trained.eos_ids, "the next story's beginning is the end of one"
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert {*load(tmp_path / "model.bin", "llama2c", metadata).eos_ids} == {*tokenizer.eos_ids, 7}
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [7, 512]}))
    with pytest.raises(TokenizerError, match=r"eos_token_id 512, and tokenizer\.bin has 512 tokens"):
        load(tmp_path / "model.bin", "llama2c", metadata)


def test_model_folders(data: Path, tmp_path: Path) -> None:
    source = data / "tokenizers"
    with pytest.raises(TokenizerError, match="holds none of") as error:
        load(tmp_path, "safetensors")
    assert "--tokenizer FILE" in str(error.value)
    shutil.copyfile(source / "o200k_base.tiktoken.gz", tmp_path / "o200k_base.tiktoken.gz")
    assert load(tmp_path, "gpt-oss").encode("Hello") == our_o200k().encode("Hello")
    shutil.copyfile(source / "llama2-tokenizer.model", tmp_path / "tokenizer.model")
    assert load(tmp_path, "safetensors").encode("Hello") == [1, 15043]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False, "add_eos_token": True}))
    assert load(tmp_path, "safetensors").encode("Hello") == [15043, 2]


def test_metas_llama_3_has_ranks_in_tokenizer_model(tmp_path: Path) -> None:
    """Its tokens are those of llama.cpp's file, and so are the ids of any text. Llama 3.1 has names for three more."""
    theirs = ours("llama-bpe")
    lines = [base64.b64encode(theirs.token_bytes(rank)) + b" %d" % rank for rank in range(128000)]
    (tmp_path / "tokenizer.model").write_bytes(b"\n".join(lines))
    mine = load_path(tmp_path)
    assert (mine.vocab_size, mine.bos_id) == (128256, 128000)
    assert set(mine.eos_ids) == {*theirs.eos_ids, 128008}
    named = {text: token_id for text, token_id in theirs.special_ids.items() if "reserved" not in text}
    named |= {"<|finetune_right_pad_id|>": 128004, "<|eom_id|>": 128008, "<|python_tag|>": 128010}
    ids = [token_id for token_id in theirs.special_ids.values() if token_id not in named.values()]
    reserved = {f"<|reserved_special_token_{i}|>": token_id for i, token_id in enumerate(ids)}
    assert mine.special_ids == named | reserved
    for line in [*random_lines(74, 200), "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"]:
        for parse in (False, True):
            assert mine.encode(line, parse_special=parse) == theirs.encode(line, parse_special=parse), line


def test_tokenizer_json_counts_before_other_files(tmp_path: Path) -> None:
    """It is what the model was published with; `tokenizer.model` may lack tokens that were added to it."""
    (tmp_path / "tokenizer.model").write_bytes(message(*PIECES, TRAINER, NORMALIZER))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [4, 2]}))
    vocabulary = read_path(tmp_path)
    assert (vocabulary.kind, vocabulary.named_end_ids) == ("spm", (2, 4))
    write_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    assert read_path(tmp_path).where == str(tmp_path / "tokenizer.json")


def test_tokenizer_config_counts_before_the_map_of_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(message(*PIECES, TRAINER, NORMALIZER))
    write_tokenizer_json(read_path(tmp_path), tmp_path / "tokenizer.json")
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(names))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<s>", "add_bos_token": False}))
    vocabulary = read_path(tmp_path)
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id, vocabulary.prefix_ids) == (1, 1, 0, ())


@pytest.mark.parametrize("decoder", [True, False])
def test_tokens_added_beside_tokenizer_json(tmp_path: Path, decoder: bool) -> None:
    """As transformers has them: those that tokenizer.json lacks, the end of an answer among them."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True}
    flags = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": 3, "content": "<|s|>", **flags}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": pre, "added_tokens": added}))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|e|>"}
    ids = {"<|s|>": 3, "<|t|>": 4, "<|e|>": 5}
    if decoder:
        config["added_tokens_decoder"] = {
            str(token_id): {"content": text, **flags, "special": text == "<|e|>"} for text, token_id in ids.items()
        }
    else:
        (tmp_path / "added_tokens.json").write_text(json.dumps(ids | {"<|other|>": 0, "a": 9}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 5}))
    mine = load_path(tmp_path)
    text = "<|s|>ab<|t|>b<|e|>"
    assert mine.encode(text, parse_special=True) == [3, 2, 4, 1, 5]
    assert mine.encode("<|t|>") == [4]
    assert (mine.eos_ids, mine.vocab_size, dict(mine.special_ids)) == ((5,), 6, {"<|e|>": 5})
    if decoder:
        theirs = AutoTokenizer.from_pretrained(tmp_path)
        assert (theirs.encode(text), theirs.eos_token_id) == ([3, 2, 4, 1, 5], 5)


@pytest.mark.parametrize("name", ["missing.json", "tokenizer.txt"])
def test_files_of_no_known_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.txt").write_text("x")
    with pytest.raises(TokenizerError, match=name):
        load_path(tmp_path / name)


def test_end_ids_of_a_folder(tmp_path: Path) -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True}
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": 3 + i, "content": f"<|{name}|>", **flags} for i, name in enumerate(["s", "im_end", "x"])]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": pre, "added_tokens": added}))
    config = {"bos_token": {"content": "<|s|>"}, "eos_token": "<|x|>", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 0}))
    assert load_path(tmp_path).eos_ids == (5, 0, 4)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 1]}))
    assert load_path(tmp_path).eos_ids == (5, 1, 4)
    assert load_path(tmp_path).encode("ab") == [3, 2]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "b", "eos_token": "ab"}))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), bos_token="b", eos_token="ab")
    ours = load_path(tmp_path)
    assert (ours.bos_id, ours.eos_ids[0]) == (theirs.bos_token_id, theirs.eos_token_id) == (1, 2)
    assert {"b", "ab"} <= set(ours.special_ids)
    assert ours.encode("aab", parse_special=True) == theirs.encode("aab") == [0, 2]
    plain = [token | {"special": False} for token in added]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": pre, "added_tokens": plain}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|x|>"}))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token="<|x|>")
    ours = load_path(tmp_path)
    assert (ours.eos_ids[0], [*ours.special_ids.values()]) == (theirs.eos_token_id, theirs.all_special_ids) == (5, [5])
    assert ours.decode([0, 3, 5], skip_special=True) == "a<|s|>"
    for bad in ([6], "x", [True], -1, 2**40):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": bad}))
        with pytest.raises(TokenizerError, match="eos_token_id"):
            load_path(tmp_path)


ADDED_CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "add_bos_token": True,
    "bos_token": "<s>",
    "eos_token": "<|end|>",
    "unk_token": "<unk>",
}
ADDED_TEXTS = [
    "<|start|>user\nHi<|end|>\n",
    "go<|start|>",
    "a two words",
    "two words",
    "atwo wordsb",
    "<pad><|end|>",
    "plain",
]


def added_folder(data: Path, folder: Path, legacy: bool, decoder: bool) -> None:
    """Llama 2's tokenizer.model, which knows nothing of four tokens that others have added to it since."""
    shutil.copyfile(data / "tokenizers" / "llama2-tokenizer.model", folder / "tokenizer.model")
    ids = {"<|end|>": 32000, "<|start|>": 32001, "two words": 32002, "<pad>": 32003}
    config = {**ADDED_CONFIG, "legacy": legacy, "pad_token": {"__type": "AddedToken", "content": "<pad>"}}
    if decoder:
        known = {0: "<unk>", 1: "<s>", 2: "</s>"} | {token_id: text for text, token_id in ids.items()}
        config["added_tokens_decoder"] = {
            str(token_id): {"content": text, "special": token_id < 3} for token_id, text in known.items()
        }
    else:
        (folder / "added_tokens.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 32064}))


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("decoder", [True, False])
def test_tokens_added_beside_tokenizer_model(data: Path, tmp_path: Path, legacy: bool, decoder: bool) -> None:
    """As transformers has them: their ids and texts, which are special, and the end of an answer."""
    added_folder(data, tmp_path, legacy, decoder)
    mine, theirs = load_path(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in ADDED_TEXTS:
        assert mine.encode(text, parse_special=True) == theirs.encode(text), text
    assert mine.eos_ids[0] == theirs.eos_token_id == 32000
    assert (
        set(mine.special_ids)
        == {"<unk>", "<s>", "</s>", "<|end|>", "<pad>"}
        == set(theirs.all_special_tokens) | {"</s>"}
    )
    assert read_path(tmp_path).pad_id == theirs.pad_token_id == 32003
    assert mine.encode("<|end|>two words")[1:] != mine.encode("<|end|>two words", parse_special=True)[1:]
    assert (mine.vocab_size, mine.decode([32001, 32002])) == (32004, "<|start|>two words")


def test_added_tokens_keep_their_ids(data: Path, tmp_path: Path) -> None:
    """Also where ids between are nobody's, which transformers renumbers."""
    shutil.copyfile(data / "tokenizers" / "llama2-tokenizer.model", tmp_path / "tokenizer.model")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<x>": 32005, "<y>": 32002}))
    tokenizer = load_path(tmp_path)
    assert tokenizer.encode("<y><x>", add_special=False) == [32002, 32005]
    assert (tokenizer.vocab_size, tokenizer.decode([32003, 32005, 32002])) == (32006, "<x><y>")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("added_tokens.json", {"<x>": 3}, r"give the id 3 to '<x>', which is .* in tokenizer\.model"),
        ("added_tokens.json", {"<x>": "32000"}, r"added_tokens\.json: \$\.'<x>' is '32000'; ids are whole numbers"),
        ("added_tokens.json", {"<x>": 1 << 40}, "ids are whole numbers from 0 to"),
        ("added_tokens.json", {"": 32000}, r"\$\.'' is an empty text for the id 32000"),
        ("added_tokens.json", {"\ud800": 32000}, "added token 32000 has a lone surrogate"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"9" * 5000: {"content": "<x>"}}}, "ids are whole numbers"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"a": {"content": "<x>"}}}, r"decoder\.'a' is 'a'; ids are"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"32000": {}}}, r"decoder\.32000\.content is missing"),
        ("tokenizer_config.json", {"added_tokens_decoder": []}, r"added_tokens_decoder is \[\], not an object"),
        ("tokenizer_config.json", {"legacy": "no"}, r"legacy is 'no', not true or false"),
    ],
)
def test_added_tokens_that_cannot_be(data: Path, tmp_path: Path, name: str, content: Any, problem: str) -> None:
    shutil.copyfile(data / "tokenizers" / "llama2-tokenizer.model", tmp_path / "tokenizer.model")
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=problem):
        read_path(tmp_path)
