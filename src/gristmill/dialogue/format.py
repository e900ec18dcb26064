"""A model's chat format: what comes after its prompts, how that is constrained and read. It knows no template's words
beyond the marks of a thought, and no API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.dialogue.detect import detect
from gristmill.dialogue.grammar import answer_grammar
from gristmill.dialogue.harmony import MESSAGE, TEXTS
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.tagged import THINK
from gristmill.dialogue.types import AUTO, ChoiceMode, Kind, Thought, Tool, ToolChoice
from gristmill.tokenizer.chat import ChatTemplate, Parts, encode_parts, ends_after_thinking, ends_in_thinking
from gristmill.tokenizer.interface import Tokenizer
from gristmill.types import StructuredOutputsParams


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation as the model sees it, and what its answer may be.

    tools   those that may be called
    thinks  a thought is expected: it has begun, or the template can do without and was not told to
    """

    ids: tuple[int, ...]
    thought: Thought
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    parallel: bool = True
    thinks: bool = False


class ChatFormat:
    """Of a model with this vocabulary and chat template. kind: None is what `detect` says."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, kind: Kind | None = None) -> None:
        sources = [template.source, *template.named.values()] if template is not None else []
        self._tokenizer = tokenizer
        self.kind = kind or detect(template.source if template is not None else None, tokenizer.special_ids)
        self._may_think = THINK in tokenizer.special_ids or any(THINK in source for source in sources)
        self._has_switch = any("enable_thinking" in source for source in sources)

    def prompt(
        self, parts: Parts, tools: Sequence[Tool] = (), tool_choice: ToolChoice = AUTO, parallel: bool = True
    ) -> ChatPrompt:
        """Of a conversation that was rendered."""
        ids, thought = tuple(encode_parts(self._tokenizer, parts)), self._thought_after(parts)
        thinks = thought is Thought.OPEN or (thought is Thought.POSSIBLE and self._has_switch)
        return ChatPrompt(ids, thought, tuple(tools), tool_choice, parallel, thinks)

    def constrain(self, prompt: ChatPrompt, answer: StructuredOutputsParams | None) -> StructuredOutputsParams | None:
        """What the engine has to keep to, so that the answer does: see `answer_grammar`."""
        return answer_grammar(
            self.kind,
            answer,
            prompt.tools,
            prompt.tool_choice,
            parallel=prompt.parallel,
            special_tokens=self._tokenizer.special_ids,
            thought=prompt.thought,
        )

    def reader(
        self,
        prompt: ChatPrompt,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        *,
        constrained: bool = False,
        shows_stop: bool = False,
    ) -> DialogueReader:
        """Of one answer. constrained: it keeps to something besides calls. The others as DialogueReader."""
        strict = prompt.tool_choice.mode is ChoiceMode.AUTO and any(tool.strict for tool in prompt.tools)
        parser = make_parser(
            self.kind,
            tools=prompt.tools,
            tool_choice=prompt.tool_choice,
            parallel=prompt.parallel,
            starts_in_reasoning=prompt.thought is Thought.OPEN,
            constrained=constrained or (strict and self.kind is Kind.LLAMA),  # calls come first, as they do then
        )
        return DialogueReader(self._tokenizer, parser, stop, min_tokens, shows_stop=shows_stop)

    def _thought_after(self, parts: Parts) -> Thought:
        if self.kind is Kind.HARMONY:
            own = next((text for text, trusted in reversed(parts) if trusted), "")
            return Thought.NONE if own.endswith(TEXTS[MESSAGE]) else Thought.POSSIBLE  # NONE: it goes on in a message
        if ends_in_thinking(parts):
            return Thought.OPEN
        return Thought.POSSIBLE if self._may_think and not ends_after_thinking(parts) else Thought.NONE
