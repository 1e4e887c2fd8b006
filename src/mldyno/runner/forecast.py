"""Forecast what a plan takes, before it runs: time and memory of each case, as last time or estimated.

The last run here shows how long a case was measured, and what it took besides. For other cases a worker estimates the
memory, from a step that allocates nothing, and the time, from the case's operations and the device's matmul rate.

A run is a sequence of parts that is known before it begins: in each repeat, for each group of comparable cases, every
case alone and then their paired comparison. The time left follows from the present part; how long the parts before
really took corrects the rest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mldyno import datasets, plugins, sources
from mldyno import machine as machines
from mldyno.analysis import grouped
from mldyno.messages import CaseForecasted, ForecastCase
from mldyno.plan import Plan
from mldyno.records import Case, Record
from mldyno.runner.pairing import (
    FEWEST_ROUNDS,
    LIVE_TURN_S,
    groups,
    load_before,
    longest_warm_up,
    measured,
    nearest,
    paired_budget,
    pairings,
    pairs_per_repeat,
    shortest_budget,
)
from mldyno.runner.probing import Rates
from mldyno.runner.remote_case import check_steps
from mldyno.store import Query, Store
from mldyno.worker.client import Ended, WorkerProcess
from mldyno.worker.process_tree import reserve

GUESSED_START_S = 2.0  # until a framework is imported, where that is unknown
LOADED = 2.0  # times that, for all that is loaded until the last check: optimisers and counters come later
EXPECTED_CHECKS_S = 2.0  # for peaks and checks, without their steps
WORKER_S = 0.15  # to start and to end a worker that imports no framework
MEASURING_SHARE = 0.9  # of what a case or a paired comparison may take, where nothing is known
UNMEASURED_STEPS = 2.0  # that a case takes at least: the first and the second
ENERGY_S = 10.0  # that a process needs for its energy, at rest and at work, where a sensor measures it
SHORT_WARMUP_S = 1.0  # that most cases take to be steady, where nothing is known
FEWEST_TURNS = 3.0  # runs of each interleaved command: the first, and two that count
FEWEST_PAIRED_STEPS = 4.0  # and that it takes in a paired comparison
RATE_SHARE = 0.8  # of the rate in matmuls, that a model is guessed to reach
LOADED_BYTES_PER_S = 3e6  # of a data set, that an end-to-end training is guessed to work through
FORECAST_TIMEOUT_S = 60.0  # for one case
PRIOR_S = 10.0  # of the run, after which the pace so far counts more than the forecast
Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Forecast:
    """The expected time in s and memory in B of a case, whether earlier runs show them, and whether it fits."""

    case: Case
    seconds: float
    known: bool = False
    memory: int | None = None
    fits: bool | None = None  # None where nothing is known of its memory
    note: str = ""
    pairing: float = 0.0  # what of its time goes into paired comparisons, in s
    processes: int = 1  # in which it is expected to be measured alone
    repeats: int = 1  # in which it is compared

    @property
    def least(self) -> float:
        """Time in s until it has been measured and compared once."""
        return (self.seconds - self.pairing) / self.processes + self.pairing / self.repeats


UNKNOWN = CaseForecasted(None, None, None)


@dataclass
class Spent:
    """Time in s of some processes of a case: in all, and within measured blocks."""

    seconds: float = 0.0
    measured: float = 0.0
    processes: int = 0

    def per_process(self, longest: float) -> tuple[float, float]:
        """Return the time in s to start a process, and to measure it for at most `longest` s."""
        measuring = self.measured / self.processes
        return self.seconds / self.processes - measuring, min(measuring, longest)


@dataclass
class Past:
    """The last run of a case here: the time it took alone and in paired comparisons, its peak in B, its status."""

    run: str = ""
    alone: Spent = field(default_factory=Spent)
    paired: Spent = field(default_factory=Spent)
    peak: int | None = None
    status: str = ""

    def add(self, record: Record) -> None:
        wall_time, spent = record.fact("wall_time") or 0.0, self.alone if record.alone else self.paired
        spent.seconds += wall_time
        spent.measured += 0.0 if record.fact("fake_time") else min(wall_time, measured(record))
        spent.processes += 1
        if record.alone:
            peaks = record.values("peak_device_memory", "process") or record.values("peak_memory", "process")
            self.peak, self.status = (round(max(peaks)) if peaks else self.peak), record.status


NEVER = Past()


def forecast(plan: Plan, store: Store, tell: Tell | None = None, rates: Rates | None = None) -> list[Forecast]:
    """Return the expected time and memory of each case; with `tell`, a worker estimates what is not known.

    `tell` gets the number of cases that were estimated, and of all. With `rates`, only time is estimated, from them.
    """
    here, past = store.name_of(machines.describe()), dict[str, Past]()
    for workload in dict.fromkeys(case.workload for case in plan.cases):
        for record in store.stream(Query({"workload": workload, "machine": here}, provenances=("measured",))):
            if past.get(record.case.id, NEVER).run != record.run.id:
                past[record.case.id] = Past(record.run.id)
            past[record.case.id].add(record)
    unknown = [case for case in plan.cases if past.get(case.id, NEVER).peak is None]
    estimates = _estimates(unknown, tell) if tell else {}
    if rates is not None:
        estimates = {case: CaseForecasted(None, rates.of(case), None) for case in unknown}
    start = GUESSED_START_S if rates is None else rates.start
    compared: dict[Case, list[list[Case]]] = {case: [] for case in plan.cases}
    if not plan.commands:  # they are compared by the runs that their times come from
        for part in (part for group in groups(plan.cases, plan.by) for part in pairings(group)):
            for case in part:
                compared[case].append(part)
    return [
        _of_case(plan, case, past.get(case.id, NEVER), estimates.get(case, UNKNOWN), start, compared[case])
        for case in plan.cases
    ]


def _of_case(
    plan: Plan, case: Case, past: Past, estimate: CaseForecasted, start: float, compared: Sequence[Sequence[Case]]
) -> Forecast:
    """Forecast a case; `compared` are the groups in which it is compared, itself among them."""
    known, step = past.alone.processes > 0 and plan.steps is None, _step(plan, case, estimate.rate)
    if known:
        starting, measuring = past.alone.per_process(plan.budget / plan.fewest_repeats)
    else:
        starting, measuring = _guess(plan, case, step, start)
    processes = plan.fewest_repeats
    if measuring and not plan.head_to_head:  # as many as the budget allows
        more = (plan.budget - plan.fewest_repeats * measuring) / max(0.01, starting + measuring)
        processes = max(plan.fewest_repeats, min(plan.most_repeats, plan.fewest_repeats + math.floor(more)))
    if plan.fewest_repeats <= past.alone.processes < processes:
        processes = past.alone.processes
    memory = past.peak or estimate.memory
    paired = plan.fewest_repeats * sum(_pairing_time(plan, case, past, step, start, cases) for cases in compared)
    seconds = processes * (starting + measuring) + paired
    expected = Forecast(case, seconds, known, memory, pairing=paired, processes=processes, repeats=plan.fewest_repeats)
    if past.status == "oom":
        return replace(expected, fits=False, note="ran out of memory last time")
    available = machines.available_memory() if case.device == "cpu" else None
    room = estimate.device_memory if case.device != "cpu" else available and available - reserve()
    if memory is None or room is None:
        return expected
    return replace(expected, fits=memory <= room, note="" if memory <= room else "won't fit")


def _guess(plan: Plan, case: Case, step: float, start: float) -> tuple[float, float]:
    """Return the time in s to start and to measure a process of a case that was never measured here."""
    if case.framework == "fake":
        return WORKER_S, 0.0
    warm = MEASURING_SHARE * longest_warm_up(plan)
    measuring = max(MEASURING_SHARE * shortest_budget(plan), step)
    if plan.steps is not None and step:
        measuring = plan.steps * step
    starting = _loading(case, start) + max(min(warm, SHORT_WARMUP_S), UNMEASURED_STEPS * step)
    if case.framework != "command":
        starting += EXPECTED_CHECKS_S + check_steps(case) * step
    if plan.energy:
        starting += min(ENERGY_S, plan.budget / plan.fewest_repeats)
    return starting + load_before(plan, case), measuring


def _pairing_time(plan: Plan, case: Case, past: Past, step: float, start: float, cases: Sequence[Case]) -> float:
    """Return the time in s to compare a case with these in a repeat: as last time, or guessed."""
    pairing = nearest(cases)
    pairs = pairs_per_repeat(pairing, plan.fewest_repeats)
    longest = paired_budget(plan, pairs)
    if past.paired.processes:
        return pairs * sum(past.paired.per_process(longest))
    loading = _loading(case, start) / (len(cases) if pairing == "interleaved" else 1)
    if case.framework == "fake":
        return pairs * loading
    if pairing == "live-processes":
        longest = min(longest, FEWEST_ROUNDS * max(LIVE_TURN_S, step))
    warm = min(longest_warm_up(plan), SHORT_WARMUP_S)
    return pairs * (loading + max(MEASURING_SHARE * (warm + longest), FEWEST_PAIRED_STEPS * step))


def _loading(case: Case, start: float) -> float:
    """Return the time in s until a worker can begin with a case, from the time that its framework takes to start."""
    return WORKER_S if case.framework in ("fake", "command") else LOADED * start


def _step(plan: Plan, case: Case, rate: float | None) -> float:
    """Return the time in s of a step, by the device's rate, or by the data set that it reads; 0 where unknown."""
    if case.framework != "command":
        return plugins.workload(case.workload).flops(case) / (RATE_SHARE * rate) if rate else 0.0
    workload = None if plan.commands else plugins.workload(case.workload)
    if workload is None or workload.end_to_end is None or workload.data is None:
        return 0.0
    return workload.end_to_end.epochs * sum(datasets.find(workload.data).files.values()) / LOADED_BYTES_PER_S


