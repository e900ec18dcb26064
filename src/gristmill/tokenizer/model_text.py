"""What a model's files say of text: its vocabulary and its chat template, or what is wrong with them."""

from __future__ import annotations

from pathlib import Path

from gristmill.formats.checkpoint import Checkpoint
from gristmill.tokenizer.chat import ChatTemplate
from gristmill.tokenizer.chat_files import load_chat_template
from gristmill.tokenizer.interface import MissingTokenizerError, TemplateError, Tokenizer
from gristmill.tokenizer.load import load_tokenizer


class ModelText:
    """Reads both at once. That there is no vocabulary, or anything wrong with a model's template, is said when it is
    asked for: ids need no vocabulary, and texts no template.

    found  the tokenizer; None where there is none
    """

    def __init__(self, checkpoint: Checkpoint, tokenizer: str | Path | None, chat_template: str | Path | None) -> None:
        """tokenizer, chat_template: files to take instead of the model's. TokenizerError for a broken vocabulary,
        TemplateError for a chat_template that is no text."""
        beside = None if tokenizer is None else Path(tokenizer)
        file = None if chat_template is None else Path(chat_template)
        self.found: Tokenizer | None = None
        try:
            self.found = load_tokenizer(checkpoint, beside)
            self._template: ChatTemplate | TemplateError = load_chat_template(
                checkpoint, self.found, file=file, tokenizer_path=beside
            )
        except MissingTokenizerError as error:
            self._missing = str(error)
        except TemplateError as error:
            if file is not None:
                raise
            self._template = error

    @property
    def tokenizer(self) -> Tokenizer:
        """MissingTokenizerError where there is none."""
        if self.found is None:
            raise MissingTokenizerError(self._missing)
        return self.found

    @property
    def chat_template(self) -> ChatTemplate:
        """TemplateError (a ValueError) where there is none, or none that could be read."""
        _ = self.tokenizer
        if isinstance(self._template, TemplateError):
            raise self._template
        return self._template

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """What ends an answer."""
        return self.found.eos_ids if self.found is not None else ()
