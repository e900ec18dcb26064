"""Bodies of requests and responses: JSON with limits, both ways. It knows no field."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gristmill.serve.errors import ApiError, of_validation, shape_of, unsupported

MAX_BODY_BYTES: Final = 16 << 20
MAX_BODY_S: Final = 60.0
MAX_DEPTH: Final = 64
MAX_NAMES: Final = 1 << 14
"""In one object: to refuse each of a million that are not known, one by one, takes seconds."""
LINGER_S: Final = 5.0
"""For how long more of a body is read that was refused as too large: a client that still sends would not see why."""

_SMALL = 64 << 10  # bytes that take less to parse than to hand to another thread
_PIECE = 1 << 15  # of a list: some milliseconds to write

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")
"""Those that JSON lets stand as they are: many clients split a stream of events at every line end of Unicode."""

M = TypeVar("M", bound=BaseModel)


def dumps(value: object) -> bytes:
    """Of one line, whatever a client takes as a line's end."""
    text = _encode(value)
    return (text if text.isascii() else _LINE_ENDS.sub(lambda end: f"\\u{ord(end[0]):04x}", text)).encode()


def dumps_long(value: dict[str, Any], n_piece: int = _PIECE) -> bytes:
    """The same of an object with long lists, or iterators in their place. They are written in pieces of n_piece values,
    between which other threads go on."""
    fields = (
        dumps(name) + b":" + (_list(each, n_piece) if isinstance(each, list | Iterator) else dumps(each))
        for name, each in value.items()
    )
    return b"{" + b",".join(fields) + b"}"


def _list(values: Iterable[Any], n_piece: int) -> bytes:
    left = iter(values)
    pieces = iter(lambda: list(islice(left, n_piece)), [])
    return b"[" + b",".join(dumps(piece)[1:-1] for piece in pieces) + b"]"


class Json(Response):
    """A JSON response. Bytes are JSON that was written already."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else dumps(content)


class LastJson(Json):
    """A JSON response that ends its connection, as soon as the client has sent the rest of its request or has left."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*self.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})  # whole: it has its length
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body", "body": b""})


def error_response(error: ApiError, path: str) -> Json:
    """In the shape of the API that `path` belongs to."""
    kind = LastJson if error.status in (408, 413) else Json
    return kind(shape_of(path)(error), error.status, error.headers)


async def read_body(request: Request, own: Collection[str]) -> dict[str, Any]:
    """The JSON object of a request, without nulls but in objects of the names `own`, as in `without_nulls`. 413 as soon
    as it is too large, 400 for what is no plain JSON object."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > MAX_BODY_BYTES:
        raise _too_large()
    chunks, n_bytes = [], 0
    try:
        async with asyncio.timeout(MAX_BODY_S):
            async for chunk in request.stream():
                n_bytes += len(chunk)
                if n_bytes > MAX_BODY_BYTES:
                    raise _too_large()
                chunks.append(chunk)
    except TimeoutError:
        raise ApiError(408, f"the body took more than {MAX_BODY_S:.0f} s to come", code="timeout") from None
    data = b"".join(chunks)

    def work() -> dict[str, Any]:
        found: dict[str, Any] = without_nulls(parse(data), own)
        return found

    return work() if len(data) <= _SMALL else await asyncio.to_thread(work)


def parse(data: bytes) -> dict[str, Any]:
    """A JSON object: finite numbers, no lone surrogates, not too deep, no object of too many names."""
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ApiError(
            400, f"the body is not UTF-8: {error.reason} at byte {error.start}", code="invalid_json"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {str(error)[:200]}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is {_name(value)}; give a JSON object", code="invalid_json")
    _check_shape(value)
    if b"\\u" in data:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ApiError(
                400, "the body has half of a surrogate pair, which is no text", code="invalid_json"
            ) from None
    return value


def without_nulls(value: Any, own: Collection[str]) -> Any:
    """JSON without the fields that are null, at any depth: null is the same as leaving a field out. In lists it stays,
    and so it does in objects of the names `own`, where it is a value as any other."""
    if isinstance(value, dict):
        return {
            name: each if name in own and isinstance(each, dict) else without_nulls(each, own)
            for name, each in value.items()
            if each is not None
        }
    if isinstance(value, list):
        return [without_nulls(each, own) if isinstance(each, (dict, list)) else each for each in value]
    return value


def validate(model: type[M], body: dict[str, Any]) -> M:
    """ApiError that names the first field that is wrong."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise of_validation(error) from None


def take_neutral(body: dict[str, Any], refused: dict[str, tuple[Any, ...]], where: str = "") -> dict[str, Any]:
    """`body` without fields of `refused` that have a value which asks for nothing.

    Any other value of these is refused by its name, which begins with `where`.
    """
    kept = {}
    for name, value in body.items():
        if name not in refused:
            kept[name] = value
        elif not any(value == neutral and type(value) is type(neutral) for neutral in refused[name]):
            raise unsupported(f"{where}{name}")
    return kept


def _check_shape(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        for parent in level:
            if isinstance(parent, dict) and len(parent) > MAX_NAMES:
                raise ApiError(400, f"the body has an object of more than {MAX_NAMES} names", code="invalid_json")
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is beyond every number that is kept")
    return value


def _name(value: object) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def _too_large() -> ApiError:
    return ApiError(413, f"the body has more than {MAX_BODY_BYTES} bytes", code="body_too_large")


def _too_deep() -> ApiError:
    return ApiError(400, f"the body is nested deeper than {MAX_DEPTH}", code="invalid_json")


__all__ = [
    "ClientDisconnect",
    "Json",
    "dumps",
    "dumps_long",
    "error_response",
    "parse",
    "read_body",
    "take_neutral",
    "validate",
    "without_nulls",
]
