"""The options of a run: one per axis of a case, and quantities with units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from mldyno import plugins
from mldyno.axes import AXES, Axis
from mldyno.cli.options import Words
from mldyno.errors import MldynoError
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


OPTIONS = tuple(axis for axis in AXES if axis.name != "workload")


def axis_options(*, without: Sequence[str] = ()) -> Callable[[F], F]:
    """An option for each axis of a case but these; each takes a comma list that multiplies."""

    def add(command: F) -> F:
        for axis in reversed([axis for axis in OPTIONS if axis.name not in without]):
            command = _axis_option(axis)(command)
        return command

    return add


def _axis_option(axis: Axis) -> Callable[[F], F]:
    known = list(axis.values) or (plugins.names(axis.plugins) if axis.plugins else [])

    def complete(ctx: click.Context, param: click.Parameter, start: str) -> list[str]:
        before, comma, last = start.rpartition(",")
        return [before + comma + value for value in known if value.startswith(last)]

    words = [f"--{word}" for word in (axis.name, *axis.aliases)]
    return click.option(*words, axis.name, type=Words(), metavar="LIST", help=axis.help, shell_complete=complete)


def axes_of(options: dict[str, Any]) -> dict[str, list[str] | None]:
    """The axes among the options of a command, which keeps the others."""
    return {name: options.pop(name) for name in (axis.name for axis in OPTIONS) if name in options}
