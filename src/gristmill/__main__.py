"""`python -m gristmill` is the command `gristmill`."""

from gristmill.cli.main import main

main(prog_name="gristmill")
