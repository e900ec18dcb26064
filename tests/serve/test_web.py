"""The web page in a real browser, against a stand-in server: what people do, what a model writes, what goes wrong."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chromium import chromium
from serve.fake_openai import HOSTILE, WEB, FakeOpenAI, words

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect

MARKDOWN = """# Title
A *paragraph* with **bold _and italics_**, `code *here*`, snake_case_names, 2 * 3 * 4, a \\*star\\* and ***both***.
Second line. See [a page](https://example.org/a_(b)?c=d "title"), https://example.org/bare, and
[no](javascript:alert(1)).

1. one
2. two
   - nested **bold
   - deeper
     - deepest

   a paragraph of two
3. three

> quoted *text*
> - and a list

```python
def f(x):
    return "<b>*x*</b>"
```

| a | b |
|:-:|--:|
| 1 | `2` |
| 3 |

---
~~gone~~ end without a line break and an **open mark"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed with the module: its event loop must not run under other tests."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    server = FakeOpenAI()
    yield server
    server.close()


class Visit:
    """The page as a person uses it; at the end, nothing may have left the server's origin or broken its policy."""

    def __init__(self, browser: Browser, server: FakeOpenAI, **context: Any) -> None:
        self.server = server
        self.server_has_gone = False
        self.outside: list[str] = []
        self.broken: list[str] = []
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **context})
        self.context.set_default_timeout(60_000)
        self.context.route(lambda url: not url.startswith((server.url, "blob:")), self.refuse)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.broken.append(str(error)))
        self.page.on("console", lambda message: self.heard(message.type, message.text))
        self.page.goto(server.url)

    def refuse(self, route: Any) -> None:
        self.outside.append(route.request.url)
        route.abort()

    def heard(self, kind: str, text: str) -> None:
        expected = ["Failed to load resource: the server responded"]
        if self.server_has_gone:
            gone = ("CONNECTION_REFUSED", "CONNECTION_RESET", "SOCKET_NOT_CONNECTED")
            expected += [f"Failed to load resource: net::ERR_{error}" for error in gone]
        if kind == "error" and not text.startswith(tuple(expected)):
            self.broken.append(text)

    def close(self) -> None:
        self.context.close()
        assert not self.outside, "a request left the server's origin"
        assert not self.broken

    def type(self, text: str) -> None:
        self.page.fill("#input", text)
        self.page.press("#input", "Enter")

    def done(self) -> None:
        expect(self.page.locator("#send")).to_be_visible()

    def ask(self, text: str) -> None:
        """Sends and waits for the end of the answer."""
        self.type(text)
        self.done()

    @property
    def answer(self) -> Locator:
        return self.page.locator(".answer").last

    @property
    def prose(self) -> Locator:
        return self.answer.locator("> .prose")

    def last_body(self) -> dict[str, Any]:
        return self.server.requests[-1][1]


@pytest.fixture
def visit(browser: Browser, server: FakeOpenAI) -> Iterator[Visit]:
    visit = Visit(browser, server)
    yield visit
    visit.close()


def said(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in body["messages"]]


def test_a_streamed_answer_appears_with_its_figures(visit: Visit) -> None:
    visit.server.delay_s = 0.02
    visit.ask("hello")
    expect(visit.prose).to_have_text("Answer 1 to hello.")
    expect(visit.prose.locator("strong")).to_have_text("hello")
    expect(visit.answer.locator(".stats")).to_contain_text(re.compile(r"\d tok/s.*first in .*4 tokens.*16 from cache"))
    expect(visit.page.locator("#context-words")).to_have_text(re.compile(r"^\d+ used · 4,0\d\d left$"))
    body = visit.last_body()
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["model"] == "tiny-mill"
    assert not {"logprobs", "temperature", "max_tokens"} & body.keys()
    visit.ask("again")
    assert said(visit.last_body()) == [("user", "hello"), ("assistant", "Answer 1 to **hello**."), ("user", "again")]


@pytest.mark.parametrize("how", ["key", "button"])
def test_stop_keeps_what_has_come_and_frees_the_server(visit: Visit, how: str) -> None:
    visit.type("endless")
    expect(visit.prose).to_contain_text("0 1 2 3")
    if how == "key":
        visit.page.keyboard.press("Escape")
    else:
        visit.page.click("#stop")
    visit.done()
    assert visit.server.dropped.wait(30)
    expect(visit.answer).to_contain_text("Stopped.")
    expect(visit.prose).to_contain_text("0 1 2 3")
    visit.ask("next")
    expect(visit.prose).to_have_text("Answer 2 to next.")


def test_regenerate_adds_a_version(visit: Visit) -> None:
    visit.ask("hello")
    visit.answer.get_by_role("button", name="Regenerate").click()
    expect(visit.prose).to_have_text("Answer 2 to hello.")
    visit.done()
    assert said(visit.last_body()) == [("user", "hello")]
    visit.answer.get_by_role("button", name="Earlier version").click()
    expect(visit.prose).to_have_text("Answer 1 to hello.")
    visit.page.keyboard.press("Alt+R")
    expect(visit.prose).to_have_text("Answer 3 to hello.")
    expect(visit.answer.locator(".versions")).to_have_text("3 / 3")


