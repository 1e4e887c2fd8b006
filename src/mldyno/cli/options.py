"""Shared by commands: options, which follow from the axes and settings; shell completion."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mldyno import plugins, suites
from mldyno.errors import MldynoError, UsageError
from mldyno.files import expanded

if TYPE_CHECKING:
    from mldyno.axes import Axis
    from mldyno.settings import Setting

F = TypeVar("F", bound=Callable[..., Any])
EFFORT = ("steps", "budget", "target", "repeats", "energy", "timeout", "limit", "data", "price")


C = TypeVar("C", bound=click.Command)


def command(name: str, summary: str, cls: type[C] = click.Command) -> Callable[[Any], C]:  # type: ignore[assignment]
    """Make a function a command; the list of commands shows the summary, which is read from the file's text."""
    return click.command(name, cls=cls, short_help=summary)


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """A value that the product's own parser reads; `words` complete it."""

    def __init__(self, name: str, parse: Callable[[Any], Any], words: Sequence[str] = ()) -> None:
        self.name, self.parse, self.words = name, parse, words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value)
        except MldynoError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


def split_words(value: Any) -> list[str]:
    """Return the words of a comma list."""
    words = value if isinstance(value, list) else [word.strip() for word in str(value).split(",")]
    if not all(words):
        raise UsageError(f"'{value}' has an empty entry; write it as one,two.")
    return words


def duration(value: Any) -> float:
    """Return the seconds of a time such as 90s."""
    from mldyno.units import parse_duration

    return value if isinstance(value, float) else parse_duration(str(value))


def place(value: Any) -> str:
    """Return a path to write to, with its `~` expanded: no shell does that in --site=~/site, or between quotes."""
    return str(expanded(value)) if str(value).startswith("~") else str(value)


WORDS = Parsed("list", split_words)
PLACE = Parsed("path", place)
DURATION = Parsed("duration", duration)


store_option = click.option("--store", metavar="FILE", help="Store to use, instead of the default (or $MLDYNO_STORE).")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
since_option = click.option(
    "--since", metavar="WHEN", help="Only what was measured since then: yesterday, 3d, 12h, 2026-11-01 (UTC)."
)
private_option = click.option("--private", is_flag=True, help="Omit command lines and paths.")


def all_of(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Combine options into one decorator, in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def axis_options(without: str = "") -> Callable[[F], F]:
    """Return an option for each axis of a case except one; each takes a comma list, and the lists multiply."""
    from mldyno.axes import AXES

    return all_of(*(_axis_option(axis) for axis in AXES if axis.name not in ("workload", without)))


def _axis_option(axis: Axis) -> Callable[[F], F]:
    def complete(ctx: click.Context, param: click.Parameter, start: str) -> list[str]:
        known = list(axis.values) or (plugins.names(axis.plugins) if axis.plugins else [])
        before, comma, last = start.rpartition(",")
        return [before + comma + value for value in known if value.startswith(last)]

    return click.option(*axis.options, axis.name, type=WORDS, metavar="LIST", help=axis.help, shell_complete=complete)


def setting_options(*names: str, **usual: str) -> Callable[[F], F]:
    """Return the options of settings by their names; `usual` has defaults of this command, for the help."""
    from mldyno.settings import SETTINGS

    return all_of(*(_setting_option(SETTINGS[name], usual.get(name, SETTINGS[name].usual)) for name in names))


def _setting_option(setting: Setting, usual: str) -> Callable[[F], F]:
    from mldyno import settings

    name = f"--{setting.keyword.replace('_', '-')}"
    text = f"{setting.help[:-1]} ({usual})." if usual else setting.help
    if setting.read is settings.flag:
        return click.option(name, setting.keyword, is_flag=True, default=None, help=text)
    kind: click.ParamType[Any] = Parsed(setting.metavar.lower(), setting.parse)
    if setting.read is settings.whole_number:
        kind = click.IntRange(1, setting.most)
    elif setting.values:
        kind = click.Choice(setting.values)
    elif setting.read is settings.checks:
        kind = WORDS
    return click.option(name, setting.keyword, type=kind, metavar=setting.metavar or None, help=text)


verbosity_options = all_of(
    click.option("-q", "--quiet", "verbosity", flag_value="quiet", help="Print nothing while it runs."),
    click.option("-v", "--verbose", "verbosity", flag_value="verbose", help="Print details of each case as it ends."),
)
run_options = all_of(
    verbosity_options,
    click.option("--resume", is_flag=True, help="Resume the last run that did not finish; run only what is missing."),
    click.option("--dry-run", is_flag=True, help="Show the cases, their time and memory, what can't fit; run nothing."),
)


def complete_targets(ctx: click.Context, param: click.Parameter, start: str) -> list[Any]:
    """Complete workloads and suites, or else files."""
    return _starting_with(start, [*plugins.names("workloads"), *suites.names()])


def complete_stored(ctx: click.Context, param: click.Parameter, start: str) -> list[Any]:
    """Complete workloads and machines, also those in the store, or else files; never fail."""
    from mldyno.store.selection import THIS_MACHINE

    names = [*plugins.names("workloads"), THIS_MACHINE]
    with suppress(Exception):  # the store can't be read now
        from mldyno.store import Store

        store = Store(ctx.params.get("store"), patience=0.0, repair=False)
        names += [*store.workloads_as_typed(), *store.machines()]
    return _starting_with(start, list(dict.fromkeys(names)))


def _starting_with(start: str, names: list[str]) -> list[Any]:
    """Return the names that begin with `start`, quoted for the shell; omit those that can't be typed."""
    from click.shell_completion import CompletionItem

    possible = [name for name in names if name.isprintable() and name.casefold().startswith(start.casefold())]
    if not possible:
        return [CompletionItem(start, type="file")]
    if os.environ.get("_MLDYNO_COMPLETE", "").startswith("bash"):  # other shells quote what they insert
        possible = [re.sub(r"([^\w@%+=:,./-])", r"\\\1", name) for name in possible]
    return [CompletionItem(name) for name in possible]
