"""tokenizer.json against the `tokenizers` library reading the same file."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_lines import random_lines
from tokenizer_oracles import PATTERNS, THOROUGH, normal_vocabulary, read_metadata

from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.gguf_vocab import load_gguf_vocabulary
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.tokenizer_json import ModelFiles, load_tokenizer_json, read_tokenizer_json
from gristmill.tokenizer.vocabulary import CONTROL, NORMAL
from gristmill.tokenizer.write import to_gguf_metadata
from gristmill.tokenizer.write_json import tokenizer_fields

tokenizers = pytest.importorskip("tokenizers")

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def added(token_id: int, content: str, special: bool = True, **more: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": content, "special": special} | flags | more


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@cache
def byte_level_json(name: str) -> dict[str, Any]:
    """As Qwen and Meta publish it, for the vocabulary of a GGUF file."""
    vocabulary, merges = normal_vocabulary(name)
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": name == "llama-bpe",
        "vocab": vocabulary,
        "merges": [" ".join(merge) for merge in merges] if name == "qwen2" else [list(merge) for merge in merges],
    }
    n = len(vocabulary)
    if name == "qwen2":
        tokens = [added(n, "<|endoftext|>"), added(n + 1, "<|im_start|>"), added(n + 2, "<|im_end|>")]
        tokens += [added(n + 3, "<think>", special=False), added(n + 4, "</think>", special=False)]
        post: dict[str, Any] = BYTE_LEVEL
    else:
        names = {0: "begin_of_text", 1: "end_of_text", 9: "eot_id"}
        tokens = [added(n + i, f"<|{names.get(i, f'reserved_{i}')}|>") for i in range(256)]
        template = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                "<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [128000], "tokens": ["<|begin_of_text|>"]}
            },
        }
        post = {"type": "Sequence", "processors": [BYTE_LEVEL, template]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": {"type": "NFC"} if name == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(PATTERNS[name]), BYTE_LEVEL]},
        "post_processor": post,
        "decoder": BYTE_LEVEL,
        "model": model,
    }


@cache
def llama2_json() -> dict[str, Any]:
    """As Meta's Llama 2 is converted: characters with byte fallback, U+2581 put by the normalizer."""
    metadata = read_metadata("llama-spm")
    pieces = [piece.decode() for piece in metadata["tokenizer.ggml.tokens"]]
    scores = list(metadata["tokenizer.ggml.scores"])
    types = list(metadata["tokenizer.ggml.token_type"])
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    normal = {piece: i for piece, i in vocabulary.items() if types[i] == 1}
    merges = []
    for piece, i in sorted(normal.items(), key=lambda item: -scores[item[1]]):
        cuts = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        pairs = [pair for pair in cuts if pair[0] in normal and pair[1] in normal]
        merges += [list(pair) for pair in sorted(pairs, key=lambda pair: (normal[pair[0]], normal[pair[1]]))]
        assert i >= 259
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def both(folder: Path, content: dict[str, Any]) -> tuple[CodecTokenizer, Any]:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return load_tokenizer_json(path), tokenizers.Tokenizer.from_file(str(path))


def check(mine: CodecTokenizer, theirs: Any, lines: list[str], *, with_special: bool = True) -> None:
    for line, expected in zip(lines, theirs.encode_batch(lines), strict=True):
        assert mine.encode(line, parse_special=with_special) == expected.ids, line


def sprinkle(lines: list[str], texts: list[str], seed: int) -> list[str]:
    """Lines with special tokens here and there."""
    random_ = random.Random(seed)
    out = []
    for line in lines:
        for _ in range(random_.randint(1, 4)):
            at = random_.randint(0, len(line))
            line = line[:at] + random_.choice(texts) + line[at:]
        out.append(line)
    return out


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe"])
def test_byte_level(tmp_path: Path, name: str) -> None:
    content = byte_level_json(name)
    mine, theirs = both(tmp_path, content)
    lines = random_lines(31, 2000)
    texts = [token["content"] for token in content["added_tokens"]]
    check(mine, theirs, lines)
    check(mine, theirs, sprinkle(lines, [*texts, "<|im_", "\u0338"], 1))
    assert mine.adds_bos == (name == "llama-bpe")
    assert mine.vocab_size == theirs.get_vocab_size()


