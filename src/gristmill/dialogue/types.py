"""The nouns of a dialogue: what an answer is made of, what may be called, how a parser is used. It knows no format."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class Kind(StrEnum):
    """How a model writes thoughts and calls: see the module of that name."""

    PLAIN = "plain"
    QWEN = "qwen"
    QWEN3_CODER = "qwen3_coder"
    DEEPSEEK = "deepseek"
    LLAMA = "llama"
    HARMONY = "harmony"


class Thought(StrEnum):
    """Where an answer stands with its thought when it begins: it has begun, it may come, or none may come any more."""

    OPEN = "open"
    POSSIBLE = "possible"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of what is for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins. index: 0, 1, ... in the answer. id: unique, `call_...`. name: always one that may be called."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of a call's arguments.

    The pieces of a complete call are together the JSON object that the model wrote, character by character (control
    characters that it left unescaped in strings are escaped). Where the answer ends early, or goes on with what is no
    JSON, they are the beginning of one.
    """

    index: int
    piece: str


Delta = ReasoningDelta | ContentDelta | ToolCallStart | ToolCallArguments


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call.

    parameters  JSON schema of an object; None where it takes none
    strict      calls keep to it even where an answer may do without any
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


class ChoiceMode(StrEnum):
    """OpenAI's tool_choice: may call, must not, must call any, must call the one that is named."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether and what to call. name: of the function, for NAMED alone."""

    mode: ChoiceMode = ChoiceMode.AUTO
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.mode is ChoiceMode.NAMED) != (self.name is not None):
            raise ValueError(f"tool_choice: {self.mode} with the name {self.name!r}; only 'named' has a name")


AUTO = ToolChoice()


class Parser(Protocol):
    """One answer's text, piece by piece, into deltas. It never raises and is not used after `finish`.

    The deltas put together do not depend on how the text is cut into pieces, all of it comes out except the format's
    own marks and the white space beside them, and only what could still become a mark or a call is held back.
    """

    @property
    def marks(self) -> Set[str] | None:
        """Special tokens that `push` must be given as text; None: all. The others are left out, as from any text."""
        ...

    def push(self, token_id: int, text: str) -> list[Delta]:
        """Take the characters that a token completes (see `StreamDecoder`, not skipping special tokens in `marks`)."""
        ...

    def finish(self) -> list[Delta]:
        """The answer has ended: what was held back.

        A call of which no argument has come yet is content; one in the middle of its arguments stays as it is.
        """
        ...
