"""The description of the API at /openapi.json, which /docs shows: every route, its body, its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gristmill import __version__
from gristmill.serve import answers
from gristmill.serve.chat_protocol import ChatRequest, DetokenizeRequest, TokenizeChatRequest, TokenizeRequest
from gristmill.serve.errors import ApiError, shape_of
from gristmill.serve.messages_protocol import CountRequest, MessagesRequest
from gristmill.serve.protocol import CompletionRequest, EmbeddingRequest
from gristmill.serve.responses_protocol import ResponsesRequest

_REF: Final = "#/components/schemas/{model}"
_EVENT: Final = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
    "additionalProperties": False,
}
"""Of a stream; data is JSON, or [DONE]."""

_ABOUT: Final = """OpenAI's and Anthropic's APIs for the one model of this server.

Every field of a request is kept or refused by its name. Where the server was started with an API key, send it as
`Authorization: Bearer KEY` or `x-api-key: KEY`. With `stream: true` answers come as server-sent events."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A route: what it is for, the bodies it reads (one of them), the answer it gives (None: text), or streams."""

    summary: str
    answer: type[BaseModel] | None
    bodies: tuple[type[BaseModel], ...] = ()
    streams: bool = False


OPERATIONS: Final[Mapping[str, Operation]] = {
    "/v1/chat/completions": Operation("Answer a conversation", answers.ChatCompletion, (ChatRequest,), True),
    "/v1/completions": Operation("Continue a text", answers.Completion, (CompletionRequest,), True),
    "/v1/responses": Operation("Answer, as OpenAI's newer API does", answers.Response, (ResponsesRequest,), True),
    "/v1/messages": Operation(
        "Answer a conversation, as Anthropic's API does", answers.MessageAnswer, (MessagesRequest,), True
    ),
    "/v1/messages/count_tokens": Operation("Count a conversation's tokens", answers.Count, (CountRequest,)),
    "/v1/embeddings": Operation("Turn texts into vectors", answers.Embeddings, (EmbeddingRequest,)),
    "/tokenize": Operation(
        "Turn a text or a conversation into token ids", answers.Tokens, (TokenizeRequest, TokenizeChatRequest)
    ),
    "/detokenize": Operation("Turn token ids into text", answers.Prompt, (DetokenizeRequest,)),
    "/v1/models": Operation("The names of the model", answers.ModelList),
    "/v1/models/{name}": Operation("One of its names", answers.ModelCard),
    "/health": Operation("Whether it answers; 503 while it ends, and when the engine is dead", answers.Health),
    "/healthz": Operation("The same as /health", answers.Health),
    "/metrics": Operation("Counts and times for Prometheus", None),
}


def describe(app: FastAPI) -> None:
    """Let the application say this of itself."""
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(_document())
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _document() -> dict[str, Any]:
    inputs = [(model, "validation") for operation in OPERATIONS.values() for model in operation.bodies]
    outputs = [operation.answer for operation in OPERATIONS.values() if operation.answer is not None]
    shown: Any = inputs + [(m, "serialization") for m in (*outputs, answers.Error, answers.AnthropicError)]
    names, schemas = models_json_schema(list(dict.fromkeys(shown)), ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "gristmill", "version": __version__, "description": _ABOUT},
        "paths": {path: _path(path, operation, names) for path, operation in OPERATIONS.items()},
        "components": {"schemas": schemas["$defs"]},
    }


def _path(path: str, operation: Operation, names: Mapping[Any, Any]) -> dict[str, Any]:
    error = answers.Error if shape_of(path) is ApiError.body else answers.AnthropicError
    failed = {"description": "What is wrong", "content": {"application/json": {"schema": _ref(names, error)}}}
    if operation.answer is not None:
        content = {"application/json": {"schema": _ref(names, operation.answer)}}
    else:
        content = {"text/plain": {"schema": {"type": "string"}}}
    if operation.streams:
        content["text/event-stream"] = {"schema": _EVENT}
    told: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": path.strip("/").translate({ord("/"): "_", ord("{"): None, ord("}"): None}),
        "responses": {"200": {"description": "The answer", "content": content}, "4XX": failed, "5XX": failed},
    }
    if path.startswith("/health"):
        told["responses"]["503"] = {"description": "Not now", "content": content}
    if "{name}" in path:
        told["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if not operation.bodies:
        return {"get": told}
    of_bodies = [_ref(names, model, "validation") for model in operation.bodies]
    schema = of_bodies[0] if len(of_bodies) == 1 else {"anyOf": of_bodies}
    return {"post": {**told, "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}}


def _ref(names: Mapping[Any, Any], model: type[BaseModel], mode: str = "serialization") -> dict[str, Any]:
    found: dict[str, Any] = names[model, mode]
    return found
