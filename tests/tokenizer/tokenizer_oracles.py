"""Real vocabularies from the data folder, our tokenizers over them, and those of others to compare with."""

from __future__ import annotations

import base64
import gzip
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("GRISTMILL_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
THOROUGH = os.environ.get("GRISTMILL_THOROUGH") == "1"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"qwen2": CL100K % "", "llama-bpe": CL100K % "{1,3}"}
HARMONY_NAMES = {
    199998: "startoftext",
    199999: "endoftext",
    200002: "return",
    200003: "constrain",
    200005: "channel",
    200006: "start",
    200007: "end",
    200008: "message",
    200012: "call",
}


@cache
def read_metadata(name: str) -> Mapping[str, Any]:
    """Metadata of a vocabulary file."""
    path = DATA / "tokenizers" / f"ggml-vocab-{name}.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    try:
        from gristmill.formats.gguf import GgufCheckpoint
    except ImportError:
        return read_metadata_slowly(path)
    return GgufCheckpoint(path).metadata


def read_metadata_slowly(path: Path) -> dict[str, Any]:
    """The same as gguf's own reader sees it; strings of arrays as bytes."""
    gguf = pytest.importorskip("gguf")
    metadata: dict[str, Any] = {}
    for key, field in gguf.GGUFReader(path).fields.items():
        if field.types and field.types[0] == gguf.GGUFValueType.ARRAY:
            if field.types[-1] == gguf.GGUFValueType.STRING:
                metadata[key] = [bytes(field.parts[i]) for i in field.data]
            else:
                metadata[key] = [field.parts[i][0].item() for i in field.data]
        else:
            metadata[key] = field.contents()
    return metadata


@cache
def ours(name: str) -> Any:
    from gristmill.tokenizer.gguf_vocab import load_gguf_vocabulary

    return load_gguf_vocabulary(read_metadata(name), name)


def normal_vocabulary(name: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens that text may become, and merges, as the libraries of others take them."""
    metadata = read_metadata(name)
    types = metadata["tokenizer.ggml.token_type"]
    tokens = metadata["tokenizer.ggml.tokens"]
    vocabulary = {token.decode(): i for i, token in enumerate(tokens) if types[i] == 1}
    left_right = (merge.decode().split(" ") for merge in metadata["tokenizer.ggml.merges"])
    return vocabulary, [(left, right) for left, right in left_right]


@cache
def hugging_face(name: str) -> Any:
    """The `tokenizers` library with the vocabulary and the merges of a GGUF file."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary, merges = normal_vocabulary(name)
    model = tokenizers.models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name == "llama-bpe")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[name]), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


@cache
def sentencepiece_oracle() -> Any:
    sentencepiece = pytest.importorskip("sentencepiece")
    path = DATA / "tokenizers" / "llama2-tokenizer.model"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    return sentencepiece.SentencePieceProcessor(str(path))


@cache
def tiktoken_oracle() -> Any:
    """tiktoken's o200k with the special tokens of Harmony, built from the ranks without any download."""
    tiktoken = pytest.importorskip("tiktoken")
    path = DATA / "tokenizers" / "o200k_base.tiktoken.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    lines = gzip.decompress(path.read_bytes()).splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    special = {f"<|{HARMONY_NAMES.get(i, f'reserved_{i}')}|>": i for i in range(199998, 201088)}
    head, tail = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    ending = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    pattern = "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{head}*{tail}+{ending}",
            rf"[^\r\n\p{{L}}\p{{N}}]?{head}+{tail}*{ending}",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )
    return tiktoken.Encoding("o200k_harmony", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


@cache
def our_o200k() -> Any:
    from gristmill.tokenizer.tiktoken_file import load_tiktoken

    path = DATA / "tokenizers" / "o200k_base.tiktoken.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    return load_tiktoken(path)
