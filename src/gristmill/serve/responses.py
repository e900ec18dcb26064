"""/v1/responses: a chat's answers as OpenAI's newer API has them. It knows no HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from gristmill.serve.blocks import Block, BlockKind, BlocksCall, Change
from gristmill.serve.chat import start_chat
from gristmill.serve.errors import ApiError
from gristmill.serve.host import Host
from gristmill.serve.renaming import renaming
from gristmill.serve.responses_protocol import ResponsesRequest, as_chat
from gristmill.serve.shapes import new_id
from gristmill.serve.sse import event
from gristmill.serve.turn import Step

_PREFIXES = {BlockKind.THOUGHT: "rs_", BlockKind.TEXT: "msg_", BlockKind.CALL: "fc_"}
_DELTAS = {
    BlockKind.THOUGHT: "response.reasoning_text",
    BlockKind.TEXT: "response.output_text",
    BlockKind.CALL: "response.function_call_arguments",
}


async def start_response(host: Host, request: ResponsesRequest) -> ResponsesCall:
    """Check, tokenize and submit."""
    host.check_model(request.model)
    chat, names = as_chat(request)
    with renaming(names):
        return ResponsesCall(await start_chat(host, chat), request, new_id("resp_"), int(time.time()))


@dataclass(slots=True)
class ResponsesCall(BlocksCall):
    """A response that is being computed. `close` it in any case."""

    request: ResponsesRequest
    name: str
    created: int
    ids: dict[int, str] = field(default_factory=dict)
    n_events: int = 0

    async def whole(self) -> dict[str, Any]:
        """The response's body."""
        await self.read_all()
        return self._response(self._status())

    def begin(self) -> bytes:
        begun = self._response("in_progress")
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def more(self, steps: list[Step]) -> bytes:
        return b"".join(self._change(*change) for step in steps for change in self.blocks.take(step.deltas))

    def end(self) -> bytes:
        status = self._status()
        last = b"".join(self._change(*change, status) for change in self.blocks.finish())
        return last + self._event(f"response.{status}", response=self._response(status))

    def failed(self, error: ApiError) -> bytes:
        failed = {**self._response("failed"), "error": {"code": "server_error", "message": error.message}}
        return self._event("response.failed", response=failed)

    def _status(self) -> str:
        return "incomplete" if self.chat.turns[0].finish == "length" else "completed"

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self.n_events = self.n_events, self.n_events + 1
        return event(kind, {"type": kind, "sequence_number": number, **fields})

    def _change(self, change: Change, block: Block, text: str, status: str = "completed") -> bytes:
        place: dict[str, Any] = {"item_id": self._id(block), "output_index": block.index}
        if block.kind is not BlockKind.CALL:
            place["content_index"] = 0
        if change is Change.GREW:
            return self._event(f"{_DELTAS[block.kind]}.delta", **place, delta=text, **_logprobs(block))
        if change is Change.OPENED:
            item = self._item(Block(block.kind, block.index, block.call), "in_progress", empty=True)
            found = self._event("response.output_item.added", output_index=block.index, item=item)
            if block.kind is not BlockKind.CALL:
                found += self._event("response.content_part.added", **place, part=_part(block.kind, ""))
            return found
        return self._closed(block, place, status)

    def _closed(self, block: Block, place: dict[str, Any], status: str) -> bytes:
        done: dict[str, Any] = {"text": block.text, **_logprobs(block)}
        if block.call is not None:
            done = {"name": block.call.name, "arguments": block.text}
        found = self._event(f"{_DELTAS[block.kind]}.done", **place, **done)
        if block.kind is not BlockKind.CALL:
            found += self._event("response.content_part.done", **place, part=_part(block.kind, block.text))
        item = self._item(block, status)
        return found + self._event("response.output_item.done", output_index=block.index, item=item)

    def _id(self, block: Block) -> str:
        return self.ids.setdefault(block.index, new_id(_PREFIXES[block.kind]))

    def _item(self, block: Block, status: str, empty: bool = False) -> dict[str, Any]:
        content = [] if empty else [_part(block.kind, block.text)]
        base = {"id": self._id(block), "status": status}
        if block.call is not None:
            called = {"call_id": block.call.id, "name": block.call.name, "arguments": block.text}
            return {**base, "type": "function_call", **called}
        if block.kind is BlockKind.THOUGHT:
            return {**base, "type": "reasoning", "summary": [], "content": content}
        return {**base, "type": "message", "role": "assistant", "content": content}

    def _response(self, status: str) -> dict[str, Any]:
        blocks, last = self.blocks.all, "completed" if status == "completed" else "incomplete"  # it may be cut
        request, form = self.request, self.request.text.format if self.request.text is not None else None
        form_body = form.model_dump(by_alias=True, exclude_none=True) if form is not None else {"type": "text"}
        return {
            "id": self.name,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": self.chat.host.name,
            "output": [self._item(block, last if block is blocks[-1] else "completed") for block in blocks],
            "parallel_tool_calls": request.parallel_tool_calls,
            "previous_response_id": None,
            "reasoning": {"effort": request.reasoning.effort if request.reasoning else None, "summary": None},
            "store": False,
            "temperature": self.chat.params.temperature,
            "text": {"format": form_body},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "top_p": self.chat.params.top_p,
            "truncation": "disabled",
            "usage": None if status == "in_progress" else self._usage(),
            "user": request.user,
        }

    def _usage(self) -> dict[str, Any]:
        usage = self.chat.usage
        return {
            "input_tokens": usage.n_prompt,
            "input_tokens_details": {"cached_tokens": usage.n_cached},
            "output_tokens": usage.n_output,
            "output_tokens_details": {"reasoning_tokens": self.chat.turns[0].n_reasoning},
            "total_tokens": usage.n_prompt + usage.n_output,
        }


def _part(kind: BlockKind, text: str) -> dict[str, Any]:
    if kind is BlockKind.THOUGHT:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _logprobs(block: Block) -> dict[str, Any]:
    """Texts have room for them, though none are there."""
    return {"logprobs": []} if block.kind is BlockKind.TEXT else {}
