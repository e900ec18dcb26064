"""A server of a tiny random model, on a port of its own, for the clients people use."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from anthropic import Anthropic
from openai import OpenAI

from gristmill.serve.app import Settings, create_app
from gristmill.serve.model import Model
from gristmill.serve.server import Listen, Server
from gristmill.serve.service import Service
from gristmill.serve.sockets import free_port

CONTEXT = 2048
TEMPLATE = """
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call as <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking %}<think>
{% endif %}{% endif %}"""


@dataclass(frozen=True)
class Running:
    url: str
    llm: Model
    server: Server
    http: httpx.Client
    openai: OpenAI
    anthropic: Anthropic


@contextmanager
def serving(
    llm: Model,
    settings: Settings | None = None,
    drain_s: float = 5,
    service: Service | None = None,
    request_s: float = 30,
    stall_s: float = 60,
    max_connections: int = 1024,
) -> Iterator[Running]:
    listen = Listen(
        port=free_port(), drain_s=drain_s, request_s=request_s, stall_s=stall_s, max_connections=max_connections
    )
    server = Server(create_app(llm, settings, service), listen)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    http = httpx.Client(base_url=listen.url, timeout=60)
    openai = OpenAI(base_url=f"{listen.url}/v1", api_key="none", max_retries=0, timeout=60)
    anthropic = Anthropic(base_url=listen.url, api_key="none", max_retries=0, timeout=60)
    try:
        with http, openai, anthropic:
            yield Running(listen.url, llm, server, http, openai, anthropic)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Far longer than it takes anywhere: how long something may take is for other tests to say."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def n_ended(http: httpx.Client, reason: str) -> int:
    """Answers that ended so, abort or length or stop, since the server began."""
    found = re.search(rf'request_success_total{{finished_reason="{reason}".*}} ([\d.]+)', http.get("/metrics").text)
    return int(float(found[1])) if found else 0
