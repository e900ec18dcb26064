"""The tokenizer in a file or folder of its own, of any supported kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gristmill.tokenizer.added_files import add_tokens, list_added
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.interface import MissingTokenizerError, TokenizerError
from gristmill.tokenizer.json_fields import read_optional
from gristmill.tokenizer.llama2c import read_llama2c
from gristmill.tokenizer.sentencepiece_file import read_sentencepiece
from gristmill.tokenizer.tiktoken_file import read_tiktoken
from gristmill.tokenizer.tokenizer_json import ModelFiles, read_tokenizer_json
from gristmill.tokenizer.vocabulary import Vocabulary

# In a model's folder, the first of these that is there. tokenizer.json is what the model was published with.
_NAMES = ("tokenizer.json", "tokenizer.model", "tokenizer.bin")
_TIKTOKEN = ("*.tiktoken", "*.tiktoken.gz")


def load_path(path: Path, n_tokens: int | None = None) -> CodecTokenizer:
    """The tokenizer in a file or folder. n_tokens: the model's vocabulary size, which llama2.c's file does not say."""
    return make_tokenizer(read_path(path, n_tokens))


def read_path(path: Path, n_tokens: int | None = None) -> Vocabulary:
    """The vocabulary in a file or folder."""
    if path.is_dir():
        return _read_file(_find(path), n_tokens)
    if not path.is_file():
        raise TokenizerError(f"{path}: is no file and no folder")
    return _read_file(path, n_tokens)


def _find(folder: Path) -> Path:
    for name in _NAMES:
        if (folder / name).is_file():
            return folder / name
    for pattern in _TIKTOKEN:
        found = sorted(folder.glob(pattern))
        if found:
            return found[0]
    raise MissingTokenizerError(
        f"{folder}: holds none of {', '.join((*_NAMES, *_TIKTOKEN))}: give the tokenizer with --tokenizer FILE"
    )


def _read_file(path: Path, n_tokens: int | None) -> Vocabulary:
    name = path.name
    if name.endswith(".json"):
        added = tuple(list_added(path.parent))
        return read_tokenizer_json(path, replace(_read_model_files(path.parent), added=added))
    if name.endswith((".tiktoken", ".tiktoken.gz")):
        return read_tiktoken(path)
    if name.endswith(".model"):
        if _looks_like_ranks(path):
            return read_tiktoken(path)  # Meta's Llama 3 calls its ranks tokenizer.model
        beside = _read_model_files(path.parent)
        vocabulary = read_sentencepiece(path, adds_bos=beside.adds_bos is not False, adds_eos=bool(beside.adds_eos))
        vocabulary = _named(add_tokens(vocabulary, path), beside)
        if not read_optional(path.parent / "tokenizer_config.json").flag("legacy", True):
            vocabulary = replace(vocabulary, space_after_added=False)
        return _ending(vocabulary, path)
    if name.endswith(".bin"):
        return _ending(read_llama2c(path, n_tokens), path)
    raise TokenizerError(f"{path}: supported are *.json, *.model, *.tiktoken, *.tiktoken.gz and llama2.c's *.bin")


def _named(vocabulary: Vocabulary, beside: ModelFiles) -> Vocabulary:
    """With the end of text and the padding that files beside it name, where they name a special token."""
    ids = vocabulary.special_ids
    eos_id = ids.get(beside.eos) if beside.eos is not None else None
    if eos_id is not None and eos_id != vocabulary.eos_id:
        suffix = tuple(eos_id if token_id == vocabulary.eos_id else token_id for token_id in vocabulary.suffix_ids)
        ends = tuple(dict.fromkeys((eos_id, *vocabulary.named_end_ids)))
        vocabulary = replace(vocabulary, named_end_ids=ends, suffix_ids=suffix)
    pad_id = ids.get(beside.pad) if beside.pad is not None else None
    return vocabulary if pad_id is None else replace(vocabulary, pad_id=pad_id)


def _ending(vocabulary: Vocabulary, path: Path) -> Vocabulary:
    """Ends answers also at the ids that the model's configuration beside the file names."""
    ids = _read_eos_ids(path.parent)
    if any(token_id >= vocabulary.n_tokens for token_id in ids):
        problem = f"eos_token_id {max(ids)}, and {path.name} has {vocabulary.n_tokens} tokens"
        raise TokenizerError(f"{path.parent}: the model's configuration names {problem}")
    return replace(vocabulary, named_end_ids=tuple(dict.fromkeys((*vocabulary.named_end_ids, *ids))))


def _looks_like_ranks(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(64)
    first = head.split(b"\n")[0].split(b" ")
    return len(first) == 2 and first[1].strip() == b"0"


def _read_model_files(folder: Path) -> ModelFiles:
    """BOS and EOS as the files beside the tokenizer name them; what is absent stays open."""
    texts: dict[str, str | None] = {"bos_token": None, "eos_token": None, "pad_token": None}
    flags: dict[str, bool | None] = {"add_bos_token": None, "add_eos_token": None}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        fields = read_optional(folder / name)
        for key in texts:
            texts[key] = fields.token_text(key) or texts[key]
        for key in flags:
            if fields.get(key) is not None:
                flags[key] = fields.flag(key, False)
    return ModelFiles(
        bos=texts["bos_token"],
        eos=texts["eos_token"],
        pad=texts["pad_token"],
        eos_ids=_read_eos_ids(folder),
        adds_bos=flags["add_bos_token"],
        adds_eos=flags["add_eos_token"],
    )


def _read_eos_ids(folder: Path) -> tuple[int, ...]:
    """generation_config.json counts before config.json; either may name one id or a list."""
    for name in ("generation_config.json", "config.json"):
        fields = read_optional(folder / name)
        value: Any = fields.get("eos_token_id")
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0 for token_id in ids):
            raise fields.fail("eos_token_id", f"is {value!r:.80}, not an id or a list of ids")
        return tuple(ids)
    return ()
