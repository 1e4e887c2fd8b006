"""How a run shows itself: a bar with case, estimate and time left on a terminal, else plain lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from mldyno.api import Forecast
from mldyno.plan import Plan
from mldyno.records import Case, Company, Record
from mldyno.runner.events import Listener
from mldyno.runner.interrupts import Interrupted
from mldyno.store.codec import encode
from mldyno.units import show_bytes, show_percent, show_seconds
from mldyno.views.words import COMPANY, headline

REDRAW = 0.5  # s


def on_terminal() -> bool:
    """Whether a bar can be drawn on standard error."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def new_bar() -> Any:
    """A bar on standard error with a description, a share and a detail; it is drawn only when told to."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[detail]}"),
        console=Console(stderr=True), auto_refresh=False, transient=True,
    )  # fmt: skip


class CountedBar:
    """A bar for so many things done of so many; nothing where there is no terminal."""

    def __init__(self, what: str) -> None:
        self._bar = new_bar() if on_terminal() else None
        self._task = self._bar.add_task(what, total=1.0, detail="") if self._bar else None

    def __enter__(self) -> CountedBar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """So many are done."""
        if self._bar:
            self._bar.update(self._task, completed=done / max(1, total), detail=f"{done} of {total}")
            self._bar.refresh()


class TimeLeft:
    """What a run still takes: the forecast, corrected by how long the ended cases really took."""

    def __init__(self, forecasts: Sequence[Forecast], repeats: int) -> None:
        self._expected = {one.case.id: one.seconds / repeats for one in forecasts}
        self._left: set[tuple[str, int]] = set()
        self._taken = self._foreseen = 0.0
        self._began = time.monotonic()

    def begin(self, todo: Sequence[tuple[Case, int]]) -> None:
        """These cases and rounds are to do."""
        self._left = {(case.id, number) for case, number in todo}
        self._began = time.monotonic()

    def ended(self, record: Record) -> None:
        """A case has ended, alone or in company."""
        self._taken += float(record.facts.get("wall_time") or 0)
        if record.alone:
            self._left.discard((record.case.id, record.run.round))
            self._foreseen += self._expected.get(record.case.id, 0.0)

    @property
    def total(self) -> float:
        """Time in s that the whole run is expected to take."""
        pace = self._taken / self._foreseen if self._foreseen else 1.0
        return self._taken + pace * sum(self._expected[case] for case, _ in self._left)

    @property
    def elapsed(self) -> float:
        """Time in s since the run began."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Time in s that is left."""
        return max(0.0, self.total - self.elapsed)

    @property
    def words(self) -> str:
        """The time left, to stand behind a line; nothing when all is done."""
        return f"  (about {show_seconds(max(1.0, self.seconds))} left)" if self._left else ""


def meeting_line(cases: Sequence[Case], company: Company) -> str:
    """Which cases are measured against each other, and how."""
    return f"{len(cases)} cases against each other, {COMPANY[company]}: {', '.join(case.id for case in cases)}"


class PlainLines(Listener):
    """One line a case, on standard error, for pipes and logs."""

    def __init__(self, left: TimeLeft) -> None:
        self.left = left
        self.told = ""

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]]) -> None:
        """Know what is to do."""
        self.left.begin(todo)

    def fetching(self, what: str, done: int, total: int | None) -> None:
        """Say once what is being fetched."""
        if (told := f"data set: {what}") != self.told:
            self.told = told
            click.echo(told, err=True)

    def meeting_started(self, cases: Sequence[Case], number: int, company: Company) -> None:
        """Say which cases are measured against each other, once for all their meetings in a round."""
        if (told := meeting_line(cases, company)) != self.told:
            self.told = told
            click.echo(told, err=True)

    def case_ended(self, record: Record) -> None:
        """Say what came of it, and how long the rest takes."""
        self.left.ended(record)
        if record.alone or record.status != "ok":
            click.echo(f"{record.case.id}: {headline(record)}{self.left.words}", err=True)


class Bar(Listener):
    """A bar that is redrawn at most twice a second, so that the parent hardly runs."""

    def __init__(self, left: TimeLeft) -> None:
        self.left = left
        self.told = ""
        self._drawn = 0.0
        self._progress = new_bar()
        self._task = self._progress.add_task("starting", total=1.0, detail="")

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]]) -> None:
        """Show the bar."""
        self.left.begin(todo)
        self._progress.start()

    def fetching(self, what: str, done: int, total: int | None) -> None:
        """Show how much of a data set is there."""
        now = time.monotonic()
        if now - self._drawn >= REDRAW:
            self._drawn = now
            self._progress.start()
            of_all = f" of {show_bytes(total)}" if total else ""
            share = min(1.0, done / total) if total else 0.0
            self._progress.update(self._task, description=what, completed=share, detail=f"{show_bytes(done)}{of_all}")
            self._progress.refresh()

    def case_started(self, case: Case, number: int) -> None:
        """Name the case that is being set up."""
        self._draw(case, "setting up", force=True)

    def meeting_started(self, cases: Sequence[Case], number: int, company: Company) -> None:
        """Leave a line above the bar, once for all meetings of these cases in a round."""
        if (told := meeting_line(cases, company)) != self.told:
            self.told = told
            self._progress.console.print(told, highlight=False, markup=False)

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """Show the present estimate."""
        width = f" ±{show_percent(half_width)}" if half_width is not None else ""
        self._draw(case, f"{show_seconds(step)} a step{width}")

    def _draw(self, case: Case, detail: str, force: bool = False) -> None:
        now = time.monotonic()
        if now - self._drawn < REDRAW and not force:
            return
        self._drawn = now
        share = min(0.99, self.left.elapsed / max(self.left.total, 0.1))
        self._progress.update(
            self._task,
            description=case.id,
            completed=share,
            detail=f"{detail}, about {show_seconds(self.left.seconds or 1)} left",
        )
        self._progress.refresh()

    def case_ended(self, record: Record) -> None:
        """Leave a line for the case above the bar."""
        self.left.ended(record)
        if record.alone or record.status != "ok":
            self._progress.console.print(f"{record.case.id}: {headline(record)}", highlight=False, markup=False)

    def end(self) -> None:
        """Take the bar away."""
        self._progress.stop()


class JsonLines(PlainLines):
    """One JSON object a line per record on standard output, and the plain lines beside it."""

    def case_ended(self, record: Record) -> None:
        """Print the record."""
        super().case_ended(record)
        click.echo(encode(record))


def listener_for(forecasts: Sequence[Forecast], repeats: int, as_json: bool) -> Listener:
    """The listener that suits where the output goes."""
    left = TimeLeft(forecasts, repeats)
    if as_json:
        return JsonLines(left)
    return Bar(left) if on_terminal() else PlainLines(left)


def kept_so_far(end: Interrupted, store: str | None) -> Interrupted:
    """The end of a run as the user reads it: nothing is lost, and how to go on."""
    named = f" --store {store}" if store else ""
    return Interrupted(f"{end}; all that was measured is kept. Go on with: mldyno run --resume{named}")
