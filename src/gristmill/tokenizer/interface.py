"""What the rest of the engine knows of a tokenizer. Nothing here knows a file format or an algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class TokenizerError(ValueError):
    """A vocabulary that is not what it claims to be, or text that is not text; names the file and the field."""


class MissingTokenizerError(TokenizerError):
    """There is no vocabulary in the model's file or beside it."""


class TemplateError(ValueError):
    """A chat template that is missing, broken, hostile, or that refuses the conversation; says what and where."""


def without_halves(text: str) -> str:
    """Halves of surrogate pairs, which no text has and no tokenizer takes, become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Tokenizer(Protocol):
    """Text to token ids and back for one model. Safe to use from several threads."""

    @property
    def vocab_size(self) -> int:
        """Ids are 0 .. vocab_size - 1. The model's own vocabulary may be padded beyond."""
        ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends an answer: end of text and end of turn."""
        ...

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` with add_special puts `bos_id` first."""
        ...

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Text of each special token -> its id."""
        ...

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of `text`.

        add_special    put BOS and EOS where the model's files ask for them
        parse_special  texts of special tokens in `text` become their ids; otherwise they are plain text
        Raises TokenizerError for text with a lone surrogate.
        """
        ...

    def encode_parts(self, parts: Iterable[tuple[str, bool]], *, add_special: bool = True) -> list[int]:
        """Ids of texts put together, each with whether its special tokens are to be parsed.

        The texts are tokenized as one, so a border between them changes nothing; but a special token is found only
        within one text that is trusted (True), never in the others (a user's), and never across a border. Added tokens
        that are not special, such as Qwen's <think>, are found wherever the texts together have them.
        """
        ...

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD. Ids beyond the vocabulary, of which models may have
        some, and unused ones have none. Raises TokenizerError for a negative one."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; they may be a part of a character, and of an unused one there are none."""
        ...

    def token_text(self, token_id: int) -> str:
        """A token for display: its bytes as text, bytes that are not UTF-8 as U+FFFD."""
        ...

    def is_special(self, token_id: int) -> bool: ...

    @property
    def strips_first_space(self) -> bool:
        """Whether `decode` drops the space that `encode` put before the text (SentencePiece)."""
        ...
