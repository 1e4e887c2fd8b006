"""Blocks of k steps with one synchronisation: how long they take, how many steps they need, and many in a row."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Protocol

from mldyno.stats.intervals import median, spread
from mldyno.timing.clock import Clock

MAX_OVERHEAD = 0.004  # share of a block that clock, sync and latency may cost: under the 0.5 % that is promised
WAITED_SHARE = 0.9  # a loop that takes this share of the whole has waited for its work itself
LONG_STEP = 1_000_000_000  # ns: beside a step of a second no latency matters
LATENCY_PROBES = 7  # blocks of one step, and of two, that show the latency
MIN_BLOCK = 950_000  # ns: a short block stays under 1 ms, and hides that clock and loop are cold after a step

Between = Callable[[list[float], int], int]
"""What is done between blocks: sees the step times in s so far and the clock, gives when it wants to be called next."""


class Steps(Protocol):
    """What can be timed: steps that are issued, and a way to wait for them."""

    def run(self, steps: int) -> None:
        """Issue steps."""

    def synchronize(self) -> None:
        """Wait for them."""


class Blocks:
    """Times blocks of a program; `size` is the number of steps in a block."""

    def __init__(self, program: Steps, clock: Clock) -> None:
        self.program, self.clock = program, clock
        self.size = 1

    def time(self, steps: int) -> int:
        """Time in ns of that many steps, until the device has done them."""
        clock = self.clock
        start = clock()
        self.program.run(steps)
        self.program.synchronize()
        return clock() - start

    def run(self, max_blocks: int, until: int) -> tuple[list[int], int]:
        """Times in ns of block after block, until the clock has passed `until` or after `max_blocks`; and the clock.

        Nothing stands between two blocks but this loop: code that ran a moment ago is fast, other code is not.
        """
        clock, run, wait, size = self.clock, self.program.run, self.program.synchronize, self.size
        times: list[int] = []
        while True:
            start = clock()
            run(size)
            wait()
            end = clock()
            times.append(end - start)
            if end >= until or len(times) >= max_blocks:
                return times, end

    def drain(self, steps: int) -> tuple[int, int]:
        """One block: ns until the loop returned, and ns until the device was done too."""
        clock = self.clock
        start = clock()
        self.program.run(steps)
        issued = clock()
        self.program.synchronize()
        return issued - start, clock() - start

    def overhead(self) -> float:
        """Cost in ns of the clock and of a synchronisation with nothing to wait for."""
        return median([self.time(0) for _ in range(9)])

    def latency(self) -> float:
        """What a block of an asynchronous device takes beyond its steps, in ns: the pipeline fills and drains.

        One step takes latency + step, two take latency + 2 steps. What noise leaves open counts as latency
        too, but no more than the time to issue a step: after that the device has work. A device that is
        done when its call returns has none.
        """
        drained = [self.drain(1) for _ in range(3)]
        if any(issued > WAITED_SHARE * total for issued, total in drained):
            return 0.0
        single, double = ([self.time(steps) for _ in range(LATENCY_PROBES)] for steps in (1, 2))
        uncertainty = 2.0 * math.sqrt((4 * spread(single) ** 2 + spread(double) ** 2) / LATENCY_PROBES)
        latency = max(0.0, 2.0 * median(single) - median(double)) + uncertainty
        return min(latency, median([issued for issued, _ in drained]))

    def fit(self, step: float) -> None:
        """Choose the block's size for a step of so many ns: long enough to hide clock, sync and latency."""
        step = max(step, 1.0)
        cost = self.overhead() + (self.latency() if step < LONG_STEP else 0.0)
        self.size = max(1, math.ceil(max(MIN_BLOCK, cost / MAX_OVERHEAD) / step))


def stretch(blocks: Blocks, seconds: float, steps: int | None, between: Between) -> tuple[list[float], int]:
    """Times of a step in s, one for each block, for so many s or steps; and the steps left, fewer than a block.

    `between` sees the values so far and the clock, and says at what time it wants to be called again:
    most blocks follow each other at once.
    """
    scale = 1e9 * blocks.size
    values: list[float] = []
    max_blocks = sys.maxsize if steps is None else steps // blocks.size
    ends = blocks.clock() + round(seconds * 1e9) if steps is None else sys.maxsize
    due = 0
    while len(values) < max_blocks:
        times, now = blocks.run(max_blocks - len(values), min(due, ends))
        values += [time / scale for time in times]
        if now >= ends:
            break
        due = between(values, now)
    return values, 0 if steps is None else steps % blocks.size
