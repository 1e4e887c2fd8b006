"""Outcomes of this machine beside published ones of the same work: one table, and what there is to share."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.rerun import command_for
from mldyno.analysis.tables import Table, lay_out, varying
from mldyno.axes import SIZES
from mldyno.store.figures import STATED_AXES

WORK = tuple(name for name in STATED_AXES if name not in ("framework", "device"))  # that a published figure states
MOST_COLUMNS = 6  # that still stand side by side
MOST_NAMED = 5  # cases, before the rest is only counted


def work(outcome: Outcome) -> tuple[Any, ...]:
    """What an outcome did, as far as published figures state it."""
    return tuple(getattr(outcome.case, name) for name in WORK)


def same_work(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Pairs of a published outcome and one of ours that succeeded and did the same work."""
    good = [outcome for outcome in theirs if outcome.status == "ok"]
    return [(there, here) for here in ours if here.status == "ok" for there in good if work(here) == work(there)]


def place(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Table | None:
    """The time of a step of all work that both sides have; None where they share none.

    Machines are the rows where few cases are shared, and the columns where there are many.
    """
    known = [outcome for outcome in theirs if outcome.status != "ok" or outcome.figure("step") is not None]
    shared = {work(outcome) for outcome in ours} & {work(outcome) for outcome in known}
    placed = [outcome for outcome in (*known, *ours) if work(outcome) in shared]
    if not placed:
        return None
    cases = ["workload", "mode", *(name for name in (*SIZES, "placement") if name in varying(placed))]
    machines = ["machine", "device"]
    rows, cols = (machines, cases) if len(shared) <= MOST_COLUMNS else (cases, machines)
    return lay_out(placed, rows, cols, "step")


def nothing_shared(ours: str, theirs: Sequence[Outcome], catalogue: Collection[str]) -> str:
    """Why a published machine can't be compared with `ours`: which cases it has, and how to measure one of them."""
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
