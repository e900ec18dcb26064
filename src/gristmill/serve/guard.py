"""Who may ask: keys, hosts and origins, and errors of everything below in the API's shape. It knows no route's body."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gristmill.serve.errors import ApiError, overloaded
from gristmill.serve.host import Host
from gristmill.serve.wire import error_response

MAX_HEADER_BYTES: Final = 64 << 10
_OPEN = frozenset({"/health", "/healthz"})
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.\-]*://[^\s/?#@A-Z]+")
"""As browsers send them."""


@dataclass(frozen=True, slots=True)
class Access:
    """api_keys       one of them has to be shown, where there are any, for all but /health
    check_host     only names of this machine's own, and `allowed_hosts`, are answered to, but for /health, which probes
                   ask by any address: a page from elsewhere may have pointed its name here
    cors_origins   pages from there may ask; '*': from anywhere; 'null': from files
    allowed_hosts  other names than this machine's own that requests may call the server; '*': any
    ValueError, which names the option, for a key that nobody has to know and for what is no name or no origin.
    """

    api_keys: tuple[str, ...] = ()
    check_host: bool = True
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(not key or key != key.strip() for key in self.api_keys):
            raise ValueError("--api-key: a key is empty or has white space at its ends; give another")
        if not all(map(is_text, self.api_keys)):
            raise ValueError("--api-key: a key is no UTF-8 text; give another")
        for name in self.allowed_hosts:
            plain = name.isascii() and not any(c.isspace() for c in name)
            if not plain or _name_of(name) != name.strip("[]").lower().removesuffix("."):
                raise ValueError(f"--allowed-host: {name!r:.80} is no name; leave out scheme and port, put IPv6 in []")
        for origin in self.cors_origins:
            if origin not in ("*", "null") and _ORIGIN.fullmatch(origin) is None:
                told = "give scheme, name and port alone, in lower case, as in https://mill.example"
                raise ValueError(f"--cors-origin: {origin!r:.80} is no origin; {told}")


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access, host: Host) -> None:
        self._app = app
        self._access = access
        self._host = host
        self._keys = [key.encode() for key in access.api_keys]
        self._names = {_name_of(name) for name in access.allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if self._host.crowded() and scope["path"] not in _OPEN:
                raise overloaded("the server has as many connections as it can; try again", {"Connection": "close"})
            headers = Headers(scope=scope)
            if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
                raise ApiError(431, f"the headers have more than {MAX_HEADER_BYTES} bytes", code="headers_too_large")
            self._check_place(scope, headers)
            self._check_key(scope, headers)
        except ApiError as error:
            await error_response(error, scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_place(self, scope: Scope, headers: Headers) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._access.check_host and scope["path"] not in _OPEN and not self._is_own(_name_of(host)):
            told = f"Host: {host!r:.80} is not this server's name; start it with --allowed-host NAME to make it one"
            raise ApiError(403, told, code="forbidden_host")
        allowed = self._access.cors_origins
        own = origin is not None and origin.split("://", 1)[-1] == host
        if origin is not None and not own and "*" not in allowed and origin not in allowed:
            raise ApiError(403, f"Origin: {origin!r:.80} may not ask; see --cors-origin", code="forbidden_origin")

    def _is_own(self, name: str | None) -> bool:
        return name is not None and (is_loopback(name) or name in self._names or "*" in self._names)

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        if not self._keys or scope["path"] in _OPEN:
            return
        given = _keys_of(headers)
        if any(_is_one_of(each, self._keys) for each in given):
            return
        problem = "is not right" if given else "is missing: send Authorization: Bearer KEY"
        is_page = scope["path"] in ("/", "/docs") or scope["path"].startswith("/web/")  # where a browser asks by itself
        scheme = "Basic" if is_page else "Bearer"
        raise ApiError(
            401,
            f"the API key {problem}",
            code="invalid_api_key",
            kind="authentication_error",
            headers={"WWW-Authenticate": f'{scheme} realm="gristmill"'},
        )


def is_loopback(name: str) -> bool:
    """Whether a host's name or address stands for this machine on every machine, so that no page can redirect it."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def is_text(given: str) -> bool:
    """Whether it has characters alone: bytes of the command line that are none become lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in given)


def _is_one_of(given: bytes, keys: Sequence[bytes]) -> bool:
    """In a time that does not depend on which, nor on how much of it is right."""
    return sum(hmac.compare_digest(given, key) for key in keys) > 0


def _keys_of(headers: Headers) -> list[bytes]:
    """As Anthropic's, OpenAI's and browsers' requests have it (there as the password). Of two one may be another
    program's: clients send what keys they have, proxies add one of their own."""
    found = [own.encode("latin-1")] if (own := headers.get("x-api-key")) is not None else []
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found.append(value.strip().encode("latin-1"))
    elif scheme.lower() == "basic":
        with suppress(binascii.Error, ValueError):
            found.append(base64.b64decode(value, validate=True).partition(b":")[2])
    return found


def _name_of(host: str) -> str | None:
    """Of what a Host header has; a dot at its end changes nothing. None where there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".") or None
    except ValueError:
        return None
