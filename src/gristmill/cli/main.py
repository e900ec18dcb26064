"""`gristmill`: the group of commands, and how errors reach a person."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from gristmill import __version__
from gristmill.cli import streams

_COMMANDS = (
    "bench",
    "chat",
    "convert",
    "generate",
    "inspect",
    "list",
    "perplexity",
    "pull",
    "quantize",
    "rm",
    "serve",
    "show",
    "tokenize",
    "trace",
    "train",
    "train-tokenizer",
)


class _Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        gc.disable()  # what is imported stays: to look through it costs a tenth of a start, and as much at the end
        command: click.Command = getattr(importlib.import_module(f"gristmill.cli.{name}"), name)
        gc.freeze()  # but nothing that is made later: what is native complains where it is never freed
        gc.enable()
        return command

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        """What happens first; --help is printed in it."""
        streams.prepare()
        _end_in_order()
        with _mendable():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> object:
        # numpy's matrix products are not used; its threads would spin beside ours while they start.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with _mendable():
            return super().invoke(ctx)


def _end_in_order() -> None:
    """A SIGTERM ends a command as an error does, so that nothing half-written stays; the second one ends it at once."""

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(128 + number)

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


@contextmanager
def _mendable() -> Iterator[None]:
    """Turns the errors that a user can mend into one line; anything else is a bug and keeps its traceback."""
    try:
        yield
        sys.stdout.flush()
    except (streams.ReaderGoneError, BrokenPipeError):
        streams.drop_stdout()
        sys.exit(141)
    except KeyboardInterrupt:
        click.echo("\nAborted!", err=True)
        sys.exit(128 + signal.SIGINT)
    except streams.StdoutError as error:
        streams.drop_stdout()
        raise click.ClickException(str(error)) from error
    except (ValueError, OSError, MemoryError) as error:
        raise click.ClickException(streams.one_line(error)) from error


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every option has an environment variable: --kv-type is GRISTMILL_KV_TYPE. Of an option that may be given"
    " several times, it holds one value a line.",
)
@click.version_option(__version__, prog_name="gristmill")
def main() -> None:
    """Run open-weight language models from their raw files."""