def test_edit_asks_anew_and_keeps_the_old(visit: Visit) -> None:
    visit.ask("first")
    visit.ask("second")
    visit.page.press("#input", "ArrowUp")
    editor = visit.page.get_by_label("Edit the message")
    expect(editor).to_have_value("second")
    editor.fill("changed")
    editor.press("Enter")
    expect(visit.prose).to_have_text("Answer 3 to changed.")
    visit.done()
    assert [text for _, text in said(visit.last_body())] == ["first", "Answer 1 to **first**.", "changed"]
    visit.page.locator(".person").last.get_by_role("button", name="Earlier version").click()
    expect(visit.prose).to_have_text("Answer 2 to second.")
    expect(visit.page.locator("#input")).to_have_value("")


def test_what_is_being_edited_outlives_a_redraw(visit: Visit) -> None:
    visit.ask("first")
    other = visit.context.new_page()
    other.goto(visit.server.url)
    visit.page.bring_to_front()
    visit.page.press("#input", "ArrowUp")
    editor = visit.page.get_by_label("Edit the message")
    editor.fill("changed")
    editor.press("Alt+P")
    expect(visit.answer.locator(".note")).to_contain_text("regenerate")
    other.get_by_role("button", name="Regenerate").click()
    expect(visit.prose).to_have_text("Answer 2 to first.")
    expect(editor).to_have_value("changed")
    expect(editor).to_be_focused()
    expect(other.locator(".stats")).to_contain_text("tokens")
    editor.press("Enter")
    expect(visit.prose).to_have_text("Answer 3 to **changed**.")
    expect(visit.page.locator(".person .versions")).to_have_text("2 / 2")


def test_an_abandoned_edit_changes_nothing(visit: Visit) -> None:
    visit.ask("first")
    visit.page.press("#input", "ArrowUp")
    visit.page.get_by_label("Edit the message").fill("changed")
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator(".said")).to_have_text("first")
    expect(visit.page.locator("#input")).to_be_focused()
    assert len(visit.server.requests) == 1


def test_reasoning_is_folded(visit: Visit) -> None:
    visit.ask("think")
    thoughts = visit.answer.locator(".thoughts")
    expect(visit.prose).to_have_text("It is ground.")
    expect(thoughts).to_be_hidden()
    visit.answer.locator("summary").click()
    expect(thoughts).to_be_visible()
    expect(thoughts).to_have_text("The miller considers the grain.")
    visit.ask("hello")
    assert ("assistant", "It is ground.") in said(visit.last_body())


def test_hostile_text_is_text(visit: Visit) -> None:
    visit.ask("hostile")
    expect(visit.prose).to_contain_text("<img src=x onerror=\"window.pwned='img'\">")
    expect(visit.prose).to_contain_text("[click](javascript:window.pwned='link')")
    assert visit.page.evaluate("window.pwned") is None
    assert visit.answer.locator("img, script, iframe, svg:not(.icon), i, b").count() == 0
    links = [(link.get_attribute("href"), link.get_attribute("rel")) for link in visit.prose.locator("a").all()]
    assert links == [(f"https://example.org/{path}", "noopener noreferrer") for path in ("a_b", "p.png")]
    shown = visit.prose.text_content() or ""
    assert shown.endswith("x" * 100_000)
    # Reasoning, titles, errors and a person's own words take other ways to the page.
    visit.server.answers["<b>me</b>"] = "<img src=x onerror=window.pwned=1></think><script>window.pwned=1</script>"
    visit.ask("<b>me</b>")
    expect(visit.page.locator(".said").last).to_have_text("<b>me</b>")
    visit.ask("fail before")
    expect(visit.answer.locator(".error")).to_contain_text("the queue is full <b>now</b>")
    assert visit.page.evaluate("window.pwned") is None
    assert visit.page.locator("main b, main img, main script").count() == 0
    assert "<script>" in HOSTILE


def test_an_error_is_shown_in_place_and_no_text_is_lost(visit: Visit) -> None:
    visit.ask("fail before")
    expect(visit.page.locator(".said")).to_have_text("fail before")
    expect(visit.answer.get_by_role("alert")).to_contain_text("the queue is full")
    visit.ask("fail inside")
    expect(visit.prose).to_have_text("Half an answer")
    expect(visit.answer.get_by_role("alert")).to_contain_text("the engine stopped")
    assert said(visit.last_body()) == [("user", "fail before"), ("user", "fail inside")]
    visit.ask("cut")
    expect(visit.answer.get_by_role("alert")).to_contain_text("ended before the answer did")
    visit.server.answers["cut"] = "Whole."
    visit.answer.get_by_role("button", name="Try again").click()
    expect(visit.prose).to_have_text("Whole.")
    visit.done()
    visit.page.reload()
    expect(visit.page.locator(".said")).to_have_text(["fail before", "fail inside", "cut"])
    expect(visit.page.locator(".error").first).to_contain_text("the queue is full")


