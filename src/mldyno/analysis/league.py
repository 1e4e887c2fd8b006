"""Rankings of machines in the same work, and tables with published figures."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from mldyno.analysis import grouped
from mldyno.analysis.comparisons import Comparison, compare
from mldyno.analysis.outcomes import Outcome, varying
from mldyno.analysis.rerun import command_for
from mldyno.analysis.tables import Table, lay_out
from mldyno.axes import SIZES
from mldyno.records import Case
from mldyno.store.figures import STATED_AXES, marks

WORK = tuple(name for name in STATED_AXES if name not in ("framework", "device"))  # that a published figure states
MOST_COLUMNS = 6  # that fit side by side
MOST_NAMED = 5  # cases, before the rest is just counted


def work(outcome: Outcome) -> tuple[Any, ...]:
    """Return the work of an outcome, by the axes that published figures state."""
    return tuple(getattr(outcome.case, name) for name in WORK)


def same_work(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Pair each published outcome with ours that succeeded in the same work."""
    good = [outcome for outcome in theirs if outcome.status == "ok"]
    return [(there, here) for here in ours if here.status == "ok" for there in good if work(here) == work(there)]


def place(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Table | None:
    """Lay out the time of a step of all work that both sides have; with machines as rows where few cases are shared."""
    rivals = [outcome for outcome in theirs if outcome.status != "ok" or outcome.step is not None]
    shared = {work(outcome) for outcome in ours} & {work(outcome) for outcome in rivals}
    placed = [outcome for outcome in (*rivals, *ours) if work(outcome) in shared]
    if not placed:
        return None
    cases = ["workload", "mode", *(name for name in (*SIZES, "placement") if name in varying(placed))]
    machines = ["machine", "device"]
    rows, cols = (machines, cases) if len(shared) <= MOST_COLUMNS else (cases, machines)
    return lay_out(placed, rows, cols, "step")


def nothing_shared(ours: str, theirs: Sequence[Outcome], catalogue: Collection[str]) -> str:
    """Say why a published machine can't be compared with `ours`, and how to measure one of its cases."""
    name = theirs[0].machine
    timed = [outcome.case for outcome in theirs if outcome.figure("step") is not None]
    if not timed:
        records = [record for outcome in theirs for record in outcome.records]
        metrics = sorted({series.metric for record in records for series in record.series})
        look = ["table", name, "--value", metrics[0]] if metrics else ["show", name]
        return f"no published figure of {name} is the time of a step; see what there is with: mldyno {shlex.join(look)}"
    ids = list(dict.fromkeys(case.id for case in timed))
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    reason = f"'{ours}' has no case that {name} has: {', '.join(ids[:MOST_NAMED])}{more}"
    runnable = [case for case in timed if case.workload in catalogue and command_for([case], elsewhere=True)]
    if not runnable:
        return f"{reason}; none of these can be run yet."
    easiest = min(runnable, key=lambda case: case.device != "cpu")  # the first on the CPU, if any
    return f"{reason}; measure one here with: {command_for([easiest], elsewhere=True)}"


@dataclass(frozen=True)
class Division:
    """All devices that did one work."""

    outcomes: tuple[Outcome, ...]  # the fastest first; those that are asked about among them
    ours: frozenset[int]  # places of those that are asked about

    @property
    def best(self) -> Outcome:
        return self.outcomes[min(self.ours)]

    @property
    def case(self) -> Case:
        return self.best.case

    @property
    def rivals(self) -> list[Comparison]:
        """The fastest of ours against each other machine, the fastest of these first; ours is `other`."""
        theirs = [outcome for place, outcome in enumerate(self.outcomes) if place not in self.ours]
        return [comparison for each in theirs if (comparison := compare(each, self.best)) is not None]


def league(ours: Sequence[Outcome], rivals: Sequence[Outcome]) -> list[Division]:
    """Return a division for each work that any of ours shares with another machine, in the order of ours.

    Figures that their authors doubt, and fake times, are in none. Nor are a user's own commands and loops: that two of
    one name do the same work is not known.
    """

    def is_ranked(outcome: Outcome) -> bool:
        record = outcome.records[0]
        return _step(outcome) > 0 and not (record.case.own_work or record.fact("fake_time") or marks(record))

    by_work = grouped(filter(is_ranked, rivals), work)
    divisions = []
    for shared, own in grouped(filter(is_ranked, ours), work).items():
        if shared in by_work:
            ranked = sorted([*own, *by_work[shared]], key=_step)
            divisions.append(Division(tuple(ranked), frozenset(map(ranked.index, own))))
    return divisions


def _step(outcome: Outcome) -> float:
    return outcome.step.value if outcome.step is not None else 0.0
