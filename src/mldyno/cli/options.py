"""Options that every reading command shares."""

from __future__ import annotations

from typing import Any

import click

store_option = click.option(
    "--store", metavar="FILE", help="Store to use instead of the one in your data folder (or $MLDYNO_STORE)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")

private_option = click.option("--private", is_flag=True, help="Leave command lines and paths out.")


def say(line: str) -> None:
    """A line beside the result, on standard error."""
    click.echo(line, err=True)


def print_json(content: Any) -> None:
    """One JSON document."""
    import json

    click.echo(json.dumps(content, indent=1, allow_nan=False))


class Words(click.ParamType):  # type: ignore[type-arg]
    """A comma list of words."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The words between the commas."""
        words = value if isinstance(value, list) else [word.strip() for word in str(value).split(",")]
        if not all(words):
            self.fail(f"'{value}' has an empty entry; write it as one,two.", param, ctx)
        return words


def complete_targets(ctx: click.Context, param: click.Parameter, start: str) -> list[str]:
    """Workloads and suites that begin so."""
    from mldyno import plugins, suites

    return [name for name in [*plugins.names("workloads"), *suites.names()] if name.startswith(start)]