def test_trying_again_keeps_what_followed_a_failed_answer(visit: Visit) -> None:
    visit.ask("fail before")
    visit.ask("and then")
    visit.page.locator(".answer").first.get_by_role("button", name="Try again").click()
    expect(visit.answer.get_by_role("alert")).to_contain_text("the queue is full")
    visit.done()
    visit.page.reload()
    visit.answer.get_by_role("button", name="Earlier version").click()
    expect(visit.page.locator(".said")).to_have_text(["fail before", "and then"])
    expect(visit.prose).to_have_text("Answer 2 to and then.")


def test_a_server_that_has_gone_is_an_error_too(visit: Visit) -> None:
    visit.page.wait_for_selector("#model")
    visit.server_has_gone = True
    visit.server.close()
    visit.ask("hello?")
    expect(visit.page.locator(".said")).to_have_text("hello?")
    expect(visit.answer.get_by_role("alert")).to_contain_text("cannot be reached")


def test_why_the_models_are_not_there_is_said(visit: Visit) -> None:
    full = {"error": {"message": "the server has as many connections as it can; try again"}}
    visit.page.route("**/v1/models", lambda route: route.fulfill(status=503, json=full))
    visit.page.reload()
    expect(visit.page.locator("#banner")).to_have_text(full["error"]["message"])


def background(visit: Visit) -> int:
    """The page's brightness, 0 to 255."""
    colour = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    numbers = [float(n) for n in re.findall(r"[\d.]+", colour)]
    return int(sum(numbers[:3]) / 3)


def test_light_and_dark(browser: Browser, server: FakeOpenAI) -> None:
    visit = Visit(browser, server, color_scheme="dark")
    assert background(visit) < 60
    visit.page.emulate_media(color_scheme="light")
    assert background(visit) > 200
    visit.page.keyboard.press("Alt+T")
    visit.page.keyboard.press("Alt+T")
    assert background(visit) < 60  # auto, light, dark: the choice outweighs the system's
    visit.page.reload()
    assert background(visit) < 60
    visit.page.click("#theme")
    assert background(visit) > 200
    visit.close()


