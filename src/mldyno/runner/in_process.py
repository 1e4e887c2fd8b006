"""Any function, timed in this process as a case is in a worker's: first call apart, warm-up, blocks, stopping rule."""

from __future__ import annotations

import gc
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from mldyno import machine as machines
from mldyno.axes import unstated
from mldyno.errors import UsageError
from mldyno.records import Record, Run, Series
from mldyno.runner.case_run import WARMUP_LEAST, WARMUP_SHARE, CaseRun
from mldyno.runner.run import new_run_id
from mldyno.runner.worker_process import WorkerProcess
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, stretch
from mldyno.timing.stopping import Stopping, relative_half_width
from mldyno.timing.warmup import warm_up

FRAMEWORK = "python"  # what computes is the caller's own code


class Calls:
    """Steps that are calls of a function, and a function that waits for them."""

    def __init__(self, step: Callable[[], Any], sync: Callable[[], Any] | None) -> None:
        self.step = step
        self.synchronize: Callable[[], Any] = sync or (lambda: None)

    def run(self, steps: int) -> None:
        """Call so many times."""
        step = self.step
        for _ in range(steps):
            step()


def timed(step: Callable[[], Any], sync: Callable[[], Any] | None, name: str, target: float, budget: float) -> Record:
    """The record of a function, which is kept nowhere; an error of the function is the caller's."""
    if not callable(step) or not (sync is None or callable(sync)):
        raise UsageError("measure takes a function that does one step, and perhaps one that waits: measure(step, sync)")
    if not 0 < target < 1 or not 0 < budget < math.inf:
        raise UsageError("target is a fraction such as 0.02, budget a number of seconds over 0.")
    began, blocks = time.monotonic(), Blocks(Calls(step, sync), clock.now)
    worker = WorkerProcess(sys.executable, lambda: None)  # never started: the work is done here
    rule = Stopping(target=target, budget=budget)
    case = unstated(name, FRAMEWORK)
    one = CaseRun(case, Run(new_run_id()), worker, rule, math.inf, lambda *heard: None)
    gc.collect()
    warm = warm_up(blocks, tuple, max(WARMUP_LEAST, WARMUP_SHARE * budget), lambda values, now: None)
    one.unsteady = warm.reason if warm.steady is False else ""
    one.series += [
        Series("step_time", "s", (warm.first_step / 1e9,), stage="first"),
        Series("step_time", "s", tuple(value / 1e9 for value in warm.values), stage="warmup", block=blocks.size),
    ]
    one.facts |= {"first_step": warm.first_step / 1e9, "warmup_steady": warm.steady, "block_steps": blocks.size}
    while not one.enough:
        values, _ = stretch(blocks, rule.next_turn(one.elapsed), None, lambda values, now: sys.maxsize)
        one.take(Series("step_time", "s", tuple(values), block=blocks.size, turn=one.turns))
        one.turns += 1
        one.half_width = relative_half_width(one.values)
    worker.spent = time.monotonic() - began
    one.software = {"python": platform.python_version(), "framework": FRAMEWORK, "versions": {}, "threads": None,
                    "env": {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}}  # fmt: skip
    return one.record(machines.describe(), "ok", "")