def test_normalization_form_c(tmp_path: Path) -> None:
    mine, theirs = both(tmp_path, byte_level_json("qwen2"))
    lines = [
        "e\u0301",
        "\u1100\u1161\u11a8",
        "\u212b\u2126",
        "a\u0316\u0301\u0334",
        ">\u0338",
        "q\u0307\u0323",
        "\u0958",
    ]
    check(mine, theirs, [*lines, *sprinkle(lines * 20, ["<|im_end|>", "<think>"], 2)])
    assert mine.encode("e\u0301") == mine.encode("\u00e9")


def test_o200k_pattern_and_gpt2_pattern_run_natively(tmp_path: Path) -> None:
    content = dict(byte_level_json("qwen2"))
    head, tail = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    words = [rf"[^\r\n\p{{L}}\p{{N}}]?{head}*{tail}+", rf"[^\r\n\p{{L}}\p{{N}}]?{head}+{tail}*"]
    ending = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rest = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    o200k = "|".join([*(word + ending for word in words), rest])
    lines = random_lines(32, 1500)
    for steps in ([split(o200k), BYTE_LEVEL], [BYTE_LEVEL | {"use_regex": True}]):
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        mine, theirs = both(tmp_path, content)
        assert mine.splits_natively
        check(mine, theirs, lines)


@pytest.mark.parametrize(
    "patterns",
    [
        [
            r"\p{N}{1,3}",
            r"[!-/:-~]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        [r"\s?\p{L}+"],
        [r"(?=(\d{3})+(?!\d))"],
    ],
)
def test_unknown_patterns(tmp_path: Path, patterns: list[str]) -> None:
    content = dict(byte_level_json("llama-bpe"))
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*map(split, patterns), BYTE_LEVEL]}
    mine, theirs = both(tmp_path, content)
    assert not mine.splits_natively
    # Latin and Cyrillic only: `regex` knows a younger Unicode than `tokenizers`.
    lines = ["".join(c for c in line if ord(c) < 0x500) for line in random_lines(33, 500)]
    check(mine, theirs, [*lines, "1234567 12345 x", "<|eot_id|>12<|eot_id|>"])


HEAD, TAIL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?{HEAD}*{TAIL}+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{HEAD}+{TAIL}*",
        r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
)
DIGITS = {"type": "Digits", "individual_digits": True}
BY_PATTERNS = {"tekken": [split(TEKKEN), BYTE_LEVEL], "smollm": [DIGITS, BYTE_LEVEL | {"use_regex": True}]}


@pytest.mark.parametrize("name", BY_PATTERNS)
def test_patterns_that_gguf_names(tmp_path: Path, name: str) -> None:
    """As Mistral Nemo and SmolLM have them."""
    content = dict(byte_level_json("qwen2")) | {"normalizer": None}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": BY_PATTERNS[name]}
    content["model"] = content["model"] | {"ignore_merges": name == "tekken"}
    mine, theirs = both(tmp_path, content)
    in_gguf = load_gguf_vocabulary({**read_metadata("qwen2"), "tokenizer.ggml.pre": name}, name)
    lines = ["".join(c for c in line if ord(c) < 0x500) for line in random_lines(36, 500)]
    lines += ["HTTPServer camelCase's 12345 \u00bd x2\u00b2", "a/\n/b  1"]
    check(mine, theirs, lines)
    for line in lines:
        assert in_gguf.encode(line, add_special=False) == mine.encode(line), line
    assert to_gguf_metadata(read_tokenizer_json(tmp_path / "tokenizer.json"))["tokenizer.ggml.pre"] == name


@pytest.mark.parametrize("individual", [False, True])
def test_digits(tmp_path: Path, individual: bool) -> None:
    content = dict(byte_level_json("llama-bpe"))
    steps = [DIGITS | {"individual_digits": individual}, BYTE_LEVEL]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    mine, theirs = both(tmp_path, content)
    check(mine, theirs, ["a 1234567 b", "\u0663\u0664\u00bd\u2167x", "12 34"])


