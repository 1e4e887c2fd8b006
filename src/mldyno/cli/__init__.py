"""The command line: one file per command, each imported only when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

import click

from mldyno import __version__
from mldyno.cli.ending import tidy_end
from mldyno.cli.output import NobodyReads, gated
from mldyno.errors import NOT_ALL_OK, OK, MldynoError
from mldyno.printable import printable
from mldyno.views.window import window_width

COMMANDS = {
    "quick": "At most three minutes: what this machine is, how fast it trains and runs models.",
    "run": "Measure workloads or a suite, on every axis you name.",
    "join": "Take part in training that another machine measures.",
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
    "submit": "Write one checked file for a shared collection; or check such files.",
    "remove": "Take records out of the store: of a run, a machine, a file; by their ids.",
    "completion": "Print the script for your shell's completion.",
}

OTHER_WORDS = {  # for commands, as other tools have them
    "bench": ("quick", "run"), "benchmark": ("quick", "run"), "measure": ("run",), "time": ("run",),
    "test": ("selftest",), "info": ("doctor",), "check": ("doctor",), "results": ("history", "table"),
    "ls": ("list",), "plot": ("report",), "diff": ("compare",), "delete": ("remove",), "rm": ("remove",),
    "upload": ("submit",), "share": ("report", "submit"),
}  # fmt: skip

WIDEST_HELP = 100  # columns
GROUPS = {  # the commands by what a user wants
    "measure": ("quick", "run", "crossover", "max-batch", "join"),
    "see what it says": ("compare", "table", "report", "show", "history"),
    "know what there is": ("list", "doctor"),
    "pass it on": ("export", "import", "submit", "remove"),
    "look after mldyno": ("selftest", "completion"),
}

WELCOME = """mldyno finds out how fast this machine really trains and runs models.

Begin with:
  mldyno quick          at most three minutes, answers in plain words

Commands, by what you want:
{groups}
For example:
  mldyno run mlp --placement device,roundtrip
  mldyno compare this-machine "M1 Max"
  mldyno table bert-base --rows mode,batch,seq --cols machine,device

All commands: mldyno --help. One of them: mldyno run --help.
"""


class FittingHelp(click.HelpFormatter):
    """Leaves most of a narrow window to what is said of an option, so that no word of it is broken."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Names, and what is said of each."""
        super().write_dl(rows, min(col_max, self.width // 3), col_spacing)


class FittingContext(click.Context):
    """Whose help fits."""

    formatter_class = FittingHelp


class LazyGroup(click.Group):
    """Imports a command's file when the command is called, not when help is shown."""

    context_class = FittingContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"mldyno.cli.{cmd_name.replace('-', '_')}_command").command
        command.context_class = FittingContext
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual, with the nearest name where there is no such command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from mldyno import plugins, suites
            from mldyno.errors import unknown

            runs = args[0] in (*plugins.names("workloads"), *suites.names())
            raise unknown("command", args[0], COMMANDS, [f"run {args[0]}"] if runs else OTHER_WORDS.get(args[0], ()))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands without importing them."""
        longest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(f"To {title}"):
                formatter.write_dl([(name.ljust(longest), COMMANDS[name]) for name in names])


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="mldyno %(version)s")
@click.option("--plain", is_flag=True, help="Lines of plain text only, for screen readers and logs (or $MLDYNO_PLAIN).")
@click.pass_context
def cli(ctx: click.Context, plain: bool) -> None:
    """A dynamometer for deep-learning machines: how fast does yours really train and run models?

    \b
    Example:
      mldyno quick
    """
    if plain:
        os.environ["MLDYNO_PLAIN"] = "1"  # which whatever shows something asks for
    if ctx.invoked_subcommand is None:
        rows = "".join(f"  {title:<20}  {', '.join(names)}\n" for title, names in GROUPS.items())
        click.echo(WELCOME.format(groups=rows), nl=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error of the user is one line, and the exit code says which kind."""
    with gated(), tidy_end():
        code = _run(arguments)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        words = None if arguments is None else list(arguments)
        width = min(window_width(), WIDEST_HELP)
        code = cli.main(args=words, prog_name="mldyno", standalone_mode=False, terminal_width=width)
        sys.stdout.flush()
        return int(code or 0)
    except MldynoError as error:
        if os.environ.get("MLDYNO_DEBUG"):
            raise
        _say(str(error))
        return error.exit_code
    except click.ClickException as error:
        _say(_explained(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        _say(f"ended by {str(error.__cause__ or error) or 'Ctrl-C'}.")
        return NOT_ALL_OK
    except NobodyReads:
        return OK
    except Exception as error:
        if os.environ.get("MLDYNO_DEBUG"):
            raise
        if isinstance(error, FileNotFoundError) and _nowhere():
            _say("the folder that you are in was deleted; change into another one.")
        else:
            _say(f"something went wrong inside mldyno ({type(error).__name__}: {error}); MLDYNO_DEBUG=1 shows where.")
        return 1


def _nowhere() -> bool:
    """Return whether the working folder is gone, which any look at a relative path then meets."""
    try:
        return not os.getcwd()
    except FileNotFoundError:
        return True


def _say(message: str) -> None:
    """What went wrong, in one line; a shell that completes a word hears nothing."""
    if "_MLDYNO_COMPLETE" not in os.environ:
        click.echo(f"mldyno: {printable(message)}", err=True)


def _explained(error: click.ClickException) -> str:
    """What Click says, and where there is help; of an option of mldyno itself, where it stands."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
    if context is None:
        return error.format_message()
    if isinstance(error, click.NoSuchOption) and any(option in parameter.opts for parameter in cli.params):
        return f"{option} stands before the command; write: mldyno {option} {context.info_name}"
    return f"{error.format_message()} See: {context.command_path} --help"
