"""`mldyno selftest`: the product's own error rate, on the user's own machine."""

from __future__ import annotations

import time
from typing import Any

import click

from mldyno import api
from mldyno.cli.options import json_option, print_json
from mldyno.cli.output import new_bar, on_terminal
from mldyno.cli.progress import REDRAW_INTERVAL
from mldyno.errors import NOT_ALL_OK, OK
from mldyno.units import show_seconds
from mldyno.views.measures import TITLE, measure_json, measures_table, verdict_counts


@click.command("selftest")
@click.option("--quick", is_flag=True, help="A short look, in under 90 s: fewer comparisons, wider bounds.")
@click.option("--device", default="cpu", show_default=True, help="mps, cuda:0, xpu, gpu: the contract of that device.")
@click.option("--framework", default="torch", show_default=True, help="What computes the steps that are timed.")
@click.option("--export", metavar="FILE", help="Write the result to FILE too, to be sent on: JSON, with raw values.")
@json_option
def command(quick: bool, device: str, framework: str, export: str | None, as_json: bool) -> int:
    """How often is mldyno itself wrong, on this machine? Each measure with its target and the peers' figure.

    Identical code is compared with itself, a true difference of 3 % is looked for, series whose truth
    is known are judged. Takes some minutes; leave the machine alone meanwhile, or see what load does.

    With a device other than the CPU: does what mldyno promises hold there? Known work, waiting, events,
    memory, precisions and copies are put to the test.

    \b
    Examples:
      mldyno selftest --quick
      mldyno selftest --json
      mldyno selftest --device gpu --export result.json
    """
    began = time.monotonic()
    with progress() as shown:
        measures = list(api.selftest(quick, framework, shown, device, export))
    if as_json:
        print_json({"measures": [measure_json(measure) for measure in measures]})
    else:
        click.echo(measures_table(measures, TITLE if device == "cpu" else f"what holds on {device}"))
        click.echo(f"{verdict_counts(measures)}, in {show_seconds(time.monotonic() - began)}.")
    if export is not None:
        click.echo(f"written to {export}; to pass it on, open an issue of the project and attach it", err=True)
    return NOT_ALL_OK if any(measure.ok is False for measure in measures) else OK


def progress() -> Any:
    """A bar on a terminal, a line for each part elsewhere."""
    return PartBar() if on_terminal() else PartLines()


class PartLines:
    """One line a part, on standard error."""

    def __init__(self) -> None:
        self.part = ""

    def __enter__(self) -> PartLines:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to take away."""

    def __call__(self, part: str, left: float) -> None:
        """A part goes on; so many s were left when it began."""
        if part != self.part:
            self.part = part
            click.echo(f"{part}  (about {show_seconds(max(1.0, left))} left)", err=True)


class PartBar:
    """A bar with the part and the time left."""

    def __init__(self) -> None:
        self._bar = new_bar()
        self._task = self._bar.add_task("starting", total=1.0, detail="")
        self._part, self._began, self._whole, self._drawn = "", 0.0, 0.0, 0.0

    def __enter__(self) -> PartBar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, part: str, left: float) -> None:
        """A part goes on; so many s were left when it began."""
        now = time.monotonic()
        if part != self._part:
            self._part, self._began, self._drawn = part, now, 0.0
            self._whole = max(self._whole, left)
        if now - self._drawn < REDRAW_INTERVAL:
            return
        self._drawn = now
        left = max(1.0, left - (now - self._began))
        share = min(0.99, 1 - left / max(self._whole, 1.0))
        self._bar.update(self._task, description=part, completed=share, detail=f"about {show_seconds(left)} left")
        self._bar.refresh()
