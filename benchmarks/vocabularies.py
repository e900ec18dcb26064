"""Real vocabularies for random models: copied from a GGUF file, or made from a tiktoken file of ranks."""

from __future__ import annotations

import base64
import gzip
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf

# OpenAI's o200k_harmony: the ids that gpt-oss gives a meaning, above the 199,998 tokens of o200k_base.
HARMONY: Mapping[int, str] = {
    199998: "<|startoftext|>",
    199999: "<|endoftext|>",
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What GGUF calls tokenizer.ggml.*: model, pre and the lists; special holds bos, eos and the like by key."""

    model: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    special: Mapping[str, int | bool]

    def write(self, writer: gguf.GGUFWriter, vocab_size: int) -> None:
        """Add it, filled up to `vocab_size` with unused tokens. ValueError when it is larger."""
        missing = vocab_size - len(self.tokens)
        if missing < 0:
            raise ValueError(f"the vocabulary has {len(self.tokens)} tokens, the model {vocab_size}: choose another")
        writer.add_tokenizer_model(self.model)
        if self.pre:
            writer.add_tokenizer_pre(self.pre)
        writer.add_token_list([*self.tokens, *(f"[PAD{i}]" for i in range(missing))])
        writer.add_token_types([*self.types, *[gguf.TokenType.UNUSED] * missing])
        if self.scores:
            writer.add_token_scores([*self.scores, *[0.0] * missing])
        if self.merges:
            writer.add_token_merges(list(self.merges))
        for key, value in self.special.items():
            if isinstance(value, bool):
                writer.add_bool(f"tokenizer.ggml.{key}", value)
            else:
                writer.add_uint32(f"tokenizer.ggml.{key}", value)


def read(path: Path) -> Vocabulary:
    """From a .gguf file, or a .tiktoken one (perhaps .gz) with the special tokens of gpt-oss."""
    if path.suffix == ".gguf":
        return _from_gguf(path)
    if ".tiktoken" in path.suffixes:
        return _from_tiktoken(path)
    raise ValueError(f"{path}: a vocabulary is a .gguf or a .tiktoken file")


def _from_gguf(path: Path) -> Vocabulary:
    prefix = "tokenizer.ggml."
    fields = gguf.GGUFReader(path).fields
    values = {k.removeprefix(prefix): f.contents() for k, f in fields.items() if k.startswith(prefix)}
    lists = {key: values.pop(key, []) for key in ("tokens", "token_type", "scores", "merges")}
    return Vocabulary(
        model=values.pop("model"),
        pre=values.pop("pre", ""),
        tokens=lists["tokens"],
        types=lists["token_type"],
        scores=lists["scores"],
        merges=lists["merges"],
        special={k: v for k, v in values.items() if isinstance(v, bool | int)},
    )


def _from_tiktoken(path: Path) -> Vocabulary:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())}
    letters = _byte_letters()
    ordered = sorted(ranks, key=ranks.__getitem__)
    spell = {token: "".join(letters[b] for b in token) for token in ordered}
    merges = [" ".join(spell[part] for part in _last_merge(token, ranks)) for token in ordered if len(token) > 1]
    reserved = range(len(ordered), 201088)
    n_special = len(reserved)
    return Vocabulary(
        model="gpt2",
        pre="gpt-4o",
        tokens=[*spell.values(), *(HARMONY.get(i, f"<|reserved_{i}|>") for i in reserved)],
        types=[gguf.TokenType.NORMAL] * len(ordered) + [gguf.TokenType.CONTROL] * n_special,
        scores=[],
        merges=merges,
        special={"bos_token_id": 199998, "eos_token_id": 200002, "padding_token_id": 199999},
    )


def _last_merge(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """The two parts that become `token` in its last merge: all merges of a lower rank, the lowest first."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, len(ranks)) for a, b in itertools.pairwise(parts)]
        at = pairs.index(min(pairs))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _byte_letters() -> list[str]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}
    return [letters[b] for b in range(256)]
