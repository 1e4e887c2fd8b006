"""Scores: one number each for training and inference of a device, from a frozen set of cases.

A score is 100 times the geometric mean of the speeds over fixed reference rates, which are in the suite file with
the machine that is 100. There is one only where every case of the set came out, and two versions are never mixed.
In a CSV of figures it has its own line, as if `quick` were a workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from mldyno.analysis import grouped
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import Cell, Table
from mldyno.axes import AXIS, unstated
from mldyno.records import SCHEMA, Case, Checks, Record, Run, Series, seal
from mldyno.stats.intervals import mean
from mldyno.suites.reader import Reference, read
from mldyno.units import Interval

SUITE = "quick"
REFERENCE_SCORE = 100.0


@dataclass(frozen=True, kw_only=True)
class Score(Interval):
    """100 times the speed relative to the reference, on one device in one mode."""

    outcomes: tuple[Outcome, ...]  # of the set, in its order

    @property
    def machine(self) -> str:
        return self.outcomes[0].machine

    @property
    def case(self) -> Case:
        """A case of it: its framework, device and mode are those of all."""
        return self.outcomes[0].case


@cache
def reference() -> Reference:
    """Return the rates that make 100, with the version of the set and the name of the machine."""
    known = read(SUITE).score
    assert known is not None
    return known


def version() -> str:
    """Return the suite and the version of its set, as a figure names them: quick 1."""
    return f"{SUITE} {reference().version}"


def scores(outcomes: Sequence[Outcome]) -> list[Score]:
    """Return the scores of all machines and devices that have one, training before inference; those from a CSV last."""
    ours = [each for each in outcomes if each.step is not None and each.step.value > 0 and not each.published]
    sides = grouped(ours, lambda outcome: (outcome.machine, outcome.case.framework, outcome.case.device))
    modes = grouped(reference().rates.items(), lambda entry: entry[0].mode)
    scored = (_score(side, dict(rates)) for side in sides.values() for rates in modes.values())
    stated = [(outcome.figure("score"), outcome) for outcome in outcomes if outcome.case.workload == SUITE]
    return [
        *(score for score in scored if score is not None),
        *(Score(figure.value, outcomes=(outcome,)) for figure, outcome in stated
          if figure is not None and outcome.records[0].run.suite == version()),
    ]  # fmt: skip


def figure_of(score: Score) -> Record:
    """Return a score as a record of one figure, as a CSV has it; it is never stored."""
    newest = max((outcome.records[-1] for outcome in score.outcomes), key=lambda record: record.created)
    case = replace(unstated(SUITE, score.case.framework), device=score.case.device, mode=score.case.mode)
    run = Run(f"{version()} {newest.created}", version())
    series = (Series("score", "1", (float(f"{score.value:.6g}"),)),)
    return seal(replace(
        newest, schema=SCHEMA, run=run, case=case, series=series, facts={}, checks=Checks(), warnings=()
    ))  # fmt: skip


def _score(outcomes: Sequence[Outcome], rates: Mapping[Case, float]) -> Score | None:
    """Return the score over these cases; None unless all have a time. Its ends assume that all err the same way."""
    by_case = {_anywhere(outcome.case): outcome for outcome in outcomes}
    if not by_case.keys() >= rates.keys():
        return None
    counted = tuple(by_case[case] for case in rates)
    steps = [outcome.step for outcome in counted if outcome.step is not None]
    centres = [math.log(step.value * rate) for step, rate in zip(steps, rates.values(), strict=True)]
    widths = [math.log1p(step.half_width / step.value) for step in steps if step.half_width is not None]
    width = mean(widths) if len(widths) == len(steps) else math.inf
    return Score.of_logs(math.log(REFERENCE_SCORE) - mean(centres), width, outcomes=counted)


def _anywhere(case: Case) -> Case:
    """Return a case as the set names it, whichever framework and device it ran with."""
    return replace(case, framework=AXIS["framework"].default, device=AXIS["device"].default)


def missing(outcomes: Sequence[Outcome], mode: str) -> list[Case]:
    """Return the cases of the set in one mode that none of these outcomes of one device has a time of."""
    there = {_anywhere(outcome.case) for outcome in outcomes if outcome.step is not None}
    return [case for case in reference().rates if case.mode == mode and case not in there]


def fewest_missing(sides: Iterable[Sequence[Outcome]], mode: str) -> list[Case]:
    """Return what the fullest of some sides lacks for a score; nothing where no side has any case of the set."""
    cases = min((missing(outcomes, mode) for outcomes in sides), key=len, default=[])
    return cases if len(cases) < sum(case.mode == mode for case in reference().rates) else []


def score_table(outcomes: Sequence[Outcome]) -> Table:
    """Return scores with machines and devices as rows, training and inference as columns."""
    known = scores(outcomes)
    frameworks = {score.case.framework for score in known}
    rows, cells = ("machine", "device", *(("framework",) if len(frameworks) > 1 else ())), {}
    for score in known:
        row = (score.machine, *(getattr(score.case, name) for name in rows[1:]))
        figure = Estimate.around(score.value, score.half_width, unit="1", samples=len(score.outcomes))
        cells[row, (score.case.mode,)] = Cell(score.outcomes[0], figure)
    return Table("score", rows, ("mode",), cells=cells)
