"""Progress on standard error: a line that is updated in place on a terminal, plain lines elsewhere.

rich chooses the colours, and omits them where NO_COLOR is set.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mldyno.analysis.estimates import step_time
from mldyno.cli.options import print_data, say
from mldyno.cli.output import new_bar, on_terminal
from mldyno.plan import Plan
from mldyno.records import Case, Pairing, Record
from mldyno.runner.events import Listener
from mldyno.runner.forecast import Forecast, TimeLeft
from mldyno.runner.pairing import cannot_work
from mldyno.runner.probing import Attempt
from mldyno.units import show_bytes, show_error, show_seconds
from mldyno.views.records import details, headline, how_paired
from mldyno.views.titles import case_name, case_title, work_title

REDRAW_INTERVAL_S = 0.5
NARROW_WINDOW = 60  # columns


def narrow(bar: Any) -> bool:
    """Return whether the window has room only for what matters most."""
    return bool(bar.console.width < NARROW_WINDOW)


def time_left(seconds: float, about: str = "about ") -> str:
    """Return how much time is left: about 12 s left."""
    return f"{about}{show_seconds(max(1.0, seconds))} left"


# -- runs ------------------------------------------------------------------------------------------


def listener_for(verbosity: str | None, as_json: bool = False) -> Listener:
    """Return the listener for where the output goes and the verbosity: quiet, verbose or None."""
    if as_json or verbosity == "quiet" or not on_terminal():
        return PlainLines(verbosity, as_json)
    return LiveLine(verbosity)


def repeat_of(plan: Plan, number: int) -> str:
    """Return the number of a repeat from the second on: repeat 2 of 3; repeat 2 if the run chooses how many."""
    return f"repeat {number + 1}{f' of {plan.most}' if plan.most == plan.fewest else ''}" if number else ""


class PlainLines(Listener):
    """One line a case, on standard error; with `as_json`, each record on standard output too."""

    left: TimeLeft

    def __init__(self, verbosity: str | None = None, as_json: bool = False) -> None:
        self.verbosity, self.as_json = verbosity, as_json
        self.printed: set[str] = set()
        self.todo: set[str] = set()
        self.records: dict[str, list[Record]] = {}  # of each case so far

    def say(self, line: str) -> None:
        if self.verbosity != "quiet":
            say(line)

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]], forecasts: Sequence[Forecast]) -> None:
        self.todo = {case.id for case, _ in todo}
        self.left = TimeLeft(plan, forecasts)
        self.left.begin(todo)

    def fetching(self, what: str, done: int, total: int | None) -> None:
        self._once(f"data set: {what}")

    def case_started(self, case: Case, number: int) -> None:
        self.left.advance_to(case, number)

    def pairing_started(self, cases: Sequence[Case], number: int, pairing: Pairing) -> None:
        self.left.advance_to(cases[0], number, pairing=True)
        names = ", ".join(map(case_name, cases))
        self._once(f"{len(cases)} cases head-to-head, {how_paired(cases[0], pairing)}: {names}")

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        self.left.note_step(case, step)

    def waiting(self, case: Case, reason: str) -> None:
        self.say(f"{case_name(case)}: {reason}")

    def _once(self, line: str, key: str = "") -> None:
        """Print a line unless it, or one with the same key, was printed before."""
        if (key or line) not in self.printed:
            self.printed.add(key or line)
            self.say(line)

    def case_ended(self, record: Record) -> None:
        if self.as_json:
            print_data(record.text)
        if not record.alone and record.status == "ok":
            return
        records = self.records.setdefault(record.case.id, [])
        records.append(record)
        verbose = self.verbosity == "verbose"
        if cannot_work(record):  # other cases may lack the same, and the table names all of them
            self._once(f"{case_name(record.case)}: {headline(*records)}", record.reason)
        elif verbose or record.status != "ok" or self._is_news(record, len(records)):
            self.say(f"{case_name(record.case)}: {headline(*records)}{self._standing(record.run.repeat)}")
        for line in details(record) if verbose and record.alone else ():
            self.say(f"  {line}")

    def _is_news(self, record: Record, processes: int) -> bool:
        """Return whether a case that is ok gets a line after this process: after its first and its last."""
        return processes == 1 or record.case.id not in self.todo

    def case_settled(self, case: Case) -> None:
        self.todo.discard(case.id)
        self.left.settled(case)

    def _standing(self, number: int) -> str:
        """Return the repeat and the time left, to end a line with; empty when all is done."""
        left = time_left(self.left.seconds) if self.todo or self.left.more else ""
        parts = ", ".join(filter(None, [repeat_of(self.left.plan, number), left]))
        return f"  ({parts})" if parts else ""


class LiveLine(PlainLines):
    """One line with a bar for the run, redrawn at most twice a second, so that this process takes little CPU time.

    Cases that are ok show in this line only; all else is printed above it.
    """

    def __init__(self, verbosity: str | None = None) -> None:
        super().__init__(verbosity)
        self._drawn = 0.0
        self._bar = new_bar()
        self._task = self._bar.add_task("starting", total=1.0, detail="")
        self._all, self._devices = 0, 1
        self._repeat = ""
        self._errors: dict[str, str] = {}  # of each case's step time so far

    def say(self, line: str) -> None:
        self._bar.say(line)

    def _is_news(self, record: Record, processes: int) -> bool:
        return False

    def _standing(self, number: int) -> str:
        return ""

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]], forecasts: Sequence[Forecast]) -> None:
        super().begin(plan, todo, forecasts)
        self._all, self._devices = len(self.todo), len({case.device for case in plan.cases})
        self._bar.start()

    def fetching(self, what: str, done: int, total: int | None) -> None:
        if total is None:
            super().fetching(what, done, total)
        if self._due():
            self._bar.start()
            of_all = f" of {show_bytes(total)}" if total else ""
            share = min(1.0, done / total) if total else 0.0
            self._bar.update(self._task, description=what, completed=share, detail=f"{show_bytes(done)}{of_all}")
            self._bar.refresh()

    def case_ended(self, record: Record) -> None:
        super().case_ended(record)
        known = step_time([each for each in self.records.get(record.case.id, ()) if each.status == "ok"])
        self._errors[record.case.id] = "" if known is None else show_error(known.value, known.half_width)

    def case_started(self, case: Case, number: int) -> None:
        super().case_started(case, number)
        self._repeat = f", {repeat_of(self.left.plan, number)}" if number else ""
        self._draw(self._name(case), "setting up", force=True)

    def _name(self, case: Case) -> str:
        """Return the title of a case; with its device if the run has several."""
        return f"{case_title(case)}, {case.device}" if self._devices > 1 else case_title(case)

    def pairing_started(self, cases: Sequence[Case], number: int, pairing: Pairing) -> None:
        self.left.advance_to(cases[0], number, pairing=True)
        self._draw(f"{len(cases)} head-to-head: {work_title(cases[0])}", "setting up", force=True)

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        super().progress(case, step, half_width, elapsed)
        self._draw(self._name(case), f"{show_seconds(step)}{self._errors.get(case.id, '')}")

    def _due(self, force: bool = False) -> bool:
        now = time.monotonic()
        if now - self._drawn < REDRAW_INTERVAL_S and not force:
            return False
        self._drawn = now
        return True

    def _draw(self, name: str, detail: str, force: bool = False) -> None:
        if not self._due(force):
            return
        done = self._all - len(self.todo)
        if narrow(self._bar):
            place, shown = f"{done} of {self._all}: {name}", time_left(self.left.seconds, about="")
        else:
            place = f"{done} of {self._all}{self._repeat}: {name}"
            shown = f"{detail}, {time_left(self.left.seconds)}"
        self._bar.update(self._task, description=place, completed=self.left.share, detail=shown)
        self._bar.refresh()

    def end(self) -> None:
        self._bar.stop()


# -- other long work -------------------------------------------------------------------------------


class Bar:
    """A bar on a terminal, nothing elsewhere; shown within its `with` block."""

    def __init__(self, what: str, total: float | None = 1.0) -> None:
        self._bar = new_bar() if on_terminal() else None
        self._task = self._bar.add_task(what, total=total, detail="") if self._bar else None
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> Any:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.say(line)
        else:
            say(line)

    def _draw(self, **fields: Any) -> None:
        if self._bar:
            self._bar.update(self._task, **fields)
            self._bar.refresh()


class CountedBar(Bar):
    """Shows how many things are done, and the time left."""

    def __call__(self, done: int, total: int) -> None:
        """Note that `done` of `total` are done."""
        now = time.monotonic()
        if self._bar and (now - self._drawn >= REDRAW_INTERVAL_S or done >= total):
            self._drawn = now
            left = (now - self._began) * (total - done) / max(1, done)
            about = f", {time_left(left)}" if done < total and not narrow(self._bar) else ""
            self._draw(completed=done / max(1, total), detail=f"{done:,} of {total:,}{about}")


class PartBar(Bar):
    """Shows the part in progress and the time left; without a terminal, a line for each part."""

    def __init__(self) -> None:
        super().__init__("starting")
        self._part, self._whole = "", 0.0

    def __call__(self, part: str, left: float) -> None:
        """Note the part in progress; `left` s were left when it began."""
        now = time.monotonic()
        if part != self._part:
            self._part, self._began, self._drawn = part, now, 0.0
            self._whole = max(self._whole, left)
            if not self._bar:
                say(f"{part}  ({time_left(left)})")
        if self._bar and now - self._drawn >= REDRAW_INTERVAL_S:
            self._drawn = now
            left = max(1.0, left - (now - self._began))
            share = min(0.99, 1 - left / max(self._whole, 1.0))
            self._draw(description=part, completed=share, detail=time_left(left))


class AttemptBar(Bar):
    """Prints the outcome of each batch that `max-batch` tries."""

    def __init__(self, workload: str) -> None:
        super().__init__(workload, total=None)
        self.workload = workload

    def __call__(self, mode: str, attempt: Attempt) -> None:
        """Print the outcome of an attempt."""
        outcome = f"fits, {show_bytes(attempt.peak or 0)}" if attempt.fits else f"does not fit ({attempt.reason})"
        self.say(f"{self.workload} {mode}: batch {attempt.batch:,} {outcome}")
        self._draw(detail=f"after batch {attempt.batch:,}, {mode}")
