"""The command line: one file per command, each imported only when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from mldyno import __version__
from mldyno.cli.output import NobodyReads, gated
from mldyno.errors import OK, MldynoError
from mldyno.printable import printable

COMMANDS = {
    "quick": "At most three minutes: what this machine is, how fast it trains and runs models.",
    "run": "Measure workloads or a suite, on every axis you name.",
    "max-batch": "The largest batch that fits on a device.",
    "crossover": "Is the GPU worth it? From which size on one of two beats the other.",
    "compare": "How much faster is one than the other, and how sure is that?",
    "table": "Lay results out on rows and columns, published machines among them.",
    "report": "One page with charts, tables and what they say; pictures, and a card to post.",
    "show": "All that is known of a case or a record.",
    "history": "What was measured, newest first.",
    "list": "Workloads, suites, frameworks, devices, machines.",
    "doctor": "Why is the GPU not used? What works on it? How free and quiet is this machine?",
    "selftest": "How often is mldyno itself wrong, on this machine?",
    "export": "Write records to a file: JSON lines or CSV.",
    "import": "Take records from files into the store.",
    "remove": "Take records out of the store: of a run, a machine, a file; by their ids.",
    "completion": "Print the script for your shell's completion.",
}

OTHER_WORDS = {  # for commands, as other tools have them
    "bench": ("quick", "run"), "benchmark": ("quick", "run"), "measure": ("run",), "time": ("run",),
    "test": ("selftest",), "info": ("doctor",), "check": ("doctor",), "results": ("history", "table"),
    "ls": ("list",), "plot": ("report",), "diff": ("compare",), "delete": ("remove",), "rm": ("remove",),
}  # fmt: skip

WELCOME = """mldyno finds out how fast this machine really trains and runs models.

Try:
  mldyno quick                                   at most three minutes, answers in plain words
  mldyno run mlp --placement device,roundtrip    measure one workload two ways, and compare
  mldyno table bert-base --rows mode,batch,seq --cols machine,device --value time:100steps

All commands: mldyno --help
"""


class LazyGroup(click.Group):
    """Imports a command's file when the command is called, not when help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"mldyno.cli.{cmd_name.replace('-', '_')}_command").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual, with the nearest name where there is no such command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from mldyno.errors import unknown

            raise unknown("command", args[0], COMMANDS, OTHER_WORDS.get(args[0], ()))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _width() -> int:
    """The terminal's width, up to 100; asked of the system, since `shutil` costs a start-up 2 ms."""
    try:
        return min(os.get_terminal_size(1).columns, 100)
    except OSError:
        return 100


_SETTINGS = {"help_option_names": ["-h", "--help"], "terminal_width": _width()}


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings=_SETTINGS)
@click.version_option(__version__, message="mldyno %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A dynamometer for deep-learning machines: how fast does yours really train and run models?

    \b
    Example:
      mldyno quick
    """
    if ctx.invoked_subcommand is None:
        click.echo(WELCOME, nl=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error of the user is one line, and the exit code says which kind."""
    with gated():
        code = _run(arguments)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="mldyno", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except MldynoError as error:
        if os.environ.get("MLDYNO_DEBUG"):
            raise
        _say(str(error))
        return error.exit_code
    except click.ClickException as error:
        _say(f"{error.format_message()}{_hint(error)}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("ended by Ctrl-C.")
        return 3
    except NobodyReads:
        return OK
    except Exception as error:
        if os.environ.get("MLDYNO_DEBUG"):
            raise
        _say(f"something went wrong inside mldyno ({type(error).__name__}: {error}); MLDYNO_DEBUG=1 shows where.")
        return 1


def _say(message: str) -> None:
    """What went wrong, in one line."""
    click.echo(f"mldyno: {printable(message)}", err=True)


def _hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f" See: {context.command_path} --help" if context is not None else ""
