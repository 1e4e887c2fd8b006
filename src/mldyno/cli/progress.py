"""Progress on standard error: a line that is updated in place on a terminal, plain lines elsewhere.

rich chooses the colours, and omits them where NO_COLOR is set.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mldyno.analysis.estimates import step_time
from mldyno.cli.output import new_bar, on_terminal, print_data, say
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


def time_left(seconds: float) -> str:
    """Return how much time is left: about 12 s left."""
    return f"about {show_seconds(max(1.0, seconds))} left"


class Bar:
    """A bar on a terminal, redrawn at most twice a second so that this process takes little CPU time; else nothing."""

    def __init__(self, what: str, total: float | None = 1.0) -> None:
        self._bar = new_bar() if on_terminal() else None
        self._task = self._bar.add_task(what, total=total, detail="") if self._bar else None
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        if self._bar:
            self._bar.start()

    def stop(self) -> None:
        if self._bar:
            self._bar.stop()

    @property
    def narrow(self) -> bool:
        """Return whether the window has room only for what matters most."""
        return bool(self._bar and self._bar.console.width < NARROW_WINDOW)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.say(line)
        else:
            say(line)

    def draw(self, now: float, force: bool = False, **fields: Any) -> None:
        """Redraw with new fields, unless it was redrawn just before."""
        if self._bar and (force or now - self._drawn >= REDRAW_INTERVAL_S):
            self._drawn = now
            self._bar.update(self._task, **fields)
            self._bar.refresh()


class CountedBar(Bar):
    """Shows how many things are done, and the time left."""

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        left = (now - self._began) * (total - done) / max(1, done)
        about = f", {time_left(left)}" if done < total and not self.narrow else ""
        self.draw(now, done >= total, completed=done / max(1, total), detail=f"{done:,} of {total:,}{about}")


class PartBar(Bar):
    """Shows the part in progress and the time left; without a terminal, a line for each part."""

    def __init__(self) -> None:
        super().__init__("starting")
        self._part, self._whole = "", 0.0

    def __call__(self, part: str, left: float) -> None:
        """Note the part in progress; `left` s were left when it began."""
        now, new = time.monotonic(), part != self._part
        if new:
            self._part, self._began = part, now
            self._whole = max(self._whole, left)
            if not self._bar:
                say(f"{part}  ({time_left(left)})")
        left = max(1.0, left - (now - self._began))
        share = min(0.99, 1 - left / max(self._whole, 1.0))
        self.draw(now, new, description=part, completed=share, detail=time_left(left))


class AttemptBar(Bar):
    """Prints the outcome of each batch that `max-batch` tries."""

    def __init__(self, workload: str) -> None:
        super().__init__(workload, total=None)
        self.workload = workload

    def __call__(self, mode: str, attempt: Attempt) -> None:
        outcome = f"fits, {show_bytes(attempt.peak or 0)}" if attempt.fits else f"does not fit ({attempt.reason})"
        self.say(f"{self.workload} {mode}: batch {attempt.batch:,} {outcome}")
        self.draw(time.monotonic(), force=True, detail=f"after batch {attempt.batch:,}, {mode}")


def listener_for(verbosity: str | None, as_json: bool = False) -> Listener:
    """Return the listener for where the output goes and the verbosity: quiet, verbose or None."""
    plain = as_json or verbosity == "quiet" or not on_terminal()
    return PlainLines(verbosity, as_json) if plain else LiveLine(verbosity)


def repeat_of(plan: Plan, number: int) -> str:
    """Return the number of a repeat from the second on: repeat 2 of 3; repeat 2 if the run chooses how many."""
    if not number:
        return ""
    return f"repeat {number + 1}" + (f" of {plan.most_repeats}" if plan.most_repeats == plan.fewest_repeats else "")


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
            self.say(f"{case_name(record.case)}: {headline(*records)}{self._line_end(record.run.repeat)}")
        for line in details(record) if verbose and record.alone else ():
            self.say(f"  {line}")

    def _is_news(self, record: Record, processes: int) -> bool:
        """Return whether a case that is ok gets a line after this process: after its first and its last."""
        return processes == 1 or record.case.id not in self.todo

    def case_settled(self, case: Case) -> None:
        self.todo.discard(case.id)
        self.left.settled(case)

    def _line_end(self, number: int) -> str:
        """Return the repeat and the time left, to end a line with; empty when all is done."""
        left = time_left(self.left.seconds) if self.todo or self.left.has_next else ""
        parts = ", ".join(filter(None, [repeat_of(self.left.plan, number), left]))
        return f"  ({parts})" if parts else ""


class LiveLine(PlainLines):
    """One line with a bar for the run; cases that are ok show in it only, all else is printed above it."""

    def __init__(self, verbosity: str | None = None) -> None:
        super().__init__(verbosity)
        self._bar = Bar("starting")
        self._cases, self._devices, self._repeat = 0, 1, ""
        self._errors: dict[str, str] = {}  # of each case's step time so far

    def say(self, line: str) -> None:
        self._bar.say(line)

    def _is_news(self, record: Record, processes: int) -> bool:
        return False

    def _line_end(self, number: int) -> str:
        return ""

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]], forecasts: Sequence[Forecast]) -> None:
        super().begin(plan, todo, forecasts)
        self._cases, self._devices = len(self.todo), len({case.device for case in plan.cases})
        self._bar.start()

    def fetching(self, what: str, done: int, total: int | None) -> None:
        if total is None:
            super().fetching(what, done, total)
        self._bar.start()
        of_all = f" of {show_bytes(total)}" if total else ""
        share = min(1.0, done / total) if total else 0.0
        self._bar.draw(time.monotonic(), description=what, completed=share, detail=f"{show_bytes(done)}{of_all}")

    def case_ended(self, record: Record) -> None:
        super().case_ended(record)
        known = step_time([each for each in self.records.get(record.case.id, ()) if each.status == "ok"])
        self._errors[record.case.id] = "" if known is None else show_error(known.value, known.half_width)

    def case_started(self, case: Case, number: int) -> None:
        super().case_started(case, number)
        self._repeat = f", {repeat_of(self.left.plan, number)}" if number else ""
        self._draw(self._name(case), "setting up", force=True)

    def _name(self, case: Case) -> str:
        return f"{case_title(case)}, {case.device}" if self._devices > 1 else case_title(case)

    def pairing_started(self, cases: Sequence[Case], number: int, pairing: Pairing) -> None:
        self.left.advance_to(cases[0], number, pairing=True)
        self._draw(f"{len(cases)} head-to-head: {work_title(cases[0])}", "setting up", force=True)

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        super().progress(case, step, half_width, elapsed)
        self._draw(self._name(case), f"{show_seconds(step)}{self._errors.get(case.id, '')}")

    def _draw(self, name: str, detail: str, force: bool = False) -> None:
        place, left = f"{self._cases - len(self.todo)} of {self._cases}", time_left(self.left.seconds)
        if self._bar.narrow:
            detail = left.removeprefix("about ")
        else:
            place, detail = f"{place}{self._repeat}", f"{detail}, {left}"
        description, share = f"{place}: {name}", self.left.share
        self._bar.draw(time.monotonic(), force, description=description, completed=share, detail=detail)

    def end(self) -> None:
        self._bar.stop()
