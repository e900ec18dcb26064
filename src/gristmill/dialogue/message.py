"""An answer's deltas put together: the assistant's message as OpenAI's chat API has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gristmill.dialogue.types import ContentDelta, Delta, ReasoningDelta, ToolCallArguments, ToolCallStart


class AssistantMessage:
    """A message as its deltas come."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[ToolCallStart, list[str]]] = []

    def add(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            match delta:
                case ContentDelta(text):
                    self._content.append(text)
                case ReasoningDelta(text):
                    self._reasoning.append(text)
                case ToolCallStart():
                    self._calls.append((delta, []))
                case ToolCallArguments(index, piece):
                    self._calls[index][1].append(piece)

    def body(self) -> dict[str, Any]:
        """role, content (None beside calls, "" where there are none), reasoning_content and tool_calls if any."""
        content = "".join(self._content)
        body: dict[str, Any] = {"role": "assistant", "content": content if content or not self._calls else None}
        if self._reasoning:
            body["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            body["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(pieces)}}
                for call, pieces in self._calls
            ]
        return body
