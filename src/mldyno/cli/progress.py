"""How a run shows itself: on a terminal one line that changes, else plain lines.

Colours are rich's, which omits them where NO_COLOR is set.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from mldyno.analysis.estimates import step_time
from mldyno.cli.options import print_data
from mldyno.cli.output import new_bar, on_terminal
from mldyno.plan import Plan
from mldyno.records import Case, Pairing, Record
from mldyno.runner.events import Interrupted, Listener
from mldyno.runner.forecast import Forecast, TimeLeft
from mldyno.runner.pairing import cannot_work
from mldyno.units import show_bytes, show_error, show_seconds
from mldyno.views.records import details, headline, how_paired
from mldyno.views.titles import case_name, case_title, work_title

REDRAW_INTERVAL = 0.5  # s
NARROW_WINDOW = 60  # columns


def narrow(bar: Any) -> bool:
    """Whether the window has room only for what matters most."""
    return bool(bar.console.width < NARROW_WINDOW)


class CountedBar:
    """A bar for so many things done of so many, with the time left; nothing where there is no terminal."""

    def __init__(self, what: str) -> None:
        self._bar = new_bar() if on_terminal() else None
        self._task = self._bar.add_task(what, total=1.0, detail="") if self._bar else None
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> CountedBar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        """A line that stays above the bar."""
        if self._bar:
            self._bar.say(line)
        else:
            click.echo(line, err=True)

    def __call__(self, done: int, total: int) -> None:
        """So many are done."""
        now = time.monotonic()
        if self._bar and (now - self._drawn >= REDRAW_INTERVAL or done >= total):
            self._drawn = now
            left = (now - self._began) * (total - done) / max(1, done)
            about = f", about {show_seconds(max(1.0, left))} left" if done < total and not narrow(self._bar) else ""
            self._bar.update(self._task, completed=done / max(1, total), detail=f"{done:,} of {total:,}{about}")
            self._bar.refresh()


def pairing_line(cases: Sequence[Case], pairing: Pairing) -> str:
    """Which cases are measured head-to-head, and how."""
    return f"{len(cases)} cases head-to-head, {how_paired(cases[0], pairing)}: {', '.join(map(case_name, cases))}"


def repeat_of(plan: Plan, number: int) -> str:
    """Which repeat it is, where there was one before: repeat 2 of 3; repeat 2 where the run chooses how many."""
    return f"repeat {number + 1}{f' of {plan.most}' if plan.most == plan.fewest else ''}" if number else ""


class PlainLines(Listener):
    """One line a case, on standard error, for pipes and logs; more of each, if asked for."""

    def __init__(self, left: TimeLeft, verbose: bool) -> None:
        self.left, self.verbose = left, verbose
        self.said: set[str] = set()
        self.todo: set[str] = set()
        self.so_far: dict[str, list[Record]] = {}

    def say(self, line: str) -> None:
        """A line that stays."""
        click.echo(line, err=True)

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]]) -> None:
        """Know what is to do."""
        self.todo = {case.id for case, _ in todo}
        self.left.begin(todo)

    def fetching(self, what: str, done: int, total: int | None) -> None:
        """Say once what is being fetched."""
        self._once(f"data set: {what}")

    def case_started(self, case: Case, number: int) -> None:
        """Note where the run stands."""
        self.left.reached(case, number)

    def pairing_started(self, cases: Sequence[Case], number: int, pairing: Pairing) -> None:
        """Say which cases are measured head-to-head, once for all their paired comparisons in a repeat."""
        self.left.reached(cases[0], number, pairing=True)
        self._once(pairing_line(cases, pairing))

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """Note how long a step takes, from which the time left is learnt."""
        self.left.saw(case, step)

    def waiting(self, case: Case, reason: str) -> None:
        """Say why nothing goes on."""
        self.say(f"{case_name(case)}: {reason}")

    def _once(self, line: str, key: str = "") -> None:
        """Say a line unless it, or another one with its key, was said before."""
        if (key or line) not in self.said:
            self.said.add(key or line)
            self.say(line)

    def case_ended(self, record: Record) -> None:
        """Say what came of its first process, of its last one and of those that failed, and how long the rest takes."""
        if record.alone or record.status != "ok":
            so_far = self.so_far.setdefault(record.case.id, [])
            so_far.append(record)
            if cannot_work(record):  # other cases may lack the same, and the table names all of them
                self._once(f"{case_name(record.case)}: {headline(*so_far)}", record.reason)
            elif self.verbose or record.status != "ok" or self._tells(record, len(so_far)):
                self.say(f"{case_name(record.case)}: {headline(*so_far)}{self._beside(record.run.repeat)}")
            for line in details(record) if self.verbose and record.alone else ():
                self.say(f"  {line}")

    def _tells(self, record: Record, processes: int) -> bool:
        """Whether a case that came out well is worth a line after so many processes."""
        return processes == 1 or record.case.id not in self.todo

    def case_settled(self, case: Case) -> None:
        """Know that nothing is left to do for it."""
        self.todo.discard(case.id)
        self.left.settled(case)

    def _beside(self, number: int) -> str:
        """To stand behind a line: which repeat it was, and how long the rest takes; nothing when all is done."""
        left = f"about {show_seconds(max(1.0, self.left.seconds))} left" if self.todo or self.left.more else ""
        parts = ", ".join(filter(None, [repeat_of(self.left.plan, number), left]))
        return f"  ({parts})" if parts else ""


class Line(PlainLines):
    """One line with a bar for the run, redrawn at most twice a second: the parent hardly runs."""

    def __init__(self, left: TimeLeft, verbose: bool) -> None:
        super().__init__(left, verbose)
        self._drawn = 0.0
        self._bar = new_bar()
        self._task = self._bar.add_task("starting", total=1.0, detail="")
        self._all, self._devices = 0, 1
        self._repeat = ""
        self._known: dict[str, str] = {}

    def say(self, line: str) -> None:
        """A line that stays above."""
        self._bar.say(line)

    def _tells(self, record: Record, processes: int) -> bool:
        """What came out well stands in the line that changes."""
        return False

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]]) -> None:
        """Show the line."""
        super().begin(plan, todo)
        self._all, self._devices = len(self.todo), len({case.device for case in plan.cases})
        self._bar.start()

    def fetching(self, what: str, done: int, total: int | None) -> None:
        """Show how much of a data set is there; what is only to be said stays above."""
        if total is None:
            super().fetching(what, done, total)
        if self._due(False):
            self._bar.start()
            of_all = f" of {show_bytes(total)}" if total else ""
            share = min(1.0, done / total) if total else 0.0
            self._bar.update(self._task, description=what, completed=share, detail=f"{show_bytes(done)}{of_all}")
            self._bar.refresh()

    def case_ended(self, record: Record) -> None:
        """Note how well the case is known by now."""
        super().case_ended(record)
        known = step_time([each for each in self.so_far.get(record.case.id, ()) if each.status == "ok"])
        width = "" if known is None else show_error(known.value, known.half_width)
        self._known[record.case.id] = width

    def case_started(self, case: Case, number: int) -> None:
        """Name the case that is being set up."""
        super().case_started(case, number)
        self._repeat = f", {repeat_of(self.left.plan, number)}" if number else ""
        self._draw(self._name(case), "setting up", force=True)

    def _name(self, case: Case) -> str:
        """What a case is called; with its device where there are several."""
        return f"{case_title(case)}, {case.device}" if self._devices > 1 else case_title(case)

    def pairing_started(self, cases: Sequence[Case], number: int, pairing: Pairing) -> None:
        """Name the work that is done in several ways."""
        self.left.reached(cases[0], number, pairing=True)
        self._draw(f"{len(cases)} head-to-head: {work_title(cases[0])}", "setting up", force=True)

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """Show what a step takes now, and how well the case is known from its processes so far."""
        super().progress(case, step, half_width, elapsed)
        self._draw(self._name(case), f"{show_seconds(step)}{self._known.get(case.id, '')}")

    def _due(self, force: bool) -> bool:
        now = time.monotonic()
        if now - self._drawn < REDRAW_INTERVAL and not force:
            return False
        self._drawn = now
        return True

    def _draw(self, name: str, detail: str, force: bool = False) -> None:
        if not self._due(force):
            return
        done = self._all - len(self.todo)
        about = f"{'' if narrow(self._bar) else 'about '}{show_seconds(max(1.0, self.left.seconds))} left"
        place = f"{done} of {self._all}{'' if narrow(self._bar) else self._repeat}: {name}"
        shown = about if narrow(self._bar) else f"{detail}, {about}"
        self._bar.update(self._task, description=place, completed=self.left.share, detail=shown)
        self._bar.refresh()

    def _beside(self, number: int) -> str:
        """The line has it."""
        return ""

    def end(self) -> None:
        """Take the line away."""
        self._bar.stop()


class JsonLines(Listener):
    """One JSON object a line per record on standard output, beside what another listener says."""

    def __init__(self, beside: Listener) -> None:
        self._beside = beside
        self.begin, self.fetching = beside.begin, beside.fetching  # type: ignore[method-assign]
        self.case_started, self.pairing_started = beside.case_started, beside.pairing_started  # type: ignore[method-assign]
        self.case_settled, self.progress = beside.case_settled, beside.progress  # type: ignore[method-assign]
        self.waiting = beside.waiting  # type: ignore[method-assign]

    def case_ended(self, record: Record) -> None:
        """Print the record."""
        self._beside.case_ended(record)
        print_data(record.text)


def listener_for(plan: Plan, forecasts: Sequence[Forecast], as_json: bool, loudness: str) -> Listener:
    """The listener that suits where the output goes, and how much of it is wanted: quiet, usual or verbose."""
    left, verbose = TimeLeft(plan, forecasts), loudness == "verbose"
    if as_json:
        return JsonLines(Listener() if loudness == "quiet" else PlainLines(left, verbose))
    if loudness == "quiet":
        return Listener()
    return Line(left, verbose) if on_terminal() else PlainLines(left, verbose)


def kept_so_far(end: Interrupted, store: str | None) -> Interrupted:
    """The end of a run as the user reads it: nothing is lost, and how to go on."""
    return Interrupted(f"{end}; all that was measured is kept. Go on with: {resume_with(store)}")


def resume_with(store: str | None) -> str:
    """The command that goes on with a run."""
    return f"mldyno run --resume{f' --store {store}' if store else ''}"
