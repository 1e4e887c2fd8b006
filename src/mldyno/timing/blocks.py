"""Blocks of k steps with one synchronisation: their time and size, many in a row, in rounds, and phases of a step."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mldyno.stats.intervals import median, spread
from mldyno.timing.clock import Clock, run_delay

MAX_OVERHEAD = 0.004  # share of a block that clock, sync and latency may cost: under the 0.5 % that is promised
WAITED_SHARE = 0.9  # a loop that takes this share of the whole has waited for its work itself
LONG_STEP = 1_000_000_000  # ns: beside a step of a second no latency matters
LATENCY_PROBES = 7  # blocks of one step, and of two, that show the latency
MIN_PHASE_ROUNDS = 3  # where they fit into the time
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


class BlocksOfOneThread(Blocks):
    """Blocks that one thread works through, and for how long of each block it was ready but had no core."""

    def __init__(self, program: Steps, clock: Clock, size: int = 1) -> None:
        super().__init__(program, clock)
        self.size = size
        self.delays: list[float] = []
        """Time in s of a step, one for each block; none where that is not counted."""

    def time(self, steps: int) -> int:
        """Time in ns of that many steps, the delays among it."""
        before = run_delay()
        time = super().time(steps)
        after = run_delay()
        if before is not None and after is not None:
            self.delays.append((after - before) / steps / 1e9)
        return time


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


def rounds(
    programs: Sequence[Blocks],
    seconds: float,
    min_rounds: int,
    chance: random.Random,
    tick: Callable[[list[float], int], None],
) -> list[list[float]]:
    """For each program its time of a step in s, one value a round, for so many s but `min_rounds` at least.

    Each round has one block of every program, in a new random order. What the machine does in the few
    milliseconds of a round falls on all of them alike, and drops out of their ratio.
    `tick` sees the first program's values and the clock after each round.
    """
    clock = programs[0].clock
    times: list[list[float]] = [[] for _ in programs]
    ends = clock() + round(seconds * 1e9)
    order = list(range(len(programs)))
    now = clock()
    while len(times[0]) < min_rounds or now < ends:
        chance.shuffle(order)
        for place in order:
            blocks = programs[place]
            times[place].append(blocks.time(blocks.size) / blocks.size / 1e9)
        now = clock()
        tick(times[0], now)
    return times


class InPhases(Protocol):
    """What can be done phase by phase."""

    def run_phase(self, name: str) -> None:
        """Issue a phase."""

    def synchronize(self) -> None:
        """Wait for it."""


def time_phases(
    program: InPhases, names: Iterable[str], seconds: float, clock: Clock, tick: Callable[[list[float], int], None]
) -> dict[str, list[float]]:
    """Times in s of each phase, one value a round, for so many s: one round at least, three if twice the time allows.

    `tick` sees the first phase's values and the clock after each round.
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    began = now = clock()
    rounds = 0
    while rounds == 0 or now - began < seconds * 1e9 * (2 if rounds < MIN_PHASE_ROUNDS else 1):
        for name, values in times.items():
            start = clock()
            program.run_phase(name)
            program.synchronize()
            values.append((clock() - start) / 1e9)
        rounds += 1
        now = clock()
        tick(next(iter(times.values())), now)
    return times
