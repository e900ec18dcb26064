"""A vocabulary as data: what a file says of it, whichever its format. Knows neither files nor how text is encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from gristmill._tokenizer import Splitter
from gristmill.tokenizer.kinds import SPECIAL
from gristmill.tokenizer.special import find_end_ids

# Token types as SentencePiece and GGUF number them; GGUF's 0, undefined, is read as unused.
UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(7)
SPACE_MARK: Final = "\u2581"

Strings: TypeAlias = Sequence[str] | Sequence[bytes]


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A text that is found before all merging. flags: `kinds.SPECIAL` and what else the codec knows."""

    text: str
    token_id: int
    flags: int


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Everything that a file says of a tokenizer. Sequences may be views of the file: they are not to be changed.

    kind          "bpe": merging starts from bytes. "spm": it starts from characters, as SentencePiece does
    tokens        str or UTF-8 by id. bpe: in GPT-2's printable alphabet; spm: U+2581 for a space, unless user-defined
    types         a type for each token, as GGUF numbers them
    where         what errors call the file
    fields        what errors call the part of it that holds tokens, merges or scores
    scores        spm: any two neighbours join when together they are a token, the highest score first
    merges        two tokens each ("left right" or pairs), by rank; None where scores or ranks say it all
    is_ranked     bpe without merges: tokens are the bytes themselves, ids are ranks (tiktoken)
    splitter      bpe: how text falls into words, where that runs natively
    patterns      bpe: how it does otherwise, regular expressions one after another
    whole_word_first     bpe: a word that is a token is that token, whatever the merges say
    nfc                  text is normalized first
    space_first          spm: a space is put before the text
    space_after_added    spm: and before text that follows an added token
    space_unless_there   spm: but not before text that starts with one
    strips_first_space   decoding takes that space away
    added                tokens that are found before all merging
    unk_id               what stands for characters that nothing stands for
    named_end_ids        ids that end an answer as the files name them, the end of text first
    prefix_ids, suffix_ids  what encoding puts around a text unless told not to
    chat_templates       Jinja2 sources by name, "" for the default one
    """

    kind: Literal["bpe", "spm"]
    tokens: Strings
    types: bytes
    where: str
    fields: str = "tokens"
    scores: Sequence[float] | None = None
    merges: Any = None
    is_ranked: bool = False
    splitter: Splitter = Splitter.NONE
    patterns: tuple[str, ...] = ()
    whole_word_first: bool = False
    nfc: bool = False
    space_first: bool = False
    space_after_added: bool = False
    space_unless_there: bool = False
    strips_first_space: bool = False
    added: tuple[AddedToken, ...] = ()
    bos_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    named_end_ids: tuple[int, ...] = ()
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    chat_templates: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    @property
    def eos_id(self) -> int | None:
        """What ends a text."""
        return self.named_end_ids[0] if self.named_end_ids else None

    @property
    def special_ids(self) -> dict[str, int]:
        """Text of each special token -> its id; of equal texts the first."""
        ids: dict[str, int] = {}
        for token in self.added:
            if token.flags & SPECIAL:
                ids.setdefault(token.text, token.token_id)
        return ids

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends an answer."""
        return find_end_ids(self.special_ids, self.named_end_ids)

    @property
    def chat_template(self) -> str | None:
        """The default chat template."""
        return self.chat_templates.get("")

    @property
    def adds_bos(self) -> bool:
        return self.bos_id is not None and self.bos_id in self.prefix_ids

    @property
    def adds_eos(self) -> bool:
        return self.eos_id is not None and self.eos_id in self.suffix_ids

    def token_text(self, token_id: int) -> str:
        """A token as the vocabulary spells it."""
        return as_text(self.tokens[token_id])


def as_text(token: str | bytes) -> str:
    return token.decode(errors="replace") if isinstance(token, bytes) else token


def to_list(strings: Any) -> list[Any]:
    """A sequence's items, in one step where it is an array."""
    make = getattr(strings, "tolist", None)
    return list(strings) if make is None else make()