def contrast(visit: Visit, selector: str) -> float:
    """WCAG's ratio of an element's colour to the page's."""
    script = "s => [getComputedStyle(document.querySelector(s)).color, getComputedStyle(document.body).backgroundColor]"

    def luminance(colour: str) -> float:
        channels = [float(n) / 255 for n in re.findall(r"[\d.]+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(luminance(colour) for colour in visit.page.evaluate(script, selector))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, server: FakeOpenAI, scheme: str) -> None:
    visit = Visit(browser, server, color_scheme=scheme)
    visit.ask("see https://example.org/ here")
    for selector in (".prose", ".stats", ".prose a", "#context-words", "#title"):
        assert contrast(visit, selector) >= 4.5, selector
    visit.close()


def test_keys(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#input")).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    assert not visit.server.requests
    page.keyboard.press("Enter")
    visit.done()
    expect(page.locator("#input")).to_be_focused()
    assert said(visit.last_body()) == [("user", "one\ntwo")]
    page.keyboard.press("Control+/")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("Alt+S")
    expect(page.get_by_label("System prompt")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    page.keyboard.press("Alt+N")
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.locator("#input")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_letters_that_a_mac_writes_with_option_are_written(visit: Visit) -> None:
    """'@' is Option and L on a German keyboard. A layout that has no character there leaves Option to the page."""
    visit.context.add_init_script("Object.defineProperty(navigator, 'platform', { get: () => 'MacIntel' })")
    visit.page.reload()

    def press(selector: str, key: str) -> tuple[bool, bool]:
        """Whether the page took it, and whether the list of conversations is there after it."""
        init = f"{{ key: '{key}', code: 'KeyL', altKey: true, bubbles: true, cancelable: true }}"
        is_taken = visit.page.evaluate(
            f"!document.querySelector('{selector}').dispatchEvent(new KeyboardEvent('keydown', {init}))"
        )
        return is_taken, visit.page.evaluate("document.body.classList.contains('with-sidebar')")

    assert press("#input", "@") == (False, True)
    assert press("#settings textarea", "@") == (False, True)
    assert press("#input", "l") == (True, False)
    assert press("body", "@") == (True, True)


def test_elsewhere_alt_and_a_letter_are_the_pages(visit: Visit) -> None:
    init = "{ key: 'ł', code: 'KeyL', altKey: true, bubbles: true, cancelable: true }"
    sent = f"document.querySelector('#input').dispatchEvent(new KeyboardEvent('keydown', {init}))"
    assert visit.page.evaluate(sent) is False


def test_an_answer_is_announced(visit: Visit) -> None:
    expect(visit.page.get_by_role("log")).to_have_attribute("aria-live", "polite")
    visit.type("endless")
    expect(visit.answer).to_have_attribute("aria-busy", "true")
    expect(visit.page.locator("#status")).to_have_text("The model is answering.")
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator("#status")).to_have_text("The answer is complete.")
    expect(visit.answer).not_to_have_attribute("aria-busy", "true")
    unnamed = visit.page.evaluate(
        "[...document.querySelectorAll('button')].filter(b => !b.textContent.trim() && !b.ariaLabel).length"
    )
    assert unnamed == 0


def test_probabilities_on_hover(visit: Visit) -> None:
    visit.ask("before")
    visit.page.click("#probabilities")
    expect(visit.answer.locator(".note")).to_contain_text("regenerate")
    visit.ask("hello")
    body = visit.last_body()
    assert (body["logprobs"], body["top_logprobs"]) == (True, 5)
    tokens = visit.answer.locator(".token")
    expect(tokens).to_have_text(words("Answer 2 to **hello**."))
    tokens.nth(1).hover()
    card = visit.page.locator("#token-card")
    # The stand-in's probability of " 2": (sum of its bytes) * 37 % 97 + 2 in hundredths.
    p = (32 + 50) * 37 % 97 + 2
    expect(card.locator("p strong")).to_have_text(f"{p:.1f} %")
    expect(card.locator(".chosen code")).to_have_text("␣2")
    expect(card.locator("li")).to_have_count(5)
    expect(card.locator("li code").filter(has_text="<i>0</i>")).to_have_count(1)
    visit.page.hover("#title")
    expect(card).to_be_hidden()
    visit.answer.locator(".tokens").focus()
    visit.page.keyboard.press("ArrowRight")
    expect(card.locator(".chosen code")).to_have_text("Answer")
    visit.page.keyboard.press("Alt+P")
    expect(visit.prose.locator("strong")).to_have_text("hello")


def test_surprise_deepens_the_tint(visit: Visit) -> None:
    level = visit.page.evaluate(
        """async () => {
            const { TokenView } = await import(new URL("web/tokens.js", document.baseURI));
            const view = new TokenView("");
            view.add([0.9, 0.6, 0.3, 0.2, 0.05, 0.01].map((p) => ({ text: "x", logprob: Math.log(p), top: [] })));
            return [...view.element.children].map((span) => span.className);
        }"""
    )
    assert level == [f"token surprise-{i}" for i in range(6)]


def test_reload_keeps_conversations(visit: Visit) -> None:
    visit.ask("apples")
    visit.page.click("#new")
    visit.ask("pears")
    visit.page.reload()
    rows = visit.page.locator("#conversations .open")
    expect(rows).to_have_text(["pears", "apples"])
    expect(visit.prose).to_have_text("Answer 2 to pears.")
    rows.nth(1).click()
    expect(visit.prose).to_have_text("Answer 1 to apples.")
    visit.ask("more")
    assert [text for _, text in said(visit.last_body())] == ["apples", "Answer 1 to **apples**.", "more"]


def test_reload_keeps_what_was_being_written(visit: Visit) -> None:
    visit.page.fill("#input", "half a thought")
    visit.page.reload()
    expect(visit.page.locator("#input")).to_have_value("half a thought")
    visit.page.press("#input", "Enter")
    visit.done()
    visit.page.reload()
    expect(visit.page.locator("#input")).to_have_value("")


def test_reload_in_the_middle_keeps_what_has_come(visit: Visit) -> None:
    visit.type("endless")
    expect(visit.prose).to_contain_text("0 1 2 3")
    visit.page.reload()
    expect(visit.page.locator(".said")).to_have_text("endless")
    expect(visit.prose).to_contain_text("0 1 2 3")
    assert visit.server.dropped.wait(30)


def test_rename_delete_undo_and_export(visit: Visit) -> None:
    visit.ask("apples")
    row = visit.page.locator("#conversations li")
    row.hover()
    row.get_by_role("button", name="Rename").click()
    visit.page.get_by_label("Name of the conversation").fill("Fruit & <b>")
    visit.page.keyboard.press("Enter")
    expect(row).to_have_text("Fruit & <b>")
    row.hover()
    with visit.page.expect_download() as waiting:
        row.get_by_role("button", name="Export").click()
    assert waiting.value.suggested_filename == "Fruit-b.json"
    saved = json.loads(Path(waiting.value.path()).read_text())
    (conversation,) = saved["conversations"]
    assert conversation["title"] == "Fruit & <b>"
    assert [node["text"] for node in conversation["nodes"]] == ["apples", "Answer 1 to **apples**."]
    row.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    visit.page.get_by_role("button", name="Undo").click()
    expect(row).to_have_count(1)
    expect(visit.prose).to_have_text("Answer 1 to apples.")
    row.hover()
    row.get_by_role("button", name="Delete").click()
    visit.page.reload()
    expect(visit.page.locator("#welcome")).to_be_visible()


def test_the_keyboard_stays_where_it_is_in_the_list(visit: Visit) -> None:
    for text in ("apples", "pears", "plums"):
        visit.page.click("#new")
        visit.ask(text)
    visit.server.delay_s = 0.1
    visit.type("figs")
    export = visit.page.get_by_role("button", name="Export “pears”")
    export.focus()
    visit.done()
    expect(export).to_be_focused()
    rows = visit.page.locator("#conversations .open")
    rows.nth(1).press("F2")
    visit.page.keyboard.type("Fruit")
    visit.page.keyboard.press("Enter")
    expect(rows).to_have_text(["plums", "Fruit", "apples"])
    expect(rows.nth(1)).to_be_focused()
    visit.page.keyboard.press("Delete")
    expect(rows).to_have_text(["plums", "apples"])
    expect(rows.nth(1)).to_be_focused()


def test_a_conversation_deleted_while_it_is_answered_stays_deleted(visit: Visit) -> None:
    visit.type("endless")
    expect(visit.prose).to_contain_text("0 1 2")
    row = visit.page.locator("#conversations li")
    row.hover()
    row.get_by_role("button", name="Delete").click()
    visit.done()
    assert visit.server.dropped.wait(30)
    visit.page.reload()
    expect(visit.page.locator("#model")).to_be_visible()
    expect(row).to_have_count(0)


def test_another_conversation_may_be_read_while_one_is_answered(visit: Visit) -> None:
    visit.ask("apples")
    visit.page.click("#new")
    visit.type("endless")
    expect(visit.prose).to_contain_text("0 1 2")
    visit.page.locator("#conversations .open", has_text="apples").click()
    expect(visit.prose).to_have_text("Answer 1 to apples.")
    visit.page.locator("#conversations .open", has_text="endless").click()
    expect(visit.prose).to_contain_text("0 1 2")
    n = len(visit.prose.text_content() or "")
    expect(visit.prose).not_to_have_text((visit.prose.text_content() or "")[:n])
    visit.page.keyboard.press("Escape")
    visit.done()
    numbers = (visit.prose.text_content() or "").split()
    assert numbers == [str(i) for i in range(len(numbers))]


def test_settings_reach_the_server(visit: Visit) -> None:
    page = visit.page
    page.click("#tune")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Top k").fill("20")
    page.get_by_label("Min p").fill("7")  # out of range: not sent
    page.get_by_label("Seed").fill("42")
    page.get_by_label("Thinking").select_option("off")
    page.get_by_label("Stop at").fill("END\n\\n\\n")
    visit.ask("hello")
    body = visit.last_body()
    assert said(body)[0] == ("system", "Be brief.")
    sent = {name: body.get(name) for name in ("temperature", "top_k", "min_p", "seed", "chat_template_kwargs", "stop")}
    assert sent == {
        "temperature": 0.5,
        "top_k": 20,
        "min_p": None,
        "seed": 42,
        "chat_template_kwargs": {"enable_thinking": False},
        "stop": ["END", "\n\n"],
    }
    page.get_by_label("Thinking").select_option("high")
    page.reload()
    visit.ask("again")
    assert visit.last_body()["reasoning_effort"] == "high"
    assert said(visit.last_body())[0] == ("system", "Be brief.")
    page.click("#tune")
    page.get_by_role("button", name="defaults").click()
    visit.ask("last")
    assert not {"temperature", "top_k", "seed", "reasoning_effort", "stop"} & visit.last_body().keys()
    assert said(visit.last_body())[0] == ("system", "Be brief.")


def test_two_tabs_share_their_settings(visit: Visit) -> None:
    visit.server.models = [{"id": "small"}, {"id": "large"}]
    visit.page.reload()
    visit.page.click("#tune")
    other = visit.context.new_page()
    other.goto(visit.server.url)
    other.click("#tune")
    other.get_by_label("Temperature").fill("0.5")
    expect(visit.page.get_by_label("Temperature")).to_have_value("0.5")
    other.get_by_label("Model", exact=True).select_option("large")
    expect(visit.page.get_by_label("Model", exact=True)).to_have_value("large")
    other.click("#theme")
    expect(visit.page.locator("html")).to_have_attribute("data-theme", "light")
    # A tab hears nothing of its own changes, like one that was frozen while another made them.
    visit.page.evaluate("localStorage['gristmill:settings'] = JSON.stringify({ model: 'large', temperature: 0.7 })")
    visit.page.get_by_label("Top k").fill("20")
    visit.ask("hello")
    body = visit.last_body()
    assert (body["temperature"], body["top_k"], body["model"]) == (0.7, 20, "large")
    visit.page.get_by_role("button", name="defaults").click()
    expect(other.get_by_label("Temperature")).to_have_value("")
    assert json.loads(other.evaluate("localStorage['gristmill:settings']")) == {"model": "large"}


def test_a_browser_that_keeps_nothing(visit: Visit) -> None:
    for name in ("localStorage", "sessionStorage"):
        refuse = "() => { throw new DOMException('denied', 'SecurityError'); }"
        visit.context.add_init_script(f"Object.defineProperty(window, '{name}', {{ get: {refuse} }})")
    visit.server.key = "sesame"
    visit.page.reload()
    expect(visit.page.locator("#toast")).to_contain_text("keeps nothing")
    visit.page.evaluate("document.querySelector('#toast').replaceChildren()")
    visit.page.get_by_label("API key").fill("sesame")
    visit.page.keyboard.press("Enter")
    visit.page.click("#tune")
    visit.page.get_by_label("Temperature").fill("0.5")
    visit.page.get_by_label("Top k").fill("20")
    visit.ask("apples")
    assert (visit.last_body()["temperature"], visit.last_body()["top_k"]) == (0.5, 20)
    visit.page.click("#new")
    visit.ask("pears")
    rows = visit.page.locator("#conversations .open")
    expect(rows).to_have_text(["pears", "apples"])
    rows.nth(1).press("Delete")
    expect(rows).to_have_text(["pears"])
    expect(visit.page.locator("#toast")).not_to_contain_text("keeps nothing")


def test_every_line_of_stop_at_is_sent(visit: Visit) -> None:
    visit.page.click("#tune")
    visit.page.get_by_label("Stop at").fill("\n".join("abcdefgh"))
    visit.ask("hello")
    assert visit.last_body()["stop"] == list("abcdefgh")


@pytest.mark.parametrize("probabilities", [False, True])
def test_a_model_without_a_chat_template_continues_text(visit: Visit, probabilities: bool) -> None:
    visit.server.chat_template = False
    if probabilities:
        visit.page.click("#probabilities")
    visit.ask("Once upon a time")
    expect(visit.prose).to_have_text("there was a mill.")
    expect(visit.page.locator("#plain-note")).to_be_visible()
    path, body = visit.server.requests[-1]
    assert (path, body["prompt"]) == ("/v1/completions", "Once upon a time")
    assert body["max_tokens"] == 256
    assert visit.answer.locator(".token").count() == (4 if probabilities else 0)
    visit.ask(" The end")
    assert visit.last_body()["prompt"] == "Once upon a time there was a mill. The end"
    visit.page.press("#input", "Enter")  # nothing typed: go on
    visit.done()
    assert visit.last_body()["prompt"] == "Once upon a time there was a mill. The end there was a mill."
    assert [path for path, _ in visit.server.requests].count("/v1/chat/completions") == 1


def test_a_key_is_asked_for_and_kept_for_the_tab(browser: Browser, server: FakeOpenAI) -> None:
    server.key = "sesame"
    visit = Visit(browser, server)
    key = visit.page.get_by_label("API key")
    key.fill("wrong")
    key.press("Enter")
    expect(visit.page.locator("#key-wrong")).to_be_visible()
    key.fill("sesame")
    key.press("Enter")
    expect(visit.page.locator("#key-dialog")).to_be_hidden()
    visit.ask("hello")
    expect(visit.prose).to_have_text("Answer 1 to hello.")
    visit.page.reload()
    expect(visit.page.locator("#model")).to_be_visible()
    assert "sesame" not in visit.page.evaluate("JSON.stringify(localStorage)")
    server.key = "changed"
    visit.type("more")
    key.fill("changed")
    key.press("Enter")
    expect(visit.prose).to_have_text("Answer 3 to more.")  # the second request was refused
    expect(visit.page.locator(".said")).to_have_text(["hello", "more"])
    visit.close()


def test_models_can_be_chosen(browser: Browser, server: FakeOpenAI) -> None:
    server.models = [{"id": "small"}, {"id": "large", "max_model_len": 100}]
    server.models[1]["default_sampling_params"] = {"temperature": 0.6, "top_k": 20}
    visit = Visit(browser, server)
    expect(visit.page.locator("#context")).to_be_hidden()
    temperature = visit.page.get_by_label("Temperature")
    expect(temperature).to_have_attribute("placeholder", "default")
    visit.page.get_by_label("Model", exact=True).select_option("large")
    expect(visit.page.locator("#context-words")).to_have_text("100 tokens of context")
    expect(temperature).to_have_attribute("placeholder", "0.6")
    expect(visit.page.get_by_label("Top k")).to_have_attribute("placeholder", "20")
    expect(visit.page.get_by_label("Top p")).to_have_attribute("placeholder", "default")
    visit.ask("hello")
    assert visit.last_body()["model"] == "large"
    visit.close()


def test_a_phone(browser: Browser, server: FakeOpenAI) -> None:
    visit = Visit(browser, server, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    server.answers["wide"] = (
        f"| {' | '.join('abcdefghijklmno')} |\n|{'-|' * 15}\n\n```\n{'y' * 300}\n```\n\n{'z' * 300}"
    )
    visit.page.fill("#input", "wide")
    visit.page.tap("#send")
    expect(visit.prose).to_contain_text("zzz")
    visit.done()
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 360
    assert visit.page.evaluate("document.querySelector('#scroller').scrollWidth") <= 360
    expect(visit.page.locator("#sidebar")).to_be_hidden()
    visit.page.tap("#menu")
    expect(visit.page.locator("#sidebar")).to_be_visible()
    visit.page.touchscreen.tap(350, 400)
    expect(visit.page.locator("#sidebar")).to_be_hidden()
    visit.close()


RENDER = """async (cuts) => {
    const { Markdown } = await import(new URL("web/markdown.js", document.baseURI));
    const root = document.createElement("div");
    const markdown = new Markdown(root);
    for (const cut of cuts) markdown.push(cut);
    markdown.end();
    return root.outerHTML;
}"""


def cut(text: str, at: list[int]) -> list[str]:
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


def test_markdown_is_the_same_however_it_arrives(visit: Visit) -> None:
    whole = visit.page.evaluate(RENDER, [MARKDOWN])
    for part in (
        '<h3 class="level-1">Title</h3>',
        "<em>paragraph</em>",
        "<strong>bold <em>and italics</em></strong>",
        "<code>code *here*</code>",
        "snake_case_names, 2 * 3 * 4, a *star* and <strong><em>both</em></strong>",
        'href="https://example.org/a_(b)?c=d"',
        'title="https://example.org/bare">https://example.org/bare</a>, and\n[no](javascript:alert(1)).',
        "<ul><li><p>nested **bold</p></li><li><p>deeper</p><ul><li><p>deepest</p></li></ul></li></ul>",
        "<p>a paragraph of two</p></li><li><p>three</p></li></ol>",
        "<blockquote><p>quoted <em>text</em></p><ul><li><p>and a list</p></li></ul></blockquote>",
        'def f(x):\n    return "&lt;b&gt;*x*&lt;/b&gt;"</code>',
        '<th class="center">a</th><th class="right">b</th>',
        '<td class="right"><code>2</code></td></tr><tr><td class="center">3</td><td class="right"></td>',
        "<hr><p><del>gone</del> end without a line break and an **open mark</p>",
    ):
        assert part in whole
    assert visit.page.evaluate(RENDER, list(MARKDOWN)) == whole
    rng = random.Random(0)
    for _ in range(40):
        at = sorted(rng.sample(range(len(MARKDOWN)), rng.randrange(1, 60)))
        assert visit.page.evaluate(RENDER, cut(MARKDOWN, at)) == whole


BLOCKS = [
    (
        "1. ```bash\n   ls\n   ```\n2. Next step is **this**.\n\nAnd the rest",
        "<ol><li><figure>text<pre><code>ls</code></pre></figure></li>"
        "<li><p>Next step is <strong>this</strong>.</p></li></ol><p>And the rest</p>",
    ),
    (
        "- # One\n- > two\n  > three\n- ---\n- * - deep\n\n  end\n-\n  late\n- \n",
        "<ul><li><h3>One</h3></li><li><blockquote><p>two\nthree</p></blockquote></li></ul><hr>"
        "<ul><li><ul><li><ul><li><p>deep</p></li></ul></li></ul><p>end</p></li><li><p>\nlate</p></li><li><p></p></li></ul>",
    ),
    ("1. ---\n2. * * *", "<ol><li><hr></li><li><hr></li></ol>"),
    (
        "Here is the table:\n| a | b |\n|---|---|\n| 1 | 2 |\nafter",
        "<p>Here is the table:</p><div><table><thead><tr><th>a</th><th>b</th></tr></thead>"
        "<tbody><tr><td>1</td><td>2</td></tr></tbody></table></div><p>after</p>",
    ),
    (
        "- Here:\n  | a |\n  |---|\n  | 1 |\n- | b |\n  |---|\n  | 2 |\n",
        "<ul><li><p>Here:</p><div><table><thead><tr><th>a</th></tr></thead>"
        "<tbody><tr><td>1</td></tr></tbody></table></div></li>"
        "<li><div><table><thead><tr><th>b</th></tr></thead><tbody><tr><td>2</td></tr></tbody></table></div></li></ul>",
    ),
    ("no *table\n| a |\n| b |\nhere* |\n\n| c |", "<p>no <em>table\n| a |\n| b |\nhere</em> |</p><p>| c |</p>"),
    (
        "| a |\n> b\n\n| c |\n- d\n\n> e\n| f |\ng",
        "<p>| a |</p><blockquote><p>b</p></blockquote><p>| c |</p>"
        "<ul><li><p>d</p></li></ul><blockquote><p>e</p></blockquote><p>| f |\ng</p>",
    ),
    (
        "| `a \\| b` | c \\|\n|---|---|\n",
        "<div><table><thead><tr><th><code>a | b</code></th><th>c |</th></tr></thead><tbody></tbody></table></div>",
    ),
]


@pytest.mark.parametrize(("text", "drawn"), BLOCKS)
def test_blocks(visit: Visit, text: str, drawn: str) -> None:
    whole = visit.page.evaluate(RENDER, [text])
    bare = re.sub(r"<(\w+) [^>]*>", r"<\1>", whole)
    bare = re.sub(r"<figcaption>.*?</figcaption>", "text", bare)
    assert bare == f"<div>{drawn}</div>"
    same_in_every_cut(visit, text)


DOCS = "https://docs.python.org/3/"
LINK = f'<a href="{DOCS}" rel="noopener noreferrer" target="_blank" title="{DOCS}">'
SPANS = [
    ("- **`**kwargs`**: words", "<ul><li><p><strong><code>**kwargs</code></strong>: words</p></li></ul>"),
    ("**Use `**kwargs` here**", "<p><strong>Use <code>**kwargs</code> here</strong></p>"),
    ("**Pointers (`char**`)**", "<p><strong>Pointers (<code>char**</code>)</strong></p>"),
    (
        "*the `char*` type* and __a `` b__`c `` d__",
        "<p><em>the <code>char*</code> type</em> and <strong>a <code>b__`c</code> d</strong></p>",
    ),
    ("*a ` b* **c \\``d** e", "<p><em>a ` b</em> <strong>c ``d</strong> e</p>"),
    (
        f"[`a_b_c`]({DOCS}), [**bold** _x_]({DOCS})",
        f"<p>{LINK}<code>a_b_c</code></a>, {LINK}<strong>bold</strong> <em>x</em></a></p>",
    ),
    (f"[**{DOCS}**]({DOCS}) []({DOCS})", f"<p>{LINK}<strong>{DOCS}</strong></a> {LINK}{DOCS}</a></p>"),
    (f"[a `b]({DOCS}) c` [d ` e]({DOCS})", f"<p>[a <code>b]({DOCS}) c</code> {LINK}d ` e</a></p>"),
    ("*a `b* " + "c" * 2100 + "`", "<p><em>a `b</em> " + "c" * 2100 + "`</p>"),
    ("*a ` " + "b* " * 1000, "<p><em>a ` b</em> " + "b* " * 998 + "b* </p>"),
]


@pytest.mark.parametrize(("text", "drawn"), SPANS)
def test_spans(visit: Visit, text: str, drawn: str) -> None:
    assert visit.page.evaluate(RENDER, [text]) == f"<div>{drawn}</div>"
    same_in_every_cut(visit, text)


def same_in_every_cut(visit: Visit, text: str) -> None:
    whole = visit.page.evaluate(RENDER, [text])
    assert visit.page.evaluate(RENDER, list(text)) == whole
    for at in range(1, len(text), 1 + len(text) // 200):
        assert visit.page.evaluate(RENDER, cut(text, [at])) == whole, text[:at]


def test_random_marks_are_the_same_however_they_arrive(visit: Visit) -> None:
    """Text of marks alone, where any wrong guess about what may still change would show."""
    rng = random.Random(1)
    marks = ["*", "**", "_", "`", "``", "~~", "[a](", "https://x.y/", ")", "]", "!", "\\", "\n", "\n\n", "- ", "1. "]
    marks += [
        "# ",
        "> ",
        "```\n",
        "| a |\n",
        "|-|\n",
        "a",
        "b c",
        " ",
        "  ",
        "<b>",
        "---",
        "h",
        "http",
        "ht",
        "\t",
        " " * 300,
    ]
    for _ in range(150):
        text = "".join(rng.choices(marks, k=30))
        assert visit.page.evaluate(RENDER, list(text)) == visit.page.evaluate(RENDER, [text]), repr(text)


def test_markdown_takes_linear_time(visit: Visit) -> None:
    """A quarter of a megabyte of each opening, as one line, in pieces of 400: quadratic work would take minutes."""
    timed = """async ([unit, n]) => {
        const { Markdown } = await import(new URL("web/markdown.js", document.baseURI));
        const text = unit.repeat(Math.ceil(n / unit.length));
        const markdown = new Markdown(document.createElement("div"));
        const start = performance.now();
        for (let at = 0; at < text.length; at += 400) markdown.push(text.slice(at, at + 400));
        markdown.end();
        return performance.now() - start;
    }"""
    for unit in (
        "*a ",
        "**a",
        "_a",
        "`",
        "` ``a",
        "[",
        "[a](",
        "https://a",
        "\\",
        "| a ",
        "> ",
        "- ",
        "x",
        "*a**b",
        "*a`",
        "[`](a)*",
        "| a |\n",
    ):
        ms = visit.page.evaluate(timed, [unit, 250_000])
        assert ms < 4000, f"{unit!r}: {ms:.0f} ms"


def test_the_files_keep_to_their_origin_and_parse_no_html() -> None:
    parsers = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\(|new Function"
    )
    addresses = re.compile(r"(?:https?:)?//(?!www\.w3\.org/)[\w-]+\.\w+")
    files = [path for path in WEB.iterdir() if path.is_file()]
    assert {"index.html", "style.css", "app.js"} <= {path.name for path in files}
    for path in files:
        text = path.read_text()
        assert not parsers.search(text), path.name
        assert not addresses.search(text), path.name
    page = (WEB / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)  # the policy would refuse them
