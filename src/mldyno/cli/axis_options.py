"""The options of a run: one per axis of a case, and quantities with units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mldyno import plugins
from mldyno.cli.options import Words
from mldyno.errors import MldynoError
from mldyno.records import AXES
from mldyno.units import parse_duration, parse_fraction

F = TypeVar("F", bound=Callable[..., Any])


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A number with a unit, read by the product's own parser."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The value in its SI unit."""
        try:
            return value if isinstance(value, float) else self.parse(str(value))
        except MldynoError as error:
            self.fail(str(error), param, ctx)


DURATION = Quantity("duration", parse_duration)
FRACTION = Quantity("fraction", parse_fraction)


def axis_options(command: F) -> F:
    """One option per axis of a case, each a comma list that multiplies."""
    for axis in reversed([axis for axis in AXES if axis.name != "workload"]):
        names = [f"--{axis.name}", *(f"--{alias}" for alias in axis.aliases)]
        values = list(axis.values) or (plugins.names("frameworks") if axis.name == "framework" else [])

        def complete(ctx: click.Context, param: click.Parameter, start: str, known: list[str] = values) -> list[str]:
            before, comma, last = start.rpartition(",")
            return [before + comma + value for value in known if value.startswith(last)]

        command = click.option(
            *names, axis.name, type=Words(), metavar="LIST", help=axis.help, shell_complete=complete
        )(command)
    return command
