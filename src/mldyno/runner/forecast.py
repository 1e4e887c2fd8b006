"""What a plan will take, before it runs: time and memory of each case, as last time or foreseen.

What has been measured here is known: what it took beside the measuring, and how long that went on. Of the
rest a worker can foresee the memory, from a step that allocates nothing, and the time, from the case's
operations and the device's rate in plain products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mldyno import machine as machines
from mldyno import plugins
from mldyno.plan import Plan
from mldyno.records import Case, Record
from mldyno.runner.case_run import WARMUP_LEAST, WARMUP_SHARE
from mldyno.runner.groups import groups
from mldyno.runner.pairing import SHARE
from mldyno.runner.rates import Rates
from mldyno.runner.worker_process import Ended, WorkerProcess, reserve
from mldyno.store import Query, Store

GUESSED_START = 2.0  # s until a framework is imported, where nothing is known
LOADED = 2.0  # times that, for all that is loaded until the last proof: optimisers and counters come later
CHECKS = 2.0  # s for peaks and proofs
CHECKED_STEPS = {"train": 4.0, "infer": 1.5}  # steps that proofs take
FAKE_CASE = 0.15  # s of the fake framework, in which no time passes
MEASURING = 0.9  # of what a case or a paired comparison may take, where nothing is known
FEWEST_STEPS = 3.0  # that a case takes at least: first, second, measured
FEWEST_PAIRED = 4.0  # and that it takes in a paired comparison
RATE_SHARE = 0.8  # of the rate in plain products, that a model is guessed to reach
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
    pairing: float = 0.0
    """What of its time goes into paired comparisons."""


@dataclass
class Past:
    """What the last run of a case took here, alone and in paired comparisons, and what of that was measuring; in s."""

    run: str
    alone: float = 0.0
    alone_measured: float = 0.0
    paired: float = 0.0
    paired_measured: float = 0.0
    rounds: int = 1
    peak: int | None = None
    status: str = ""
    unsure: bool = False
    """Whether its budget was over before it was known well enough."""

    def add(self, record: Record) -> None:
        """A record of that run."""
        spent = float(record.facts.get("wall_time") or 0)
        counted = [one for one in record.series if one.metric == "step_time" and one.stage in ("steady", "paired")]
        measured = 0.0 if record.facts.get("fake_time") else sum(one.block * sum(one.values) for one in counted)
        self.rounds = max(self.rounds, record.run.repeat + 1)
        if not record.alone:
            self.paired += spent
            self.paired_measured += min(measured, spent)
        else:
            self.alone += spent
            self.alone_measured += min(measured, spent)
            self.unsure |= any(warning.code == "target-not-reached" for warning in record.warnings)
            peaks = record.values("peak_device_memory", "process") or record.values("peak_memory", "process")
            self.peak, self.status = (round(max(peaks)) if peaks else self.peak), record.status


def forecast(
    plan: Plan,
    store: Store,
    python: str | None = None,
    tell: Callable[[int, int], None] = lambda done, total: None,
    rates: Rates | None = None,
) -> list[Forecast]:
    """The expected time and memory of each case; with an interpreter, what is not known is foreseen by a worker.

    `tell` hears how many cases have been looked into, of how many. With `rates`, only time is foreseen, from them.
    """
    here = machines.describe().name
    past: dict[str, Past] = {}
    for workload in dict.fromkeys(case.workload for case in plan.cases):
        query = Query({"workload": workload, "machine": here}, provenances=("measured",))
        past |= _last_runs(store.stream(query))
    unknown = [case for case in plan.cases if case.id not in past or past[case.id].peak is None]
    foreseen: Mapping[Case, dict[str, Any]] = _foresee(unknown, python, tell) if python else {}
    if rates is not None:
        foreseen = {case: {"rate": rates.of(case), "start": rates.start} for case in unknown}
    pairing = {case: len(group) for group in groups(plan.cases, plan.by) for case in group}
    return [_of_case(plan, case, past.get(case.id), foreseen.get(case, {}), pairing[case]) for case in plan.cases]


def _last_runs(records: Iterable[Record]) -> dict[str, Past]:
    found: dict[str, Past] = {}
    for record in records:
        name = record.case.id
        if name not in found or found[name].run != record.run.id:
            found[name] = Past(record.run.id)
        found[name].add(record)
    return found


def _of_case(plan: Plan, case: Case, past: Past | None, seen: dict[str, Any], pairing: int) -> Forecast:
    known = past is not None and plan.steps is None
    if past is not None and known:
        alone, paired = _as_last_time(plan, past, pairing)
    else:
        alone, paired = _guess(plan, case, seen, pairing)
    memory = past.peak if past is not None and past.peak else seen.get("memory")
    expected = Forecast(case, plan.repeats * (alone + paired), known, memory, pairing=plan.repeats * paired)
    if past is not None and past.status == "oom":
        return replace(expected, fits=False, note="ran out of memory last time")
    room = _room(case, seen)
    if memory is None or room is None:
        return expected
    return replace(expected, fits=memory <= room, note="" if memory <= room else "won't fit")


def _as_last_time(plan: Plan, past: Past, pairing: int) -> tuple[float, float]:
    """Time in s of a round, alone and met: measuring goes on as long as last time, or as the budget lets it."""
    measured, paired = past.alone_measured / past.rounds, past.paired_measured / past.rounds
    alone = past.alone / past.rounds - measured + (plan.budget if past.unsure else min(measured, plan.budget))
    if pairing == 1:
        return alone, 0.0
    return alone, past.paired / past.rounds - paired + min(paired, SHARE * plan.budget)


def _guess(plan: Plan, case: Case, seen: dict[str, Any], pairing: int) -> tuple[float, float]:
    """Time in s of a round, alone and met, of a case that was never measured here."""
    if case.framework == "fake":
        return FAKE_CASE, 0.0 if pairing == 1 else FAKE_CASE
    start = LOADED * (seen.get("start") or GUESSED_START)
    step = 0.0
    if seen.get("rate") and case.framework != "command":
        step = plugins.workload(case.workload).flops(case) / (RATE_SHARE * seen["rate"])
    warm = MEASURING * max(WARMUP_LEAST, WARMUP_SHARE * plan.budget)
    measuring = max(warm + MEASURING * plan.budget, FEWEST_STEPS * step)
    if plan.steps is not None and step:
        measuring = (2 + plan.steps) * step
    alone = start + measuring + CHECKS + CHECKED_STEPS.get(str(case.mode), 0.0) * step
    paired = start / pairing + max(warm + MEASURING * SHARE * plan.budget, FEWEST_PAIRED * step)
    return alone, 0.0 if pairing == 1 else paired


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
