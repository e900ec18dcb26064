"""The description of the API, and the page that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from chromium import chromium
from served import Running, serving
from starlette.routing import Route

from gristmill import LLM
from gristmill.serve.app import Settings
from gristmill.serve.guard import Access

if TYPE_CHECKING:
    from playwright.sync_api import Browser

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def test_the_description_has_every_route(running: Running) -> None:
    document = running.http.get("/openapi.json").json()
    told = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    routes = [route for route in running.server.config.app.routes if isinstance(route, Route)]
    there = {
        (route.path.replace(":path", ""), method)
        for route in routes
        for method in route.methods - {"HEAD"}  # which is GET without its body
        if route.include_in_schema
    }
    assert told == there
    names = document["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/([\w.]+)", running.http.get("/openapi.json").text)) <= set(names)
    assert not any("__" in name for name in names)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def visit(browser: Browser, server: Running, path: str, **context: Any) -> tuple[Any, list[str], list[str]]:
    """The page, requests that would have left the server's origin, and what the browser complained of."""
    outside: list[str] = []
    broken: list[str] = []
    opened = browser.new_context(viewport={"width": 1200, "height": 800}, **context)
    opened.set_default_timeout(60_000)
    opened.route(
        lambda url: not url.startswith(server.url), lambda route: (outside.append(route.request.url), route.abort())
    )
    page = opened.new_page()
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.on("console", lambda message: broken.append(message.text) if message.type == "error" else None)
    page.goto(server.url + path)
    page.wait_for_selector("main:not([aria-busy])")
    return page, outside, broken


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_all_of_it_and_fetches_nothing_from_elsewhere(
    browser: Browser, running: Running, scheme: str
) -> None:
    page, outside, broken = visit(browser, running, "/docs", color_scheme=scheme)
    document = running.http.get("/openapi.json").json()
    sections = {section.get_attribute("id"): section.inner_text() for section in page.locator("section").all()}
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            assert sections[told["operationId"]].startswith(f"{method.upper()}{path}\n")
    for name, schema in document["components"]["schemas"].items():
        assert all(field in sections[name] for field in schema.get("properties", {}))
    ids = set(page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)"))
    targets = page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
    )
    assert set(targets) <= ids
    assert len(ids) == page.evaluate("document.querySelectorAll('[id]').length")
    assert re.search(r"temperature\s+number from 0 to 2", sections["ChatRequest"])
    assert re.search(r"messages\s+list of Message\s+required", sections["ChatRequest"])
    brightness = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", brightness)[0]) > 200) == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="/v1/messages", exact=True).click()
    assert page.url.endswith("#v1_messages")
    page.context.close()
    assert (outside, broken) == ([], [])


def test_the_page_with_a_key(browser: Browser, llm: LLM) -> None:
    with serving(llm, Settings(access=Access(api_keys=("key",)))) as server:
        credentials = {"username": "any", "password": "key"}
        page, outside, broken = visit(browser, server, "/docs", http_credentials=credentials)
        assert page.locator("section").count() > 20
        page.context.close()
        assert outside == []
        assert all("401" in text for text in broken)  # the browser's first try
