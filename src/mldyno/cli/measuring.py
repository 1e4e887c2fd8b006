"""What the commands that measure share: axes, how much and how long, going on, looking ahead, a run that is watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from mldyno import api, plugins
from mldyno.axes import AXES, Axis
from mldyno.cli.options import Words, print_json
from mldyno.cli.progress import CountedBar, kept_so_far, listener_for, resume_with
from mldyno.errors import OK, MldynoError
from mldyno.plan import Plan
from mldyno.runner.events import Interrupted
from mldyno.store import Store
from mldyno.suites.reader import DATA
from mldyno.units import count, parse_duration, parse_fraction, show_bytes, show_seconds
from mldyno.views.tables import aligned
from mldyno.views.titles import case_name

F = TypeVar("F", bound=Callable[..., Any])


# -- options ---------------------------------------------------------------------------------------


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


def _together(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Options as one, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def axis_options(*, without: Sequence[str] = ()) -> Callable[[F], F]:
    """An option for each axis of a case but these; each takes a comma list that multiplies."""
    return _together(*(_axis_option(axis) for axis in OPTIONS if axis.name not in without))


def _axis_option(axis: Axis) -> Callable[[F], F]:
    known = list(axis.values) or (plugins.names(axis.plugins) if axis.plugins else [])

    def complete(ctx: click.Context, param: click.Parameter, start: str) -> list[str]:
        before, comma, last = start.rpartition(",")
        return [before + comma + value for value in known if value.startswith(last)]

    return click.option(*axis.options, axis.name, type=Words(), metavar="LIST", help=axis.help, shell_complete=complete)


def axes_of(options: dict[str, Any]) -> dict[str, list[str] | None]:
    """The axes among the options of a command, which keeps the others."""
    return {name: options.pop(name) for name in (axis.name for axis in OPTIONS) if name in options}


def budget_option(usual: str) -> Callable[[F], F]:
    """How long each case is measured; so long if nothing is said."""
    text = f"Measure each case for at most so long, over all its processes ({usual})."
    return click.option("--budget", type=DURATION, metavar="TIME", help=text)


def limit_option(usual: str) -> Callable[[F], F]:
    """How long it may take in all; so long if nothing is said."""
    text = f"Begin no further case after so long in all{usual}."
    return click.option("--limit", type=DURATION, metavar="TIME", help=text)


timeout_option = click.option(
    "--timeout", type=DURATION, metavar="TIME", help="End a case that takes longer in all (15m)."
)
effort_options = _together(  # how much of each case is measured, and how long that may take
    click.option(
        "--steps", type=click.IntRange(min=1), help="Run exactly so many steps instead of stopping at the target."
    ),
    budget_option("60s"),
    click.option("--target", type=FRACTION, metavar="SHARE", help="Stop when the time is known this well (2%)."),
    click.option(
        "--repeats", type=click.IntRange(1, 1000), help="Measure each case in so many fresh processes (3 or more)."
    ),
    click.option(
        "--energy", is_flag=True, default=None, help="Measure the energy of steps too, where a sensor tells it."
    ),
    timeout_option,
    limit_option(""),
    click.option(
        "--data", type=click.Choice(DATA), help="Data set for placement loader: real, synthetic, or what there is."
    ),
)
loudness_options = _together(  # how much a run says while it goes on
    click.option("-q", "--quiet", "loudness", flag_value="quiet", help="Say nothing while it runs."),
    click.option("-v", "--verbose", "loudness", flag_value="verbose", help="Say more of each case as it ends."),
)
run_options = _together(  # and whether it goes on with an older one, or is only looked at
    loudness_options,
    click.option("--resume", is_flag=True, help="Go on with the last run that did not end; runs only what is missing."),
    click.option(
        "--dry-run", is_flag=True, help="Show the cases, their time and memory, and what can't fit; run nothing."
    ),
)


# -- runs ------------------------------------------------------------------------------------------


def watched(
    plan: Plan,
    opened: Store,
    store: str | None,
    as_json: bool = False,
    run_id: str | None = None,
    forecasts: Sequence[api.Forecast] | None = None,
    loudness: str | None = None,
) -> api.Results:
    """Run a plan, or go on with a run, before the user's eyes; whatever ends it, they learn what is kept."""
    expected = api.forecast(plan, opened) if forecasts is None else forecasts
    try:
        heard = listener_for(plan, expected, as_json, loudness or "usual")
        results = api.run_plan(plan, opened, heard, run_id, expected)
    except Interrupted as end:
        raise kept_so_far(end, store) from None
    if results.left_out:
        names = ", ".join(map(case_name, results.left_out))
        click.echo(f"left out when the limit was over: {names}; go on with: {resume_with(store)}", err=True)
    return results


def preview(plan: Plan, store: Store, as_json: bool) -> int:
    """What a plan will take, without running it."""
    with CountedBar("looking at the cases") as looked:
        forecasts = api.dry_run(plan, store, looked)
    if as_json:
        cases = [{"id": f.case.id, "seconds": f.seconds, "known": f.known, "memory": f.memory, "fits": f.fits,
                  "note": f.note} for f in forecasts]  # fmt: skip
        print_json({"cases": cases, "seconds": sum(f.seconds for f in forecasts if f.fits is not False)})
        return OK
    body = [_row(forecast) for forecast in forecasts]
    click.echo(aligned(["case", "time", "memory", ""], body, 1))
    running = [forecast for forecast in forecasts if forecast.fits is not False]
    total = show_seconds(sum(forecast.seconds for forecast in running))
    repeats = f", {plan.fewest} repeats" if plan.fewest > 1 else ""
    repeats += " or more" if plan.most > plan.fewest else ""
    left = len(forecasts) - len(running)
    without = f", without {count(left, 'case')} that can't fit" if left else ""
    click.echo(f"{count(len(plan.cases), 'case')}{repeats}, about {total} in all{without}. Nothing was run.")
    return OK


def _row(forecast: api.Forecast) -> list[str]:
    memory = "unknown" if forecast.memory is None else show_bytes(forecast.memory)
    source = "as last time" if forecast.known else "guessed" if forecast.memory is None else "estimated"
    return [case_name(forecast.case), show_seconds(forecast.seconds), memory, forecast.note or source]
