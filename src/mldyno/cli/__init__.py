"""The command line: one file for each group of commands, imported only when one of them is called.

Rule: a command is a function with `@command(NAME, SUMMARY)` in the file of its group. The list of commands is read from
the text of these files, so that `mldyno --help` imports none of them.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import FrameType

import click

from mldyno import __version__
from mldyno.cli.output import ReaderGone, gated
from mldyno.errors import NOT_ALL_OK, OK, MldynoError
from mldyno.printable import printable
from mldyno.views.window import window_width

GROUPS = ("measure", "fleet", "read", "explore", "share", "team")  # files, in the order of the help
SYNONYMS = {  # of commands, in other tools
    "bench": ("quick", "run"), "benchmark": ("quick", "run"), "measure": ("run",), "time": ("run",),
    "test": ("selftest",), "info": ("doctor",), "check": ("doctor",), "results": ("history", "table"),
    "ls": ("list",), "plot": ("report",), "diff": ("compare",), "delete": ("remove",), "rm": ("remove",),
    "upload": ("push", "submit"), "download": ("pull",), "server": ("serve",), "sync": ("push", "pull"),
    "share": ("report", "submit", "push"),
}  # fmt: skip
WIDEST_HELP = 100  # columns
END_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

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


@cache
def commands() -> dict[str, dict[str, str]]:
    """Return the commands of each group with their summaries, by the group's title: what a user wants to do."""
    groups = {}
    for file in GROUPS:
        with open(os.path.join(os.path.dirname(__file__), f"{file}.py"), encoding="utf-8") as source:
            text = source.read()
        title = text[: text.index("\n")].removeprefix('"""Commands to ').removesuffix('."""')
        groups[title] = dict(re.findall(r'^@command\("([\w-]+)", "(.+?)"', text, re.MULTILINE))
    return groups


class NarrowHelp(click.HelpFormatter):
    """Help that leaves most of a narrow window to the descriptions."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, min(col_max, self.width // 3), col_spacing)


click.Context.formatter_class = NarrowHelp  # for the help of every command


class LazyGroup(click.Group):
    """Imports a command's file when the command is called, not when help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for summaries in commands().values() for name in summaries]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for file, summaries in zip(GROUPS, commands().values(), strict=True):
            if cmd_name in summaries:
                for value in vars(import_module(f"mldyno.cli.{file}")).values():
                    if isinstance(value, click.Command) and value.name == cmd_name:
                        return value
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise for an unknown command, with the nearest one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            from mldyno import plugins, suites
            from mldyno.errors import unknown

            runs = args[0] in (*plugins.names("workloads"), *suites.names())
            raise unknown("command", args[0], known, [f"run {args[0]}"] if runs else SYNONYMS.get(args[0], ()))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, self.list_commands(ctx)))
        for title, summaries in commands().items():
            with formatter.section(f"To {title}"):
                formatter.write_dl([(name.ljust(longest), summary) for name, summary in summaries.items()])


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="mldyno %(version)s")
@click.option("--plain", is_flag=True, help="Print plain lines only, for screen readers and logs (or $MLDYNO_PLAIN).")
@click.pass_context
def cli(ctx: click.Context, plain: bool) -> None:
    """A dynamometer for deep-learning machines: how fast does yours really train and run models?

    \b
    Example:
      mldyno quick
    """
    if plain:
        os.environ["MLDYNO_PLAIN"] = "1"  # read by all that prints
    if ctx.invoked_subcommand is None:
        rows = "".join(f"  {title:<25}  {', '.join(summaries)}\n" for title, summaries in commands().items())
        click.echo(WELCOME.format(groups=rows), nl=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; each error that a user can fix is one line, and the exit code says which kind."""
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
        _print_error(str(error))
        return error.exit_code
    except click.ClickException as error:
        _print_error(_explained(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        _print_error(f"ended by {str(error.__cause__ or error) or 'Ctrl-C'}.")
        return NOT_ALL_OK
    except ReaderGone:
        return OK
    except Exception as error:
        if os.environ.get("MLDYNO_DEBUG"):
            raise
        reason = f"something went wrong inside mldyno ({type(error).__name__}: {error}); MLDYNO_DEBUG=1 shows where."
        try:
            os.getcwd()
        except FileNotFoundError:
            reason = "the folder that you are in was deleted; change into another one."
        _print_error(reason)
        return 1


def _print_error(message: str) -> None:
    """Print an error in one line, but nothing while a shell completes a word."""
    if "_MLDYNO_COMPLETE" not in os.environ:
        click.echo(f"mldyno: {printable(message)}", err=True)


def _explained(error: click.ClickException) -> str:
    """Return Click's message with where to find help, or the right place for an option of mldyno itself."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
    if context is None:
        return error.format_message()
    if isinstance(error, click.NoSuchOption) and any(option in parameter.opts for parameter in cli.params):
        return f"{option} goes before the command; write: mldyno {option} {context.info_name}"
    return f"{error.format_message().removesuffix('.')}. See: {context.command_path} --help"


class Signalled(KeyboardInterrupt):
    """A signal ended the command; the message is its name."""


def _raise(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # the system and a shell both send SIGHUP: do not interrupt the end
    raise Signalled(signal.Signals(number).name)


@contextmanager
def tidy_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, unless ignored, end a command as Ctrl-C does, so that temporary files are removed."""
    handled = []
    for number in END_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            try:
                signal.signal(number, _raise)
            except ValueError:  # this is another thread
                break
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is _raise:
                signal.signal(number, signal.SIG_DFL)
