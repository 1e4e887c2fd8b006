"""What a plan will take, before it runs: time and memory of each case, as last time or foreseen.

What has been measured here is known. Of the rest a worker can foresee the memory, from a step that
allocates nothing, and the time, from the case's operations and the device's rate in plain products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mldyno import machine as machines
from mldyno import plugins
from mldyno.plan import Plan
from mldyno.records import Case, Record
from mldyno.runner.groups import groups
from mldyno.runner.worker_process import Ended, WorkerProcess, reserve
from mldyno.store import Query, Store

GUESSED_START = 8.0  # s to start a framework and build a case, where nothing is known
GUESSED_MEASURING = 0.7  # of the budget, that a case takes where nothing is known
MEETING_SHARE = 0.4  # of the budget, that meetings take for each case, where nothing is known
FEWEST_STEPS = 3.5  # that a case takes at least: first, second, measured, and the proofs
RATE_SHARE = 0.5  # of the rate in plain products, that a model is guessed to reach
PATIENCE = 60.0  # s for one case to be foreseen


@dataclass(frozen=True)
class Forecast:
    """What a case is expected to take: s and B, whether that is known from before, and whether it fits."""

    case: Case
    seconds: float
    known: bool = False
    memory: int | None = None
    fits: bool | None = None
    """None where nothing is known of its memory."""
    note: str = ""


@dataclass
class Past:
    """What the last run of a case took here, for each of its rounds."""

    run: str
    spent: float = 0.0
    rounds: int = 1
    peak: int | None = None
    status: str = ""

    def add(self, record: Record) -> None:
        """A record of that run."""
        self.spent += float(record.facts.get("wall_time") or 0)
        self.rounds = max(self.rounds, record.run.round + 1)
        if record.alone:
            peaks = record.values("peak_device_memory", "process") or record.values("peak_memory", "process")
            self.peak, self.status = (round(max(peaks)) if peaks else self.peak), record.status


def forecast(
    plan: Plan, store: Store, python: str | None = None, tell: Callable[[int, int], None] = lambda done, total: None
) -> list[Forecast]:
    """The expected time and memory of each case; with an interpreter, what is not known is foreseen by a worker.

    `tell` hears how many cases have been looked into, of how many.
    """
    here = machines.describe().name
    past: dict[str, Past] = {}
    for workload in dict.fromkeys(case.workload for case in plan.cases):
        query = Query({"workload": workload, "machine": here}, provenances=("measured",))
        past |= _last_runs(store.stream(query))
    unknown = [case for case in plan.cases if case.id not in past or past[case.id].peak is None]
    foreseen = _foresee(unknown, python, tell) if python else {}
    met = {case for group in groups(plan.cases, plan.by) if len(group) > 1 for case in group}
    return [_of_case(plan, case, past.get(case.id), foreseen.get(case, {}), case in met) for case in plan.cases]


def _last_runs(records: Iterable[Record]) -> dict[str, Past]:
    found: dict[str, Past] = {}
    for record in records:
        name = record.case.id
        if name not in found or found[name].run != record.run.id:
            found[name] = Past(record.run.id)
        found[name].add(record)
    return found


def _of_case(plan: Plan, case: Case, past: Past | None, seen: dict[str, Any], met: bool) -> Forecast:
    known = past is not None and plan.steps is None
    if past is not None and known:
        seconds = past.spent / past.rounds
    else:
        seconds = _guess(plan, case, seen.get("rate"), met)
    memory = past.peak if past is not None and past.peak else seen.get("memory")
    expected = Forecast(case, plan.repeats * seconds, known, memory)
    if past is not None and past.status == "oom":
        return replace(expected, fits=False, note="ran out of memory last time")
    room = _room(case, seen)
    if memory is None or room is None:
        return expected
    return replace(expected, fits=memory <= room, note="" if memory <= room else "won't fit")


def _guess(plan: Plan, case: Case, rate: float | None, met: bool) -> float:
    if case.framework == "fake":
        return 0.5
    measuring = (GUESSED_MEASURING + (MEETING_SHARE if met else 0.0)) * plan.budget
    if rate and case.framework != "command":
        step = plugins.workload(case.workload).flops(case) / (RATE_SHARE * rate)
        measuring = max(measuring, FEWEST_STEPS * step) if plan.steps is None else (2 + plan.steps) * step
    return GUESSED_START + measuring


def _room(case: Case, seen: dict[str, Any]) -> int | None:
    """Memory in B that a case may take: of its device, or on the CPU what the machine has left."""
    if case.device != "cpu":
        return seen.get("device_memory")
    left = machines.available_memory()
    return None if left is None else left - reserve()


def _foresee(cases: Sequence[Case], python: str, tell: Callable[[int, int], None]) -> dict[Case, dict[str, Any]]:
    """What workers foresee, one for each framework; a case that can't be foreseen has no entry."""
    found: dict[Case, dict[str, Any]] = {}
    for framework in dict.fromkeys(case.framework for case in cases):
        if framework not in plugins.names("frameworks") or framework == "command":
            continue
        worker: WorkerProcess | None = None
        for case in (case for case in cases if case.framework == framework):
            if worker is None:
                worker = WorkerProcess(python, lambda: None)
                worker.start()
            try:
                limit = worker.spent + PATIENCE
                found[case] = worker.ask({"do": "foresee", "case": asdict(case)}, limit, lambda step: None)
            except Ended:
                worker.kill()
                worker = None
            tell(cases.index(case) + 1, len(cases))
        if worker is not None:
            worker.kill()
    return found
