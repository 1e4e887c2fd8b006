"""`mldyno completion`: the script for the shell's completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mldyno.cli.options import print_data


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes mldyno's commands, workloads, suites and machines in your shell.

    \b
    Examples:
      eval "$(mldyno completion bash)"
      mldyno completion fish > ~/.config/fish/completions/mldyno.fish
    """
    from mldyno.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "mldyno", "_MLDYNO_COMPLETE").source()
    print_data(script.replace(" read type ", " read -r type "))  # in bash, names have backslashes before their spaces
