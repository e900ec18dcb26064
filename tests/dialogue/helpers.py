"""Answers through parsers, in pieces, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
