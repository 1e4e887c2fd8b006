"""Options that every reading command shares, what it prints for programs, and the words that a shell completes."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any

import click

from mldyno.cli.output import whole_lines

store_option = click.option(
    "--store", metavar="FILE", help="Store to use instead of the one in your data folder (or $MLDYNO_STORE)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
since_option = click.option(
    "--since", metavar="WHEN", help="Only what was measured since then: yesterday, 3d, 12h, 2026-11-01 (UTC)."
)

private_option = click.option("--private", is_flag=True, help="Leave command lines and paths out.")


def say(line: str) -> None:
    """A line beside the result, on standard error."""
    click.echo(line, err=True)


def print_data(text: str) -> None:
    """What a program may read: in whole lines, in a window too."""
    with whole_lines():
        click.echo(text)


def print_json(content: Any) -> None:
    """One JSON document."""
    import json

    print_data(json.dumps(content, indent=1, allow_nan=False))


class Words(click.ParamType):  # type: ignore[type-arg]
    """A comma list of words."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The words between the commas."""
        words = value if isinstance(value, list) else [word.strip() for word in str(value).split(",")]
        if not all(words):
            self.fail(f"'{value}' has an empty entry; write it as one,two.", param, ctx)
        return words


def complete_targets(ctx: click.Context, param: click.Parameter, start: str) -> list[Any]:
    """Workloads and suites that begin so, or else files."""
    from mldyno import plugins, suites

    return _beginning_so(start, [*plugins.names("workloads"), *suites.names()])


def complete_stored(ctx: click.Context, param: click.Parameter, start: str) -> list[Any]:
    """Workloads and machines that begin so, those of the store among them, or else files; never fails."""
    from mldyno import plugins
    from mldyno.selection import THIS_MACHINE

    names = [*plugins.names("workloads"), THIS_MACHINE]
    with suppress(Exception):  # a store that can't be looked into at once has nothing to offer
        from mldyno.store import Store

        store = Store.as_it_is(ctx.params.get("store"))
        names += [*store.workloads_as_typed(), *store.machines()]
    return _beginning_so(start, list(dict.fromkeys(names)))


def _beginning_so(start: str, names: list[str]) -> list[Any]:
    """The names that begin so, as the shell can take them; what can't be typed is not offered."""
    from click.shell_completion import CompletionItem

    begun = [name for name in names if name.isprintable() and name.casefold().startswith(start.casefold())]
    if not begun:
        return [CompletionItem(start, type="file")]
    if os.environ.get("_MLDYNO_COMPLETE", "").startswith("bash"):  # other shells quote what they insert
        begun = [re.sub(r"([^\w@%+=:,./-])", r"\\\1", name) for name in begun]
    return [CompletionItem(name) for name in begun]
