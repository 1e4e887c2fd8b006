"""Figure 10: how long the suite apple-silicon-bert takes, over the 100 steps of each case that were published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.records import Case, Record
from mldyno.store import Query, Store
from mldyno.units import show_percent, show_seconds

SUITE = "apple-silicon-bert"
STEPS = 100  # of each case, in the published comparison


def measure(work: Work) -> Chapter:
    """Wall time of every case of the suite over that of its 100 steps."""
    records = newest_run(work.bert_store) if work.bert_store else _run(work)
    cells = outcomes(records)
    chapter = Chapter(f"10. The suite {SUITE}, over {STEPS} steps of each of its cases")
    good = [cell for cell in cells if cell.status == "ok"]
    for cell in good:
        took, steps = wall_time(cell), _steps(cell)
        how = f"{_known(cell)}; {show_seconds(took)} over {show_seconds(steps)} for {STEPS} steps"
        chapter.figures.append(Figure(_name(cell.case), took / steps, "×", None, how))
    if good:
        took, steps = sum(map(wall_time, good)), sum(map(_steps, good))
        how = f"{show_seconds(took)} over {show_seconds(steps)}"
        name = f"all {len(good)} that came out ok, of {len(cells)}"
        chapter.figures.append(Figure(name, took / steps, "×", None, how))
    chapter.notes += _notes(cells)
    return chapter


def newest_run(path: Path) -> list[Record]:
    """The records of the newest run of the suite in a store."""
    found = Store(path).select(Query(heads=False, provenances=("measured",)))
    found = [record for record in found if record.run.suite == SUITE]
    if not found:
        raise SystemExit(f"{path.name} holds no run of {SUITE}")
    newest = max(record.run.id for record in found)
    return [record for record in found if record.run.id == newest]


def _run(work: Work) -> list[Record]:
    """The suite with its own settings; a quick run rehearses it, in a fake time."""
    axes: dict[str, Any] = {"framework": "fake", "device": "cpu"} if work.quick else {}
    say(f"  running {SUITE}" + ("" if work.quick else ", which takes a while"))
    return api.run(SUITE, store=str(work.folder / "bert.sqlite"), **axes).everything


def wall_time(cell: Outcome) -> float:
    """Time in s that mldyno took for a case, with import, build, warm-up and checks."""
    return sum(float(record.facts.get("wall_time") or 0.0) for record in (*cell.records, *cell.pairings))


def _steps(cell: Outcome) -> float:
    """Time in s of the published number of steps."""
    found = cell.figure(f"time:{STEPS}steps")
    assert found is not None
    return found.value


def _known(cell: Outcome) -> str:
    """The step's time, and how well it is known."""
    step = cell.figure("step")
    assert step is not None
    exact = f"± {show_percent(step.half_width / step.value)}" if step.half_width is not None else "interval unknown"
    measured = sum(int(record.facts.get("steps") or 0) for record in cell.records)
    return f"step {show_seconds(step.value)} {exact}, of {measured} measured"


def _name(case: Case) -> str:
    return f"{case.mode}, batch {case.batch}, sequence {case.seq}, {case.device}"


def _notes(cells: Sequence[Outcome]) -> list[str]:
    """What became of the rest, and of which run this is."""
    notes = [
        f"{_name(cell.case)}: {cell.status} after {show_seconds(wall_time(cell))}; {cell.reason}."
        for cell in cells
        if cell.status != "ok"
    ]
    record = cells[0].records[0]
    return [
        *notes,
        f"Run {record.run.id}, by mldyno {record.software.mldyno} on {record.machine.name}; all its cases took"
        f" {show_seconds(sum(map(wall_time, cells)))}. Wall time is that of the worker, with import, build, warm-up and"
        " checks.",
    ]
