"""Outcomes of this machine beside published ones of the same work: one table, and what there is to share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import Table, lay_out, varying
from mldyno.records import Case

WORK = ("workload", "mode", "precision", "batch", "seq", "placement", "ranks")
FEW = 6  # columns that still stand side by side
NAMED = 5  # cases that are named before the rest is only counted


def _work(outcome: Outcome) -> tuple[Any, ...]:
    return tuple(getattr(outcome.case, name) for name in WORK)


def same_work(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Pairs of a published outcome and one of ours that came out well and did the same work."""
    good = [one for one in theirs if one.status == "ok"]
    return [(there, here) for here in ours if here.status == "ok" for there in good if _work(here) == _work(there)]


def place(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Table | None:
    """The time of a step of all work that both sides have; None where they share none.

    Machines are the rows where few cases are shared, and the columns where there are many.
    """
    known = [one for one in theirs if one.status != "ok" or one.figure("step") is not None]
    shared = {_work(one) for one in ours} & {_work(one) for one in known}
    among = [one for one in (*known, *ours) if _work(one) in shared]
    if not among:
        return None
    cases = ["workload", "mode", *(name for name in ("batch", "seq", "placement") if name in varying(among))]
    machines = ["machine", "device"]
    rows, cols = (machines, cases) if len(shared) <= FEW else (cases, machines)
    return lay_out(among, rows, cols, "step")


def nothing_shared(ours: str, theirs: Sequence[Outcome], catalogue: Collection[str]) -> str:
    """Why a published machine can't be compared with `ours`: which cases it has, and how to measure one of them."""
    name = theirs[0].machine
    timed = [one.case for one in theirs if one.figure("step") is not None]
    if not timed:
        metrics = sorted({series.metric for one in theirs for record in one.records for series in record.series})
        look = f'mldyno table "{name}" --value {metrics[0]}' if metrics else f'mldyno show "{name}"'
        return f"no published figure of {name} is the time of a step; see what there is with: {look}"
    several = list(dict.fromkeys(case.id for case in timed))
    more = f" and {len(several) - NAMED} more" if len(several) > NAMED else ""
    told = f"'{ours}' has no case that {name} has: {', '.join(several[:NAMED])}{more}"
    runnable = [case for case in timed if case.workload in catalogue]
    if not runnable:
        return f"{told}; none of these can be run yet."
    easiest = min(runnable, key=lambda case: case.device != "cpu")  # the first on the CPU, if any
    return f"{told}; measure one here with: {command_for(easiest)}"


def command_for(case: Case) -> str:
    """The command that measures a case; on all devices where it ran on an accelerator, which has other names here."""
    usual = {"precision": "fp32", "ranks": 1}
    words = [
        f"--{name} {getattr(case, name)}" for name in WORK[1:] if getattr(case, name) not in (None, usual.get(name))
    ]
    return " ".join(["mldyno run", case.workload, *words, *([] if case.device == "cpu" else ["--device all"])])
