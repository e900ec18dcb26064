"""/v1/messages: a chat's answers as Anthropic's API has them. It knows no HTTP."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from gristmill.serve.blocks import Block, BlockKind, Blocks, BlocksCall, Change
from gristmill.serve.chat import start_chat
from gristmill.serve.errors import ApiError, anthropic_body
from gristmill.serve.host import Host
from gristmill.serve.messages_protocol import CountRequest, MessagesRequest, as_chat
from gristmill.serve.renaming import renaming
from gristmill.serve.shapes import new_id
from gristmill.serve.sse import event
from gristmill.serve.turn import Step

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


async def start_messages(host: Host, request: MessagesRequest) -> MessagesCall:
    """Check, tokenize and submit."""
    chat, names = as_chat(request, host.texts)
    host.check_model(request.model)
    with renaming(names):
        return MessagesCall(await start_chat(host, chat), new_id("msg_"), blocks=Blocks(request.tells_thoughts))


async def count_tokens(host: Host, request: CountRequest) -> dict[str, Any]:
    host.check_model(request.model)
    chat, names = as_chat(request, host.texts)
    with renaming(names):
        prompt = await host.texts.run(lambda: host.texts.prompt(chat))
    return {"input_tokens": len(prompt.ids)}


@dataclass(slots=True)
class MessagesCall(BlocksCall):
    """A message that is being computed. `close` it in any case."""

    name: str
    started: bool = False

    async def whole(self) -> dict[str, Any]:
        """The response's body."""
        await self.read_all()
        content = [_content(block) for block in self.blocks.all]
        return {**self._head(), "content": content, **self._end(), "usage": self._usage()}

    def begin(self) -> bytes:
        return b""  # how much of the prompt was cached is known with the first token

    def more(self, steps: list[Step]) -> bytes:
        found = [self._start()] if not self.started else []
        self.started = True
        for step in steps:
            found += [_event(*change) for change in self.blocks.take(step.deltas)]
        return b"".join(found)

    def end(self) -> bytes:
        last = [_event(*change) for change in self.blocks.finish()]
        delta = {"type": "message_delta", "delta": self._end(), "usage": self._usage()}
        last.append(event("message_delta", delta))
        last.append(event("message_stop", {"type": "message_stop"}))
        return b"".join(last)

    def failed(self, error: ApiError) -> bytes:
        return event("error", anthropic_body(error))

    def _start(self) -> bytes:
        end = {"stop_reason": None, "stop_sequence": None}
        message = {**self._head(), "content": [], **end, "usage": {**self._usage(), "output_tokens": 0}}
        return event("message_start", {"type": "message_start", "message": message})

    def _head(self) -> dict[str, Any]:
        return {"id": self.name, "type": "message", "role": "assistant", "model": self.chat.host.name}

    def _end(self) -> dict[str, Any]:
        turn = self.chat.turns[0]
        if turn.stop_string is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": turn.stop_string}
        return {"stop_reason": _STOPS[turn.finish or "stop"], "stop_sequence": None}

    def _usage(self) -> dict[str, Any]:
        usage = self.chat.usage
        return {
            "input_tokens": usage.n_prompt - usage.n_cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.n_cached,
            "output_tokens": usage.n_output,
        }


def _content(block: Block) -> dict[str, Any]:
    if block.kind is BlockKind.THOUGHT:
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    if block.call is None:
        return {"type": "text", "text": block.text}
    return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": _arguments(block.text)}


def _arguments(text: str) -> Any:
    """An answer that was cut has the beginning of an object, which this API has no room for. A number beyond all that
    are kept is the largest one."""
    try:
        return json.loads(text, parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return {}


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # no whole number, or one of thousands of digits
        return min(max(float(text), -sys.float_info.max), sys.float_info.max)


def _event(change: Change, block: Block, text: str) -> bytes:
    match change:
        case Change.OPENED:
            empty = Block(block.kind, block.index, block.call)
            name, body = "content_block_start", {"content_block": _content(empty)}
        case Change.GREW:
            name, body = "content_block_delta", {"delta": _delta(block.kind, text)}
        case Change.CLOSED:
            name, body = "content_block_stop", {}
    return event(name, {"type": name, "index": block.index, **body})


def _delta(kind: BlockKind, text: str) -> dict[str, Any]:
    match kind:
        case BlockKind.THOUGHT:
            return {"type": "thinking_delta", "thinking": text}
        case BlockKind.TEXT:
            return {"type": "text_delta", "text": text}
        case BlockKind.CALL:
            return {"type": "input_json_delta", "partial_json": text}
