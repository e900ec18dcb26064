"""A hub on this machine: what huggingface_hub asks of the real one, the ways it fails, and a record of what was asked.

Large files are redirected to another host name, as the real hub does, with their SHA-256 as etag.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LARGE = (".gguf", ".safetensors", ".bin")


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    range: str | None
    token: str | None


class FakeHub:
    """repos: files by repository. The failures are for the files at `cdn` alone, where the large ones come from."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.asked: list[Asked] = []
        self.gated: set[str] = set()
        self.tokens: set[str] = {"hf_good"}
        self.cuts: list[int] = []  # bytes after which the next answers break off
        self.stall_at: int | None = None  # bytes after which an answer waits until it is set free
        self.stalled = threading.Event()
        self.free = threading.Event()
        self.ignores_ranges = False
        self.spoiled = False  # other bytes than those that were promised
        self.is_down = False
        self.forbids: bytes | None = None  # everything, with this body
        self.page: bytes | None = None  # what is answered to everything, as some networks do
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.free.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def revision(self, repo: str) -> str:
        """It changes with every file."""
        names = sorted((path, hashlib.sha1(data).hexdigest()) for path, data in self.repos[repo].items())
        return hashlib.sha1(repr(names).encode()).hexdigest()

    def downloads(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "GET" and not asked.path.startswith("/api/")]


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(is_head=True)

        def do_GET(self) -> None:
            self.answer(is_head=False)

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, is_head: bool) -> None:
            path = urlsplit(self.path).path
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
            hub.asked.append(Asked(self.command, self.path, self.headers.get("range"), token))
            if hub.is_down:
                self.say(503, {})
            elif hub.forbids is not None:
                self.say(403, {"Content-Type": "application/json"}, hub.forbids, is_head)
            elif hub.page is not None:
                self.say(200, {}, hub.page, is_head)
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/\w+)?", path):
                self.tell_repo(match[1], token)
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path):
                self.tell_file(match[1], match[2], match[3], token, is_head)
            elif match := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.+)", path):
                self.send(hub.repos[match[1]][match[2]])
            else:
                self.say(404, {"X-Error-Code": "EntryNotFound"})

        def tell_repo(self, repo: str, token: str | None) -> None:
            if token is not None and token not in hub.tokens:
                self.say(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
            elif repo not in hub.repos:
                self.say(401, {"X-Error-Code": "RepoNotFound"})
            else:
                files = [_sibling(path, data) for path, data in hub.repos[repo].items()]
                info = {"id": repo, "modelId": repo, "sha": hub.revision(repo), "siblings": files}
                self.say(200, {}, json.dumps(info).encode())

        def tell_file(self, repo: str, revision: str, path: str, token: str | None, is_head: bool) -> None:
            if repo in hub.gated and token not in hub.tokens:
                self.say(403 if token else 401, {"X-Error-Code": "GatedRepo"})
                return
            data = hub.repos[repo].get(path)
            if data is None or revision not in ("main", hub.revision(repo)):
                self.say(404, {"X-Error-Code": "EntryNotFound"})
                return
            about = {"X-Repo-Commit": hub.revision(repo)}
            if path.endswith(LARGE):
                about["X-Linked-Etag"] = f'"{hashlib.sha256(data).hexdigest()}"'
                about["X-Linked-Size"] = str(len(data))
                self.say(302, {**about, "Location": f"http://localhost:{hub.port}/cdn/{repo}/{path}"})
            else:
                self.say(200, {**about, "ETag": f'"{blob_id(data)}"'}, data, is_head)

        def send(self, data: bytes) -> None:
            """A large file, from where it is asked for; with whatever is to go wrong."""
            begin = 0
            if (wanted := self.headers.get("range")) and not hub.ignores_ranges:
                begin = int(wanted.removeprefix("bytes=").split("-")[0])
            part = bytes(len(data)) if hub.spoiled else data
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(part) - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(part) - 1}/{len(part)}")
            self.end_headers()
            if hub.cuts:
                self.wfile.write(part[begin : begin + hub.cuts.pop(0)])
                self.close_connection = True
            elif hub.stall_at is not None:
                self.wfile.write(part[begin : begin + hub.stall_at])
                self.wfile.flush()
                hub.stalled.set()
                hub.free.wait(120)
                self.close_connection = True
            else:
                self.wfile.write(part[begin:])

        def say(self, status: int, headers: dict[str, str], body: bytes = b"", is_head: bool = False) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not is_head:
                self.wfile.write(body)

    return Handler


def _sibling(path: str, data: bytes) -> dict[str, object]:
    about: dict[str, object] = {"rfilename": path, "size": len(data), "blobId": blob_id(data)}
    if path.endswith(LARGE):
        about["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return about
