"""One answer as it comes: when there was text, how many tokens the server counted, whether it is complete.

It knows OpenAI's two shapes, chat and completions, streamed and whole, and no connection."""

from __future__ import annotations

import json
from typing import Any, Final

_MAX_BODY_BYTES: Final = 16 << 20


class AnswerError(ValueError):
    """The server said that it failed, or what it said is no answer."""


class Answer:
    """Give it every piece of the body with its time, then `end`. Events are read there: between two tokens, when none
    of this is in a cache, it would take a core from the server for several times as long.

    times     when text came, a time for each event that had some; for an answer that is told whole, its end
    n_input   tokens of the prompt, and n_output of the answer, as the server counts them; None where it does not say
    """

    def __init__(self, stream: bool) -> None:
        self._stream = stream
        self.times = list[float]()
        self.n_input: int | None = None
        self.n_output: int | None = None
        self._finished = False
        self._held = b""
        self._lines = list[tuple[bytes, float]]()

    def take(self, status: int, data: bytes, now: float) -> None:
        """AnswerError where the server tells one in its stream."""
        if status != 200 or not self._stream:
            self._held += data
            if len(self._held) > _MAX_BODY_BYTES:
                raise AnswerError("the answer does not end")
            return
        *lines, self._held = (self._held + data).split(b"\n")
        self._lines += [(line, now) for line in lines]
        if b"error" in data:
            self._read_lines()

    def end(self, status: int, now: float) -> None:
        """AnswerError where it is no complete answer."""
        if status != 200:
            raise AnswerError(f"HTTP {status}: {_said_in(self._held)}")
        if self._stream:
            self._read_lines()
        else:
            self._read(_json(self._held), now)
        if not self._finished:
            raise AnswerError("the stream ended before the answer did")
        if not self.times:  # tokens without any text
            self.times.append(now)

    def _read_lines(self) -> None:
        lines, self._lines = self._lines, []
        for line, now in lines:
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                self._read(_json(line[5:]), now)
            elif line.startswith(b"error:"):  # as llama-server has told it
                raise AnswerError(_said(_json(line[6:])))

    def _read(self, event: dict[str, Any], now: float) -> None:
        if event.get("error"):
            raise AnswerError(_said(event))
        try:
            self._note(event, now)
        except (AttributeError, TypeError):
            raise _no_part(event) from None

    def _note(self, event: dict[str, Any], now: float) -> None:
        has_text = False
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or choice.get("message") or choice
            has_text = has_text or any(
                delta.get(name) for name in ("content", "text", "reasoning_content", "reasoning", "tool_calls")
            )
            self._finished = self._finished or choice.get("finish_reason") is not None
        if has_text:
            self.times.append(now)
        if usage := event.get("usage"):
            counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
            if not all(count is None or isinstance(count, int) for count in counts):
                raise _no_part(event)
            self.n_input, self.n_output = counts


def _no_part(event: dict[str, Any]) -> AnswerError:
    return AnswerError(f"the server sent {str(event)[:60]!r}, which is no part of an answer")


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise AnswerError(f"the server sent {data[:60]!r}, which is no JSON object")
    return found


def _said(event: dict[str, Any]) -> str:
    error = event.get("error", event)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:200]


def _said_in(body: bytes) -> str:
    try:
        return _said(_json(body))
    except AnswerError:
        return body.decode(errors="replace").strip()[:200]
