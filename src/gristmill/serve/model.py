"""What the server's own process knows of a model: its vocabulary, template and context. No weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gristmill.formats.open import open_checkpoint
from gristmill.hub.store import locate
from gristmill.llm import name_of, pick_context
from gristmill.models.hyperparameters import read_config
from gristmill.tokenizer.chat import ChatTemplate
from gristmill.tokenizer.chat_files import load_chat_template
from gristmill.tokenizer.interface import TemplateError, Tokenizer
from gristmill.tokenizer.load import load_tokenizer


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


@dataclass(slots=True)
class ModelText:
    """A model whose weights are elsewhere."""

    model_path: Path
    model_name: str
    tokenizer: Tokenizer
    max_context: int
    template: ChatTemplate | TemplateError

    @property
    def chat_template(self) -> ChatTemplate:
        if isinstance(self.template, TemplateError):
            raise self.template
        return self.template


def read_model_text(
    model: str | Path, *, max_context: int | None, tokenizer: str | None, chat_template: str | None
) -> ModelText:
    """Arguments and errors as LLM's; MissingTokenizerError for a model without a vocabulary."""
    path = locate(model)
    checkpoint = open_checkpoint(path)
    context = pick_context(read_config(checkpoint), max_context)
    beside = Path(tokenizer) if tokenizer is not None else None
    vocabulary = load_tokenizer(checkpoint, beside)
    file = Path(chat_template) if chat_template is not None else None
    template: ChatTemplate | TemplateError
    try:
        template = load_chat_template(checkpoint, vocabulary, file=file, tokenizer_path=beside)
    except TemplateError as error:  # all but chats works
        template = error
    return ModelText(path, name_of(model, path), vocabulary, context, template)
