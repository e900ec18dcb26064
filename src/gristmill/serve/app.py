"""The server's routes: HTTP on one side, calls on the other. It knows no field of any body."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gristmill.llm import LLM
from gristmill.models.sampling import Recommended, read_recommended
from gristmill.serve import chat_protocol, messages_protocol, plain, protocol, responses_protocol
from gristmill.serve.chat import start_chat
from gristmill.serve.chat_protocol import ChatRequest, DetokenizeRequest, TokenizeChatRequest, TokenizeRequest
from gristmill.serve.completions import start_completion
from gristmill.serve.errors import ApiError, as_api_error, shutting_down
from gristmill.serve.guard import Access, Guard, is_text
from gristmill.serve.host import Host, defaults_of
from gristmill.serve.messages import count_tokens, start_messages
from gristmill.serve.messages_protocol import CountRequest, MessagesRequest
from gristmill.serve.metrics import Metrics
from gristmill.serve.model import Model
from gristmill.serve.openapi import describe
from gristmill.serve.pages import page, read_pages
from gristmill.serve.protocol import CompletionRequest, EmbeddingRequest
from gristmill.serve.responses import start_response
from gristmill.serve.responses_protocol import ResponsesRequest
from gristmill.serve.service import Answering, EngineService, Service
from gristmill.serve.sse import ClientLeftError, EventStream, Streamed, while_connected
from gristmill.serve.texts import Texts
from gristmill.serve.wire import Json, error_response, read_body, take_neutral, validate

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """names        what requests may call the model [its file's name]
    max_queue    requests that may wait for a slot
    recommended  whether the model's files say how tokens are chosen where a request does not
    parse_special  whether prompts that are no conversations may have special tokens
    ValueError, which names the option, for a name that no request can hold.
    """

    names: tuple[str, ...] = ()
    max_queue: int = 256
    access: Access = field(default_factory=Access)
    recommended: bool = True
    parse_special: bool = False

    def __post_init__(self) -> None:
        for name in self.names:
            if not name or not is_text(name):
                raise ValueError(f"--served-model-name: {name!r:.80} is no name; give another, or leave it out")


class Call(Streamed, Protocol):
    """Answers that are being computed."""

    @property
    def answering(self) -> Answering: ...

    async def whole(self) -> dict[str, Any]: ...


def create_app(model: Model, settings: Settings | None = None, service: Service | None = None) -> FastAPI:
    """An ASGI application that answers with `model`, an LLM that stays the caller's to close.

    service  what computes, where that is not the LLM's own engine; then the model's text is enough
    Raises MissingTokenizerError for a model without a vocabulary, ModelFormatError for one whose files recommend what
    cannot be. `app.state.host.draining = True` refuses new work.
    """
    settings = settings or Settings()
    if service is None:
        if not isinstance(model, LLM):
            raise TypeError(f"a {type(model).__name__} has no engine: give a service")
        service = EngineService(model.engine, settings.max_queue)
    texts = Texts(model, parse_special=settings.parse_special)
    names = settings.names or (model.model_name,)
    recommended = read_recommended(model.model_path) if settings.recommended else Recommended()
    host = Host(names, texts, service, Metrics(service, names[0]), defaults_of(recommended, texts))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.open()
        yield
        service.close()
        texts.close()

    middleware = [Middleware(Guard, access=settings.access, host=host)]
    if origins := settings.access.cors_origins:
        cors = Middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
        middleware.insert(0, cors)
    app = FastAPI(lifespan=lifespan, middleware=middleware, docs_url=None, redoc_url=None)
    app.state.host = host
    _add_errors(app)
    _add_routes(app, host)
    return app


def _add_errors(app: FastAPI) -> None:
    async def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            code = error.detail.lower().replace(" ", "_")
            told = f"{request.method} {request.url.path:.80}: {error.detail.lower()}; the API is described at /docs"
            error = ApiError(error.status_code, told, code=code, headers=error.headers)
        return error_response(as_api_error(error), request.url.path)

    app.add_exception_handler(HTTPException, failed)
    app.add_exception_handler(ApiError, failed)


def _add_routes(app: FastAPI, host: Host) -> None:
    def post(path: str, answer: Callable[[Request, dict[str, Any]], Awaitable[Response]]) -> None:
        async def route(request: Request) -> Response:
            return await _answer(host, request, answer)

        app.add_route(path, route, methods=["POST"])  # not FastAPI's own way: bodies are checked here

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
        return await _run(request, start_messages(host, asked), asked.stream)

    async def count(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(CountRequest, take_neutral(body, messages_protocol.REFUSED))
        return Json(await while_connected(request, count_tokens(host, asked)))

    async def embed(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(EmbeddingRequest, take_neutral(body, protocol.REFUSED_IN_EMBEDDINGS))
        return Json(await while_connected(request, plain.embeddings(host, asked)))

    async def tokenize(request: Request, body: dict[str, Any]) -> Response:
        asked: TokenizeRequest | TokenizeChatRequest
        if "messages" in body:
            asked = validate(TokenizeChatRequest, chat_protocol.clean(body))
        else:
            asked = validate(TokenizeRequest, body)
        return Json(await while_connected(request, plain.tokenize(host, asked)))

    async def detokenize(request: Request, body: dict[str, Any]) -> Response:
        asked = validate(DetokenizeRequest, body)
        return Json(await while_connected(request, plain.detokenize(host, asked)))

    post("/v1/chat/completions", chat)
    post("/v1/completions", completion)
    post("/v1/responses", respond)
    post("/v1/messages", message)
    post("/v1/messages/count_tokens", count)
    post("/v1/embeddings", embed)
    post("/tokenize", tokenize)
    post("/detokenize", detokenize)
    _add_pages(app, host)
    describe(app)


def _add_pages(app: FastAPI, host: Host) -> None:
    async def health() -> Response:
        health = host.service.health
        body: dict[str, Any] = {"status": "draining" if host.draining else health.status}
        if health.message:
            body["message"] = health.message
        if health.loaded is not None:
            body["loaded"] = round(health.loaded, 3)
        return Json(body, 200 if body["status"] == "ok" else 503)

    async def models() -> Response:
        return Json(plain.model_list(host))

    async def model(name: str) -> Response:
        return Json(plain.model_card(host, name) if name else plain.model_list(host))

    async def metrics() -> Response:
        return Response(host.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = read_pages()

    async def index() -> Response:
        return page(pages, "index.html")

    async def docs() -> Response:
        return page(pages, "docs.html")

    async def file(name: str) -> Response:
        return page(pages, name)

    def get(path: str, answer: Callable[..., Awaitable[Response]], described: bool = True) -> None:
        # HEAD is the same, of which the server leaves the body out
        app.add_api_route(path, answer, methods=["GET", "HEAD"], response_model=None, include_in_schema=described)

    get("/", index, described=False)
    get("/docs", docs, described=False)
    get("/web/{name}", file, described=False)
    get("/health", health)
    get("/healthz", health)
    get("/v1/models", models)
    get("/v1/models/{name:path}", model)
    get("/metrics", metrics)


async def _answer(
    host: Host,
    request: Request,
    answer: Callable[[Request, dict[str, Any]], Awaitable[Response]],
) -> Response:
    """Whatever goes wrong here has a status of its own: nothing was sent."""
    host.n_begun += 1
    try:
        if host.draining:
            raise shutting_down()
        return await answer(request, await read_body(request, protocol.CLIENTS_OWN))
    except (ClientLeftError, ClientDisconnect):
        return Response(status_code=499)  # nobody reads it
    except Exception as error:
        return error_response(as_api_error(error), request.url.path)
    finally:
        host.n_begun -= 1


async def _run(request: Request, starting: Awaitable[Call], stream: bool) -> Response:
    if not stream:
        return Json(await while_connected(request, _whole(starting)))
    call = await while_connected(request, _settled(starting))
    return EventStream(call)


async def _whole(starting: Awaitable[Call]) -> dict[str, Any]:
    call = await starting
    try:
        return await call.whole()
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
