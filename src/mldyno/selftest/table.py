"""The self-test as a whole: its measures, their order, and the effort that each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mldyno.axes import FAKE
from mldyno.errors import MldynoError
from mldyno.messages import RunTask
from mldyno.selftest import device, on_machine, on_series
from mldyno.selftest.measures import Measure, Row
from mldyno.selftest.setup import TaskResult
from mldyno.worker.client import Ended, WorkerProcess

SEED = 20240229
ON_ANY_MACHINE = (1, 2, 3, 5, 6, 8, 9, 10, 12, 13)  # ids that `mldyno selftest` prints; the rest is for development
ON_A_DEVICE = tuple(range(21, 38))  # ids on a device other than the CPU
MODULE = "mldyno.selftest.on_machine"
MOST_PER_PROCESS = 20  # comparisons: where its memory lies, a process may favour one side in all of them
COMPARISON_S, START_S = 0.9, 3.0  # time of a comparison, and of starting a process with its framework
LATE_CHANGE_CASES = 40
CONTRACT_MODULE = "mldyno.selftest.device"
TASKS = tuple(task for _, _, tasks in device.EXERCISES for task in tasks)
SILENCE_TIMEOUT_S = 180.0  # without a row, after which a device counts as hung
Tick = Callable[[], None]
Judge = Callable[[Sequence[Row]], Iterable[Measure]]


def carry_out(worker: WorkerProcess, command: RunTask, rows: list[Row], tick: Tick) -> bool:
    """Append the rows of a task as they come, and call `tick` after each; return whether the worker is still fit."""

    def append(row: Row) -> None:
        rows.append(row)
        tick()

    return worker.request(command, SILENCE_TIMEOUT_S, append, reset_timeout=True).fit


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

    If that ends early, or sends nothing for minutes, this is the outcome of the task, and a new process goes on with
    the next one; so it does after a task that has left the device unusable.
    """

    def __init__(self, framework: str, device: str, comparisons: int, tasks: Sequence[str] = TASKS) -> None:
        self._framework, self._device, self._comparisons = framework, device, comparisons
        self._left = list(tasks)
        self._results: dict[str, TaskResult] = {}
        self._worker = WorkerProcess()

    def result(self, task: str, tick: Tick) -> TaskResult:
        """Return the rows of a task, after carrying out those before it; call `tick` after each row on the way."""
        while task not in self._results:
            following = self._left.pop(0)
            self._results[following] = self._carry_out(following, tick)
            if not self._left:
                self._worker.kill()
        return self._results[task]

    def _carry_out(self, task: str, tick: Tick) -> TaskResult:
        result = TaskResult()
        name, _, detail = task.partition(" ")
        arguments = {"device": self._device, "comparisons": self._comparisons, "detail": detail}
        tick()
        try:
            if not self._worker.running:
                self._worker.start()
            fit = carry_out(self._worker, RunTask(CONTRACT_MODULE, name, self._framework, arguments), result.rows, tick)
        except Ended as end:
            fit, result.failure = end.fit, f"{end.status}: {end.reason}"
            if end.status == "timeout":
                result.failure = f"no answer for {SILENCE_TIMEOUT_S:.0f} s"
        if not fit:
            self._worker.kill()
        tick()
        return result

    def end(self) -> None:
        self._worker.kill()


@dataclass(frozen=True)
class Effort:
    """How many comparisons, simulated series of each kind, fresh processes (of `seconds`), and pairs of loops."""

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


def on_a_device(contract: Contract, comparisons: int, name: str) -> list[Exercise]:
    """Return the exercises of the contract of a device, in the order in which its process carries them out."""

    def exercise(title: str, seconds: float, tasks: tuple[str, ...]) -> Exercise:
        def run(tick: Tick) -> list[Measure]:
            results = {task: contract.result(task, tick) for task in tasks}
            if tasks == device.CASES:
                return device.measure_cases(results, name)
            return sorted((device.measure(task, results[task], name) for task in tasks), key=lambda measure: measure.id)

        return Exercise(title, device.ids(tasks), seconds * (comparisons if tasks == ("identical",) else 1), run)

    return [exercise(*row) for row in device.EXERCISES]


def run(
    effort: Effort, framework: str, ids: tuple[int, ...], progress: Callable[[str, float], None], name: str = "cpu"
) -> Iterator[Measure]:
    """Yield the measures with these ids, on a device; call `progress` with the exercise and the time left in s."""
    comparisons = max(1, effort.comparisons // CONTRACT_DIVISOR)
    contract = Contract(framework, name, comparisons)
    every = on_any_machine(effort, framework) if name == "cpu" else on_a_device(contract, comparisons, name)
    todo = [exercise for exercise in every if set(exercise.ids) & set(ids)]
    try:
        for number, exercise in enumerate(todo):
            left = sum(later.seconds for later in todo[number:])
            tell = partial(progress, exercise.name, left)
            tell()
            for measure in exercise.run(tell):
                if measure.id in ids:
                    yield measure
    finally:
        contract.end()