def _estimates(cases: Sequence[Case], tell: Tell) -> Mapping[Case, CaseForecasted]:
    """Ask workers about cases, one for those that can share it; a case that they can't estimate has no entry."""
    estimates: dict[Case, CaseForecasted] = {}
    for (framework, _), group in grouped(cases, lambda case: (case.framework, case.python)).items():
        if framework not in plugins.names("frameworks") or framework == "command":
            continue
        worker = WorkerProcess()
        for case in group:
            try:
                if not worker.running:
                    worker = WorkerProcess(case=replace(case, ranks=1, parallel=None, nodes=1))  # it can estimate all
                    worker.start()
                estimates[case] = worker.request(ForecastCase(case, sources.known(case.workload)), FORECAST_TIMEOUT_S)
            except Ended:
                worker.kill()
            tell(cases.index(case) + 1, len(cases))
        worker.kill()
    return estimates


@dataclass(frozen=True)
class RunPart:
    """A case alone in a repeat, or the paired comparison of a group."""

    repeat: int
    pairing: bool
    seconds: float
    steps: Mapping[str, float]  # the fewest steps that it takes of each case, by its id


class TimeLeft:
    """The progress of a run, and the time that is left; all times in s.

    A long step makes the parts of its case longer at once: the first step of a command, or of a large model, may take
    longer than the whole run was expected to take.
    """

    def __init__(self, plan: Plan, forecasts: Sequence[Forecast], clock: Callable[[], float] = time.monotonic) -> None:
        self.plan, self._clock = plan, clock
        self._expected = {expected.case.id: expected for expected in forecasts}
        self._parts: list[RunPart] = []
        self._step_times: dict[str, float] = {}
        self._at = 0
        self._began = self._since = clock()

    def begin(self, todo: Sequence[tuple[Case, int]]) -> None:
        """Begin the run, with these cases and repeats to do."""
        due, grouped_cases = {(case.id, repeat) for case, repeat in todo}, groups(self.plan.cases, self.plan.by)
        self._parts = [
            part
            for repeat in range(self.plan.most_repeats)
            for group in grouped_cases
            for part in self._of_group(group, [case for case in group if (case.id, repeat) in due], repeat)
        ]
        self._at, self._began = 0, self._clock()
        self._since = self._began

    def _of_group(self, group: Sequence[Case], due: Sequence[Case], repeat: int) -> list[RunPart]:
        plan, expected = self.plan, [self._expected[case.id] for case in due if case.id in self._expected]
        compared = repeat < plan.fewest_repeats
        if len(plan.commands) > 1 and expected and compared:  # their comparison measures each of them alone, too
            seconds = sum(each.seconds for each in expected) / plan.fewest_repeats
            fewest = FEWEST_TURNS + (plan.steps or 0)
            return [RunPart(repeat, True, seconds, {case.id: fewest if case in due else 0.0 for case in group})]
        alone = [
            RunPart(repeat, False, (each.seconds - each.pairing) / each.processes,
                    {each.case.id: UNMEASURED_STEPS + (plan.steps or 1) + check_steps(each.case)})
            for each in expected if repeat < each.processes
        ]  # fmt: skip
        seconds = sum(each.pairing for each in expected) / plan.fewest_repeats if compared else 0.0
        if not seconds:
            return alone
        fewest = FEWEST_PAIRED_STEPS * pairs_per_repeat(nearest(due), plan.fewest_repeats)
        return [*alone, RunPart(repeat, True, seconds, {case.id: fewest if case in due else 0.0 for case in group})]

    def note_step(self, case: Case, step: float) -> None:
        """Note the present time of a case's step; fake time costs none."""
        if case.framework != "fake":
            self._step_times[case.id] = step

    def _seconds(self, parts: Iterable[RunPart]) -> float:
        """Return the forecast time of parts, not corrected by the pace of those that are over."""
        return sum(
            max(part.seconds, sum(steps * self._step_times.get(name, 0.0) for name, steps in part.steps.items()))
            for part in parts
        )

    def settled(self, case: Case) -> None:
        """Drop a case that needs no more processes."""
        after = self._at + 1
        self._parts[after:] = [part for part in self._parts[after:] if part.pairing or case.id not in part.steps]

    def advance_to(self, case: Case, repeat: int, pairing: bool = False) -> None:
        """Note that a case, or the paired comparison of its group, begins now; all parts before it are over."""
        for place, part in enumerate(self._parts[self._at :], self._at):
            if (part.repeat, part.pairing) == (repeat, pairing) and case.id in part.steps:
                if place > self._at:
                    self._at, self._since = place, self._clock()
                return

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    @property
    def has_next(self) -> bool:
        """True if another part follows the present one."""
        return self._at + 1 < len(self._parts)

    @property
    def pace(self) -> float:
        """Time of the parts that are over, relative to their estimate."""
        before = self._seconds(self._parts[: self._at])
        return (self._since - self._began + PRIOR_S) / (before + PRIOR_S)

    @property
    def seconds(self) -> float:
        """Time until the end of the run."""
        present, after = self._parts[self._at : self._at + 1], self._parts[self._at + 1 :]
        left = max(0.0, self.pace * self._seconds(present) - (self._clock() - self._since))
        left += self.pace * self._seconds(after)
        if self.plan.limit is not None:
            left = min(left, max(0.0, self.plan.limit - self.elapsed))
        return left

    @property
    def share(self) -> float:
        """Share of the run that is over, at most 0.99."""
        return min(0.99, self.elapsed / max(0.01, self.elapsed + self.seconds))
