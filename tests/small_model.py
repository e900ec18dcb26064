"""A tiny llama2.c model with random weights and a vocabulary of bytes, for tests that need any model at all."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB, CONTEXT = 32, 64, 2, 4, 2, 259, 128


def write_model(path: Path, context: int = CONTEXT, vocab: int = VOCAB) -> Path:
    """llama2.c v0: header, then float32 tensors in run.c's order; the classifier is the embedding."""
    rng = np.random.default_rng(0)
    kv = DIM * KV_HEADS // HEADS
    shapes = [(vocab, DIM), (LAYERS, DIM), (LAYERS, DIM, DIM), (LAYERS, kv, DIM), (LAYERS, kv, DIM), (LAYERS, DIM, DIM)]
    shapes += [(LAYERS, DIM), (LAYERS, HIDDEN, DIM), (LAYERS, DIM, HIDDEN), (LAYERS, HIDDEN, DIM), (DIM,)]
    with path.open("wb") as file:
        file.write(struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, vocab, context))
        for shape in shapes:
            is_norm = len(shape) == 1 or shape == (LAYERS, DIM)
            values = rng.uniform(0.5, 1.5, shape) if is_norm else rng.normal(0, 0.3, shape)
            file.write(values.astype("<f4").tobytes())
        file.write(bytes(context * (DIM // HEADS) * 4))
    return path


def write_tokenizer(path: Path) -> Path:
    """llama2.c's tokenizer.bin with the three special tokens and 256 single bytes."""
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(f"<0x{i:02X}>".encode() for i in range(256))]
    with path.open("wb") as file:
        file.write(struct.pack("<i", max(map(len, pieces))))
        for piece in pieces:
            file.write(struct.pack("<fi", 0.0, len(piece)) + piece)
    return path


def write_bytes(path: Path, special: Sequence[str] = ()) -> Path:
    """A tokenizer.json of single bytes, with special tokens after them."""
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    tokens = {token: i for i, token in enumerate(sorted(byte_level.alphabet()))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(tokens, []))
    made.pre_tokenizer = byte_level(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(list(special))
    made.save(str(path))
    return path


def write(folder: Path, context: int = CONTEXT) -> Path:
    """The model, its tokenizer beside it."""
    write_tokenizer(folder / "tokenizer.bin")
    return write_model(folder / "tiny.bin", context)
