"""Learns a vocabulary from text: SentencePiece's BPE with byte fallback, piece for piece. Knows no file but texts.

Words are counted once, in parallel; the pairs of their neighbours are then counted as they change (native/tokenizer).
Trainer and order of ids: github.com/google/sentencepiece, src/bpe_model_trainer.cc, src/trainer_interface.cc."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from gristmill._tokenizer import BpeTrainer, WordCounts
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.kinds import SPECIAL
from gristmill.tokenizer.vocabulary import BYTE, CONTROL, NORMAL, SPACE_MARK, UNKNOWN, AddedToken, Vocabulary
from gristmill.train.scripts import find_scripts
from gristmill.train.sources import Span, documents

Report = Callable[[int, int], None]
"""What is done, and of how much."""

_SPECIAL: Final = ("<unk>", "<s>", "</s>")
N_FIXED: Final = len(_SPECIAL) + 256
"""Ids before the first piece: unknown, BOS, EOS and the bytes."""
_RESERVED = re.compile("<unk>|</?s>|<0x[0-9A-F]{2}>")
_BREAK: Final = "\x1f"  # in no piece, so it ends pieces
_SPACE: Final = 0x20
_DIGITS: Final = frozenset("0123456789" + "".join(map(chr, range(0xFF10, 0xFF1A))))
_STEP: Final = 64  # pieces between two reports


@dataclass(frozen=True, slots=True)
class Settings:
    """vocab_size is the number of ids in all.

    character_coverage  share of the text whose characters are ids of their own; the others become bytes
    split_digits        each digit is an id of its own
    max_characters      of a piece
    """

    vocab_size: int
    character_coverage: float = 1.0
    split_digits: bool = True
    max_characters: int = 16

    def __post_init__(self) -> None:
        if not N_FIXED < self.vocab_size <= 1 << 20:
            raise ValueError(f"--vocab-size is {self.vocab_size}; must be over {N_FIXED} and at most {1 << 20}")
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"--coverage is {self.character_coverage}; must be over 0 and at most 1")
        if not 1 <= self.max_characters <= 512:
            raise ValueError(f"--max-piece is {self.max_characters}; must be 1 to 512 characters")


def count_words(
    groups: Sequence[Sequence[Span]], separator: str, *, threads: int = 1, report: Report | None = None
) -> WordCounts:
    """The words of texts (see `sources.cut`). report(bytes of files done, of all). Holds a group for each thread."""
    total = sum(span.end - span.begin for group in groups for span in group)
    done = 0
    idle: SimpleQueue[WordCounts] = SimpleQueue()
    counters = [WordCounts() for _ in range(max(1, threads))]
    for counter in counters:
        idle.put(counter)

    def count(group: Sequence[Span]) -> int:
        counter = idle.get()
        try:
            for span in group:
                _add_span(counter, span, separator)
        finally:
            idle.put(counter)
        return sum(span.end - span.begin for span in group)

    pool = ThreadPoolExecutor(len(counters))
    try:
        for n_bytes in pool.map(count, groups):
            done += n_bytes
            if report is not None:
                report(done, total)
    finally:
        pool.shutdown(cancel_futures=True)
    for other in counters[1:]:
        counters[0].absorb(other)
    return counters[0]


def _add_span(words: WordCounts, span: Span, separator: str) -> None:
    try:
        add_texts(words, documents(span, separator))
    except UnicodeEncodeError as error:  # JSON can spell what is no text
        code_point = ord(error.object[error.start])
        raise ValueError(
            f"{span.path}: has the lone surrogate U+{code_point:04X}, which is no text; remove it"
        ) from None


def add_texts(words: WordCounts, texts: Iterable[str]) -> None:
    """Count the words of texts. Lines are on their own; texts of special tokens stand in no piece."""
    for text in texts:
        if SPACE_MARK in text:
            text = text.replace(SPACE_MARK, " ")
        if "<" in text:
            text = _RESERVED.sub(_BREAK, text)
        words.add(text)


def train(words: WordCounts, settings: Settings, report: Report | None = None) -> Vocabulary:
    """The vocabulary of counted words. report(pieces found, pieces wanted).

    Raises ValueError where the text has too few pieces for the size asked for, or too many characters.
    """
    characters = _covered(words, settings.character_coverage)
    wanted = settings.vocab_size - N_FIXED - len(characters)
    if wanted < 0:
        raise ValueError(
            f"--vocab-size is {settings.vocab_size}, but the text has {len(characters)} characters that are ids of "
            f"their own: ask for at least {N_FIXED + len(characters)}, or let bytes stand for rare characters "
            "(--coverage 0.9995)"
        )
    scripts = find_scripts(characters)
    trainer = BpeTrainer.make(
        words,
        [
            (_SPACE if c == SPACE_MARK else ord(c), scripts[c], settings.split_digits and c in _DIGITS)
            for c in characters
        ],
        settings.max_characters,
    )
    found = 0
    while found < wanted:
        n = trainer.add_pieces(min(_STEP, wanted - found))
        if n == 0:
            raise ValueError(
                f"the text is too small for --vocab-size {settings.vocab_size}: it gives "
                f"{N_FIXED + found + len(characters)} ids at most ({found} pieces, {len(characters)} characters, "
                f"{N_FIXED} fixed)"
            )
        found += n
        if report is not None:
            report(found, wanted)
    return make_vocabulary([*trainer.pieces(), *characters])


def make_vocabulary(pieces: Sequence[str]) -> Vocabulary:
    """A vocabulary as SentencePiece lays it out: special tokens, bytes, then pieces, each with a lower score."""
    fixed = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    return Vocabulary(
        "spm",
        [*fixed, *pieces],
        bytes([UNKNOWN, CONTROL, CONTROL]) + bytes([BYTE]) * 256 + bytes([NORMAL]) * len(pieces),
        "the trained vocabulary",
        scores=[0.0] * N_FIXED + [-float(i) for i in range(len(pieces))],
        space_first=True,
        strips_first_space=True,
        added=tuple(AddedToken(text, token_id, SPECIAL) for token_id, text in enumerate(_SPECIAL)),
        unk_id=0,
        bos_id=1,
        named_end_ids=(2,),
        prefix_ids=(1,),
    )


def count_tokens(words: WordCounts, vocabulary: Vocabulary) -> int:
    """How many ids the counted lines become, each alone and without BOS."""
    tokenizer = make_tokenizer(vocabulary)
    n_tokens = 0
    for word, count in words.words():
        # Every word begins with a space, which the tokenizer puts there; of an empty text it makes nothing.
        n_ids = len(tokenizer.encode_array(word[1:])) if len(word) > 1 else 1
        n_tokens += n_ids * count
    return n_tokens


def _covered(words: WordCounts, coverage: float) -> list[str]:
    """Characters that are ids of their own, frequent ones first."""
    counts = [(_as_piece(code_point), count) for code_point, count in words.characters() if code_point]
    total = sum(count for _, count in counts)
    found: list[str] = []
    before = 0
    for character, count in sorted(counts, key=lambda item: (-item[1], item[0])):
        if _as_float32(before / total) >= _as_float32(coverage):
            break
        before += count
        if character != _BREAK:
            found.append(character)
    return found


def _as_piece(code_point: int) -> str:
    return SPACE_MARK if code_point == _SPACE else chr(code_point)


def _as_float32(value: float) -> float:
    """SentencePiece compares shares in this precision."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
