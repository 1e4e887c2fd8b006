"""The peaks of the roofline: the most that a device does in matmuls and in copies.

No model does more operations a second than matmuls. A case that seems to was timed wrong, or did less work than it
claims. Copies are no such bound: what is still in a cache is faster.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import replace

from mldyno.frameworks import Framework, Kernel, Unsupported
from mldyno.records import Case
from mldyno.timing.blocks import Blocks
from mldyno.timing.clock import Clock

SMALLEST_MATMUL = 256  # of matrices
LARGEST_MATMUL_ON_CPU, LARGEST_MATMUL = 4096, 16384
LONG_NS = 5_000_000  # work of this length hides launch and wait, and no cache holds what was copied so long
LAYOUT_NS = 200_000  # a matmul of this length shows which layout is fastest
MOST_IN_BLOCK, MOST_IN_SHORT_LOOK, MOST_IN_LONG_LOOK = 32, 40, 4000  # runs of a kernel
PEAK_LOOK_S = 0.2
SMALLEST_COPY = 4 << 20  # B
LARGEST_COPY_ON_CPU, LARGEST_COPY = 256 << 20, 1 << 30
SECOND_LOOK_S, LONG_LOOKS = 2.0, 3  # before a case is called impossible: other processes may have the cores
PEAK_TOLERANCE = 1.05  # times the peak, that a rate may reach: both are measured


def matmul_rate(framework: Framework, case: Case, clock: Clock, seconds: float, layouts: tuple[str, ...] = ()) -> float:
    """Return the best matmul rate within that many s, in FLOP/s; 0 where there is none.

    Matrices grow until one matmul is long enough. Every layout, or each of these, is tried until the fastest is clear.
    """
    best, layouts, size, last = 0.0, layouts or framework.layouts, SMALLEST_MATMUL, None
    while size <= (LARGEST_MATMUL_ON_CPU if case.device == "cpu" else LARGEST_MATMUL):
        trials = {}
        try:
            for layout in layouts:
                with suppress(Unsupported):  # a framework need not have a matmul, nor a device each layout
                    trials[layout] = Trial(framework.matmul(case, size, layout), clock)
        except Exception as error:
            if framework.explain(error)[0] != "oom":
                raise
            break  # the case leaves no room for larger ones
        if not trials:
            return 0.0
        fastest, last = max(trials.items(), key=lambda trial: trial[1].rate)
        best = max(best, last.rate, last.next_rate())
        if last.shortest >= LAYOUT_NS:
            layouts = (fastest,)
        if last.shortest >= LONG_NS:
            break
        size *= 2
    return best if last is None else max(best, last.best_rate(seconds, clock))


class Trial:
    """Fixed work, timed in blocks of at least 5 ms, and the rate at which a device does it."""

    def __init__(self, kernel: Kernel, clock: Clock) -> None:
        self.kernel, self.blocks = kernel, Blocks(kernel, clock)
        self.shortest = max(1, min(self.blocks.time(1) for _ in range(3)))
        self._steps = min(MOST_IN_BLOCK, math.ceil(LONG_NS / self.shortest))

    @property
    def rate(self) -> float:
        """Rate by the shortest single run, launch and wait included."""
        return self.kernel.work / self.shortest * 1e9

    def next_rate(self) -> float:
        """Time one more block, and return its rate."""
        return self._steps * self.kernel.work / max(1, self.blocks.time(self._steps)) * 1e9

    def best_rate(self, seconds: float, clock: Clock) -> float:
        """Return the best rate of the blocks that fit into that many s; a short look has few of them."""
        ends, best = clock() + round(seconds * 1e9), self.next_rate()
        most = MOST_IN_SHORT_LOOK if seconds <= PEAK_LOOK_S else MOST_IN_LONG_LOOK
        for _ in range(most // self._steps - 1):
            if clock() >= ends:
                break
            best = max(best, self.next_rate())
        return best


def peak_rate(framework: Framework, case: Case, clock: Clock, seconds: float, layouts: tuple[str, ...] = ()) -> float:
    """Return the peak of the case's device: on a CPU at least the rate of one thread, times the threads.

    Threads that wait for cores on a busy machine reach less together than one of them alone. On a Mac nothing is
    multiplied: Accelerate ignores the framework's number of threads.
    """
    peak, threads = matmul_rate(framework, case, clock, seconds, layouts), framework.threads() or 1
    if case.device != "cpu" or threads == 1 or sys.platform == "darwin":
        return peak
    try:
        framework.limit_threads(1)
    except Unsupported:  # some take their threads only when they start
        return peak
    try:
        return max(peak, threads * matmul_rate(framework, case, clock, seconds, layouts))
    finally:
        framework.limit_threads(threads)


def exceeded(framework: Framework, case: Case, clock: Clock, rate: float) -> tuple[float, bool]:
    """Return the peak, and whether a rate is above it; a suspicion is checked again before it becomes a verdict.

    On a CPU that lacks a type, convolutions can be far faster in it than matmuls, but not faster than matmuls in fp32:
    the higher of both peaks is the limit.
    """
    peak = peak_rate(framework, case, clock, PEAK_LOOK_S)
    if not above(rate, peak):
        return peak, False
    plain, highest = replace(case, precision="fp32"), peak
    for _ in range(LONG_LOOKS):
        peak = max(peak, peak_rate(framework, case, clock, SECOND_LOOK_S))
        highest = max(highest, peak, 0.0 if plain == case else peak_rate(framework, plain, clock, SECOND_LOOK_S))
        if not above(rate, highest):
            break
    return peak, above(rate, highest)


def above(rate: float, peak: float) -> bool:
    """Return whether a rate is impossible, where a peak is known."""
    return 0 < PEAK_TOLERANCE * peak < rate


def copy_rate(framework: Framework, case: Case, clock: Clock, from_host: bool) -> float | None:
    """Return the best rate of long copies in B/s, on the device or to it from the host; None where there are none.

    Copies grow while there is memory for them.
    """
    size, rate = SMALLEST_COPY, None
    while size <= (LARGEST_COPY_ON_CPU if case.device == "cpu" else LARGEST_COPY):
        try:
            trial = Trial(framework.copy(case, size, from_host), clock)
        except Unsupported:
            return None
        except Exception as error:
            if framework.explain(error)[0] != "oom":
                raise
            return rate  # the case leaves no room for more
        rate = max(trial.rate, trial.best_rate(PEAK_LOOK_S / 4, clock))
        if trial.shortest >= LONG_NS:
            break
        size *= 4
    return rate
