"""The one tokenizer class: a native codec, and around it what files ask for (BOS, normalization, special tokens)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gristmill._tokenizer import Codec
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.split import LIMIT_S, Split


@contextmanager
def _refusing_bad_text() -> Iterator[None]:
    """Text that cannot be encoded raises TokenizerError, saying why."""
    try:
        yield
    except UnicodeEncodeError as error:
        code_point = ord(error.object[error.start])
        raise TokenizerError(
            f"text has the lone surrogate U+{code_point:04X} at character {error.start}: "
            "it is not Unicode text; decode it again or replace that character"
        ) from None
    except ValueError as error:
        raise TokenizerError(f"text: {error}") from None


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids with a meaning. prefix_ids and suffix_ids are what add_special puts around a text."""

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    ids: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


class CodecTokenizer:
    """A `Tokenizer` over a native codec.

    textless   ids that stand for nothing: a vocabulary's unused ones, whatever files call them
    normalize  applied to the text between added tokens; None when the model asks for none. It leaves ASCII as it is
    split      the text between added tokens becomes words that are merged alone; None when the codec does that itself
    """

    def __init__(
        self,
        codec: Codec,
        special: SpecialTokens,
        *,
        textless: frozenset[int] = frozenset(),
        strips_first_space: bool = False,
        normalize: Callable[[str], str] | None = None,
        split: Split | None = None,
    ) -> None:
        self._codec = codec
        self._special = special
        self._special_id_set = frozenset(special.ids.values())
        self._textless = textless
        self._textless_or_special = textless | self._special_id_set
        self._strips_first_space = strips_first_space
        self._normalize = normalize
        self._split = split

    @property
    def vocab_size(self) -> int:
        return self._codec.n_ids

    @property
    def bos_id(self) -> int | None:
        return self._special.bos_id

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self._special.eos_ids

    @property
    def adds_bos(self) -> bool:
        return self._special.bos_id is not None and self._special.bos_id in self._special.prefix_ids

    @property
    def special_ids(self) -> Mapping[str, int]:
        return self._special.ids

    @property
    def strips_first_space(self) -> bool:
        return self._strips_first_space

    @property
    def splits_natively(self) -> bool:
        """Whether text becomes words without Python: False for a model with an unknown pre-tokenizer pattern."""
        return self._split is None

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_id_set

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        ids: list[int] = self.encode_array(text, parse_special=parse_special).tolist()
        return self._with_special(ids) if add_special else ids

    def encode_parts(self, parts: Iterable[tuple[str, bool]], *, add_special: bool = True) -> list[int]:
        with _refusing_bad_text():
            utf8 = b""
            phrases: list[tuple[int, int, int]] = []
            for text, trusted in parts:
                if trusted:
                    found = self._codec.find_phrases(text, True)
                    phrases += [(len(utf8) + start, len(utf8) + end, token_id) for start, end, token_id in found]
                utf8 += text.encode()
            encode = partial(self._encode_text, deadline=time.monotonic() + LIMIT_S)
            ids: list[int] = self._encode_between(utf8, phrases, encode, at_start=True).tolist()
        return self._with_special(ids) if add_special else ids

    def encode_array(self, text: str, *, parse_special: bool = False) -> NDArray[np.int32]:
        """Ids of `text` alone, without BOS and EOS, as int32 [n]: nothing is made for each id."""
        with _refusing_bad_text():
            return self._encode_text(text, True, deadline=time.monotonic() + LIMIT_S, parse_special=parse_special)

    def _with_special(self, ids: list[int]) -> list[int]:
        ids[:0] = self._special.prefix_ids
        ids += self._special.suffix_ids
        return ids

    def _encode_text(
        self, text: str, at_start: bool, *, deadline: float, parse_special: bool = False
    ) -> NDArray[np.int32]:
        """Added tokens are found in the text as it is, before it is normalized."""
        if self._split is None and (self._normalize is None or text.isascii()):
            return self._codec.encode(text, parse_special, at_start)
        phrases = self._codec.find_phrases(text, parse_special)
        return self._encode_between(text.encode(), phrases, partial(self._encode_plain, deadline=deadline), at_start)

    def _encode_between(
        self,
        utf8: bytes,
        phrases: list[tuple[int, int, int]],
        encode: Callable[[str, bool], NDArray[np.int32]],
        at_start: bool,
    ) -> NDArray[np.int32]:
        """The ids of `phrases` (start, end, id, in bytes of `utf8`), and what `encode` makes of the texts around them.

        at_start  `utf8` begins a text, which the first of those is told
        """
        parts: list[NDArray[np.int32]] = []
        at = 0
        for start, end, token_id in phrases:
            parts += [encode(utf8[at:start].decode(), at_start and at == 0), np.array([token_id], np.int32)]
            at = end
        return np.concatenate([*parts, encode(utf8[at:].decode(), at_start and at == 0)])

    def _encode_plain(self, text: str, at_start: bool, *, deadline: float) -> NDArray[np.int32]:
        if self._normalize is not None:
            text = self._normalize(text)
        if self._split is not None:
            return self._codec.encode_words(self._split(text, deadline))
        return self._codec.encode(text, False, at_start)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        skipped = self._textless_or_special if skip_special else self._textless
        n_tokens = self.vocab_size
        ids = [token_id for token_id in ids if token_id < n_tokens and token_id not in skipped]
        try:
            data = self._codec.decode(ids)
        except (ValueError, TypeError) as error:
            raise TokenizerError(f"ids: {error}") from None
        if self._strips_first_space:
            data = self._without_first_space(ids, data)
        return data.decode(errors="replace")

    def _without_first_space(self, ids: list[int], data: bytes) -> bytes:
        start = 0
        for token_id in ids:
            if token_id not in self._special_id_set:
                break
            start += len(self._codec.token_bytes(token_id))
        return data[:start] + data[start + 1 :] if data[start : start + 1] == b" " else data

    def token_bytes(self, token_id: int) -> bytes:
        if token_id in self._textless:
            return b""
        try:
            return self._codec.token_bytes(token_id)
        except (ValueError, TypeError) as error:
            raise TokenizerError(str(error)) from None

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode(errors="replace")
