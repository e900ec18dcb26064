"""A stand-in for the server: the page's files and just enough of the OpenAI interface, with answers that the last
message asks for by name. It knows nothing of gristmill's own server; what it was asked is kept for the test to read."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WEB = Path(__file__).parents[2] / "src" / "gristmill" / "serve" / "web"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

HOSTILE = (
    "<img src=x onerror=\"window.pwned='img'\"> <script>window.pwned='script'</script>\n\n"
    "[click](javascript:window.pwned='link') [data](data:text/html,<script>1</script>) [ok](https://example.org/a_b) "
    "![picture](https://example.org/p.png)\n\n"
    "```<b>x\n</code></pre><img src=x onerror=window.pwned='code'>\n```\n\n"
    "| <i>a</i> | b |\n|---|---|\n| <svg onload=window.pwned='svg'> | d |\n\n"
    "> <iframe src=//example.org></iframe>\n\n" + "x" * 100_000
)


class RefusalError(Exception):
    """An error with an HTTP status."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def words(text: str) -> list[str]:
    """Text cut before each space, as tokens usually are."""
    pieces: list[str] = []
    for part in text.split(" "):
        pieces.append(part if not pieces else " " + part)
    return [piece for piece in pieces if piece]


class FakeOpenAI(ThreadingHTTPServer):
    """Listens on a free port of the loopback interface from construction to `close`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models: list[dict[str, Any]] = [{"id": "tiny-mill", "object": "model", "max_model_len": 4096}]
        self.key: str | None = None
        self.chat_template = True
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.dropped = threading.Event()  # a client left before its answer ended
        self.answers: dict[str, str] = {}  # last message -> answer, beside those built in
        self.delay_s = 0.0
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is no error."""


class Handler(BaseHTTPRequestHandler):
    server: FakeOpenAI

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/v1/models":
            self.reply(lambda: {"object": "list", "data": self.server.models})
            return
        file = WEB / ("index.html" if path == "/" else path.removeprefix("/web/"))
        if file.parent != WEB or not file.is_file():
            self.send_json(404, {"error": {"message": f"no {path}"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", TYPES[file.suffix] + "; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(file.read_bytes())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, body))
        self.reply(lambda: Answer(self.server, self.path, body))

    def reply(self, make: Any) -> None:
        try:
            if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
                raise RefusalError(401, "a key is needed", "invalid_api_key")
            made = make()
        except RefusalError as refusal:
            self.send_json(refusal.status, refusal.body)
            return
        if isinstance(made, Answer):
            self.send_events(made)
        else:
            self.send_json(200, made)

    def send_json(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def send_events(self, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for event in answer.events():
                data = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(f"data: {data}\n\n".encode())
                self.wfile.flush()
                if self.server.delay_s:
                    time.sleep(self.server.delay_s)
        except (BrokenPipeError, ConnectionResetError):
            self.server.dropped.set()


class Answer:
    """The events that answer one request."""

    def __init__(self, server: FakeOpenAI, path: str, body: dict[str, Any]) -> None:
        self.server, self.body = server, body
        self.chat = path.endswith("/chat/completions")
        if self.chat and not server.chat_template:
            raise RefusalError(400, "this model has no chat template", "no_chat_template")
        self.asked = body["messages"][-1]["content"] if self.chat else body["prompt"]
        if self.asked == "fail before":
            raise RefusalError(503, "the queue is full <b>now</b>")

    def events(self) -> Iterator[dict[str, Any] | str]:
        n = 0
        for kind, piece in self.pieces():
            if kind == "error":
                yield {"error": {"message": piece, "type": "server_error", "code": None}}
                return
            if kind == "cut":
                return
            n += 1
            yield self.event(self.choice(kind, piece, None))
        yield self.event(self.choice("content", "", "stop"))
        n_prompt = len(json.dumps(self.body.get("messages", self.body.get("prompt")))) // 4
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": 16}}
        yield {"choices": [], "usage": usage}
        yield "[DONE]"

    def event(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {"object": "chat.completion.chunk", "choices": [choice]}

    def choice(self, kind: str, piece: str, finish: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if self.chat:
            field = "reasoning_content" if kind == "reasoning" else "content"
            choice["delta"] = {field: piece}
            if self.body.get("logprobs") and piece:
                choice["logprobs"] = {"content": [self.token(piece)]}
        else:
            choice["text"] = piece
            if self.body.get("logprobs") and piece:
                token = self.token(piece)
                top = {other["token"]: other["logprob"] for other in token["top_logprobs"]}
                choice["logprobs"] = {"tokens": [piece], "token_logprobs": [token["logprob"]], "top_logprobs": [top]}
        return choice

    def token(self, piece: str) -> dict[str, Any]:
        """A probability that depends on the piece alone, and what is left shared among four others."""
        p = (sum(piece.encode()) * 37 % 97 + 2) / 100
        others = [(f" <i>{i}</i>", (1 - p) * share) for i, share in enumerate((0.5, 0.25, 0.15, 0.05))]
        top = [{"token": text, "logprob": math.log(q)} for text, q in [(piece, p), *others]]
        return {"token": piece, "logprob": math.log(p), "bytes": list(piece.encode()), "top_logprobs": top}

    def pieces(self) -> Iterator[tuple[str, str]]:
        asked = self.asked
        if asked in self.server.answers:
            thoughts, found, text = self.server.answers[asked].partition("</think>")
            if found:
                yield from (("reasoning", piece) for piece in words(thoughts))
            yield from (("content", piece) for piece in words(text if found else thoughts))
        elif asked == "endless":
            for i in range(100_000):
                yield "content", f"{i} "
                time.sleep(0.01)
        elif asked == "think":
            yield from (("reasoning", piece) for piece in words("The miller considers the grain."))
            yield from (("content", piece) for piece in words("It is ground."))
        elif asked == "hostile":
            for at in range(0, len(HOSTILE), 997):
                yield "content", HOSTILE[at : at + 997]
        elif asked in ("fail inside", "cut"):
            yield "content", "Half an answer"
            yield ("error", "the engine stopped") if asked == "fail inside" else ("cut", "")
        elif self.chat:
            n = sum(path.endswith("/chat/completions") for path, _ in self.server.requests)
            yield from (("content", piece) for piece in words(f"Answer {n} to **{asked}**."))
        else:
            yield from (("content", piece) for piece in words(" there was a mill."))
