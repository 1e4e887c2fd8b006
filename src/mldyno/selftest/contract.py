"""The contract of a device, as the parent sees it: a worker carries out the tasks, and may not survive one of them.

All tasks run in one process, in the order in which they are listed. Where it ends before its time, or says nothing for
minutes, the task that it was at gets that as its result, and a new process goes on with the next one. So it does where
a task has left the process with a device that computes no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mldyno.axes import PRECISIONS
from mldyno.messages import RunTask
from mldyno.selftest.device import TRIALS, Heard
from mldyno.worker.client import Ended, WorkerProcess

Tick = Callable[[], None]
CASES = tuple(f"case {precision}" for precision in PRECISIONS)
BEFORE_CASES = ("device", "memory", "overflow", "work", "wait")
TASKS = (*BEFORE_CASES, *CASES, *(task for task in TRIALS if task not in BEFORE_CASES))
MODULE = "mldyno.selftest.device"
SILENCE_TIMEOUT_S = 180.0  # without a word, after which a device counts as hung


class Contract:
    """The tasks on one device; a result is waited for when it is asked for."""

    def __init__(self, framework: str, device: str, comparisons: int, tasks: Sequence[str] = TASKS) -> None:
        self._framework, self._device, self._comparisons = framework, device, comparisons
        self._left = list(tasks)
        self._heard: dict[str, Heard] = {}
        self._worker: WorkerProcess | None = None

    def of(self, task: str, tick: Tick) -> Heard:
        """What came of a task; those before it are carried out first. `tick` hears of every word on the way to it."""
        while task not in self._heard:
            following = self._left.pop(0)
            self._heard[following] = self._carry_out(following, tick)
            if not self._left:
                self.end()
        return self._heard[task]

    def _carry_out(self, task: str, tick: Tick) -> Heard:
        heard = Heard()

        def hear(row: dict[str, Any]) -> None:
            heard.rows.append(row)
            tick()

        name, _, detail = task.partition(" ")
        arguments = {"device": self._device, "comparisons": self._comparisons, "detail": detail}
        tick()
        try:
            if self._worker is None:
                self._worker = WorkerProcess()
                self._worker.start()
            command = RunTask(MODULE, name, self._framework, arguments)
            fit = self._worker.request(command, SILENCE_TIMEOUT_S, hear, reset_timeout=True).fit
        except Ended as end:
            fit, heard.trouble = end.fit, f"{end.status}: {end.reason}"
            if end.status == "timeout":
                heard.trouble = f"it said nothing for {SILENCE_TIMEOUT_S:.0f} s"
        if not fit:
            self.end()
        tick()
        return heard

    def end(self) -> None:
        """End the process, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
