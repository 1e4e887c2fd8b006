"""From raw samples to a number with its interval: the time of a step, any other metric, and ratios of rounds.

The number is the mean of the medians of fresh processes. Its interval is about the next process: speed varies between
processes, and a machine has better and worse minutes. The reference kernel runs between the steps and shows the state
of the machine; how far step times follow it is fitted, in logarithms: a spread of 0.05 is one of 5 %. The writing side
stores what is usual for a machine in the record as facts, so that a record says the same wherever it is read.

Rounds belong to a paired comparison. Where one thread did all of the work, the time that it was ready but had no core
is taken out: other processes got in its way then, and they hit either side of a round by chance. A thread that sleeps,
or waits for a disk, is not ready, and that time counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from mldyno.analysis import grouped
from mldyno.metrics import FACTS, metric_named
from mldyno.records import Fact, Record, Series
from mldyno.stats.intervals import PREDICTED_PROCESSES, Variation, batches, half_width, mean, median, of_values, paired
from mldyno.stats.intervals import pooled as pooled_variation
from mldyno.units import Interval

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
    when: float  # in s since 1970
    time: float
    reference: float  # 0 where there is none, as of a command
    contended: bool = False  # whether its threads waited for a core

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
    kernel = (*place, case.framework, case.precision, size) if references else place
    reference = math.log(median(references)) if references else 0.0
    name, medians = f"{case.id} {sorted(software.versions.items())}", map(median, by_process(record, metric))
    return [Process(name, record.run.id, kernel, record.machine.power, when, math.log(time), reference,
                    contended(record)) for time in medians if time > 0]  # fmt: skip


def varying_processes(records: Iterable[Record]) -> list[Process]:
    """Return the processes that show how much a machine varies: all but users' loops, whose code changes."""
    return [process for record in records if not record.case.tracked for process in processes_of(record)]


def undisturbed(items: Sequence[T], waited: Callable[[T], bool]) -> list[T]:
    """Return the items that did not wait for a core; all of them where every one did."""
    return [item for item in items if not waited(item)] or list(items)


def contended(record: Record) -> bool:
    """Return whether its threads had to wait for a core, or the machine's host took much of its time."""
    return any(warning.code == "contended" for warning in record.warnings)


def by_process(record: Record, metric: str) -> list[list[float]]:
    """Return the values that count, by process, of its first stage that has some; each run of a command is one."""
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

    spread: Variation = NEVER_SEEN  # of processes, without what the reference kernel explains
    slope: float = 0.0  # how far steps follow the reference kernel: 1 where both get slower by the same percentage
    slope_error: float = 0.0  # the standard deviation of that
    level: float = 0.0  # the usual time of the reference kernel, in log s
    level_error: Variation = NOTHING  # how far off that may be

    @property
    def facts(self) -> dict[str, Fact]:
        known = {"process_spread": math.sqrt(self.spread.variance), "process_freedom": self.spread.freedom}
        if self.slope:
            known |= {
                "reference_slope": self.slope, "reference_slope_error": self.slope_error,
                "reference_usual": math.exp(self.level), "reference_error": math.sqrt(self.level_error.variance),
                "reference_freedom": self.level_error.freedom,
            }  # fmt: skip
        within = {name: FACTS[name].within(value) for name, value in known.items()}  # the range that a record may have
        return {name: float(f"{value:.6g}") for name, value in within.items()}


def recorded_usual(record: Record) -> Usual:
    """Return the usual variation that a record states; the prior where it states none."""
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
    """Return the usual variation of a case's processes, from the other processes of its machine.

    Those of its own run show their spread by themselves, and count for the reference kernel only. Processes that waited
    for a core say nothing about other processes, but one of them may be off by as much as any other.
    """
    everyone = [each for each in (process, *rest) if process.contended or not each.contended]
    alike = [each for each in everyone if each.kernel == process.kernel and not process.contended]
    slopes = Slopes(alike)
    near = [each for each in everyone if each.near(process) and (each.case, each.run) != (process.case, process.run)]
    by_case = grouped(near, lambda each: each.case).items()
    variations = {case: of_values([each.without(slopes.of(case)) for each in group]) for case, group in by_case}
    own = variations.pop(process.case, Variation(0.0, 0.0))
    spread = pooled_variation([NEVER_SEEN, *variations.values()]).with_(own)
    slope = slopes.of(process.case)
    if not slope:
        return Usual(spread)
    recent = [each for each in alike if each.power == process.power and process.when - each.when < PRESENT_S]
    level, error = _level(recent)
    return Usual(spread, slope, slopes.error(process.case), level, error)


def _level(processes: Sequence[Process]) -> tuple[float, Variation]:
    """Return the usual time of the reference kernel, and how far off it may be in an hour, from a few long periods."""
    first = min(each.when for each in processes)
    length = max(PERIOD_S, (max(each.when for each in processes) - first) / PERIODS)
    periods = grouped(processes, lambda each: (each.when - first) // length)
    levels = [mean([each.reference for each in period]) for period in periods.values()]
    few = len(levels) < FEW_PERIODS  # then use the variation from process to process
    known = LEVEL_NEVER_SEEN.with_(of_values([each.reference for each in processes] if few else levels))
    return mean(levels), Variation(known.variance * (1 / len(levels) + 1 / PERIODS), known.freedom)


class Slopes:
    """How strongly the step time of each case follows the reference kernel, shrunk towards the common slope."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._along: dict[str, float] = {}
        self._across: dict[str, float] = {}
        for case, group in grouped(processes, lambda each: each.case).items():
            time, reference = mean([each.time for each in group]), mean([each.reference for each in group])
            self._along[case] = math.fsum((each.reference - reference) * (each.time - time) for each in group)
            self._across[case] = math.fsum((each.reference - reference) ** 2 for each in group)
        self._few = (NOISE / SLOPES) ** 2
        self._common = sum(self._along.values()) / (sum(self._across.values()) + self._few)

    def of(self, case: str) -> float:
        """Return the slope of a case, no less than 0."""
        along, across = self._along.get(case, 0.0), self._across.get(case, 0.0)
        return max(0.0, min(STEEPEST, (along + self._few * self._common) / (across + self._few)))

    def error(self, case: str) -> float:
        """Return the standard error of the slope of a case."""
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
    freedom: int = BATCHES - 1  # degrees of freedom of the interval

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
    value, error = headline(processes, recorded_usual(timed[-1]))
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
    """Return the mean log-ratio of processes and its half-width: of a few, from the rounds within them."""
    intervals = [paired(logs) for logs in by_process]
    centres = [centre for centre, _ in intervals]
    if len(centres) >= MIN_PROCESSES:
        return mean(centres), half_width(centres)
    if not centres:
        return 0.0, math.inf
    return mean(centres), math.sqrt(sum(width**2 for _, width in intervals)) / len(centres)
