"""What the server's own process knows of a model: its vocabulary, template and context. No weights."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gristmill.formats.open import open_checkpoint
from gristmill.hub.store import locate
from gristmill.llm import name_of, pick_context
from gristmill.models.hyperparameters import read_config
from gristmill.tokenizer.chat import ChatTemplate
from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.model_text import ModelText


class Model(Protocol):
    """An LLM is one; so is its text alone.

    model_name     what answers call it
    tokenizer      MissingTokenizerError where there is none
    chat_template  TemplateError where there is none, or none that could be read
    """

    model_path: Path
    model_name: str

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def chat_template(self) -> ChatTemplate: ...

    @property
    def max_context(self) -> int: ...


class TextAlone:
    """A model whose weights are elsewhere."""

    def __init__(
        self, model: str | Path, *, max_context: int | None, tokenizer: str | None, chat_template: str | None
    ) -> None:
        """Arguments and errors as LLM's; MissingTokenizerError for a model without a vocabulary."""
        self.model_path = locate(model)
        self.model_name = name_of(model, self.model_path)
        checkpoint = open_checkpoint(self.model_path)
        self.max_context = pick_context(read_config(checkpoint), max_context)
        self._text = ModelText(checkpoint, tokenizer, chat_template)
        self.tokenizer = self._text.tokenizer

    @property
    def chat_template(self) -> ChatTemplate:
        return self._text.chat_template
