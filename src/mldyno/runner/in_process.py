"""Time any function in this process, as a worker times a case: first call apart, warm-up, blocks, stopping rule."""

from __future__ import annotations

import gc
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mldyno import machine as machines
from mldyno.analysis.estimates import THIS_PROCESS
from mldyno.axes import unstated
from mldyno.errors import UsageError
from mldyno.printable import name_from
from mldyno.records import Record, Run, Series, Software, recorded_environment
from mldyno.runner.recording import Observed, new_run_id, record_of
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, time_blocks
from mldyno.timing.stopping import SHORTEST_WARMUP_S, WARMUP_SHARE, Stopping, warm_up


@dataclass
class Calls:
    """Steps that are calls of a function, and a function that waits for them."""

    step: Callable[[], Any]
    synchronize: Callable[[], Any]

    def run(self, steps: int) -> None:
        step = self.step
        for _ in range(steps):
            step()


def timed(step: Callable[[], Any], sync: Callable[[], Any] | None, name: str, target: float, budget: float) -> Record:
    """Return the record of a function, which is not stored; an error of the function is the caller's."""
    if not callable(step) or not (sync is None or callable(sync)):
        raise UsageError("measure takes a function that does one step, and perhaps one that waits: measure(step, sync)")
    if not 0 < target < 1 or not 0 < budget < math.inf:
        raise UsageError("target is a fraction such as 0.02, budget a number of seconds over 0.")
    began, blocks = time.monotonic(), Blocks(Calls(step, sync or (lambda: None)), clock.now)
    rule = Stopping(target=target, budget=budget)
    observed = Observed(unstated(name_from(name), THIS_PROCESS), Run(new_run_id()), rule)
    gc.collect()
    warm = warm_up(blocks, tuple, max(SHORTEST_WARMUP_S, WARMUP_SHARE * budget), lambda values, now: None)
    observed.unsteady = warm.reason if warm.steady is False else ""
    observed.series += [
        Series("step_time", "s", (warm.first_step / 1e9,), stage="first"),
        Series("step_time", "s", tuple(value / 1e9 for value in warm.values), stage="warmup", block=blocks.size),
    ]
    observed.facts |= {"first_step": warm.first_step / 1e9, "warmup_steady": warm.steady, "block_steps": blocks.size}
    while not observed.settled:
        values, _ = time_blocks(blocks, rule.next_turn(observed.elapsed), None, lambda values, now: sys.maxsize)
        observed.take_turn([Series("step_time", "s", tuple(values), block=blocks.size)])
    observed.software = Software(python=platform.python_version(), framework=THIS_PROCESS, env=recorded_environment())
    return record_of(observed, machines.describe(), time.monotonic() - began, "ok", "")
