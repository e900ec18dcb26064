"""Answers through parsers, in pieces, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gristmill.dialogue.harmony import TEXTS
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.types import (
    AUTO,
    ContentDelta,
    Delta,
    ReasoningDelta,
    Tool,
    ToolCallArguments,
    ToolCallStart,
    ToolChoice,
)

WEATHER = Tool("get_weather", "Weather", {"type": "object", "properties": {"city": {"type": "string"}}})
TIME = Tool("get_time", "Time")
TOOLS = (WEATHER, TIME)


@dataclass
class Parsed:
    """Deltas put together; calls are (name, arguments) in order."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


def put_together(deltas: Iterable[Delta]) -> Parsed:
    parsed = Parsed()
    for delta in deltas:
        match delta:
            case ReasoningDelta(text):
                parsed.reasoning += text
            case ContentDelta(text):
                parsed.content += text
            case ToolCallStart(index, call_id, name):
                assert index == len(parsed.calls)
                parsed.calls.append((name, ""))
                parsed.ids.append(call_id)
            case ToolCallArguments(index, piece):
                assert piece
                assert index == len(parsed.calls) - 1
                name, so_far = parsed.calls[index]
                parsed.calls[index] = (name, so_far + piece)
    return parsed


def parse(
    kind: str,
    pieces: str | Sequence[str],
    *,
    tools: Sequence[Tool] = TOOLS,
    choice: ToolChoice = AUTO,
    parallel: bool = True,
    starts_in_reasoning: bool = False,
) -> Parsed:
    parser = make_parser(
        kind, tools=tools, tool_choice=choice, parallel=parallel, starts_in_reasoning=starts_in_reasoning
    )
    deltas: list[Delta] = []
    for piece in [pieces] if isinstance(pieces, str) else pieces:
        deltas += parser.push(0, piece)
    deltas += parser.finish()
    return put_together(deltas)


class Bytes:
    """A tokenizer of single bytes and special tokens; Harmony's have their own ids."""

    adds_bos = False
    bos_id = None
    strips_first_space = False

    def __init__(self, special: Iterable[str]) -> None:
        texts = list(special)
        known = {text: token_id for token_id, text in TEXTS.items()}
        self.special_ids: Mapping[str, int] = {text: known.get(text, 256 + i) for i, text in enumerate(texts)}
        self._bytes = {i: bytes([i]) for i in range(256)} | {i: t.encode() for t, i in self.special_ids.items()}
        self.vocab_size = max(self._bytes) + 1
        ends = ("<|im_end|>", "<｜end▁of▁sentence｜>", "<|eot_id|>", "<|return|>", "<|call|>", "</s>")
        self.eos_ids = tuple(i for text, i in self.special_ids.items() if text in ends)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        return list(text.encode())

    def encode_parts(self, parts: Iterable[tuple[str, bool]], *, add_special: bool = True) -> list[int]:
        return [i for text, _ in parts for i in text.encode()]

    def encode_all(self, text: str) -> list[int]:
        """With special tokens."""
        ids: list[int] = []
        while text:
            mark = next((mark for mark in self.special_ids if text.startswith(mark)), "")
            ids += [self.special_ids[mark]] if mark else text[0].encode()
            text = text[len(mark) or 1 :]
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes.get(token_id, b"")

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode(errors="replace")

    def is_special(self, token_id: int) -> bool:
        return token_id in self.special_ids.values()
