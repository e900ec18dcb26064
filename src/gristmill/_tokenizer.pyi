import enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# Strings, or one buffer and where each string starts and ends in it.
Strings: TypeAlias = list[bytes] | list[str] | tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]

class Splitter(enum.Enum):
    NONE = 0
    GPT2 = 1
    LLAMA3 = 2
    QWEN2 = 3
    O200K = 4
    NEIGHBOURS = 5

class Codec:
    @staticmethod
    def byte_level(
        texts: Strings,
        kinds: bytes,
        merges: Strings | list[list[str]],
        splitter: Splitter,
        whole_word_first: bool,
    ) -> Codec: ...
    @staticmethod
    def ranked(texts: Strings, kinds: bytes, splitter: Splitter) -> Codec: ...
    @staticmethod
    def scored(
        texts: Strings,
        kinds: bytes,
        scores: list[float],
        space_first: bool,
        space_after_phrase: bool,
        unknown: int,
    ) -> Codec: ...
    @staticmethod
    def char_level(
        texts: Strings,
        kinds: bytes,
        merges: Strings | list[list[str]],
        space_first: bool,
        space_after_phrase: bool,
        space_unless_there: bool,
        unknown: int,
    ) -> Codec: ...
    @property
    def n_ids(self) -> int: ...
    def add_phrase(self, text: str, id: int, flags: int) -> None: ...
    def encode(self, text: str, with_special: bool, at_start: bool) -> NDArray[np.int32]: ...
    def encode_words(self, words: list[str]) -> NDArray[np.int32]: ...
    def find_phrases(self, text: str, with_special: bool) -> list[tuple[int, int, int]]: ...
    def decode(self, ids: list[int]) -> bytes: ...
    def token_bytes(self, id: int) -> bytes: ...

class WordCounts:
    """Words of lines (each with the spaces before it) and how often each occurs. One thread at a time."""

    def __init__(self) -> None: ...
    def add(self, text: str) -> None: ...
    def absorb(self, other: WordCounts) -> None: ...
    @property
    def n_words(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    def characters(self) -> list[tuple[int, int]]: ...
    def words(self) -> list[tuple[str, int]]: ...

class BpeTrainer:
    """Pieces one after another. characters: (code point, script or -1 for any, whether it stays alone)."""

    @staticmethod
    def make(words: WordCounts, characters: list[tuple[int, int, bool]], max_characters: int) -> BpeTrainer: ...
    def add_pieces(self, n: int) -> int: ...
    def pieces(self) -> list[str]: ...
