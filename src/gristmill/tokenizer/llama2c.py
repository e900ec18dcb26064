"""llama2.c's tokenizer.bin: SentencePiece pieces and scores with spaces for U+2581. Written by its tokenizer.py."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.kinds import SPECIAL
from gristmill.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE_MARK,
    UNKNOWN,
    AddedToken,
    Vocabulary,
    as_text,
)

_UNK, _BOS, _EOS = 0, 1, 2
_MAX_PIECE_BYTES = 4096
_BYTE_PIECE = re.compile(rb"<0x[0-9A-Fa-f]{2}>")


def read_pieces(path: Path, n_tokens: int | None) -> tuple[list[bytes], list[float]]:
    """Pieces and scores of a tokenizer.bin: int32 longest piece, then a token each: float32 score, int32 length, bytes.

    n_tokens  the model's vocabulary size, as the file does not say; None takes any number
    Raises TokenizerError for another number, and for a file that is no tokenizer.bin.
    """
    data = path.read_bytes()
    pieces: list[bytes] = []
    scores: list[float] = []
    at = 4
    while at < len(data) and (n_tokens is None or len(pieces) < n_tokens):
        if at + 8 > len(data):
            raise TokenizerError(f"{path}: token {len(pieces)} is cut off: the file is truncated or no tokenizer.bin")
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= length <= min(_MAX_PIECE_BYTES, len(data) - at):
            raise TokenizerError(
                f"{path}: token {len(pieces)} has the length {length}, but {len(data) - at} bytes are left: "
                "the file is truncated or no tokenizer.bin"
            )
        pieces.append(data[at : at + length])
        scores.append(score)
        at += length
    if at < len(data):
        raise TokenizerError(f"{path}: has more tokens than the model's {n_tokens}: it is another model's")
    if len(pieces) <= _EOS or (n_tokens is not None and len(pieces) < n_tokens):
        raise TokenizerError(f"{path}: has {len(pieces)} tokens, but the model has {n_tokens or 'at least 3'}")
    return pieces, scores


def load_llama2c(path: Path, n_tokens: int | None = None) -> CodecTokenizer:
    """The tokenizer of a llama2.c checkpoint."""
    return make_tokenizer(read_llama2c(path, n_tokens))


def read_llama2c(path: Path, n_tokens: int | None = None) -> Vocabulary:
    """The vocabulary of a llama2.c checkpoint. Ids 0, 1 and 2 are <unk>, <s> and </s>; texts start with <s>."""
    pieces, scores = read_pieces(path, n_tokens)
    types = bytearray(BYTE if _BYTE_PIECE.fullmatch(piece) else NORMAL for piece in pieces)
    types[:3] = bytes([UNKNOWN, CONTROL, CONTROL])
    texts = [piece.replace(b" ", SPACE_MARK.encode()) for piece in pieces]
    texts[:3] = [piece.strip() for piece in pieces[:3]]
    return Vocabulary(
        "spm",
        texts,
        bytes(types),
        str(path),
        "pieces or scores",
        scores=scores,
        space_first=True,
        space_after_added=True,
        strips_first_space=True,
        added=tuple(AddedToken(as_text(texts[i]), i, SPECIAL) for i in (_UNK, _BOS, _EOS)),
        bos_id=_BOS,
        unk_id=_UNK,
        named_end_ids=(_EOS,),
        prefix_ids=(_BOS,),
    )
