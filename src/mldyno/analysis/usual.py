"""What is usual on a machine: how much its fresh processes differ, and how fast its reference kernel is.

A process has a speed of its own, and a machine has better and worse minutes. What a few processes tell of the next
ones follows from both. The reference kernel runs between the steps, so that it shows how good the minutes were; how
far step times follow it is fitted. All times are logarithms here: a spread of 0.05 is one of 5 %.

Whoever measures works this out, and writes it into the record as facts, so that a record tells the same wherever
it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mldyno.analysis.grouping import grouped
from mldyno.analysis.processes import Process
from mldyno.records import Fact, Record
from mldyno.stats.intervals import OTHERS, Variation, mean, of_values, pooled

NEVER_SEEN = Variation(0.05**2, 2.0)  # of a machine of which nothing is known
NOTHING = Variation(0.0, 1.0)
LEVEL_NEVER_SEEN = Variation(0.07**2, 2.0)  # of its reference kernel, from one part of an hour to the next
PERIOD_S = 120.0  # within which the minutes of a machine are alike
PERIODS = 6  # of an hour
FEW_PERIODS = 3  # fewer do not show how much they differ
PRESENT_S = 7200.0  # before that the machine may have been hotter, or busier
FAR_OFF = 0.5  # from its usual speed: then it is another machine
STEEPEST = 3.0  # slope that is believed
SLOPES = 0.6  # by which cases differ in how far they follow the reference kernel
NOISE = 0.05  # of processes that can't be explained, where slopes are fitted


@dataclass(frozen=True)
class Usual:
    """What is known of a machine beside the processes of a case."""

    spread: Variation = NEVER_SEEN
    """Of processes, without what the reference kernel explains."""
    slope: float = 0.0
    """How far steps follow the reference kernel: 1 where both get slower by the same percentage."""
    slope_error: float = 0.0
    """The standard deviation of that."""
    level: float = 0.0
    """The usual time of the reference kernel, in log s."""
    level_error: Variation = NOTHING
    """How far off that may be."""

    @property
    def facts(self) -> dict[str, Fact]:
        """As facts of a record."""
        known = {"process_spread": math.sqrt(self.spread.variance), "process_freedom": self.spread.freedom}
        if self.slope:
            known |= {
                "reference_slope": self.slope, "reference_slope_error": self.slope_error,
                "reference_usual": math.exp(self.level), "reference_error": math.sqrt(self.level_error.variance),
                "reference_freedom": self.level_error.freedom,
            }  # fmt: skip
        return {name: float(f"{value:.6g}") for name, value in known.items()}


def stated(record: Record) -> Usual:
    """What a record says was usual; of one that says nothing, what is assumed of any machine."""
    spread, freedom = record.fact("process_spread"), record.fact("process_freedom")
    if not spread or not freedom:
        return Usual()
    names = ("slope", "slope_error", "usual", "error", "freedom")
    slope, slope_error, usual, error, level_freedom = (record.fact(f"reference_{name}") for name in names)
    known = Variation(spread**2, freedom)
    if not slope or slope_error is None or not usual or error is None or not level_freedom:
        return Usual(known)
    return Usual(known, slope, slope_error, math.log(usual), Variation(error**2, level_freedom))


def usual_for(process: Process, others: Iterable[Process]) -> Usual:
    """What is usual for the processes of a case, from the others of its machine.

    Those of its own run show their spread by themselves; they count for the reference kernel only. Processes that had
    to wait for a core tell nothing of others; but one of them may be off by as much as any.
    """
    everyone = [each for each in (process, *others) if process.contended or not each.contended]
    alike = [each for each in everyone if each.kernel == process.kernel and not process.contended]
    slopes = Slopes(alike)
    near = [each for each in everyone if each.near(process) and (each.case, each.run) != (process.case, process.run)]
    variations = {
        case: of_values([each.without(slopes.of(case)) for each in group])
        for case, group in grouped(near, lambda each: each.case).items()
    }
    own = variations.pop(process.case, Variation(0.0, 0.0))
    spread = pooled([NEVER_SEEN, *variations.values()]).with_(own)
    slope = slopes.of(process.case)
    if not slope:
        return Usual(spread)
    recent = [each for each in alike if each.power == process.power and process.when - each.when < PRESENT_S]
    level, error = _level(recent)
    return Usual(spread, slope, slopes.error(process.case), level, error)


def _level(processes: Sequence[Process]) -> tuple[float, Variation]:
    """The usual time of the reference kernel, and how far off it may be for an hour like that.

    From the means of a few long periods: neighbouring minutes are alike.
    """
    first = min(each.when for each in processes)
    length = max(PERIOD_S, (max(each.when for each in processes) - first) / PERIODS)
    periods = grouped(processes, lambda each: (each.when - first) // length)
    levels = [mean([each.reference for each in period]) for period in periods.values()]
    few = len(levels) < FEW_PERIODS  # then the processes tell by how much it varies, from one to the next
    known = LEVEL_NEVER_SEEN.with_(of_values([each.reference for each in processes] if few else levels))
    return mean(levels), Variation(known.variance * (1 / len(levels) + 1 / PERIODS), known.freedom)


class Slopes:
    """How far the step times of each case follow the reference kernel, drawn towards what they do on the whole.

    Where the kernel hardly varies nothing can be seen, and nothing is assumed.
    """

    def __init__(self, processes: Iterable[Process]) -> None:
        self._along: dict[str, float] = {}
        self._across: dict[str, float] = {}
        for case, group in grouped(processes, lambda each: each.case).items():
            time, reference = mean([each.time for each in group]), mean([each.reference for each in group])
            self._along[case] = math.fsum((each.reference - reference) * (each.time - time) for each in group)
            self._across[case] = math.fsum((each.reference - reference) ** 2 for each in group)
        few = (NOISE / SLOPES) ** 2
        self._few = few
        self._common = sum(self._along.values()) / (sum(self._across.values()) + few)

    def of(self, case: str) -> float:
        """The slope of a case, no less than 0."""
        along, across = self._along.get(case, 0.0), self._across.get(case, 0.0)
        return max(0.0, min(STEEPEST, (along + self._few * self._common) / (across + self._few)))

    def error(self, case: str) -> float:
        """The standard deviation of that."""
        return SLOPES * math.sqrt(self._few / (self._across.get(case, 0.0) + self._few))


def headline(processes: Sequence[Process], usual: Usual) -> tuple[float, Variation]:
    """The mean time of a step over fresh processes, in s, and how far off what 30 others take on average may be."""
    waited = any(each.contended for each in processes)  # by as much as each other: more of them tell no more
    count = 1 if waited else len(processes)
    value = mean([math.exp(each.time) for each in processes])
    known = usual.spread.with_(of_values([each.without(usual.slope) for each in processes]))
    own = Variation(known.variance * (1 / count + 1 / OTHERS), known.freedom)
    off = mean([each.reference for each in processes]) - usual.level
    if not usual.slope or abs(off) > FAR_OFF:
        return value, own
    shared = usual.slope**2 * usual.level_error.variance + (usual.slope_error * off) ** 2
    return value * math.exp(-usual.slope * off), own.plus(Variation(shared, usual.level_error.freedom))
