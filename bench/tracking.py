"""Figure 18: what `mldyno.track` costs a loop, and whether what it says of a loader is true."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno.analysis.breakdown import loop_parts
from mldyno.analysis.estimates import log_ratios, undelayed
from mldyno.records import Record
from mldyno.stats.intervals import median, paired
from mldyno.timing.blocks import Blocks, BlocksOfOneThread, rounds
from mldyno.timing.clock import now
from mldyno.tracking.tracker import Tracker, track

STEP_S = 1e-3
MOST_COST = 0.5  # % of a step of 1 ms
STEPS_A_BLOCK = 20
DELAYS_S = (50e-6, 200e-6, 1e-3)  # of a batch
TRIALS, STEPS_A_TRIAL = 100, 1500
LEAST_HELD = 90.0  # % of so many trials: 95 %, less two standard errors of the count


class Loop:
    """A loop over batches that goes on where it was left."""

    def __init__(self, batches: Iterable[int], body: Callable[[], object]) -> None:
        self.batches, self.body = iter(batches), body

    def run(self, steps: int) -> None:
        """So many steps of it."""
        body = self.body
        for _ in itertools.islice(self.batches, steps):
            body()

    def synchronize(self) -> None:
        """A CPU is done when its calls return."""


def of_length(seconds: float) -> Callable[[], object]:
    """Work that takes about so long."""
    size, spent = 1000, 0.0
    while spent < seconds:
        size = round(size * 1.2)
        spent = median([_time_of(lambda size=size: sum(range(size))) for _ in range(9)])  # type: ignore[misc]
    return lambda: sum(range(size))


def _time_of(work: Callable[[], object]) -> float:
    began = perf_counter_ns()
    work()
    return (perf_counter_ns() - began) / 1e9


def measure(work: Work) -> Chapter:
    """Both questions, in one process."""
    chapter = Chapter("18. What `mldyno.track` costs, and whether its loader's cost is true")
    chapter.notes.append(
        f"The same loop with and without `track`, {STEPS_A_BLOCK} steps of each in turns, in random order, in one"
        " process of one thread; the time that it was ready but had no core is taken out. The value is the mean"
        " log-ratio of the rounds, with its 95 % interval."
    )
    chapter.figures.append(_cost(0.3 if work.quick else 60.0))
    chapter.figures.append(_cost_of_nothing(0.1 if work.quick else 5.0))
    chapter.notes.append(
        "A loader that spins for a known time for each batch, and a step of about 1 ms: `track(loader, replay=True)`"
        " tells what the loader costs, with an interval. The truth is the median of what the loader itself saw."
    )
    for delay in DELAYS_S[1:2] if work.quick else DELAYS_S:
        chapter.figures.append(_held(delay, 1 if work.quick else TRIALS))
    return chapter


def _cost(seconds: float) -> Figure:
    body = of_length(STEP_S)
    tracked = _tracked(itertools.count())
    programs = [BlocksOfOneThread(Loop(each, body), now, STEPS_A_BLOCK) for each in (itertools.count(), tracked)]
    plain, with_it = (undelayed(times, program.delays)
                      for times, program in zip(_rounds(programs, seconds), programs, strict=True))  # fmt: skip
    _finished(tracked)
    logs = log_ratios(with_it, plain)
    ratio, width = paired(logs)
    step = median(list(plain.values()))
    say(f"  cost: {100 * math.expm1(ratio):.4f} % ± {100 * width:.4f} of {1e3 * step:.3f} ms")
    how = f"steps of {1e3 * step:.2f} ms, {len(logs):,} rounds"
    return Figure("cost of `track`", 100 * math.expm1(ratio), "%", MOST_COST, how, half_width=100 * width)


def _cost_of_nothing(seconds: float) -> Figure:
    tracked = _tracked(itertools.count())
    programs = [Blocks(Loop(each, lambda: None), now) for each in (itertools.count(), tracked)]
    for program in programs:
        program.size = 1000
    plain, with_it = _rounds(programs, seconds)
    _finished(tracked)
    cost, width = paired([1e9 * (mine - yours) for mine, yours in zip(with_it, plain, strict=True)])
    say(f"  of an empty step: {cost:.0f} ns")
    return Figure("what a step costs in itself", cost, "ns", None, "a step that does nothing", half_width=width)


def _tracked(batches: Iterable[int], replay: bool = False) -> Tracker:
    return track(batches, name="bench", store=os.devnull, replay=replay)


def _finished(tracked: Tracker) -> Record | None:
    """What came of a loop; nothing is stored, and nothing said."""
    with contextlib.redirect_stderr(io.StringIO()):
        return tracked.finish()


def _rounds(programs: list[Blocks] | list[BlocksOfOneThread], seconds: float) -> list[list[float]]:
    for program in programs:
        program.time(program.size)  # the first steps have more to do
        if isinstance(program, BlocksOfOneThread):
            program.delays.clear()
    return rounds(programs, seconds, 24, random.Random(0), lambda values, at: None)


class Spinning:
    """A loader that spins for a known time for each batch, and notes how long it really was."""

    def __init__(self, delay: float) -> None:
        self.delay = round(delay * 1e9)
        self.spent: list[int] = []

    def __iter__(self) -> Iterator[int]:
        for place in range(STEPS_A_TRIAL):
            began = perf_counter_ns()
            ends = began + self.delay
            while (at := perf_counter_ns()) < ends:
                pass
            self.spent.append(at - began)
            yield place


def _held(delay: float, trials: int) -> Figure:
    body, inside, widths = of_length(STEP_S), 0, []
    for _ in range(trials):
        loader = Spinning(delay)
        tracked = _tracked(loader, replay=True)
        for _ in tracked:
            body()
        record = _finished(tracked)
        parts = loop_parts(record) if record is not None else None
        cost = parts.loader.time if parts is not None and parts.loader is not None else None
        if cost is None or cost.low is None or cost.high is None:
            continue  # counts as one that does not hold it
        inside += cost.low <= median(loader.spent) / 1e9 <= cost.high
        widths.append((cost.high - cost.low) / 2)
    known = f"known to ±{1e6 * median(widths):.0f} µs" if widths else "never known"
    say(f"  {1e6 * delay:.0f} µs a batch: {inside} of {trials} intervals hold it, {known}")
    name, how = f"intervals that hold {1e6 * delay:.0f} µs a batch", f"{trials} loops; {known}, in the middle of them"
    return Figure(name, 100 * inside / trials, "%", None, how, least=LEAST_HELD)
