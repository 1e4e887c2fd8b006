"""Blocks of k steps with one synchronisation: how long they take, and how many steps they need."""

from __future__ import annotations

import math
from typing import Protocol

from mldyno.stats.intervals import median, spread
from mldyno.timing.clock import Clock

OVERHEAD = 0.004  # clock, sync and latency may cost this share of a block: under the 0.5 % that is promised
WAITED = 0.9  # a loop that takes this share of the whole has waited for its work itself
LONG = 1_000_000_000  # ns: beside a step of a second no latency matters
PROBES = 7  # blocks of one step, and of two, that tell the latency
SHORTEST = 950_000  # ns: a short block stays under 1 ms, and hides that clock and loop are cold after a step


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

    def run(self, most: int, until: int) -> tuple[list[int], int]:
        """Times in ns of block after block, until the clock has passed `until` or there are `most`; and the clock.

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
            if end >= until or len(times) >= most:
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
        if any(issued > WAITED * total for issued, total in drained):
            return 0.0
        single, double = ([self.time(steps) for _ in range(PROBES)] for steps in (1, 2))
        unsure = 2.0 * math.sqrt((4 * spread(single) ** 2 + spread(double) ** 2) / PROBES)
        latency = max(0.0, 2.0 * median(single) - median(double)) + unsure
        return min(latency, median([issued for issued, _ in drained]))

    def fit(self, step: float) -> None:
        """Choose the block's size for a step of so many ns: long enough to hide clock, sync and latency."""
        step = max(step, 1.0)
        cost = self.overhead() + (self.latency() if step < LONG else 0.0)
        self.size = max(1, math.ceil(max(SHORTEST, cost / OVERHEAD) / step))
