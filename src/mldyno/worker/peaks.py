"""The peaks of the roofline: what a device can do at all, in matmuls and in copies.

No model can do more operations a second than matmuls. A case that seems to was timed wrong, or did less work
than it says. Copies are no such bound: what is still in a cache is had faster.
"""

from __future__ import annotations

from dataclasses import replace

from mldyno.frameworks import Framework, Unsupported
from mldyno.records import Case
from mldyno.timing.blocks import Blocks
from mldyno.timing.clock import Clock

SMALLEST_SIZE, LARGEST_SIZE = 256, 4096  # of matrices
LONG_MATMUL_NS = 5_000_000  # one of this length hides its own overheads
MOST_MATMULS = 40
LOOK_S = 0.2
SMALLEST_COPY, LARGEST_COPY = 4 << 20, 256 << 20  # B
LONG_COPY_NS = 5_000_000  # one of this length is of no cache
MOST_COPIES = 20
SECOND_LOOK_S = 2.0  # a longer one, before a case is called impossible
TOLERANCE = 1.05  # a rate may be so many times the peak: both are measured


def measure(framework: Framework, case: Case, clock: Clock, seconds: float) -> float:
    """The best rate seen in so many s, in floating-point operations a second; 0 where nothing could be seen."""
    try:
        layout, best = _fastest(framework, case, clock)
    except Unsupported:
        return 0.0  # a framework need not have a matmul
    size, blocks, work = SMALLEST_SIZE, None, 0.0
    while size <= LARGEST_SIZE:
        try:
            larger = framework.matmul(case, size, layout)
            trial = Blocks(larger, clock)
            shortest = min(trial.time(1) for _ in range(3))
        except Exception as error:
            if framework.explain(error)[0] != "oom":
                raise
            break  # beside the case there is no room for larger ones
        blocks, work = trial, larger.work
        best = max(best, work / max(1, shortest) * 1e9)
        if shortest >= LONG_MATMUL_NS:
            break
        size *= 2
    if blocks is None:
        return best
    ends = clock() + round(seconds * 1e9)
    for _ in range(MOST_MATMULS):
        best = max(best, work / max(1, blocks.time(1)) * 1e9)
        if clock() >= ends:
            break
    return best


def _fastest(framework: Framework, case: Case, clock: Clock) -> tuple[str, float]:
    """The layout in which small matmuls are fastest, and their rate; on some CPUs that is 20 times another's."""
    rates: dict[str, float] = {}
    for layout in framework.layouts:
        product = framework.matmul(case, SMALLEST_SIZE, layout)
        blocks = Blocks(product, clock)
        rates[layout] = product.work / max(1, min(blocks.time(1) for _ in range(3))) * 1e9
    fastest = max(rates, key=lambda layout: rates[layout])
    return fastest, rates[fastest]


def of(framework: Framework, case: Case, clock: Clock, seconds: float) -> float:
    """The peak of the case's device: on a CPU at least what one thread reaches, times the threads.

    Threads that wait for cores on a busy machine reach less together than one of them alone.
    """
    peak, threads = measure(framework, case, clock, seconds), framework.threads() or 1
    if case.device != "cpu" or threads == 1:
        return peak
    framework.limit_threads(1)
    try:
        return max(peak, threads * measure(framework, case, clock, seconds))
    finally:
        framework.limit_threads(threads)


def exceeded(framework: Framework, case: Case, clock: Clock, rate: float) -> tuple[float, bool]:
    """The peak, and whether a rate lies above it; a suspicion is looked into before it is a verdict.

    On a CPU that lacks a type, convolutions can be far faster in it than matmuls, but not faster than matmuls in
    fp32: the higher of both peaks is what can't be passed.
    """
    peak = of(framework, case, clock, LOOK_S)
    if not 0 < TOLERANCE * peak < rate:
        return peak, False
    peak = max(peak, of(framework, case, clock, SECOND_LOOK_S))
    plain = replace(case, precision="fp32")
    highest = peak if plain == case else max(peak, of(framework, plain, clock, SECOND_LOOK_S))
    return peak, 0 < TOLERANCE * highest < rate


def moved(framework: Framework, case: Case, clock: Clock, from_host: bool) -> float | None:
    """The best rate of long copies, as far as there is room for them, in B/s: on the device, or to it from the host.

    None where there are no such copies, or no room for any.
    """
    size, rate = SMALLEST_COPY, None
    while size <= LARGEST_COPY:
        try:
            copies = framework.copy(case, size, from_host)
            blocks = Blocks(copies, clock)
            shortest = min(blocks.time(1) for _ in range(3))
        except Unsupported:
            return None
        except Exception as error:
            if framework.explain(error)[0] != "oom":
                raise
            return rate  # beside the case there is no room for more
        ends = clock() + round(LOOK_S / 4 * 1e9)
        for _ in range(MOST_COPIES):
            shortest = min(shortest, blocks.time(1))
            if clock() >= ends:
                break
        rate = copies.work / max(1, shortest) * 1e9
        if shortest >= LONG_COPY_NS:
            break
        size *= 4
    return rate
