"""The reference kernel: a fixed matmul, run between the steps. What slows it down slows them down too."""

from __future__ import annotations

import sys

from mldyno.frameworks import Framework, Unsupported
from mldyno.records import Case
from mldyno.stats.intervals import median
from mldyno.timing.blocks import Blocks
from mldyno.timing.clock import Clock

SIZE = 64  # of its matrices
BLOCKS = 3  # one after the other; their median counts
LARGEST_SHARE = 0.2  # of the time of the steps
STEPS_FIRST_NS = 20_000_000  # that steps run for before anything else is done: other code makes theirs cold


class ReferenceKernel:
    """Its blocks, and what they took: times of one in s."""

    def __init__(self, framework: Framework, case: Case, clock: Clock, trials: int = 4) -> None:
        """Raises Unsupported where the framework has no matmuls."""
        self.blocks = Blocks(framework.matmul(case, SIZE), clock)
        self.blocks.time(2 * trials)
        self.blocks.fit(min(self.blocks.time(trials) for _ in range(trials)) / trials)
        self.times: list[float] = []

    def run(self) -> int:
        """Note what it takes now; gives the clock after it, in ns."""
        times, now = self.blocks.run(BLOCKS, sys.maxsize)
        self.times.append(median(times) / self.blocks.size / 1e9)
        return now


def next_run(began: int, ended: int) -> int:
    """When it may run again, after a time that took from `began` to `ended`; in ns of the clock."""
    return ended + max(STEPS_FIRST_NS, round((ended - began) / LARGEST_SHARE))


def for_case(framework: Framework, case: Case, clock: Clock) -> ReferenceKernel | None:
    """The kernel on the case's device; None where there is none."""
    try:
        return ReferenceKernel(framework, case, clock)
    except Unsupported:
        return None
