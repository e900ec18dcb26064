"""Answers from a model in this process: the template around a conversation, the reader of its answers."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gristmill.cli.chat_backend import ChatDelta, ContextFullError, Tally
from gristmill.cli.chat_session import Conversation, params
from gristmill.cli.sampling import USUAL
from gristmill.dialogue.format import ChatFormat, ChatPrompt
from gristmill.dialogue.types import ContentDelta, Kind, ReasoningDelta, Thought
from gristmill.formats.open import open_checkpoint
from gristmill.llm import LLM
from gristmill.models.sampling import Recommended
from gristmill.tokenizer.chat import ChatTemplate
from gristmill.tokenizer.chat_builtin import find_builtin
from gristmill.tokenizer.chat_files import load_chat_template
from gristmill.tokenizer.interface import TemplateError
from gristmill.types import Finish

_PLAIN: Final = "What you write is a text that the model continues."


class LocalBackend:
    """A model; one without a chat template continues the conversation's texts as one text.

    recommended                    how its makers would have tokens chosen
    template_file, tokenizer_file  as in LLM, whose files these are
    plain                          True: continue texts even so; False: use even a template that the vocabulary
                                   only suggests, where None leaves llama2.c's files, mostly story models, without
    """

    def __init__(
        self,
        llm: LLM,
        recommended: Recommended,
        template_file: str | None = None,
        tokenizer_file: str | None = None,
        plain: bool | None = None,
    ) -> None:
        self._llm = llm
        self._tokenizer = llm.tokenizer
        self._recommended = recommended
        self._template: ChatTemplate | None = None
        self._format = ChatFormat(self._tokenizer, None, Kind.PLAIN)
        self.name = llm.model_name
        self.context: int | None = llm.max_context
        self.notice: str | None = None
        self.tally: Tally | None = None
        if plain:
            self.notice = _PLAIN
            return
        checkpoint = open_checkpoint(llm.model_path)
        file, beside = (None if name is None else Path(name) for name in (template_file, tokenizer_file))
        try:
            template = load_chat_template(checkpoint, self._tokenizer, file=file, tokenizer_path=beside)
        except TemplateError as error:
            if file is not None or plain is False:
                raise
            self.notice = f"{error}. {_PLAIN}"
            return
        guess = find_builtin(self._tokenizer.special_ids, self._tokenizer.vocab_size)
        if guess is not None and guess[1] == template.source and checkpoint.format == "llama2c" and plain is None:
            self.notice = f"{_PLAIN} For answers in the form of {guess[0]}: --no-plain"
            return
        self._template = template
        self._format = ChatFormat(self._tokenizer, template)

    def answer(self, conversation: Conversation) -> Generator[ChatDelta, None, None]:
        self.check(conversation)
        prompt = self._prompt(conversation)
        chosen = params(conversation.settings, {**USUAL, **self._recommended.in_chat(prompt.thinks)})
        ids = list(prompt.ids)
        if self.context is not None and len(ids) >= self.context:
            raise ContextFullError(
                f"the conversation has {len(ids)} tokens with this message, and the context holds {self.context}"
            )
        tally = self.tally = Tally(n_prompt=len(ids), prompt_ids=ids)
        reader = self._format.reader(prompt, chosen.stop, chosen.min_tokens)
        # Stop strings are the reader's: they mean nothing in thoughts.
        with closing(self._llm.timed_pieces(ids, replace(chosen, stop=()))) as tokens:
            for token in tokens:
                piece = token.piece
                tally.count(token.packing_s, token.at)
                tally.output_ids.append(piece.event.token_id)
                if tally.n_cached is None:
                    tally.n_cached = piece.event.n_cached
                yield from _shown(reader.push(piece.event.token_id))
                if reader.stopped:
                    tally.finish = Finish.STOP.value
                    return
                tally.finish = piece.finish.value if piece.finish is not None else None
        yield from _shown(reader.finish())

    def check(self, conversation: Conversation) -> None:
        if self._template is None:
            if conversation.system is not None:
                raise ValueError("this model has no chat template, so there is no place for a system message")
            if conversation.think is not None:
                raise ValueError("this model has no chat template, so nothing can be said of thinking")
            return
        knows = [word for word in ("enable_thinking", "reasoning_effort") if word in self._template.source]
        wanted = next(iter(_kwargs(conversation.think, self._template.source)), None)
        if wanted is not None and wanted not in knows:
            choices = {"enable_thinking": "on or off", "reasoning_effort": "low, medium or high"}
            remedy = f"give {' or '.join(choices[word] for word in knows)}" if knows else "it cannot be changed"
            raise ValueError(
                f"this model's chat template does not know {wanted} (think {conversation.think}); {remedy}"
            )

    def defaults(self, conversation: Conversation) -> Mapping[str, tuple[Any, str]]:
        first = Conversation([{"role": "user", "content": "?"}], conversation.system, think=conversation.think)
        recommended = self._recommended.in_chat(self._prompt(first).thinks)
        usual = {name: (value, "gristmill") for name, value in USUAL.items()}
        return {**usual, **{name: (value, "the model") for name, value in recommended.items()}}

    def token_text(self, token_id: int) -> str:
        return self._tokenizer.token_text(token_id) if token_id < self._tokenizer.vocab_size else ""

    def idle(self) -> AbstractContextManager[None]:
        return self._llm.packing()

    def close(self) -> None:
        self._llm.close()

    def _prompt(self, conversation: Conversation) -> ChatPrompt:
        if self._template is None:
            return ChatPrompt(tuple(self._tokenizer.encode(_as_one_text(conversation))), Thought.NONE)
        kwargs = _kwargs(conversation.think, self._template.source)
        parts = self._template.render(conversation.with_system(), chat_template_kwargs=kwargs)
        return self._format.prompt(parts)


def _kwargs(think: str | None, source: str) -> dict[str, Any]:
    """For a template of this source: to one that knows thinking and no effort, any effort is thinking."""
    if think is None:
        return {}
    if think in ("on", "off") or ("reasoning_effort" not in source and "enable_thinking" in source):
        return {"enable_thinking": think != "off"}
    return {"reasoning_effort": think}


def _shown(deltas: list[Any]) -> Iterator[ChatDelta]:
    """Without tools there are no calls."""
    for delta in deltas:
        assert isinstance(delta, ReasoningDelta | ContentDelta)
        yield delta


def _as_one_text(conversation: Conversation) -> str:
    """The texts in order, with a space where neither side has one."""
    whole = ""
    for message in conversation.messages:
        text = message["content"]
        apart = whole and text and not whole[-1].isspace() and not text[0].isspace()
        whole += f" {text}" if apart else text
    return whole
