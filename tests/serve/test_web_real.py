"""The page in a real browser with gristmill's own server behind it: that the two speak the same language."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from chromium import chromium
from served import Running, wait_until

from gristmill.engine.loop import Loop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser, says: object) -> Iterator[Callable[[Running], Page]]:
    """visit(server): its page. Nothing may leave the server's origin, and nothing may break. Pages close before the
    servers of `says` do, which is why it is named here: one left open asks a server that is gone."""
    outside, broken = list[str](), list[str]()
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(60_000)

    def refuse(route: Any) -> None:
        outside.append(route.request.url)
        route.abort()

    def open_page(server: Running) -> Page:
        context.route(lambda url: not url.startswith((server.url, "blob:")), refuse)
        page = context.new_page()
        page.on("pageerror", lambda error: broken.append(str(error)))
        page.on("console", lambda message: broken.append(message.text) if message.type == "error" else None)
        page.goto(server.url)
        expect(page.locator("#context-words")).to_contain_text("of context")
        return page

    yield open_page
    context.close()
    assert (outside, broken) == ([], [])


def ask(page: Page, text: str) -> Locator:
    """Sends, waits for the end of the answer, and returns it."""
    page.fill("#input", text)
    page.press("#input", "Enter")
    return answered(page)


def answered(page: Page) -> Locator:
    expect(page.locator("#send")).to_be_visible()
    return page.locator(".answer").last


def endless(route: Any) -> None:
    route.continue_(post_data={**route.request.post_data_json, "ignore_eos": True})


def prompts(server: Running) -> list[str]:
    """What its model was given so far."""
    requests = server.server.config.app.state.host.service.requests
    return [server.llm.tokenizer.decode(request.prompt_ids) for request in requests]


def test_an_answer_with_a_thought_is_shown_asked_for_again_and_edited(visit, says) -> None:
    server = says("<think>\nhm, *well*\n</think>\n\nA **mill** <b>grinds</b>.")
    page = visit(server)
    answer = ask(page, "What is it?")
    expect(answer.locator("> .prose")).to_have_text("A mill <b>grinds</b>.")
    expect(answer.locator("> .prose strong")).to_have_text("mill")
    expect(answer.locator(".thoughts")).to_be_hidden()
    answer.locator("summary").click()
    expect(answer.locator(".thoughts")).to_contain_text("hm, well")
    expect(answer.locator(".stats")).to_contain_text(re.compile(r"\d tok/s.*first in .*\d+ tokens"))
    expect(page.locator("#context-words")).to_have_text(re.compile(r"^\d+ used · [\d,]+ left$"))
    answer.get_by_role("button", name="Regenerate").click()
    expect(answered(page).locator(".versions")).to_have_text("2 / 2")
    page.press("#input", "ArrowUp")
    page.get_by_label("Edit the message").fill("And this?")
    page.get_by_label("Edit the message").press("Enter")
    expect(page.locator(".said")).to_have_text("And this?")
    expect(answered(page).locator("> .prose")).to_have_text("A mill <b>grinds</b>.")
    ask(page, "Sure?")
    first, again, edited, last = prompts(server)
    assert first == again
    assert "What is it?" in first
    assert "And this?" in edited
    assert "What is it?" not in edited
    assert "A **mill** <b>grinds</b>." in last
    assert "hm," not in last


def test_settings_are_those_the_server_takes(visit, says) -> None:
    server = says("ok")
    page = visit(server)
    page.click("#tune")
    page.get_by_label("System prompt").fill("Be brief.")
    given = {"Temperature": "0.5", "Top k": "20", "Top p": "0.9", "Min p": "0.1", "Seed": "42"}
    for name, value in given.items():
        page.get_by_label(name).fill(value)
    page.get_by_label("Thinking").select_option("off")
    expect(ask(page, "a").locator("> .prose")).to_have_text("ok")
    params = server.server.config.app.state.host.service.requests[-1].params
    assert (params.temperature, params.top_k, params.top_p, params.min_p, params.seed) == (0.5, 20, 0.9, 0.1, 42)
    assert "Be brief." in prompts(server)[-1]


def test_stop_ends_the_servers_work(visit, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Loop.step
    monkeypatch.setattr(Loop, "step", lambda loop, _: (time.sleep(0.02), step(loop)))
    page = visit(running)
    page.route("**/v1/chat/completions", endless)
    host = running.server.config.app.state.host
    page.fill("#input", "go on")
    page.press("#input", "Enter")
    # Playwright lets a request go on only while the page is asked for something.
    wait_until(lambda: page.evaluate("true") and host.service.n_open == 1)
    page.keyboard.press("Escape")
    expect(answered(page)).to_contain_text(re.compile("Stopped|tokens"))
    wait_until(lambda: host.service.n_open == 0 and running.llm.engine.load().used == 0)


def test_probabilities_are_the_models(visit, running: Running) -> None:
    page = visit(running)
    page.click("#tune")
    for name, value in {"Temperature": "0", "Most tokens": "5"}.items():
        page.get_by_label(name).fill(value)
    page.keyboard.press("Escape")
    page.click("#probabilities")
    answer = ask(page, "ab")
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "ab"}], "temperature": 0, "max_tokens": 5}
    told = running.openai.chat.completions.create(**asked, logprobs=True, top_logprobs=5).choices[0].logprobs.content
    tokens = answer.locator(".token")
    assert tokens.count() == len(told)
    tokens.nth(1).hover()
    card = page.locator("#token-card")
    expect(card.locator("p strong")).to_have_text(f"{100 * 2.718281828 ** told[1].logprob:.1f} %")
    expect(card.locator("li")).to_have_count(5)
