"""`mldyno completion`: the script for the shell's completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes mldyno's commands and workloads in your shell.

    \b
    Example:
      eval "$(mldyno completion bash)"
    """
    from mldyno.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "mldyno", "_MLDYNO_COMPLETE").source())
