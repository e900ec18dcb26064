"""`*.tiktoken` files (also gzipped): a line for each token, its bytes in base64 and its rank, which is its id.

The file names neither pattern nor special tokens; the number of ranks tells which vocabulary it is."""

from __future__ import annotations

import binascii
import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

from gristmill._tokenizer import Splitter
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.kinds import SPECIAL
from gristmill.tokenizer.vocabulary import CONTROL, NORMAL, AddedToken, Vocabulary

_MAX_FILE_BYTES = 64 << 20
_MAX_RANK = 1 << 22


@dataclass(frozen=True, slots=True)
class _Family:
    splitter: Splitter
    special: dict[str, int]
    bos: str
    adds_bos: bool


def _llama3_special() -> dict[str, int]:
    """As Llama 3.1 names them, which has the ranks of Llama 3 and uses ids that were reserved there:
    github.com/meta-llama/llama3, llama/tokenizer.py, and Llama 3.1's tokenizer.json."""
    named = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
    named |= {4: "finetune_right_pad_id", 8: "eom_id", 10: "python_tag"}
    reserved = iter(range(256))
    return {f"<|{named.get(i) or f'reserved_special_token_{next(reserved)}'}|>": 128000 + i for i in range(256)}


def _harmony_special() -> dict[str, int]:
    """o200k_harmony, as gpt-oss uses it: github.com/openai/harmony."""
    named = {
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
    ids = {f"<|{named.get(i, f'reserved_{i}')}|>": i for i in range(199998, 201088)}
    return ids | {"<|endofprompt|>": 200018}


def _find_family(n_ranks: int) -> _Family | None:
    if n_ranks == 199998:
        return _Family(Splitter.O200K, _harmony_special(), bos="<|startoftext|>", adds_bos=False)
    if n_ranks == 128000:
        return _Family(Splitter.LLAMA3, _llama3_special(), bos="<|begin_of_text|>", adds_bos=True)
    return None


def read_ranks(path: Path) -> list[bytes]:
    """Bytes of each token by id. Raises TokenizerError unless the ranks are 0 .. n - 1, each once."""
    data = _read_limited(path)
    ordered = _read_ordered(data)
    return _read_lines(path, data) if ordered is None else ordered


def _read_ordered(data: bytes) -> list[bytes] | None:
    """The tokens of a file whose lines are in order, as known ones are; None for any other file, sound or not."""
    fields = data.split()
    ranks = fields[1::2]
    n = len(ranks)
    if not 0 < n <= _MAX_RANK or data.count(b" ") != n or data.count(b"\n") not in (n - 1, n):
        return None
    if ranks != [b"%d" % rank for rank in range(n)]:
        return None
    try:
        tokens = list(map(binascii.a2b_base64, fields[0::2]))
    except ValueError:
        return None
    return tokens if len(tokens) == n and all(tokens) else None


def _read_lines(path: Path, data: bytes) -> list[bytes]:
    found: dict[int, bytes] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        encoded, _, rank_text = line.partition(b" ")
        try:
            rank = int(rank_text)
            token = binascii.a2b_base64(encoded)
        except ValueError:
            raise TokenizerError(f"{path}: line {number} is not a token in base64, a space and its rank") from None
        if not 0 <= rank < _MAX_RANK or rank in found or not token:
            raise TokenizerError(
                f"{path}: line {number} has an empty token or the rank {rank}, repeated or out of range"
            )
        found[rank] = token
    if not found or max(found) != len(found) - 1:
        raise TokenizerError(f"{path}: its {len(found)} ranks are not 0 to {len(found) - 1}: lines are missing")
    return [found[rank] for rank in range(len(found))]


def _read_limited(path: Path) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                data = file.read(_MAX_FILE_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TokenizerError(f"{path}: is not a sound gzip file ({error})") from None
    if len(data) > _MAX_FILE_BYTES:
        raise TokenizerError(f"{path}: holds more than {_MAX_FILE_BYTES} bytes; this is no vocabulary")
    return data


def load_tiktoken(path: Path) -> CodecTokenizer:
    """The tokenizer of gpt-oss (o200k with the tokens of Harmony) or of Meta's Llama 3."""
    return make_tokenizer(read_tiktoken(path))


def read_tiktoken(path: Path) -> Vocabulary:
    """The vocabulary of gpt-oss (o200k with the tokens of Harmony) or of Meta's Llama 3."""
    texts = read_ranks(path)
    family = _find_family(len(texts))
    if family is None:
        raise TokenizerError(
            f"{path}: has {len(texts)} ranks; known are 199998 (o200k, gpt-oss) and 128000 (Llama 3): "
            "give a tokenizer.json or a GGUF file"
        )
    extra = {token_id: text.encode() for text, token_id in family.special.items()}  # of two names the later one
    more = [extra[token_id] for token_id in range(len(texts), max(extra) + 1)]
    bos_id = family.special[family.bos]
    return Vocabulary(
        "bpe",
        [*texts, *more],
        bytes([NORMAL]) * len(texts) + bytes([CONTROL]) * len(more),
        str(path),
        "ranks",
        is_ranked=True,
        splitter=family.splitter,
        added=tuple(AddedToken(text, token_id, SPECIAL) for text, token_id in family.special.items()),
        bos_id=bos_id,
        prefix_ids=(bos_id,) if family.adds_bos else (),
    )
