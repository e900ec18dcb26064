"""`gristmill`: the group of commands, and how errors reach a person."""

from __future__ import annotations

import gc
import importlib
import os
import sys

import click

from gristmill import __version__

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
    """Imports a command when it is asked for. Turns the errors that a user can mend into one line; anything else is a
    bug and keeps its traceback."""

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

    def invoke(self, ctx: click.Context) -> object:
        # numpy's matrix products are not used; its threads would spin beside ours while they start.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            sys.stderr.close()  # the reader has gone, and so would the interpreter's own flush
            sys.exit(141)
        except (ValueError, OSError, MemoryError) as error:
            raise click.ClickException(str(error) or type(error).__name__) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gristmill")
def main() -> None:
    """Run open-weight language models from their raw files."""
