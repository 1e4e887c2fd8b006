"""From raw samples to a number with its interval: the time of a step, any other metric, and ratios of rounds.

The number is the mean of the medians of fresh processes. Its interval is about the next process: speed varies between
processes, which no amount of measuring within one shows. How well the median of one process is known, from ten batch
medians, is kept as `within`.

Rounds belong to a paired comparison. Where one thread did all of the work, the time that it was ready but had no core
is taken out: other processes got in its way then, and they hit either side of a round by chance. A thread that sleeps,
or waits for a disk, is not ready, and that time counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mldyno.analysis.processes import by_process, contended, headline, processes_of, stated, undisturbed
from mldyno.metrics import metric_named
from mldyno.records import Record, Series
from mldyno.stats.intervals import batches, half_width, mean, median, paired
from mldyno.units import Interval

BATCHES = 10
WIDEST = 50.0  # log half-width: more than any, and still a number


@dataclass(frozen=True, kw_only=True)
class Estimate(Interval):
    """A quantity in its SI unit, and how many samples it comes from."""

    unit: str
    processes: int = 1
    samples: int = 1
    steps: int = 1
    within: float | None = None
    """Half-width of the 95 % interval within a single process, which does not cover the next process."""
    freedom: int = BATCHES - 1
    """Degrees of freedom of the interval."""

    def with_half_width(self, width: float | None, **fields: Any) -> Estimate:
        """Return a copy with another interval, and with other fields where they are given."""
        value = fields.pop("value", self.value)
        return replace(self, **vars(Interval.around(value, width)), **fields)

    def scaled(self, factor: float, unit: str) -> Estimate:
        """Return it times a factor, in another unit."""
        width, within = (None if each is None else each * factor for each in (self.half_width, self.within))
        return self.with_half_width(width, value=self.value * factor, unit=unit, within=within)

    def per(self, amount: float, unit: str) -> Estimate:
        """Return an amount per this quantity: throughput from time. Its interval is linearised."""
        scaled = self.scaled(amount / self.value**2, unit)
        return scaled.with_half_width(scaled.half_width, value=amount / self.value)


def of_metric(records: Sequence[Record], metric: str) -> Estimate | None:
    """Return the headline of a metric over the processes of one case in one run."""
    unit = next((s.unit for r in records for s in r.series if s.metric == metric), None)
    entry = metric_named(metric)
    groups = [values for record in records for values in by_process(record, metric)]
    if entry.reduce not in ("median", "mean"):  # of which the spread of the values gives the interval
        groups = [[entry.number(values)] for values in groups]
    if unit is None or not groups:
        return None
    samples = sum(map(len, groups))
    steps = sum(record.fact("steps") or 1 for record in records)
    numbers = [entry.number(values) for values in groups]
    known = Estimate(mean(numbers), unit=unit, processes=len(groups), samples=samples, steps=steps)
    if len(groups) > 1:
        known = known.with_half_width(half_width(numbers), freedom=len(groups) - 1)
    elif samples >= (BATCHES if entry.reduce == "median" else 2):
        within = half_width([entry.number(batch) for batch in batches(groups[0], min(samples, BATCHES))])
        known = known.with_half_width(within, within=within)
    timed = undisturbed(records, contended) if entry.reduce == "median" and unit == "s" else []
    processes = [process for record in timed for process in processes_of(record, metric)]
    if not processes:
        return known
    value, error = headline(processes, stated(timed[-1]))
    width = value * math.expm1(min(error.half_width, WIDEST))
    if known.within is not None:  # the spread between processes does not include the error of this one
        width = math.hypot(width, known.within)
    return known.with_half_width(width, value=value, processes=len(processes), freedom=error.whole_freedom)


def uncontended(ordered: Sequence[float]) -> float | None:
    """Return the mean of sorted values between the 5 % and the 10 % quantile; None under 20 values."""
    if len(ordered) < 20:
        return None
    return mean(ordered[len(ordered) // 20 : max(len(ordered) // 10, len(ordered) // 20 + 1)])


def step_time(records: Sequence[Record]) -> Estimate | None:
    """Time of one step in s; from the time of a whole loop where only that was published."""
    step = of_metric(records, "step_time")
    if step is not None:
        return step
    steps = records[0].fact("steps") if records else None
    loop = of_metric(records, "loop_time")
    return loop.scaled(1 / steps, "s") if loop is not None and steps else None


MIN_PROCESSES = 3  # from which on their spread is measured, not assumed


def times_of_rounds(record: Record, metric: str = "step_time") -> dict[int, float]:
    """Return the time of a step in each round: a block within a process, else the median of a turn."""
    if record.run.pairing == "interleaved" and metric == "step_time":
        return times_in_process(record.series)
    turns = [part for part in record.series if (part.metric, part.stage) == (metric, "paired") and part.values]
    if record.run.pairing == "alternating-processes":
        return {0: median([value for part in turns for value in part.values])} if turns else {}
    return {part.turn: median(part.values) for part in turns if part.turn is not None}


def times_in_process(series: Sequence[Series]) -> dict[int, float]:
    """Return the time of a step in s in each round of a process."""
    times, delays = (
        [value for part in series if (part.metric, part.stage) == (metric, "paired") for value in part.values]
        for metric in ("step_time", "run_delay")
    )
    return undelayed(times, delays)


def undelayed(times: Sequence[float], delays: Sequence[float]) -> dict[int, float]:
    """Subtract the delays from times, where they are known; drop a round whose delay fell outside its time."""
    if len(delays) != len(times):
        return dict(enumerate(times))
    return {place: time - delays[place] for place, time in enumerate(times) if delays[place] < time}


def log_ratios(mine: Mapping[int, float], yours: Mapping[int, float]) -> list[float]:
    """Return how many times as long mine took, round by round, as logarithms."""
    return [math.log(mine[place] / yours[place]) for place in mine if place in yours]


def pooled(by_process: Sequence[list[float]]) -> tuple[float, float]:
    """Return the mean log-ratio and its half-width, from a list for each process.

    A few processes do not show by themselves how they vary; then it comes from the rounds within them.
    """
    intervals = [paired(logs) for logs in by_process]
    centres = [centre for centre, _ in intervals]
    if len(centres) >= MIN_PROCESSES:
        return mean(centres), half_width(centres)
    if not centres:
        return 0.0, math.inf
    return mean(centres), math.sqrt(sum(width**2 for _, width in intervals)) / len(centres)
