"""Blocks of k steps with one synchronisation: their time and size, many in a row, in rounds, and phases of a step."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from mldyno.stats.intervals import median, spread
from mldyno.timing.clock import Clock, run_delay

if TYPE_CHECKING:
    from mldyno.frameworks import Steps

MAX_OVERHEAD = 0.004  # share of a block that clock, sync and latency may cost: below the promised 0.5 %
LONG_STEP = 1_000_000_000  # ns: in a step of a second no latency matters
LATENCY_PROBES = 7  # blocks of one step, and of two, that show the latency
LONGER_PROBES = 3  # and of each longer kind
LONGEST_PROBE = 20_000_000  # ns: some devices start only after many operations were issued
LONGEST_BLOCK = 500_000_000  # ns, to hide a latency
WAITED_FACTOR = 3.0  # times what a wait for nothing takes: then something was waited for
EVENTS_TOLERANCE = 0.1  # by which the device's events and the host's clock may disagree on the time of a block
DRAIN_STEPS = 16  # of short steps, that are issued at once to see whether the host waits for the device
MIN_PHASE_ROUNDS = 3  # where they fit into twice the time
MIN_BLOCK = 950_000  # ns: under 1 ms, and long enough to hide that clock and loop are cold after a step

Between = Callable[[list[float], int], int]
"""Called between blocks with the step times in s so far and the clock; returns when to call it next."""


class Blocks:
    """Time blocks of a program; `size` is the number of steps in a block.

    `asynchronous`: whether its device may work on when a call has returned. `cycle`: steps after which their times
    repeat, so that blocks of fewer would differ.
    """

    def __init__(self, program: Steps, clock: Clock, asynchronous: bool = False, cycle: int = 1) -> None:
        self.program, self.clock, self.asynchronous, self.cycle = program, clock, asynchronous, cycle
        self.size = cycle
        self.prepare: Callable[[], None] = lambda: None
        """Done before a block that follows one of another program, and is no part of its time."""

    def time(self, steps: int) -> int:
        """Return the time in ns of that many steps, until the device has done them."""
        clock = self.clock
        start = clock()
        self.program.run(steps)
        self.program.synchronize()
        return clock() - start

    def run(self, max_blocks: int, until: int) -> tuple[list[int], int]:
        """Time up to `max_blocks` blocks until the clock passes `until`; return their times in ns, and the clock.

        Nothing but this loop is between two blocks: code that ran a moment ago is fast, other code is not.
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
        """Time one block; return ns until the loop returned, and ns until the device was done too."""
        clock = self.clock
        start = clock()
        self.program.run(steps)
        issued = clock()
        self.program.synchronize()
        return issued - start, clock() - start

    def overhead(self) -> float:
        """Return the cost in ns of the clock and of a synchronisation with nothing to wait for."""
        return median([self.time(0) for _ in range(9)])

    def latency(self, step: float) -> tuple[float, float]:
        """Return what a block takes beyond its steps, in ns: the pipeline fills and drains; and a step without that.

        Twice as many steps take twice as long, less one latency. Blocks of one step and of two show it for most
        devices; one that gathers operations before it starts shows it only in longer blocks. What noise leaves open
        counts as latency too. A device that is done when its call returns has none.
        """
        if not self.asynchronous or step >= LONG_STEP:
            return 0.0, step
        drained = [self.drain(1) for _ in range(LATENCY_PROBES)]
        if median([total - issued for issued, total in drained]) <= WAITED_FACTOR * self.overhead():
            return 0.0, step
        shorter, longer = [total for _, total in drained], [self.time(2) for _ in range(LATENCY_PROBES)]
        latency, uncertainty = _excess(shorter, longer)
        latency, steps = max(0.0, latency) + uncertainty, 2
        while median(longer) < LONGEST_PROBE:
            steps *= 2
            shorter, longer = longer, [self.time(steps) for _ in range(LONGER_PROBES)]
            excess, uncertainty = _excess(shorter, longer)
            latency = max(latency, excess - uncertainty)
        return latency, min(step, max(1.0, 2 * (median(longer) - median(shorter)) / steps))

    def fit(self, step: float) -> None:
        """Choose the block's size for a step in ns: long enough to hide clock, sync and latency."""
        latency, step = self.latency(max(step, 1.0))
        hidden = min(LONGEST_BLOCK, (self.overhead() + latency) / MAX_OVERHEAD)
        self.size = self.cycle * max(1, math.ceil(max(MIN_BLOCK, hidden) / step / self.cycle))


def _excess(single: Sequence[int], double: Sequence[int]) -> tuple[float, float]:
    """Return by how much two blocks take longer than one of twice the length, and the uncertainty of that; in ns."""
    variance = 4 * spread(single) ** 2 / len(single) + spread(double) ** 2 / len(double)
    return 2 * median(single) - median(double), 2.0 * math.sqrt(variance)


class BlocksOfOneThread(Blocks):
    """Blocks that one thread computes, with the time that it was ready but had no core in each."""

    def __init__(self, program: Steps, clock: Clock, size: int = 1) -> None:
        super().__init__(program, clock)
        self.size = size
        self.delays: list[float] = []  # in s for each step, a value for each block; empty where not counted

    def time(self, steps: int) -> int:
        before = run_delay()
        time = super().time(steps)
        after = run_delay()
        if before is not None and after is not None:
            self.delays.append((after - before) / steps / 1e9)
        return time


def settle(blocks: Blocks, steps: int, seconds: float) -> None:
    """Run steps that do not count, at least one cycle, but no longer than that many s."""
    until, done = blocks.clock() + round(seconds * 1e9), 0
    while done < steps:
        blocks.time(blocks.cycle)
        done += blocks.cycle
        if blocks.clock() >= until:
            return


def time_blocks(blocks: Blocks, seconds: float, steps: int | None, between: Between) -> tuple[list[float], int]:
    """Time blocks for that many s or steps; return a step's time in s for each, and the steps left over.

    `between` gets the values so far and the clock, and returns when it wants to be called again: most blocks follow
    each other at once.
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
    programs: Sequence[Blocks], seconds: float, min_rounds: int, chance: random.Random,
    tick: Callable[[list[float], int], None],
) -> list[list[float]]:  # fmt: skip
    """Time rounds of all programs for that many s, at least `min_rounds`; return each program's step times in s.

    Each round has one block of every program, in a new random order. What the machine does in the few milliseconds of a
    round affects all of them alike, and cancels out of their ratio. `tick` gets the first program's values and the
    clock after each round.
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
            blocks.prepare()
            times[place].append(blocks.time(blocks.size) / blocks.size / 1e9)
        now = clock()
        tick(times[0], now)
    return times


class InPhases(Protocol):
    """Anything that has phases, such as a `Program`."""

    def drop_loaded(self) -> None: ...

    def run_phase(self, name: str) -> None: ...

    def synchronize(self) -> None: ...


def time_phases(
    program: InPhases, names: Iterable[str], seconds: float, clock: Clock, tick: Callable[[list[float], int], None]
) -> dict[str, list[float]]:
    """Time each phase in s, one value a round, for that many s: at least one round, three if twice the time allows.

    `tick` gets the first phase's values and the clock after each round.
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    began = now = clock()
    rounds = 0
    while rounds == 0 or now - began < seconds * 1e9 * (2 if rounds < MIN_PHASE_ROUNDS else 1):
        for name, values in times.items():
            program.drop_loaded()
            start = clock()
            program.run_phase(name)
            program.synchronize()
            values.append((clock() - start) / 1e9)
        rounds += 1
        now = clock()
        tick(next(iter(times.values())), now)
    return times
