"""`gristmill generate --chat`: a question, and what of the answer is printed."""

from __future__ import annotations

from gristmill.dialogue.format import ChatPrompt
from gristmill.dialogue.message import AssistantMessage
from gristmill.dialogue.types import ContentDelta
from gristmill.llm import LLM
from gristmill.outputs import Piece
from gristmill.types import SamplingParams


def ask(llm: LLM, text: str, system: str | None) -> ChatPrompt:
    messages = [{"role": "system", "content": system}] if system is not None else []
    return llm.chat_prompt([*messages, {"role": "user", "content": text}])


class Dialogue:
    """One question and its answer. What is printed of an answer that is constrained is its content alone."""

    def __init__(self, llm: LLM, prompt: ChatPrompt, params: SamplingParams) -> None:
        self.ids = list(prompt.ids)
        self.params = llm.constrain_chat(prompt, params)
        self.message = AssistantMessage()
        self._reader = llm.chat_reader(prompt, params)

    def push(self, piece: Piece) -> str:
        """What to print of it."""
        deltas = self._reader.push(piece.event.token_id)
        if piece.finish is not None:
            deltas += self._reader.finish()
        self.message.add(deltas)
        if self.params.structured_outputs is None:
            return piece.text
        return "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
