"""The web page's files, read once: what is asked for is looked up by name, never opened. It knows no API."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.responses import Response

from gristmill.serve.errors import ApiError

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def read_pages() -> dict[str, bytes]:
    """Content by file name; empty where the page is not installed."""
    folder = files("gristmill.serve").joinpath("web")
    if not folder.is_dir():
        return {}
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}


def page(pages: dict[str, bytes], name: str) -> Response:
    """404 for what is no file of the page."""
    content = pages.get(name)
    if content is None:
        raise ApiError(404, f"/{name:.80} is not here; the API is described at /docs", code="not_found")
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)
