"""What a client is told when something is wrong, and how an exception becomes that. It knows no route."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gristmill.engine.engine import EngineClosedError
from gristmill.engine.guide import GuideError
from gristmill.engine.scheduler import QueueFullError
from gristmill.types import NotFiniteError

_log = logging.getLogger(__name__)
_ANTHROPIC = "/v1/messages"
_ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}
GUIDED = "structured_outputs"
"""The field of what the engine can be told to keep to."""
_MISSING, _EXTRA, _ASSERTED = "missing", "extra_forbidden", "value_error"
_UNSUPPORTED = "unsupported_parameter"


class ApiError(Exception):
    """Ends a request with a status and OpenAI's error object.

    param  the field that is wrong, as in `messages[0].content`
    code   what a program may look at
    kind   OpenAI's `type`
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


Shape = Callable[[ApiError], dict[str, Any]]
"""An error's body."""


def anthropic_body(error: ApiError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "api_error"
    kind = _ANTHROPIC_KINDS.get(error.status, kind)
    body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": error.message}}
    if error.code == _UNSUPPORTED and error.param == "thread":  # its client then goes on without one
        body["error"]["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return body


def shape_of(path: str) -> Shape:
    """What makes the body of an error: Anthropic's for its routes, OpenAI's for all others."""
    return anthropic_body if path == _ANTHROPIC or path.startswith(f"{_ANTHROPIC}/") else ApiError.body


def refuse(param: str, reason: str, code: str = "invalid_value") -> ApiError:
    """400 for a field."""
    return ApiError(400, f"{param}: {reason}", param=param, code=code)


def unsupported(param: str, reason: str = "is not supported by this server; leave it out") -> ApiError:
    return refuse(param, reason, _UNSUPPORTED)


def overloaded(message: str, headers: Mapping[str, str] | None = None) -> ApiError:
    told = {"Retry-After": "1", **(headers or {})}
    return ApiError(503, message, code="overloaded", kind="overloaded_error", headers=told)


def shutting_down() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down", kind="server_error")


def too_long(n_prompt: int, n_answer: int, max_context: int, param: str, at_least: bool = False) -> ApiError:
    """400 for a prompt, or a prompt and the tokens asked for, that the context does not hold."""
    asked = f" and {n_answer} for the answer" if n_answer else ", which leaves none for the answer"
    message = (
        f"this model's maximum context length is {max_context} tokens, but the request has"
        f" {'at least ' if at_least else ''}{n_prompt} tokens of prompt{asked}; shorten the prompt or ask for less"
    )
    return ApiError(400, message, param=param, code="context_length_exceeded")


def as_api_error(error: BaseException) -> ApiError:
    """What the client is told of any exception. What is no client's fault is logged and said in general words."""
    match error:
        case ApiError():
            return error
        case QueueFullError():
            return overloaded(str(error))
        case EngineClosedError():
            return ApiError(503, "the model is not there any more", code="unavailable", kind="server_error")
        case NotFiniteError():
            _log.error("a request failed: %s", error)
            return ApiError(500, str(error), code="not_finite", kind="server_error")
        case GuideError() if "try again later" in error.reason:
            return overloaded(str(error))
        case GuideError():
            return ApiError(400, str(error), param=f"{GUIDED}.{error.field}", code="invalid_schema")
        case ValueError():
            return ApiError(400, str(error), code="invalid_value")
        case MemoryError():
            return overloaded("there is no memory for this request just now")
        case _:
            _log.error("a request failed", exc_info=error)
            return ApiError(500, "the server failed; its log says why", code="internal_error", kind="server_error")


def of_validation(error: ValidationError) -> ApiError:
    """The first thing that is wrong, by its name."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param, kind, reason = path_of(first["loc"]), first["type"], first["msg"]
    if kind == _EXTRA:
        return unsupported(param)
    if kind == _MISSING:
        return refuse(param, "is missing", "missing_required_parameter")
    if kind == _ASSERTED:
        reason = reason.removeprefix("Value error, ")
    return refuse(param, reason[:1].lower() + reason[1:])


def path_of(loc: Sequence[int | str]) -> str:
    """('messages', 0, 'content') -> messages[0].content"""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part:.80}" if path else f"{part:.80}"
    return path or "body"
