"""The self-test as a whole: its measures, their order, and the effort that each takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from mldyno.axes import FAKE
from mldyno.errors import MldynoError
from mldyno.messages import RunTask
from mldyno.selftest import device, on_machine, on_series
from mldyno.selftest.measures import Measure, Process, Row
from mldyno.selftest.setup import NOT_TRIED, TaskResult, plainest_case
from mldyno.values import SEED
from mldyno.worker.client import Ended, WorkerProcess

ON_ANY_MACHINE = (1, 2, 3, 5, 6, 8, 9, 10, 12, 13)  # ids that `mldyno selftest` prints; the rest is for development
ON_A_DEVICE = tuple(range(21, 38))  # ids on a device other than the CPU
MODULE = "mldyno.selftest.on_machine"
MOST_PER_PROCESS = 20  # comparisons: where its memory lies, a process may favour one side in all of them
COMPARISON_S, START_S = 0.9, 3.0  # time of a comparison, and of starting a process with its framework
LATE_CHANGE_CASES = 40
CONTRACT_MODULE = "mldyno.selftest.device"
TASKS = tuple(task for _, _, tasks in device.EXERCISES for task in tasks)
SILENCE_TIMEOUT_S = 90.0  # without a row, after which a device counts as hung
TIME_OVER = f"{NOT_TRIED}: the time was over"
Tick = Callable[[], None]
Progress = Callable[[str, float], None]  # gets the exercise, and the time left in s
Judge = Callable[[Sequence[Row]], Iterable[Measure]]


def carry_out(worker: WorkerProcess, command: RunTask, rows: list[Row], tick: Tick, until: float = math.inf) -> bool:
    """Append the rows of a task as they come, and call `tick` after each; return whether the worker is still fit.

    Raise Ended if the task is not over at `until`, a time in s of the monotonic clock.
    """

    def append(row: Row) -> None:
        rows.append(row)
        tick()
        if time.monotonic() > until:
            raise Ended("timeout", TIME_OVER)

    patience = min(SILENCE_TIMEOUT_S, until - time.monotonic())
    return worker.request(command, patience, append, reset_timeout=True).fit


def rows_of(module: str, task: str, framework: str, tick: Tick, **arguments: Any) -> list[Row]:
    """Return the rows of a task in a fresh process."""
    rows: list[Row] = []
    try:
        with WorkerProcess() as worker:
            carry_out(worker, RunTask(module, task, framework, arguments), rows, tick)
    except Ended as end:
        raise MldynoError(f"the self-test's process failed: {end.reason}") from None
    return rows


class Contract:
    """The tasks on one device; each is carried out when its rows are needed, all in one process and in order.

    If that ends early, or sends nothing for long, this is the outcome of the task, and a new process goes on with
    the next one; so it does after a task that has left the device unusable. After `until`, a time in s of the
    monotonic clock, nothing is begun.
    """

    def __init__(
        self, framework: str, device: str, comparisons: int, tasks: Sequence[str] = TASKS, until: float = math.inf
    ) -> None:
        self.framework, self.comparisons, self._until = framework, comparisons, until
        self._arguments = {"device": device, "comparisons": comparisons}
        self._left = list(tasks)
        self._results: dict[str, TaskResult] = {}
        self._worker = WorkerProcess(case=plainest_case(framework, device))
        self._process: Process | None = None
        self.processes: list[Process] = []

    def result(self, task: str, tick: Tick) -> TaskResult:
        """Return the rows of a task, after carrying out those before it; call `tick` after each row on the way."""
        while task not in self._results:
            following = self._left.pop(0)
            self._results[following] = self._carry_out(following, tick)
            if not self._left:
                self.end()
        return self._results[task]

    def _carry_out(self, task: str, tick: Tick) -> TaskResult:
        result = TaskResult()
        name, _, detail = task.partition(" ")
        command = RunTask(CONTRACT_MODULE, name, self.framework, {**self._arguments, "detail": detail})
        tick()
        if time.monotonic() >= self._until:
            return TaskResult(failure=TIME_OVER)
        try:
            if self._process is None:
                self._process = Process(self.framework)
                self.processes.append(self._process)
                self._worker.start()
            self._process.tasks.append(task)
            fit = carry_out(self._worker, command, result.rows, tick, self._until)
        except Ended as end:
            fit, result.failure = end.fit, f"{end.status}: {end.reason}"
            if end.status == "timeout":
                hung = end.silence >= SILENCE_TIMEOUT_S
                result.failure = f"no answer for {SILENCE_TIMEOUT_S:.0f} s" if hung else TIME_OVER
        if not fit:
            self.end(result.failure or "the device can't be used any more")
        tick()
        return result

    def end(self, why: str = "") -> None:
        """End its process, and keep its last words."""
        self._worker.kill()
        if self._process is not None:
            self._process.ended, self._process.printed, self._process = why, self._worker.last_words(), None


@dataclass(frozen=True)
class Effort:
    """The numbers of comparisons, simulated series of a kind, fresh processes (`seconds` each), pairs of loops."""

    comparisons: int
    series: int
    processes: int
    seconds: float
    pairs: int


QUICK = Effort(comparisons=20, series=40, processes=4, seconds=1.4, pairs=150)
FULL = Effort(comparisons=200, series=400, processes=10, seconds=1.6, pairs=500)
CLAIMS_DIVISOR = 4  # for the series of the stopping rule, which are long
CONTRACT_DIVISOR = 2  # for comparisons on a device, which take longer


@dataclass(frozen=True)
class Exercise:
    """The measures that come from the same work; `seconds` is what it takes on a slow machine."""

    name: str
    ids: tuple[int, ...]
    seconds: float
    run: Callable[[Tick], list[Measure]]


def on_any_machine(effort: Effort, framework: str) -> list[Exercise]:
    """Return the exercises of the self-test."""
    batches = [min(MOST_PER_PROCESS, effort.comparisons - n) for n in range(0, effort.comparisons, MOST_PER_PROCESS)]
    start, compare = START_S, START_S + COMPARISON_S * effort.comparisons
    same, slower = ([{"second": matmuls, "count": count} for count in batches] for matmuls in on_machine.MATMULS)

    def real(
        name: str, ids: tuple[int, ...], seconds: float, judge: Judge, task: str, calls: Sequence[dict[str, Any]],
        framework: str = framework,
    ) -> Exercise:  # fmt: skip
        def run(tick: Tick) -> list[Measure]:
            rows = [row for arguments in calls for row in rows_of(MODULE, task, framework, tick, **arguments)]
            return [*judge(rows)]

        return Exercise(name, ids, seconds, run)

    def simulated(name: str, id: int, seconds: float, measure: Callable[..., Measure], divisor: int = 1) -> Exercise:
        series = effort.series // divisor
        return Exercise(name, (id,), seconds * effort.series, lambda tick: [measure(series, SEED, tick)])

    return [
        real("harness", (1,), start + 0.05 * effort.pairs, on_machine.harness_overhead,
             "overhead", [{"pairs": effort.pairs}]),
        real("identical code", (2,), compare, on_machine.false_verdicts, "comparisons", same),
        real("a true 3 %", (3, 4), compare, on_machine.power, "comparisons", slower),
        simulated("coverage", 5, 0.02, on_series.coverage),
        real("fresh processes", (6, 7, 13), (start + effort.seconds) * effort.processes, on_machine.reproducibility,
             "estimate", effort.processes * [{"seconds": effort.seconds}]),
        real("simulated device", (8,), 2.0, on_machine.simulated_device, "simulated", [{}], FAKE),
        simulated("drift", 9, 0.03, on_series.drift_found),
        simulated("warm-up", 10, 0.04, on_series.warm_up_bias),
        real("late changes", (11,), 2.0, on_machine.late_changes_flagged,
             "late_changes", [{"cases": LATE_CHANGE_CASES}], FAKE),
        simulated("stopping", 12, 0.1, on_series.false_reached, CLAIMS_DIVISOR),
    ]  # fmt: skip


def on_a_device(contract: Contract, name: str, title: str = "") -> list[Exercise]:
    """Return the exercises of the contract of a device, in the order in which its process carries them out."""

    def exercise(part: str, seconds: float, tasks: tuple[str, ...]) -> Exercise:
        def run(tick: Tick) -> list[Measure]:
            results = {task: contract.result(task, tick) for task in tasks}
            if tasks == device.CASES:
                measures = device.measure_cases(results, name)
            else:
                measures = sorted((device.measure(task, results[task], name) for task in tasks), key=attrgetter("id"))
            return [replace(measure, framework=contract.framework) for measure in measures]

        return Exercise(f"{title}{part}", device.ids(tasks), seconds, run)

    return [exercise(*row) for row in device.exercises(contract.framework, contract.comparisons)]


def run(effort: Effort, framework: str, ids: Sequence[int], progress: Progress) -> Iterator[Measure]:
    """Yield the measures with these ids; call `progress` with the exercise and the time left in s."""
    todo = [exercise for exercise in on_any_machine(effort, framework) if set(exercise.ids) & set(ids)]
    yield from (measure for measure in _carried_out(todo, progress) if measure.id in ids)


def run_on_device(
    effort: Effort, frameworks: Sequence[str], name: str, seconds: float, progress: Progress, processes: list[Process]
) -> Iterator[Measure]:
    """Yield the measures of a device with each framework within that many s; append the processes that they took.

    Each framework has an equal part of the time, and what earlier ones have left of theirs.
    """
    began, share, todo = time.monotonic(), seconds / len(frameworks), list[Exercise]()
    contracts = [
        Contract(each, name, device.comparisons_within(share, each, effort.comparisons // CONTRACT_DIVISOR),
                 until=began + share * number)
        for number, each in enumerate(frameworks, 1)
    ]  # fmt: skip
    for contract in contracts:
        todo += on_a_device(contract, name, f"{contract.framework}: " if len(contracts) > 1 else "")
    try:
        yield from _carried_out(todo, progress)
    finally:
        for contract in contracts:
            contract.end()
            processes += contract.processes


def _carried_out(todo: Sequence[Exercise], progress: Progress) -> Iterator[Measure]:
    for number, exercise in enumerate(todo):
        tick = partial(progress, exercise.name, sum(later.seconds for later in todo[number:]))
        tick()
        yield from exercise.run(tick)
