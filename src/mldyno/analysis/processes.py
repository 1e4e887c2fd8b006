"""The processes that a case was measured in, and the usual variation of their machine.

Speed varies between processes, and a machine has better and worse minutes: how far a few processes predict the next
ones follows from both. The reference kernel runs between the steps and shows the state of the machine; how far step
times follow it is fitted. All times are logarithms here: a spread of 0.05 is one of 5 %.

The writing side works this out and stores it in the record as facts, so that a record says the same wherever it is
read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from mldyno.analysis import grouped
from mldyno.metrics import FACTS, metric_named
from mldyno.records import Fact, Record
from mldyno.stats.intervals import PREDICTED_PROCESSES, Variation, mean, median, of_values, pooled

T = TypeVar("T")
THIS_PROCESS = "python"  # the framework of a function that was timed where it was called


@dataclass(frozen=True)
class Process:
    """One process of a case: when it was, how long a step took, and how long its reference kernel; times in log s."""

    case: str
    run: str
    kernel: tuple[object, ...]
    """What its reference kernel depends on, apart from the machine; of one without it, just device and threads."""
    power: str | None
    when: float
    """In s since 1970."""
    time: float
    reference: float
    """0 where there is none, as of a command."""
    contended: bool = False
    """Whether its threads waited for a core."""

    def near(self, other: Process) -> bool:
        """Return whether it ran on the same device with as many threads."""
        return self.kernel[:2] == other.kernel[:2]

    def without(self, slope: float) -> float:
        """Return its time without the part that the reference kernel explains."""
        return self.time - slope * self.reference


def processes_of(record: Record, metric: str = "step_time") -> list[Process]:
    """Return the processes of a case that was measured alone, well and in real time: one, or every run of a command."""
    if record.status != "ok" or not record.alone or record.case.framework == THIS_PROCESS:
        return []
    if record.fact("wall_time") is None or record.fact("fake_time"):  # a figure, or nothing that varies
        return []
    case, software, size = record.case, record.software, record.fact("reference_size")
    references = record.values("reference_time") if size else []  # earlier versions had another kernel
    place: tuple[object, ...] = (case.device, software.threads)
    when = datetime.fromisoformat(record.created.replace("Z", "+00:00")).timestamp()
    return [
        Process(
            case=f"{case.id} {sorted(software.versions.items())}",
            run=record.run.id,
            kernel=(*place, case.framework, case.precision, size) if references else place,
            power=record.machine.power,
            when=when,
            time=math.log(median(values)),
            reference=math.log(median(references)) if references else 0.0,
            contended=contended(record),
        )
        for values in by_process(record, metric)
        if median(values) > 0
    ]


def telling(records: Iterable[Record]) -> list[Process]:
    """Return the processes that show how much a machine varies: all but users' loops, whose code changes."""
    return [process for record in records if not record.case.tracked for process in processes_of(record)]


def undisturbed(items: Sequence[T], waited: Callable[[T], bool]) -> list[T]:
    """Return the items that did not wait for a core; all of them where every one did."""
    return [item for item in items if not waited(item)] or list(items)


def contended(record: Record) -> bool:
    """Return whether its threads had to wait for a core, or the machine's host took much of its time."""
    return any(warning.code == "contended" for warning in record.warnings)


def by_process(record: Record, metric: str) -> list[list[float]]:
    """Return the values that count, of each process apart: of a command every run was one.

    Those of the first of its stages that has some. A figure from a CSV is `steady`, whatever it is.
    """
    stages = (*metric_named(metric).stages, "steady")
    values = next((values for stage in stages if (values := record.values(metric, stage))), [])
    if record.fact("end_to_end"):
        return [[value] for value in values]
    return [values] if values else []


NEVER_SEEN = Variation(0.05**2, 2.0)  # of a machine without history
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
    """The usual variation of a machine, apart from the processes of the case."""

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
        """As facts of a record: each within the range that a record may have."""
        known = {"process_spread": math.sqrt(self.spread.variance), "process_freedom": self.spread.freedom}
        if self.slope:
            known |= {
                "reference_slope": self.slope, "reference_slope_error": self.slope_error,
                "reference_usual": math.exp(self.level), "reference_error": math.sqrt(self.level_error.variance),
                "reference_freedom": self.level_error.freedom,
            }  # fmt: skip
        return {name: float(f"{FACTS[name].within(value):.6g}") for name, value in known.items()}


def stated(record: Record) -> Usual:
    """Return what a record states as usual; the prior where it states nothing."""
    spread, freedom = record.fact("process_spread"), record.fact("process_freedom")
    if not spread or not freedom:
        return Usual()
    names = ("slope", "slope_error", "usual", "error", "freedom")
    slope, slope_error, usual, error, level_freedom = (record.fact(f"reference_{name}") for name in names)
    known = Variation(spread**2, freedom)
    if not slope or slope_error is None or not usual or error is None or not level_freedom:
        return Usual(known)
    return Usual(known, slope, slope_error, math.log(usual), Variation(error**2, level_freedom))


def usual_for(process: Process, rest: Iterable[Process]) -> Usual:
    """Return what is usual for the processes of a case, from the rest of its machine.

    Those of its own run show their spread by themselves; they count for the reference kernel only. Processes that had
    to wait for a core tell nothing of others; but one of them may be off by as much as any.
    """
    everyone = [each for each in (process, *rest) if process.contended or not each.contended]
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
    """Return the usual time of the reference kernel, and how far off it may be for an hour like that.

    From the means of a few long periods: neighbouring minutes are alike.
    """
    first = min(each.when for each in processes)
    length = max(PERIOD_S, (max(each.when for each in processes) - first) / PERIODS)
    periods = grouped(processes, lambda each: (each.when - first) // length)
    levels = [mean([each.reference for each in period]) for period in periods.values()]
    few = len(levels) < FEW_PERIODS  # then use the variation from process to process
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
        """Return the slope of a case, no less than 0."""
        along, across = self._along.get(case, 0.0), self._across.get(case, 0.0)
        return max(0.0, min(STEEPEST, (along + self._few * self._common) / (across + self._few)))

    def error(self, case: str) -> float:
        """Return the standard deviation of that."""
        return SLOPES * math.sqrt(self._few / (self._across.get(case, 0.0) + self._few))


def headline(processes: Sequence[Process], usual: Usual) -> tuple[float, Variation]:
    """Return the mean time of a step in s, and how far off the mean of 30 other processes may be."""
    waited = any(each.contended for each in processes)  # all by the same amount: more of them add nothing
    count = 1 if waited else len(processes)
    value = mean([math.exp(each.time) for each in processes])
    known = usual.spread.with_(of_values([each.without(usual.slope) for each in processes]))
    own = Variation(known.variance * (1 / count + 1 / PREDICTED_PROCESSES), known.freedom)
    off = mean([each.reference for each in processes]) - usual.level
    if not usual.slope or abs(off) > FAR_OFF:
        return value, own
    shared = usual.slope**2 * usual.level_error.variance + (usual.slope_error * off) ** 2
    return value * math.exp(-usual.slope * off), own.plus(Variation(shared, usual.level_error.freedom))
