"""`gristmill serve`: an OpenAI-compatible server."""

from __future__ import annotations

from pathlib import Path

import click

from gristmill.cli import options
from gristmill.cli.loading import load
from gristmill.llm import LLM

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
@options.option("--drain-timeout", type=click.FloatRange(0, 86_400), default=30.0, help="seconds to finish at the end")
@options.option("--cors-origin", multiple=True, help="pages from there may ask; '*': from anywhere")
@options.option(
    "--served-model-name", multiple=True, help="what requests may call the model [default: its file's name]"
)
@options.option("--chat-template", help="a Jinja2 file to use instead of the model's own template")
@options.tokenizer
@options.context
@options.threads
@options.kv_type
@options.quantize
@options.device
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
    served_model_name: tuple[str, ...],
    chat_template: str | None,
    tokenizer: str | None,
    context: int | None,
    threads: int | None,
    kv_type: str,
    quantize: str,
    device: str,
) -> None:
    """Answer OpenAI's API over HTTP."""
    try:
        from gristmill.serve.app import Settings, create_app
        from gristmill.serve.guard import Access
        from gristmill.serve.server import Listen, Server, free_port
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'gristmill[serve]'") from None
    listen = Listen(host, port or free_port(), uds, drain_timeout)
    keys = (*api_key, *_read_keys(api_key_file))
    if not listen.is_loopback and not keys and not insecure:
        raise click.UsageError(f"--host {host} can be reached by others: give --api-key, or --insecure to allow anyone")
    check_host = listen.is_loopback and uds is None
    settings = Settings(served_model_name, max_queue, Access(keys, check_host, cors_origin))
    llm = load(model, tokenizer, threads, context, kv_type, quantize, device, chat_template, max_sequences=slots)
    with llm:
        server = Server(create_app(llm, settings), listen)
        click.echo(f"gristmill serves {_name(llm, settings.names)} at {listen.url} (API: {listen.url}/docs)", err=True)
        server.run()


def _name(llm: LLM, names: tuple[str, ...]) -> str:
    return ", ".join(names) or llm.model_path.name


def _read_keys(path: str | None) -> list[str]:
    """A key on each line. ValueError for a file without any."""
    if path is None:
        return []
    keys = [line.strip() for line in Path(path).read_text().splitlines() if line.strip()]
    if not keys:
        raise ValueError(f"{path}: has no key")
    return keys
