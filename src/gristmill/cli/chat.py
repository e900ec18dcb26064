"""`gristmill chat`: a conversation in the terminal, with a model here or on a server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gristmill.bundled import STORY_MODEL
from gristmill.cli import chat_commands, options
from gristmill.cli.chat_backend import Backend
from gristmill.cli.chat_repl import Repl
from gristmill.cli.chat_screen import PlainScreen, Screen
from gristmill.cli.chat_session import Conversation
from gristmill.cli.sampling import Limit, chosen_by_models, naming_options
from gristmill.cli.streams import say_if_typed

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLES = """
\b
Examples:
  gristmill chat -m model.gguf --system "Answer in one sentence."
  gristmill chat
  gristmill chat --base-url http://localhost:8000/v1 --model NAME
  echo "What is a gristmill?" | gristmill chat -m model.gguf --temp 0

Inside, /help lists the commands. Lines from a pipe are messages; answers and what commands show go to stdout, all
else to stderr.
"""

_HERE = (
    "chat_template",
    "plain",
    "tokenizer",
    "context",
    "threads",
    "kv_type",
    "quantize",
    "device",
    "gpu_memory_fraction",
    "generation_config",
    "speculate",
    "draft",
)


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """What was given waits in the context under the setting's name; what was not is left to the model's side."""
    given = ctx.meta.setdefault(__name__, {})
    unlimited = parameter.name == "max_tokens" and value == -1
    if value is not None and value is not False and value != () and not unlimited:
        given[parameter.name] = value


def _setting(*names: str, **how: Any) -> Callable[[F], F]:
    return options.option(*names, expose_value=False, callback=_keep, **how)


_SETTINGS = (
    _setting(
        "-n", "--max-tokens", type=Limit(), help="most tokens of an answer; -1, the default: as the context allows"
    ),
    _setting("--min-tokens", type=int, help="least tokens to write before an end"),
    *chosen_by_models(_setting),
    _setting("--presence-penalty", type=float, help="taken from logits of tokens in the answer"),
    _setting("--frequency-penalty", type=float, help="taken from them as often as they are in the answer"),
    _setting("--seed", type=int, help="the same seed gives the same answers [default: a new one each time]"),
    _setting("--stop", multiple=True, help="text that ends an answer; may be given several times"),
    _setting("--ignore-eos", is_flag=True, help="go on after an end-of-text token"),
)


def _settings(command: F) -> F:
    for add in reversed(_SETTINGS):
        command = add(command)
    return command


@click.command(epilog=_EXAMPLES)
@options.option(
    "-m",
    "--model",
    help="model file, folder, ORG/NAME[:QUANT] of a pulled one, or with --base-url a name there "
    "[default: the story model that comes along]",
)
@options.option("--base-url", help="a server that speaks OpenAI's API: http://host:port, or with its path as /v1")
@options.api_key
@options.option("--system", help="system message")
@options.chat_template
@options.option("--plain/--no-plain", default=None, help="continue texts [default: where there is no chat template]")
@_settings
@options.loading
def chat(
    model: str | None,
    base_url: str | None,
    api_key: str | None,
    system: str | None,
    plain: bool | None,
    how: options.Loading,
) -> None:
    """Talk with a model.

    What is chosen where nothing is said is the same as for `generate`; with --base-url, the server's own.
    """
    conversation = Conversation(system=system)
    with naming_options():
        for name, value in click.get_current_context().meta[__name__].items():
            conversation.change(name, value)
    backend: Backend
    if base_url is not None:
        options.refuse_given(_HERE, "is for a model in this process, not for --base-url")
        options.check_key(api_key)
        from gristmill.cli.chat_remote import RemoteBackend

        backend = RemoteBackend(base_url, api_key, model)
    elif api_key is not None and options.given("api_key"):
        raise click.UsageError("--api-key is for --base-url")
    else:
        from gristmill.cli.chat_local import LocalBackend
        from gristmill.cli.loading import load_as, recommended

        llm = load_as(model or str(STORY_MODEL), how)
        backend = LocalBackend(llm, recommended(how, llm), how.chat_template, how.tokenizer, plain)
    try:
        backend.check(conversation)
        repl = Repl(backend, _screen(), conversation)
        repl.run()
    finally:
        backend.close()
    if repl.failed and not repl.screen.interactive:
        sys.exit(1)


def _screen() -> Screen:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say_if_typed(sys.stdin.buffer)
        return PlainScreen()
    from gristmill.cli.chat_terminal import TerminalScreen

    return TerminalScreen(chat_commands.names())
