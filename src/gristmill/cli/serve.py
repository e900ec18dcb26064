"""`gristmill serve`: an OpenAI-compatible server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gristmill.cli import options
from gristmill.cli.loading import load, loading_bars
from gristmill.cli.open_files import allow_open_files
from gristmill.cli.text_file import read_text_file
from gristmill.cli.writable import check_socket

if TYPE_CHECKING:
    from fastapi import FastAPI

    from gristmill.serve.app import Settings
    from gristmill.serve.engine_wire import EngineOptions
    from gristmill.serve.model import Model
    from gristmill.serve.server import Listen

_OTHER_CONNECTIONS = 64
_OTHER_FILES = 256

_EXAMPLES = """
\b
Examples:
  gristmill serve -m model.gguf
  gristmill serve -m model.gguf --host 0.0.0.0 --api-key SECRET --slots 8
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "What is a gristmill?"}]}'
"""


@click.command(epilog=_EXAMPLES)
@options.model
@options.option("--host", default="127.0.0.1", help="address to listen at; others than this machine's own need a key")
@options.option("--port", type=click.IntRange(0, 65535), default=8000, help="0 takes any that is free")
@options.option("--uds", help="path of a Unix socket to listen at instead")
@options.option("--api-key", multiple=True, help="clients must show it; may be given several times")
@options.option("--api-key-file", type=click.Path(dir_okay=False), help="a file with a key on each line")
@options.option("--insecure", is_flag=True, help="listen at another address than this machine's own without a key")
@options.option("--slots", type=click.IntRange(1, 4096), default=16, help="answers that are computed at once")
@options.option("--max-queue", type=click.IntRange(0, 100_000), default=256, help="answers that may wait for a slot")
@options.option(
    "--drain-timeout", type=options.FiniteRange(0, 86_400), default=30.0, help="seconds to finish at the end"
)
@options.option("--cors-origin", multiple=True, help="pages from there may ask; '*': from anywhere")
@options.option(
    "--allowed-host",
    multiple=True,
    metavar="NAME",
    help="what requests may call this machine besides its own names, as behind a proxy; '*': anything",
)
@options.option(
    "--served-model-name", multiple=True, help="what requests may call the model [default: its file's name]"
)
@options.option(
    "--parse-special",
    is_flag=True,
    help="let prompts of /v1/completions, /v1/embeddings and /tokenize have special tokens, as for code completion:"
    " where all clients are trusted",
)
@options.option("--in-process", is_flag=True, help="compute in the server's own process, where a crash ends both")
@options.option("--chat-template", help="a Jinja2 file to use instead of the model's own template")
@options.tokenizer
@options.context
@options.threads
@options.kv_type
@options.quantize
@options.device
@options.gpu_memory_fraction
@options.generation_config
def serve(
    model: str,
    host: str,
    port: int,
    uds: str | None,
    api_key: tuple[str, ...],
    api_key_file: str | None,
    insecure: bool,
    slots: int,
    max_queue: int,
    drain_timeout: float,
    cors_origin: tuple[str, ...],
    allowed_host: tuple[str, ...],
    served_model_name: tuple[str, ...],
    parse_special: bool,
    in_process: bool,
    chat_template: str | None,
    tokenizer: str | None,
    context: int | None,
    threads: int | None,
    kv_type: str,
    quantize: str,
    device: str,
    gpu_memory_fraction: float,
    generation_config: str,
) -> None:
    """Answer OpenAI's and Anthropic's API over HTTP.

    The model is loaded and run by a process of its own, which is started again when it dies.
    """
    if uds is not None:
        check_socket("--uds", Path(uds))
    try:
        from gristmill.serve.app import Settings, create_app
        from gristmill.serve.engine_wire import EngineOptions
        from gristmill.serve.guard import Access
        from gristmill.serve.model import TextAlone
        from gristmill.serve.server import USUAL_CONNECTIONS, Listen
        from gristmill.serve.sockets import bound, free_port
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'gristmill[serve]'") from None
    # All answers that may be open have room, and who asks something else.
    n_connections = _connections(max(USUAL_CONNECTIONS, slots + max_queue + _OTHER_CONNECTIONS))
    listen = Listen(host, port or free_port(), uds, drain_timeout, max_connections=n_connections)
    keys = (*api_key, *_read_keys(api_key_file))
    if not listen.is_loopback and not keys and not insecure:
        raise click.UsageError(f"--host {host} can be reached by others: give --api-key, or --insecure to allow anyone")
    check_host = bool(allowed_host) or (listen.is_loopback and uds is None)
    try:
        access = Access(keys, check_host, cors_origin, allowed_host)
        recommended = generation_config == "auto"
        settings = Settings(served_model_name, max_queue, access, recommended, parse_special)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with bound(listen) as sockets:  # before a model is loaded for nobody
        if not in_process:
            text = TextAlone(model, max_context=context, tokenizer=tokenizer, chat_template=chat_template)
            engine = EngineOptions(
                str(text.model_path),
                device=device,
                threads=threads,
                max_context=context,
                max_sequences=slots,
                kv_type=kv_type,
                quantize=quantize,
                tokenizer=tokenizer,
                gpu_memory_fraction=gpu_memory_fraction,
            )
            _serve_supervised(text, engine, settings, listen, sockets)
            return
        llm = load(
            model,
            tokenizer,
            threads,
            context,
            kv_type,
            quantize,
            device,
            chat_template,
            max_sequences=slots,
            gpu_memory_fraction=gpu_memory_fraction,
        )
        with llm:
            _run(create_app(llm, settings), listen, sockets, lambda: _say_ready(llm, settings, listen))


def _serve_supervised(
    model: Model, engine: EngineOptions, settings: Settings, listen: Listen, sockets: list[socket.socket]
) -> None:
    from gristmill.serve.app import create_app
    from gristmill.serve.giving_way import give_way
    from gristmill.serve.process_service import ProcessService

    give_way()
    with ExitStack() as bar:
        bars = bar.enter_context(loading_bars())

        def be_ready() -> None:
            bar.close()
            _say_ready(model, settings, listen)

        service = ProcessService(engine, settings.max_queue, bars.loading, be_ready, on_warming=bars.warming)
        _run(create_app(model, settings, service), listen, sockets)


def _say_ready(model: Model, settings: Settings, listen: Listen) -> None:
    name = ", ".join(settings.names) or model.model_name
    click.echo(f"gristmill serves {name} at {listen.url} (API: {listen.url}/docs)", err=True)


def _run(
    app: FastAPI, listen: Listen, sockets: list[socket.socket], on_listening: Callable[[], None] = lambda: None
) -> None:
    """ClickException where the server ended by itself."""
    from gristmill.serve.server import Server

    server = Server(app, listen, on_listening)
    server.run(sockets)
    if server.failure is not None:
        raise click.ClickException(server.failure)


def _connections(n: int) -> int:
    """As many of n as the system lets us have."""
    return min(n, max(_OTHER_CONNECTIONS, allow_open_files(n + _OTHER_FILES) - _OTHER_FILES))


def _read_keys(path: str | None) -> list[str]:
    """A key on each line. ValueError for a file without any."""
    if path is None:
        return []
    keys = [line.strip() for line in read_text_file(Path(path)).splitlines() if line.strip()]
    if not keys:
        raise ValueError(f"{path}: has no key")
    return keys
