"""From raw samples to a number with its interval.

One process: the median, with a t-interval over ten batch medians, which holds for correlated
series too. Several processes: the mean of their medians, with a t-interval over the processes,
since a process has a speed of its own that no amount of measuring within it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.metrics import metric_named
from mldyno.records import Record
from mldyno.stats.intervals import batches, half_width, mean, median

BATCHES = 10


@dataclass(frozen=True)
class Interval:
    """A number, and half of its 95 % interval; None where nothing shows how far off it may be."""

    value: float
    half_width: float | None

    @property
    def low(self) -> float | None:
        """Lower end of the 95 % interval."""
        return None if self.half_width is None else self.value - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the 95 % interval."""
        return None if self.half_width is None else self.value + self.half_width


@dataclass(frozen=True)
class Estimate(Interval):
    """A number in its SI unit, and what it comes from."""

    unit: str
    processes: int = 1
    samples: int = 1
    steps: int = 1

    def scaled(self, factor: float, unit: str) -> Estimate:
        """The same in another measure."""
        width = None if self.half_width is None else self.half_width * factor
        return Estimate(self.value * factor, width, unit, self.processes, self.samples, self.steps)

    def inverse(self, factor: float, unit: str) -> Estimate:
        """`factor` per this quantity: throughput from time."""
        width = None if self.half_width is None else factor / self.value * (self.half_width / self.value)
        return Estimate(factor / self.value, width, unit, self.processes, self.samples, self.steps)


def of_metric(records: Sequence[Record], metric: str) -> Estimate | None:
    """The headline of a metric over the processes of one case in one run."""
    unit = next((s.unit for r in records for s in r.series if s.metric == metric), None)
    entry = metric_named(metric)
    groups = [values for record in records for values in _by_process(record, counted(record, metric)) if values]
    if entry.reduce != "median":  # of which the spread of the values gives the interval
        groups = [[entry.number(values)] for values in groups]
    if unit is None or not groups:
        return None
    everything = [value for values in groups for value in values]
    steps = sum(record.fact("steps") or 1 for record in records)
    if len(groups) > 1:
        medians = [median(values) for values in groups]
        return Estimate(mean(medians), half_width(medians), unit, len(groups), len(everything), steps)
    width = None
    if len(everything) >= BATCHES:
        width = half_width([median(batch) for batch in batches(groups[0], BATCHES)])
    return Estimate(median(everything), width, unit, 1, len(everything), steps)


def _by_process(record: Record, values: list[float]) -> list[list[float]]:
    """The values of each process apart: of a command every run was one."""
    return [[value] for value in values] if record.fact("end_to_end") else [values]


def uncontended(ordered: Sequence[float]) -> float | None:
    """The mean of sorted values between the 5 % and the 10 % quantile; None under 20 values."""
    if len(ordered) < 20:
        return None
    return mean(ordered[len(ordered) // 20 : max(len(ordered) // 10, len(ordered) // 20 + 1)])


def counted(record: Record, metric: str) -> list[float]:
    """The metric's values that count: those of the first of its stages that has some.

    A figure from a CSV is `steady`, whatever it is.
    """
    stages = (*metric_named(metric).stages, "steady")
    return next((values for stage in stages if (values := record.values(metric, stage))), [])


def step_time(records: Sequence[Record]) -> Estimate | None:
    """Time of one step in s; from the time of a whole loop where only that was published."""
    step = of_metric(records, "step_time")
    if step is not None:
        return step
    steps = records[0].fact("steps") if records else None
    loop = of_metric(records, "loop_time")
    return loop.scaled(1 / steps, "s") if loop is not None and steps else None
