"""Figure 11: how long `mldyno quick` takes, and whether the time left that a run shows is right."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.cli.progress import PlainLines
from mldyno.records import Case, Pairing, Record
from mldyno.store.selection import opened

WHOLE = 180.0  # s
RIGHT = (2 / 3, 4 / 3)  # the time left that is shown, over what it really was
SHARES = (0.0, 0.25, 0.5, 0.75)  # of the run, at which that is looked at
SHORT = 10.0  # s: with less than this left, nobody plans by it


class Logged(PlainLines):
    """Notes at every event how much time had passed, and how much was shown to be left."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[float, float]] = []

    def say(self, line: str) -> None:
        """The bench says what it has to say."""

    def note(self) -> None:
        """What is shown now."""
        self.points.append((self.left.elapsed, self.left.seconds))

    def case_started(self, case: Case, number: int) -> None:
        """A case begins."""
        super().case_started(case, number)
        self.note()

    def pairing_started(self, cases: Sequence[Case], number: int, pairing: Pairing) -> None:
        """A paired comparison begins."""
        super().pairing_started(cases, number, pairing)
        self.note()

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """Within a case."""
        super().progress(case, step, half_width, elapsed)
        self.note()

    def case_ended(self, record: Record) -> None:
        """A case has ended."""
        super().case_ended(record)
        self.note()


def measure(work: Work) -> Chapter:
    """One run of quick on a machine that has never run it, and what its bar would have shown."""
    chapter = Chapter("11. `mldyno quick`: its time, and the time left that it shows")
    began = time.monotonic()
    store = opened(str(work.folder / "watched.sqlite"))
    chosen = api.quick_plan(
        {"budget": 0.5, "repeats": 1} if work.quick else None, "fake" if work.quick else "torch", store
    )
    listener = Logged()
    set_up = time.monotonic() - began
    say(f"  {len(chosen.plan.cases)} cases, set up in {set_up:.1f} s")
    results = api.run_plan(chosen.plan, store, listener, forecasts=chosen.forecasts)
    whole = time.monotonic() - began
    total = listener.left.elapsed
    cases = f"{len(results.records)} cases"
    chapter.figures.append(Figure("whole time", whole, "s", WHOLE, f"wall time of {cases}, set-up included"))
    how = "time left that is shown, over the time until the end of the run"
    for share in SHARES:
        at, shown = max((point for point in listener.points if point[0] <= share * total), default=listener.points[0])
        chapter.figures.append(_figure(f"at {share:.0%} of the run", shown / (total - at), how))
    far = [(at, shown / (total - at)) for at, shown in listener.points if total - at >= SHORT] or [(0.0, 1.0)]
    within = sum(end - start for (start, ratio), (end, _) in pairwise([*far, (total - SHORT, 0.0)]) if _right(ratio))
    chapter.figures.append(
        Figure("time for which it is right within a third", 100 * within / max(0.01, total - SHORT), "%", None,
               f"of the run up to its last {SHORT:.0f} s, by {len(far)} notes", least=90.0)
    )  # fmt: skip
    told = ", ".join(
        f"{at:.0f} s: {shown:.0f} s ({total - at:.0f} s)" for at, shown in listener.points[:: _every(listener)]
    )
    chapter.notes += [
        f"Set-up (devices, rates in plain products, choice of cases): {set_up:.1f} s. Foreseen for the run: "
        f"{sum(one.seconds for one in chosen.forecasts):.0f} s; it took {total:.0f} s.",
        f"Passed, shown as left, and really left in brackets: {told}.",
        *(f"{note[0].upper()}{note[1:]}." for note in chosen.notes),
    ]
    return chapter


def _right(ratio: float) -> bool:
    return RIGHT[0] <= ratio <= RIGHT[1]


def _every(listener: Logged) -> int:
    """So that some ten notes are told."""
    return max(1, len(listener.points) // 10)


def _figure(name: str, ratio: float, how: str) -> Figure:
    return Figure(name, ratio, "×", round(RIGHT[1], 2), how, least=round(RIGHT[0], 2))