UNTRUSTED = ["<think>", "</think>", "<th", "ink>", "<", "think>", "a", " ", "\n", "é", "e\u0301", "\u0338", "|>", "42"]


@pytest.mark.parametrize("is_native", [True, False])
def test_added_tokens_in_parts(tmp_path: Path, is_native: bool) -> None:
    """Those that are not special are found in users' texts too and wherever texts meet, as in the text as a whole."""
    content = dict(byte_level_json("qwen2"))
    pattern = PATTERNS["qwen2"] if is_native else f"(?:{PATTERNS['qwen2']})"
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split(pattern), BYTE_LEVEL]}
    mine, theirs = both(tmp_path, content)
    assert mine.splits_natively is is_native
    special = [token["content"] for token in content["added_tokens"] if token["special"]]
    random_ = random.Random(35)
    for _ in range(1500):
        parts = []
        for _ in range(random_.randint(1, 6)):
            trusted = random_.random() < 0.5
            pieces = UNTRUSTED + special * 2 * trusted
            parts.append(("".join(random_.choices(pieces, k=random_.randint(1, 4))), trusted))
        text = "".join(text for text, _ in parts)
        assert mine.encode_parts(parts, add_special=False) == theirs.encode(text).ids, parts
    for text in special:
        for parts in ([(text, False)], [("a<think>" + text, False), ("b", True)], [(text[:4], True), (text[4:], True)]):
            assert not set(mine.special_ids.values()) & set(mine.encode_parts(parts)), parts
        assert mine.encode_parts([(text, True), (text, False)]).count(mine.special_ids[text]) == 1


