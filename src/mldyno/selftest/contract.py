"""Tasks of the self-test in workers, as the parent sees them.

A contract carries out its tasks in one process, in order. If that ends early, or sends nothing for minutes, this is the
outcome of the task, and a new process goes on with the next one; so it does after a task that has left the device
unusable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mldyno.errors import MldynoError
from mldyno.messages import RunTask
from mldyno.selftest.device import EXERCISES
from mldyno.selftest.measures import Row
from mldyno.selftest.setup import TaskResult
from mldyno.worker.client import Ended, WorkerProcess

Tick = Callable[[], None]
TASKS = tuple(task for _, _, tasks in EXERCISES for task in tasks)
MODULE = "mldyno.selftest.device"
SILENCE_TIMEOUT_S = 180.0  # without a row, after which a device counts as hung


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
    """The tasks on one device; each is carried out when its rows are needed."""

    def __init__(self, framework: str, device: str, comparisons: int, tasks: Sequence[str] = TASKS) -> None:
        self._framework, self._device, self._comparisons = framework, device, comparisons
        self._left = list(tasks)
        self._results: dict[str, TaskResult] = {}
        self._worker: WorkerProcess | None = None

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
        arguments = {"device": self._device, "comparisons": self._comparisons, "detail": detail}
        tick()
        try:
            if self._worker is None:
                self._worker = WorkerProcess()
                self._worker.start()
            fit = carry_out(self._worker, RunTask(MODULE, name, self._framework, arguments), result.rows, tick)
        except Ended as end:
            fit, result.failure = end.fit, f"{end.status}: {end.reason}"
            if end.status == "timeout":
                result.failure = f"no answer for {SILENCE_TIMEOUT_S:.0f} s"
        if not fit:
            self.end()
        tick()
        return result

    def end(self) -> None:
        """End the process, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
