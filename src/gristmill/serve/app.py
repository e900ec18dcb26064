"""The server's routes: HTTP on one side, calls on the other. It knows no field of any body."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gristmill import __version__
from gristmill.llm import LLM
from gristmill.serve import chat_protocol, messages_protocol, plain, protocol, responses_protocol
from gristmill.serve.chat import start_chat
from gristmill.serve.chat_protocol import ChatRequest, DetokenizeRequest, TokenizeChatRequest, TokenizeRequest
from gristmill.serve.completions import start_completion
from gristmill.serve.errors import ApiError, as_api_error, shutting_down
from gristmill.serve.guard import Access, Guard
from gristmill.serve.host import Host, read_defaults
from gristmill.serve.messages import count_tokens, messages_error, start_messages
from gristmill.serve.messages_protocol import CountRequest, MessagesRequest
from gristmill.serve.metrics import Metrics
from gristmill.serve.openapi import Operation, describe
from gristmill.serve.pages import page, read_pages
from gristmill.serve.protocol import CompletionRequest, EmbeddingRequest
from gristmill.serve.responses import start_response
from gristmill.serve.responses_protocol import ResponsesRequest
from gristmill.serve.service import Answering, EngineService, Service
from gristmill.serve.sse import ClientLeftError, EventStream, while_connected
from gristmill.serve.texts import Texts
from gristmill.serve.wire import Json, error_response, read_body, take_neutral, validate

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """names: what requests may call the model [its file's name]. max_queue: requests that may wait for a slot."""

    names: tuple[str, ...] = ()
    max_queue: int = 256
    access: Access = field(default_factory=Access)


class Call(Protocol):
    """Answers that are being computed."""

    @property
    def answering(self) -> Answering: ...

    async def whole(self) -> dict[str, Any]: ...

    def stream(self) -> AsyncGenerator[bytes, None]: ...

    def close(self) -> None: ...


def create_app(llm: LLM, settings: Settings | None = None, service: Service | None = None) -> FastAPI:
    """An ASGI application that answers with `llm`, which stays the caller's to close.

    service  what computes, where that is not `llm`'s own engine
    Raises MissingTokenizerError for a model without a vocabulary. `app.state.host.draining = True` refuses new work.
    """
    settings = settings or Settings()
    texts = Texts(llm)
    service = service or EngineService(llm.engine, settings.max_queue)
    names = settings.names or (_name_of(llm.model_path),)
    host = Host(names, texts, service, Metrics(service, names[0]), read_defaults(llm.model_path))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()
        texts.close()

    middleware = [Middleware(Guard, settings.access)]
    if origins := settings.access.cors_origins:
        cors = Middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
        middleware.insert(0, cors)
    app = FastAPI(title="gristmill", version=__version__, lifespan=lifespan, middleware=middleware, redoc_url=None)
    app.state.host = host
    _add_errors(app)
    _add_routes(app, host)
    return app


def _add_errors(app: FastAPI) -> None:
    async def failed(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return error_response(
                ApiError(error.status_code, error.detail.lower(), code="not_found", headers=error.headers)
            )
        return error_response(as_api_error(error))

    app.add_exception_handler(HTTPException, failed)
    app.add_exception_handler(ApiError, failed)


def _add_routes(app: FastAPI, host: Host) -> None:
    operations = list[Operation]()

    def post(
        path: str,
        model: type[BaseModel],
        answer: Callable[[Request, dict[str, Any]], Awaitable[Response]],
        say: Callable[[ApiError], dict[str, Any]] = ApiError.body,
    ) -> None:
        async def route(request: Request) -> Response:
            return await _answer(host, request, answer, say)

        app.add_api_route(path, route, methods=["POST"], response_model=None, operation_id=path.strip("/"))
        operations.append(Operation(path, model))

    async def chat(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(ChatRequest, chat_protocol.clean(body))
        return await _run(request, start_chat(host, asked), asked.stream)

    async def completion(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(CompletionRequest, take_neutral(body, protocol.REFUSED_IN_COMPLETIONS))
        return await _run(request, start_completion(host, asked), asked.stream)

    async def respond(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(ResponsesRequest, take_neutral(body, responses_protocol.REFUSED))
        return await _run(request, start_response(host, asked), asked.stream)

    async def message(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(MessagesRequest, take_neutral(body, messages_protocol.REFUSED))
        return await _run(request, start_messages(host, asked), asked.stream, messages_error)

    async def count(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(CountRequest, take_neutral(body, messages_protocol.REFUSED))
        return Json(await while_connected(request, count_tokens(host, asked)))

    async def embed(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(EmbeddingRequest, take_neutral(body, protocol.REFUSED_IN_EMBEDDINGS))
        return Json(await while_connected(request, plain.embeddings(host, asked)))

    async def tokenize(request: Request, body: dict[str, Any]) -> Response:
        body = chat_protocol.clean(body)
        is_chat = "messages" in body
        asked = validate(TokenizeChatRequest, body) if is_chat else validate(TokenizeRequest, body)
        return Json(await while_connected(request, plain.tokenize(host, asked)))

    async def detokenize(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(DetokenizeRequest, take_neutral(body, {}))
        return Json(await while_connected(request, plain.detokenize(host, asked)))

    post("/v1/chat/completions", ChatRequest, chat)
    post("/v1/completions", CompletionRequest, completion)
    post("/v1/responses", ResponsesRequest, respond)
    post("/v1/messages", MessagesRequest, message, messages_error)
    post("/v1/messages/count_tokens", CountRequest, count, messages_error)
    post("/v1/embeddings", EmbeddingRequest, embed)
    post("/tokenize", TokenizeRequest, tokenize)
    post("/detokenize", DetokenizeRequest, detokenize)
    _add_pages(app, host)
    describe(app, operations)


def _add_pages(app: FastAPI, host: Host) -> None:
    async def health() -> Response:
        if not host.service.alive or host.draining:
            return Json({"status": "draining" if host.draining else "dead"}, 503)
        return Json({"status": "ok"})

    async def models() -> Response:
        return Json(plain.model_list(host))

    async def model(name: str) -> Response:
        return Json(plain.model_card(host, name))

    async def metrics() -> Response:
        return Response(host.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = read_pages()

    async def index() -> Response:
        return page(pages, "index.html")

    async def file(name: str) -> Response:
        return page(pages, name)

    app.add_api_route("/", index, methods=["GET"], response_model=None, include_in_schema=False)
    app.add_api_route("/web/{name}", file, methods=["GET"], response_model=None, include_in_schema=False)
    for path in ("/health", "/healthz"):
        app.add_api_route(path, health, methods=["GET"], response_model=None)
    app.add_api_route("/v1/models", models, methods=["GET"], response_model=None)
    app.add_api_route("/v1/models/{name:path}", model, methods=["GET"], response_model=None)
    app.add_api_route("/metrics", metrics, methods=["GET"], response_model=None)


async def _answer(
    host: Host,
    request: Request,
    answer: Callable[[Request, dict[str, Any]], Awaitable[Response]],
    say: Callable[[ApiError], dict[str, Any]],
) -> Response:
    """Whatever goes wrong here has a status of its own: nothing was sent."""
    try:
        if host.draining:
            raise shutting_down()
        return await answer(request, await read_body(request))
    except (ClientLeftError, ClientDisconnect):
        return Response(status_code=499)  # nobody reads it
    except Exception as error:
        told = as_api_error(error)
        return Json(say(told), told.status, told.headers)


async def _run(
    request: Request,
    starting: Awaitable[Call],
    stream: bool,
    say: Callable[[ApiError], dict[str, Any]] = ApiError.body,
) -> Response:
    call = await while_connected(request, _settled(starting))
    if stream:
        return EventStream(call.stream(), call.close, say, named=say is not ApiError.body)
    try:
        return Json(await while_connected(request, call.whole()))
    finally:
        call.close()


async def _settled(starting: Awaitable[Call]) -> Call:
    call = await starting
    try:
        await call.answering.settle()
    except BaseException:
        call.close()
        raise
    return call


def _name_of(path: Path) -> str:
    return path.resolve().name if path.is_dir() else path.stem