def test_patterns_share_the_time_of_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many words a pattern leaves to the next, and however many texts added tokens leave."""
    content = dict(byte_level_json("qwen2"))
    steps = [split(" "), split("a+"), BYTE_LEVEL]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    mine, _ = both(tmp_path, content)
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))  # a second passes from one look to the next
    monkeypatch.setattr("gristmill.tokenizer.split.time", clock)
    monkeypatch.setattr("gristmill.tokenizer.core.time", clock)
    for short, long in (("b a " * 4, "b a " * 40), ("a<think>" * 4, "a<think>" * 40)):
        for encode in (mine.encode, lambda text: mine.encode_parts([(text, True)])):
            seconds = iter(range(1000))
            assert encode(short)
            seconds = iter(range(1000))
            with pytest.raises(TokenizerError, match="pre-tokenizer patterns took more than 20 s"):
                encode(long)


@pytest.mark.parametrize("style", ["prepend", "always", "first", "never"])
def test_sentencepiece_style(tmp_path: Path, style: str) -> None:
    content = dict(llama2_json())
    if style != "prepend":
        content["normalizer"] = None
        meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": style, "split": False}
        content["pre_tokenizer"] = meta
    if style == "never":
        decoders = content["decoder"]["decoders"]
        content["decoder"] = {"type": "Sequence", "decoders": decoders[:-1]}
    mine, theirs = both(tmp_path, content)
    lines = random_lines(34, 1500)
    check(mine, theirs, lines)
    check(mine, theirs, sprinkle(lines, ["<s>", "</s>", " </s> ", "<unk>"], 3))
    for line in lines[:300]:
        ids = mine.encode(line, add_special=False)
        assert mine.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


METASPACE = {"type": "Metaspace", "replacement": "\u2581"}
SPACES = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "stop": 0}


@pytest.mark.parametrize(
    "decoder",
    [
        METASPACE,
        *(METASPACE | {"prepend_scheme": scheme} for scheme in ("always", "first", "never")),
        SPACES,
        {"type": "Sequence", "decoders": [SPACES, {"type": "Fuse"}, STRIP | {"start": 0}]},
        {"type": "Sequence", "decoders": [SPACES, {"type": "Fuse"}, STRIP | {"start": 1}]},
    ],
)
def test_decoders_say_whether_the_first_space_goes(tmp_path: Path, decoder: dict[str, Any]) -> None:
    vocabulary = {"<unk>": 0, "\u2581": 1, "a": 2, "\u2581a": 3}
    model = {"type": "BPE", "vocab": vocabulary, "merges": ["\u2581 a"], "unk_token": "<unk>", "fuse_unk": True}
    pre_tokenizer = METASPACE | {"prepend_scheme": "first", "split": False}
    content = small() | {"model": model, "added_tokens": [], "pre_tokenizer": pre_tokenizer, "decoder": decoder}
    mine, theirs = both(tmp_path, content)
    for text, ids in (("a a", [3, 3]), (" a", [3]), ("aa", [3, 2])):
        assert mine.encode(text) == theirs.encode(text).ids == ids
        assert mine.decode(ids) == theirs.decode(ids), text


def test_added_tokens_claim_their_surroundings(tmp_path: Path) -> None:
    content = dict(byte_level_json("qwen2"))
    content["normalizer"] = None
    content["added_tokens"] = [
        added(151643, "<l>", lstrip=True),
        added(151644, "<r>", rstrip=True),
        added(151645, "<b>", lstrip=True, rstrip=True, special=False),
        added(151646, "wordx", single_word=True, special=False),
        added(151647, "<b><b>", special=False),
    ]
    mine, theirs = both(tmp_path, content)
    pieces = ["<l>", "<r>", "<b>", "wordx", "words", "a", "_", " ", "\n", "\u3000", "é", "1", "<b", ">"]
    random_ = random.Random(4)
    check(mine, theirs, ["".join(random_.choices(pieces, k=random_.randint(1, 9))) for _ in range(3000)])


def test_a_single_word_ends_where_words_end(tmp_path: Path) -> None:
    """Before and after every code point that is assigned, but for private ones: no word goes on in what is no \\w."""
    content = byte_level_json("qwen2") | {"normalizer": None}
    content["added_tokens"] = [added(151643, "wordx", single_word=True, special=False)]
    mine, theirs = both(tmp_path, content)
    for first in (*range(0, 0x40000, 0x40), *range(0xE0000, 0xE1000, 0x40)):
        characters = [chr(i) for i in range(first, first + 0x40) if not 0xD800 <= i < 0xE000]
        after, before = (" ".join(form.format(c) for c in characters) for form in ("wordx{}", "{}wordx"))
        for text in (after, before):
            assert mine.encode(text) == theirs.encode(text).ids, f"from U+{first:04X} on"


@pytest.mark.parametrize("prepends", [True, False])
def test_added_tokens_that_are_normalized(tmp_path: Path, prepends: bool) -> None:
    """Where the normalizer puts spaces they get theirs as the text does, and are found after that."""
    content = dict(llama2_json())
    content["normalizer"] = {"type": "Sequence", "normalizers": content["normalizer"]["normalizers"][not prepends :]}
    tokens = [added(32000, "<x>", normalized=True), added(32001, "a b", normalized=True), added(32002, "<y>")]
    content["added_tokens"] = content["added_tokens"] + [token | {"special": False} for token in tokens]
    mine, theirs = both(tmp_path, content)
    my_again, their_again = both(tmp_path, tokenizer_fields(read_tokenizer_json(tmp_path / "tokenizer.json")))
    pieces = ["<x>", "<y>", "a b", "a", "b", "<", "x>", " ", "\u2581", "\n", "<s>", "é"]
    random_ = random.Random(6)
    lines = ["".join(random_.choices(pieces, k=random_.randint(1, 7))) for _ in range(1500)]
    check(mine, theirs, lines)
    check(my_again, their_again, lines)
    check(my_again, theirs, lines)
    for line in lines[:300]:
        ids = mine.encode(line, add_special=False)
        assert mine.decode(ids) == theirs.decode(ids, skip_special_tokens=False), line


def test_special_tokens_of_the_files_beside(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(byte_level_json("llama-bpe")))
    plain = load_tokenizer_json(path)
    assert (plain.bos_id, plain.eos_ids, plain.adds_bos) == (128000, (128001, 128009), True)
    named = load_tokenizer_json(path, ModelFiles("<|begin_of_text|>", (128009,), "<|eot_id|>", adds_bos=False))
    assert (named.bos_id, named.eos_ids, named.adds_bos) == (128000, (128009, 128001), False)
    assert named.encode("a") == plain.encode("a")[1:]


def small() -> dict[str, Any]:
    return {
        "added_tokens": [added(3, "<s>")],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL | {"use_regex": True},
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    }


def change(path: str, value: Any) -> dict[str, Any]:
    content = small()
    *parents, last = path.split(".")
    at: Any = content
    for parent in parents:
        at = at[int(parent) if isinstance(at, list) else parent]
    at[last] = value
    return content


BROKEN = [
    ("model", None, r"\$\.model is missing"),
    ("model", [], r"\$\.model is \[\], not an object"),
    ("model.type", "Unigram", "supported is 'BPE'"),
    (
        "pre_tokenizer",
        {"type": "Sequence", "pretokenizers": [split("a") | {"invert": True}, BYTE_LEVEL]},
        "'Isolated' without invert",
    ),
    ("pre_tokenizer", {"type": "Metaspace", "replacement": "\u2581"}, "split must be false"),
    ("model.vocab", {}, r"model\.vocab is missing"),
    ("model.vocab", {"a": -1}, "ids are whole numbers"),
    ("model.vocab", {"a": 2**40}, "ids are whole numbers"),
    ("model.vocab", {"a": True}, "ids are whole numbers"),
    ("model.vocab", {"a": "0"}, "ids are whole numbers"),
    ("model.vocab", {"a": 0, "b": 0}, "gives the id 0"),
    ("model.vocab", {"a": 0, "\ud800": 1}, "lone surrogate"),
    ("model.merges", None, r"model\.merges is missing"),
    ("model.merges", ["a"], "merge 0 is not two tokens"),
    ("model.merges", ["a b c"], "merge 0 is not two tokens"),
    ("model.merges", ["a x"], "merge 0 joins or makes a token"),
    ("model.merges", ["b a"], "merge 0 joins or makes a token"),
    ("model.merges", [["a", "b", "c"]], "merge 0 is not a pair"),
    ("model.merges", [["a", 1]], "merge 0 is neither str nor bytes"),
    ("model.merges", [["a", "b"], "a b"], "merge 1 is not a pair"),
    ("model.merges", [None], "merge 0 is not a pair"),
    ("model.dropout", 0.1, "random"),
    ("model.continuing_subword_prefix", "##", "not supported"),
    ("model.ignore_merges", "yes", "not true or false"),
    ("added_tokens", {}, "not a list of objects"),
    ("added_tokens.0.id", 2**31, "ids are whole numbers"),
    ("added_tokens.0.content", "", "missing or empty"),
    ("normalizer", {"type": "Lowercase"}, "supported is 'NFC'"),
    ("pre_tokenizer", {"type": "Whitespace"}, "supported are ByteLevel and a lone Metaspace"),
    ("pre_tokenizer", None, "no normalizer handles spaces"),
    ("pre_tokenizer.add_prefix_space", True, "add_prefix_space is not supported"),
    ("post_processor", {"type": "BertProcessing"}, "supported are TemplateProcessing"),
    (
        "pre_tokenizer",
        {"type": "Sequence", "pretokenizers": [split("(a"), BYTE_LEVEL]},
        "no regular expression",
    ),
    (
        "pre_tokenizer",
        {"type": "Sequence", "pretokenizers": [split("a") | {"behavior": "Removed"}, BYTE_LEVEL]},
        "supported is 'Isolated'",
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), BROKEN)
def test_broken_fields(tmp_path: Path, path: str, value: Any, message: str) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(change(path, value)))
    with pytest.raises(TokenizerError, match=message) as error:
        load_tokenizer_json(file)
    assert str(file) in str(error.value)


def test_the_unbroken_file_loads(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(small()))
    assert load_tokenizer_json(file).encode("abba") == [2, 1, 0]


def test_special_tokens_of_the_vocabulary_are_not_made_of_text(tmp_path: Path) -> None:
    """Not even where a word that is a token is that token; others that are found in text stay ordinary."""
    file = tmp_path / "tokenizer.json"
    content = small() | {"added_tokens": [added(2, "ab"), added(3, "ba", special=False)]}
    content["model"] = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "ba": 3}, "merges": [], "ignore_merges": True}
    file.write_text(json.dumps(content))
    assert read_tokenizer_json(file).types == bytes([NORMAL, NORMAL, CONTROL, NORMAL])
    tokenizer = load_tokenizer_json(file)
    assert (tokenizer.encode("ab"), tokenizer.encode("ab", parse_special=True)) == ([0, 1], [2])
    assert tokenizer.encode("ba") == [3]


@pytest.mark.parametrize(("said", "ids"), [({}, [0, 1]), ({"use_regex": True}, [0, 1]), ({"use_regex": False}, [2])])
def test_byte_level_splits_where_it_does_not_say(tmp_path: Path, said: dict[str, bool], ids: list[int]) -> None:
    """As GPT-2's own file, from before there was a choice."""
    content = small() | {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, **said}
    }
    content["model"] |= {"vocab": {"a": 0, "1": 1, "a1": 2}, "merges": ["a 1"]}
    mine, theirs = both(tmp_path, content)
    assert mine.encode("a1") == theirs.encode("a1").ids == ids


