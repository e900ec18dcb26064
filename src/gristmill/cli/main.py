"""`gristmill`: the group of commands, and how errors reach a person."""

from __future__ import annotations

import sys

import click

from gristmill import __version__
from gristmill.cli.bench import bench
from gristmill.cli.generate import generate
from gristmill.cli.inspect import inspect
from gristmill.cli.tokenize import tokenize


class _Commands(click.Group):
    """Turns the errors that a user can mend into one line; anything else is a bug and keeps its traceback."""

    def invoke(self, ctx: click.Context) -> object:
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


for command in (bench, generate, inspect, tokenize):
    main.add_command(command)
