"""Answers from a server that speaks OpenAI's chat API (POST /chat/completions, streamed). It knows no model."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import IO, Any, Final, NoReturn
from urllib.parse import urlsplit

from gristmill.cli.chat_backend import ChatDelta, ContextFullError, Tally
from gristmill.cli.chat_session import Conversation
from gristmill.dialogue.types import ContentDelta, ReasoningDelta

_MAX_LINE_BYTES: Final = 16 << 20
_MAX_BODY_BYTES: Final = 4 << 20
_ANSWERS_WITHIN_S: Final = 15.0
_LEAST_S: Final = 0.01  # what comes within less was sent together


class RemoteBackend:
    """A server's model.

    base_url  as OpenAI's clients take it: http://host:port/v1, of which /v1 may be left out
    api_key   sent as a bearer token, to this host alone: redirections are not followed
    model     None: the only one that the server lists
    Raises ValueError for what is no address or what the server says is wrong, OSError where it cannot be reached.
    """

    def __init__(self, base_url: str, api_key: str | None = None, model: str | None = None) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"--base-url must begin with http:// or https://, not {base_url!r:.80}")
        base = base_url.rstrip("/")
        try:
            self._base = base if urlsplit(base).path else f"{base}/v1"
        except ValueError as error:
            raise ValueError(f"--base-url: {base_url!r:.80} is no address: {error}") from None
        self._headers = {"Content-Type": "application/json", "User-Agent": "gristmill"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._opener = urllib.request.build_opener(_NoRedirects)
        self.notice: str | None = None
        self.tally: Tally | None = None
        self.context: int | None = None
        self._defaults: dict[str, tuple[Any, str]] = {}
        self.name = model if model is not None else self._only_model()

    def answer(self, conversation: Conversation) -> Generator[ChatDelta, None, None]:
        tally = self.tally = Tally(least_s=_LEAST_S)
        try:
            opened = self._open("/chat/completions", _body(self.name, conversation))
        except ContextFullError as error:
            raise ContextFullError(str(error), conversation.settings.get("max_tokens")) from None
        with closing(opened) as response:
            for chunk in _events(response, self._base):
                yield from _read_chunk(chunk, tally)
        if tally.finish is None:
            raise OSError(f"{self._base}: the connection ended before the answer did")

    def defaults(self, conversation: Conversation) -> Mapping[str, tuple[Any, str]]:
        return self._defaults

    def check(self, conversation: Conversation) -> None:
        """The server will say."""

    def token_text(self, token_id: int) -> str:
        raise ValueError("a server tells no token ids: /tokens needs a model in this process (-m without --base-url)")

    def idle(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        self._opener.close()

    def _only_model(self) -> str:
        with closing(self._open("/models", timeout=_ANSWERS_WITHIN_S)) as response:
            listed = _json(_read(response, self._base), self._base)
        models = [item for item in _list(listed.get("data")) if isinstance(item.get("id"), str)]
        names = [item["id"] for item in models]
        if len(names) != 1:
            raise ValueError(f"{self._base} has {', '.join(names[:20]) or 'no models'}: choose one with --model NAME")
        length = models[0].get("max_model_len")
        self.context = length if isinstance(length, int) and length > 0 else None
        if isinstance(told := models[0].get("default_sampling_params"), dict):
            numbers = {name: value for name, value in told.items() if isinstance(value, int | float)}
            self._defaults = {name: (value, "the server") for name, value in numbers.items()}
        return str(names[0])

    def _open(self, path: str, body: bytes | None = None, timeout: float | None = None) -> IO[bytes]:
        """Without a timeout for answers: a long prompt takes its time, and Ctrl-C ends it."""
        request = urllib.request.Request(self._base + path, body, self._headers)
        try:
            response: IO[bytes] = (
                self._opener.open(request) if timeout is None else self._opener.open(request, timeout=timeout)
            )
        except urllib.error.HTTPError as error:
            with error:
                _refuse(error.code, _read(error, self._base), self._base + path)
        except urllib.error.URLError as error:
            raise OSError(f"{self._base}: {error.reason}; is the server running?") from None
        except UnicodeEncodeError as error:
            problem = f"an address or key holds {error.object[error.start]!r}, which no request can have there"
            raise ValueError(f"{self._base}: {problem}") from None
        except http.client.HTTPException as error:
            raise OSError(f"{self._base}: what answers there is no HTTP server ({error!r:.80})") from None
        except OSError as error:
            raise OSError(f"{self._base}: {error}") from None
        return response


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A key that is meant for one host goes to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _body(model: str, conversation: Conversation) -> bytes:
    """What was set, and nothing else: the rest is the server's to choose."""
    messages = [{name: message[name] for name in ("role", "content")} for message in conversation.with_system()]
    body: dict[str, Any] = {
        **conversation.settings,
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if conversation.think in ("on", "off"):
        body["chat_template_kwargs"] = {"enable_thinking": conversation.think == "on"}
    elif conversation.think is not None:
        body["reasoning_effort"] = conversation.think
    return json.dumps(body).encode()


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """OSError where the connection ends within an answer."""
    try:
        yield
    except http.client.HTTPException as error:
        raise OSError(f"{where}: the connection ended before the answer did ({error!r:.80})") from None


def _read(response: IO[bytes], where: str) -> bytes:
    """A body, or as much of it as anyone needs."""
    with _reading(where):
        return response.read(_MAX_BODY_BYTES)


def _events(response: IO[bytes], where: str) -> Iterator[dict[str, Any]]:
    """The data of server-sent events, up to [DONE]."""
    while True:
        with _reading(where):
            line = response.readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise ValueError(f"{where}: a line of more than {_MAX_LINE_BYTES} bytes")
        field, _, value = line.partition(b":")
        if not line or (field == b"data" and value.strip() == b"[DONE]"):
            return
        if field == b"data":
            yield _json(value, where)
        elif field == b"error":  # as llama-server has told it
            raise ValueError(_message(_json(value, where)))


def _read_chunk(chunk: dict[str, Any], tally: Tally) -> Iterator[ChatDelta]:
    if chunk.get("error"):
        raise ValueError(_message(chunk))
    for choice in _list(chunk.get("choices")):
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        content = delta.get("content")
        if reasoning or content:
            tally.count()
        if isinstance(reasoning, str) and reasoning:
            yield ReasoningDelta(reasoning)
        if isinstance(content, str) and content:
            yield ContentDelta(content)
        if isinstance(choice.get("finish_reason"), str):
            tally.finish = choice["finish_reason"]
    if isinstance(usage := chunk.get("usage"), dict):
        tally.n_prompt = _count(usage, "prompt_tokens")
        tally.n_output = _count(usage, "completion_tokens") or tally.n_output
        details = usage.get("prompt_tokens_details")
        tally.n_cached = _count(details, "cached_tokens") if isinstance(details, dict) else None


def _refuse(status: int, body: bytes, where: str) -> NoReturn:
    """Raises what the server says."""
    try:
        found = _json(body, where)
    except ValueError:
        found = {"error": body.decode(errors="replace").strip()[:300] or http.client.responses.get(status, "")}
    error = found.get("error")
    message = f"{where}: HTTP {status}: {_message(found)}"
    code = error.get("code") if isinstance(error, dict) else None
    if code == "context_length_exceeded" or (status == 400 and "context" in _message(found).lower()):
        raise ContextFullError(message)
    raise ValueError(message)


def _message(found: dict[str, Any]) -> str:
    error = found.get("error", found)
    text = error.get("message", error) if isinstance(error, dict) else error
    return str(text)[:2000]


def _json(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{where}: answers {data[:80]!r}, which is no JSON object; is this the address of an API?")
    return found


def _list(found: object) -> list[dict[str, Any]]:
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _count(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) and value >= 0 else None
