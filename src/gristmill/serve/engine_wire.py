"""What the server and its engine's process say to each other, as bytes: requests one way, events the other.

A message is its length, a kind and a payload. Tokens, which are most of it, are arrays of integers: a message has those
of all requests of a step. Prompts and rows are arrays too, and everything else JSON. It knows no socket."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from struct import Struct
from typing import Any, Final

import numpy as np

from gristmill.engine.engine import EngineClosedError, Load
from gristmill.engine.guide_schema import GuideError
from gristmill.types import (
    Answer,
    Event,
    Failure,
    Finish,
    NotFiniteError,
    PromptLogprobs,
    PromptRows,
    Request,
    SamplingParams,
    StructuredOutputsParams,
    TokenEvent,
    Wants,
)

_HEAD = Struct("<IB")  # bytes of the payload, kind
_FINISHES: Final[tuple[Finish | None, ...]] = (None, *Finish)
_CODES: Final = {finish: code for code, finish in enumerate(_FINISHES)}


class Kind(IntEnum):
    # to the engine
    OPTIONS = 0
    SUBMIT = 1
    CANCEL = 2
    # from the engine
    PROGRESS = 3
    READY = 4
    FAILED = 5  # to load: the process ends
    ALIVE = 6  # and loading
    STATUS = 7  # and ready, with what the engine does
    SUBMITTED = 8  # or refused
    TOKENS = 9
    ANSWER = 10
    ROWS = 11
    EVENT = 12
    WARMING = 13


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine's process loads; names and errors are LLM's."""

    model: str
    device: str = "auto"
    threads: int | None = None
    max_context: int | None = None
    max_sequences: int = 16
    kv_type: str = "f16"
    kv_budget: int | None = None
    quantize: str | None = None
    tokenizer: str | None = None
    gpu_memory_fraction: float = 0.9


class Messages:
    """Bytes as they come -> whole messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[tuple[Kind, bytes]]:
        buffer, begin, found = self._buffer, 0, []
        buffer += data
        while len(buffer) - begin >= _HEAD.size:
            n_bytes, kind = _HEAD.unpack_from(buffer, begin)
            end = begin + _HEAD.size + n_bytes
            if end > len(buffer):
                break
            found.append((Kind(kind), bytes(buffer[begin + _HEAD.size : end])))
            begin = end
        del buffer[:begin]
        return found


def message(kind: Kind, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload), kind) + payload


def say(kind: Kind, value: object) -> bytes:
    """A message of JSON."""
    return message(kind, json.dumps(value, separators=(",", ":")).encode())


def options_message(options: EngineOptions) -> bytes:
    return say(Kind.OPTIONS, asdict(options))


def read_options(payload: bytes) -> EngineOptions:
    return EngineOptions(**json.loads(payload))


def submitted_message(first: int, refusal: BaseException | None) -> bytes:
    """What came of the submission whose first request has this number."""
    return say(Kind.SUBMITTED, [first, None if refusal is None else error_fields(refusal)])


def read_submitted(payload: bytes) -> tuple[int, Exception | None]:
    first, refusal = json.loads(payload)
    return first, None if refusal is None else error_of(refusal)


def status_message(load: Load) -> bytes:
    return say(Kind.STATUS, asdict(load))


def read_status(payload: bytes) -> Load:
    return Load(**json.loads(payload))


def cancel_message(numbers: Sequence[int]) -> bytes:
    return message(Kind.CANCEL, array("q", numbers).tobytes())


def read_cancel(payload: bytes) -> Sequence[int]:
    return array("q", payload)


def submit_message(first: int, requests: Sequence[Request]) -> bytes:
    """first: number of the first request; the others' follow it."""
    heads = json.dumps([first, [_request_fields(request) for request in requests]]).encode()
    ids = array("i")
    for request in requests:
        ids.extend(request.prompt_ids)
    return message(Kind.SUBMIT, len(heads).to_bytes(4, "little") + heads + ids.tobytes())


def read_submit(payload: bytes) -> tuple[int, list[Request]]:
    end = 4 + int.from_bytes(payload[:4], "little")
    first, heads = json.loads(payload[4:end])
    ids, begin, requests = array("i", payload[end:]), 0, []
    for head in heads:
        n_prompt = head.pop("n_prompt")
        requests.append(_request(tuple(ids[begin : begin + n_prompt]), head))
        begin += n_prompt
    return first, requests


def _request_fields(request: Request) -> dict[str, Any]:
    params = request.params
    given: dict[str, Any] = {
        field.name: value for field in fields(params) if (value := getattr(params, field.name)) != field.default
    }
    if params.logit_bias is not None:
        given["logit_bias"] = list(params.logit_bias.items())
    if params.structured_outputs is not None:
        given["structured_outputs"] = asdict(params.structured_outputs)
    return {
        "n_prompt": len(request.prompt_ids),
        "params": given,
        "priority": request.priority,
        "cache_salt": request.cache_salt,
        "wants": request.wants.value,
        "whole": request.whole,
        "rows_from": request.rows_from,
    }


