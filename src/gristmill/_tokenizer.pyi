import enum

import numpy as np
from numpy.typing import NDArray

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
        texts: list[bytes] | list[str],
        kinds: bytes,
        merges: list[bytes] | list[str] | list[list[str]],
        splitter: Splitter,
        whole_word_first: bool,
    ) -> Codec: ...
    @staticmethod
    def ranked(texts: list[bytes], kinds: bytes, splitter: Splitter) -> Codec: ...
    @staticmethod
    def scored(
        texts: list[bytes] | list[str],
        kinds: bytes,
        scores: list[float],
        space_first: bool,
        space_after_phrase: bool,
        unknown: int,
    ) -> Codec: ...
    @staticmethod
    def char_level(
        texts: list[bytes] | list[str],
        kinds: bytes,
        merges: list[bytes] | list[str] | list[list[str]],
        space_first: bool,
        space_after_phrase: bool,
        unknown: int,
    ) -> Codec: ...
    @property
    def n_ids(self) -> int: ...
    def add_phrase(self, text: str, id: int, flags: int) -> None: ...
    def encode(self, text: str, with_special: bool) -> NDArray[np.int32]: ...
    def encode_plain(self, text: str) -> NDArray[np.int32]: ...
    def encode_words(self, words: list[str]) -> NDArray[np.int32]: ...
    def find_phrases(self, text: str, with_special: bool) -> list[tuple[int, int, int]]: ...
    def decode(self, ids: list[int]) -> bytes: ...
    def token_bytes(self, id: int) -> bytes: ...
