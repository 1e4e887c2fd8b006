"""The rounds of a paired comparison: what a step took in each, and the ratios of two cases.

Where one thread did all of the work, the time that it was ready but had no core is taken out: other processes got in
its way then, and they meet one side of a round or the other as chance has it. A thread that sleeps, or waits for a
disk, is not ready: that time stays in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mldyno.records import Record, Series
from mldyno.stats.intervals import half_width, mean, median, paired

MIN_PROCESSES = 3  # from which on their spread is measured, not assumed


def of_record(record: Record, metric: str = "step_time") -> dict[int, float]:
    """What a step took in each round: one block of a round within a process, the median of a turn between them."""
    if record.run.pairing == "interleaved" and metric == "step_time":
        return in_process(record.series)
    turns = [part for part in record.series if (part.metric, part.stage) == (metric, "paired") and part.values]
    if record.run.pairing == "alternating-processes":
        return {0: median([value for part in turns for value in part.values])} if turns else {}
    return {part.turn: median(part.values) for part in turns if part.turn is not None}


def in_process(series: Sequence[Series]) -> dict[int, float]:
    """The time of a step in s in each round of a process."""
    times, delays = (
        [value for part in series if (part.metric, part.stage) == (metric, "paired") for value in part.values]
        for metric in ("step_time", "run_delay")
    )
    return undelayed(times, delays)


def undelayed(times: Sequence[float], delays: Sequence[float]) -> dict[int, float]:
    """The times without the delays, where those are known; a round whose delay fell outside its time is left out."""
    if len(delays) != len(times):
        return dict(enumerate(times))
    return {place: time - delays[place] for place, time in enumerate(times) if delays[place] < time}


def log_ratios(mine: Mapping[int, float], yours: Mapping[int, float]) -> list[float]:
    """How many times as long mine took, round by round, as logarithms."""
    return [math.log(mine[place] / yours[place]) for place in mine if place in yours]


def pooled(by_process: Sequence[list[float]]) -> tuple[float, float]:
    """Mean log-ratio and half of its 95 % interval, from a list for each process.

    A few processes do not show by themselves how they vary; then it comes from the rounds within them.
    """
    intervals = [paired(logs) for logs in by_process]
    centres = [centre for centre, _ in intervals]
    if len(centres) >= MIN_PROCESSES:
        return mean(centres), half_width(centres)
    if not centres:
        return 0.0, math.inf
    return mean(centres), math.sqrt(sum(width**2 for _, width in intervals)) / len(centres)