def test_a_template_puts_ids_on_both_sides(tmp_path: Path) -> None:
    """And what lies beside says only whether BOS and EOS are among them."""
    template = llama2_like_template()
    begin, end = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("<s>", "<e>"))
    template["single"] += [end, begin]
    template["special_tokens"]["<e>"] = {"id": "<e>", "ids": [4], "tokens": ["<e>"]}
    template["pair"] = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]
    content = small() | {"added_tokens": [added(3, "<s>"), added(4, "<e>")], "post_processor": template}
    mine, theirs = both(tmp_path, content)
    assert mine.encode("a") == theirs.encode("a").ids == [3, 0, 4, 3]
    for adds, ids in ((True, [3, 0, 3, 4]), (False, [0, 3]), (None, [3, 0, 4, 3])):
        beside = ModelFiles(bos="<s>", eos="<e>", adds_bos=adds, adds_eos=adds)
        assert load_tokenizer_json(tmp_path / "tokenizer.json", beside).encode("a") == ids


def test_ends_that_files_beside_name(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(small()))
    assert load_tokenizer_json(file, ModelFiles(eos_ids=(2,))).eos_ids == (2,)
    for adds_eos, ids in ((None, [0]), (False, [0]), (True, [0, 3])):
        assert load_tokenizer_json(file, ModelFiles(eos="<s>", adds_eos=adds_eos)).encode("a") == ids
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: .* outside of the vocabulary of 4 tokens"):
        load_tokenizer_json(file, ModelFiles(eos_ids=(4,)))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_not_json(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(TokenizerError, match="JSON"):
        load_tokenizer_json(file)


def test_a_byte_without_token_is_an_error_not_a_loss(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(small()))
    with pytest.raises(TokenizerError, match="no token for byte 0x63"):
        load_tokenizer_json(file).encode("abc")


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a JSON value something could be changed."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [path for key in keys for path in [(*at, key), *paths(value[key], (*at, key))]]


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from(["NFC", "Split", "ByteLevel", "Metaspace", "Sequence", "Replace", "Strip", "TemplateProcessing"]),
    st.lists(st.one_of(st.text(max_size=3), st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.one_of(st.text(max_size=3), st.integers(0, 9)), max_size=3),
)


@settings(max_examples=3000 if THOROUGH else 300, deadline=None)
@given(st.data())
def test_mutated_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever stands where: a tokenizer that works, or a TokenizerError."""
    content = small()
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split(r"\p{L}+"), BYTE_LEVEL]}
    content["post_processor"] = llama2_like_template()
    content = json.loads(json.dumps(content))
    *parents, last = data.draw(st.sampled_from(paths(content)))
    at: Any = content
    for parent in parents:
        at = at[parent]
    at[last] = data.draw(JUNK)
    file = tmp_path_factory.getbasetemp() / "mutated.json"
    file.write_text(json.dumps(content))
    try:
        tokenizer = load_tokenizer_json(file)
        tokenizer.decode(tokenizer.encode("ab a<s>b", parse_special=True))
    except TokenizerError:
        pass


def llama2_like_template() -> dict[str, Any]:
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}},
    }