def _request(prompt_ids: tuple[int, ...], head: dict[str, Any]) -> Request:
    given = head.pop("params")
    if "logit_bias" in given:
        given["logit_bias"] = dict(given["logit_bias"])
    if "structured_outputs" in given:
        given["structured_outputs"] = StructuredOutputsParams(**given["structured_outputs"])
    return Request(prompt_ids, SamplingParams(**given), wants=Wants(head.pop("wants")), **head)


class StepMessages:
    """What `events_message` gives for the next tokens of requests that go on: all but the ids is written once."""

    def __init__(self, numbers: Sequence[int], n_cached: Sequence[int]) -> None:
        self._tokens = array("q", bytes(32 * len(numbers)))
        self._tokens[0::4], self._tokens[2::4] = array("q", numbers), array("q", n_cached)

    def of(self, ids: Sequence[int]) -> bytes:
        self._tokens[1::4] = array("q", ids)
        return message(Kind.TOKENS, self._tokens.tobytes())


def events_message(items: Iterable[tuple[int, Event]]) -> bytes:
    """Events, each with its request's number, in their order."""
    parts, tokens = [], array("q")
    for number, event in items:
        if isinstance(event, TokenEvent) and event.logprob is None:
            token_id, finish, _, _, _, n_cached = event
            tokens.extend((number, token_id, n_cached, 0 if finish is None else _CODES[finish]))
            continue
        if tokens:
            parts.append(message(Kind.TOKENS, tokens.tobytes()))
            tokens = array("q")
        parts.append(_event_message(number, event))
    if tokens:
        parts.append(message(Kind.TOKENS, tokens.tobytes()))
    return b"".join(parts)


def read_events(kind: Kind, payload: bytes) -> Iterator[tuple[int, Event]]:
    """What `events_message` was given. ValueError for a message that has no events."""
    match kind:
        case Kind.TOKENS:
            values = iter(array("q", payload))
            for number, token_id, n_cached, code in zip(values, values, values, values, strict=True):
                yield number, TokenEvent(token_id, _FINISHES[code], None, None, (), n_cached)
        case Kind.ANSWER:
            number, code, n_cached, *ids = array("q", payload)
            yield number, Answer(ids, _finish(code), n_cached)
        case Kind.ROWS:
            number, start, last, n, width = array("q", payload[:40])
            yield number, PromptRows(start, np.frombuffer(payload, np.float32, offset=40).reshape(n, width), bool(last))
        case Kind.EVENT:
            number, event = json.loads(payload)
            yield number, _event(event)
        case _:
            raise ValueError(f"{kind.name} is no message of events")


def _event_message(number: int, event: Event) -> bytes:
    match event:
        case Answer():
            head = (number, _CODES[event.finish], event.n_cached)
            return message(Kind.ANSWER, array("q", (*head, *event.token_ids)).tobytes())
        case PromptRows():
            rows = np.ascontiguousarray(event.values, np.float32)
            return message(
                Kind.ROWS, array("q", (number, event.start, event.last, *rows.shape)).tobytes() + rows.tobytes()
            )
        case PromptLogprobs():
            return say(
                Kind.EVENT, [number, {"prompt": [event.start, list(map(_token_fields, event.tokens)), event.last]}]
            )
        case Failure():
            return say(Kind.EVENT, [number, {"failure": error_fields(event.error)}])
        case _:
            return say(Kind.EVENT, [number, {"token": _token_fields(event)}])


def _event(value: dict[str, Any]) -> Event:
    if "token" in value:
        return _token(value["token"])
    if "prompt" in value:
        start, tokens, last = value["prompt"]
        return PromptLogprobs(start, tuple(map(_token, tokens)), last)
    return Failure(error_of(value["failure"]))


def _token_fields(event: TokenEvent) -> list[Any]:
    return [event[0], _CODES[event.finish], *event[2:]]


def _token(value: list[Any]) -> TokenEvent:
    token_id, code, logprob, rank, top, n_cached = value
    return TokenEvent(token_id, _FINISHES[code], logprob, rank, tuple(map(tuple, top)), n_cached)


def _finish(code: int) -> Finish:
    finish = _FINISHES[code]
    assert finish is not None
    return finish


def error_fields(error: BaseException) -> dict[str, Any]:
    """What the other side makes the same error of, as far as anybody tells errors apart."""
    match error:
        case GuideError():
            return {"kind": "guide", "field": error.field, "message": error.reason}
        case EngineClosedError():
            return {"kind": "closed", "message": str(error)}
        case NotFiniteError():
            return {"kind": "not finite", "message": str(error)}
        case ValueError():
            return {"kind": "value", "message": str(error)}
        case OSError():
            return {"kind": "os", "message": str(error)}
        case MemoryError():
            return {"kind": "memory", "message": str(error) or "there is not enough memory"}
        case _:
            return {"kind": "other", "message": f"{type(error).__name__}: {error}"}


def error_of(given: dict[str, Any]) -> Exception:
    kinds = {
        "closed": EngineClosedError,
        "not finite": NotFiniteError,
        "value": ValueError,
        "os": OSError,
        "memory": MemoryError,
    }
    if given["kind"] == "guide":
        return GuideError(given["field"], given["message"])
    return kinds.get(given["kind"], RuntimeError)(given["message"])
