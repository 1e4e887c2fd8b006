"""Compare cases: a ratio with its interval and verdict, and how it was measured.

Paired: both were measured head-to-head in one run. The ratio is the exponential of the mean log-ratio of their
rounds. Within one process its interval comes from batches of rounds; across processes, whose speeds differ, from two
or more fresh pairs of them.
Separate runs: the two were never paired. The interval combines the two intervals, and includes no drift of the machine
in between. A published figure has no interval: a comparison with one has the other side's alone, and the verdict is
about the figure as published.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from mldyno.analysis import grouped
from mldyno.analysis.estimates import MIN_PROCESSES, Estimate, log_ratios, pooled, times_of_rounds
from mldyno.analysis.outcomes import Outcome, column, in_order
from mldyno.axes import COMMAND, FAKE, NAMES, SIZES, TRACKED
from mldyno.errors import MldynoError
from mldyno.frameworks import TOLERANCE, relative_error
from mldyno.records import Pairing, Record
from mldyno.stats.intervals import half_width, mean, median
from mldyno.stats.shapes import drift
from mldyno.units import Interval

DELTA = 0.02  # closer than this counts as equivalent
CLEAR_LOG = 0.05  # log-ratio from which on two times seem different
MAX_ADVISED_FACTOR = 100  # times the present budget: more than anyone would wait
PAIRED, SEPARATE = "paired", "separate runs"  # how a comparison was made
MEASURED = {"step": "step_time", "energy": "energy"}  # what is compared: the figure, and the metric of its rounds
LONGER_LOOPS = "a longer loop, or a quieter machine, would settle it"
AS_MEASURED = ("workload", "framework", "python", "run")  # axes without an order: the first measured is the base
ONE_SIDED = f"{SEPARATE}, own interval only"  # one side is a published figure, which has none
Pairs = list[tuple[Outcome, Outcome]]
Verdict = Literal["faster", "slower", "equivalent", "inconclusive"]


def verdict(low: float | None, high: float | None) -> Verdict:
    """Return the verdict of a 95 % interval of a ratio."""
    if low is None or high is None:
        return "inconclusive"
    if low > 1 - DELTA and high < 1 + DELTA:
        return "equivalent"
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "inconclusive"


@dataclass(frozen=True, repr=False, kw_only=True)
class Claim:
    """A ratio of speeds, and the verdict that follows."""

    speedup: Interval
    """The speed of the other side over that of the base; for energy, the base's over the other side's."""
    value: str = "step"  # what is compared: the time of a step, or its energy
    per_item: bool = False
    """True if it compares items per second, since steps of different sizes do different amounts of work."""

    @property
    def ratio(self) -> float:
        return self.speedup.value

    @property
    def low(self) -> float | None:
        return self.speedup.low

    @property
    def high(self) -> float | None:
        return self.speedup.high

    @property
    def verdict(self) -> Verdict:
        """faster, slower, equivalent or inconclusive; for energy `faster` is the side that takes less."""
        return verdict(self.low, self.high)

    @property
    def conclusive(self) -> bool:
        return self.verdict != "inconclusive"

    @property
    def settled(self) -> bool:
        """True if it is conclusive, or has no interval that more measuring would narrow."""
        return self.conclusive or self.low is None


@dataclass(frozen=True, repr=False, kw_only=True)
class Comparison(Claim):
    """The claim that two outcomes support, and how they were compared."""

    base: Outcome
    other: Outcome
    how: str
    advice: str = ""  # what would settle it

    @property
    def contradicts_times(self) -> bool:
        """True if the paired rounds contradict the two times that were measured alone."""
        first, second = self.base.figure(self.value), self.other.figure(self.value)
        if not self.how.startswith(PAIRED) or not self.conclusive or first is None or second is None:
            return False
        alone = math.log(more_items(self.base, self.other) * first.value / second.value)
        return abs(alone) > CLEAR_LOG if self.verdict == "equivalent" else alone * math.log(self.ratio) < 0

    @property
    def per_step(self) -> Comparison:
        """The comparison of step with step, whatever their sizes."""
        work = more_items(self.base, self.other)
        return replace(self, speedup=self.speedup.scaled_by(1 / work), per_item=False)


@dataclass(frozen=True, repr=False, kw_only=True)
class Mean(Claim):
    """The geometric mean of comparisons between the same two sides."""

    comparisons: tuple[Comparison, ...]
    axis: str = ""  # the axis along which all of them are; empty where they differ

    @property
    def base(self) -> Outcome:
        return self.comparisons[0].base

    @property
    def other(self) -> Outcome:
        return self.comparisons[0].other


def geometric_mean(comparisons: Sequence[Comparison], axis: str = "") -> Mean:
    """Return the geometric mean of ratios and of their ends: what slows a machine down slows all of its cases."""

    def centre(values: Iterable[float | None]) -> float | None:
        logs = [math.log(value) for value in values if value is not None]
        return math.exp(mean(logs)) if len(logs) == len(comparisons) else None

    ratio = centre(each.ratio for each in comparisons) or 0.0
    speedup = Interval(ratio, centre(each.low for each in comparisons), centre(each.high for each in comparisons))
    first = comparisons[0]
    return Mean(speedup=speedup, value=first.value, per_item=first.per_item, comparisons=tuple(comparisons), axis=axis)


def between_machines(comparisons: Sequence[Comparison]) -> list[Mean]:
    """Return the mean of all cases that two machines share, if there are two or more; each pair of devices apart."""

    def sides(comparison: Comparison) -> tuple[object, ...]:
        base, other = comparison.base, comparison.other
        return tuple((name, column(base, name), column(other, name)) for name in differing_axes(base, other))

    between = [each for each in comparisons if each.base.machine != each.other.machine]
    return [geometric_mean(group) for group in grouped(between, sides).values() if len(group) > 1]


def compare(base: Outcome, other: Outcome, value: str = "step") -> Comparison | None:
    """Return the comparison of two outcomes; None where one has no such value, or they may not do the same work."""
    first, second = base.figure(value), other.figure(value)
    if first is None or second is None or min(first.value, second.value) <= 0 or why_not_comparable(base, other):
        return None
    if value == "energy" and len({side.with_energy[0].fact("energy_scope") for side in (base, other)}) > 1:
        return None
    return _paired(base, other, value) or _separate(base, other, value, first, second)


def _separate(base: Outcome, other: Outcome, value: str, first: Estimate, second: Estimate) -> Comparison:
    """Compare by the times that each side took alone."""
    log_ratio = math.log(first.value / second.value)
    judged = [step for side, step in ((base, first), (other, second)) if not side.published] or [first, second]
    widths = [step.half_width / step.value for step in judged if step.half_width is not None]
    if len(widths) < len(judged):
        published = base.published and other.published
        why = "a published figure has no interval" if published else "too few samples for an interval"
        unknown = Interval(more_items(base, other) * first.value / second.value)
        comparison = _with_interval(base, other, value, (log_ratio, math.inf), SEPARATE)
        return replace(comparison, speedup=unknown, advice=why)
    how, processes = SEPARATE if len(judged) == 2 else ONE_SIDED, min(step.processes for step in judged)
    comparison = _with_interval(base, other, value, (log_ratio, math.hypot(*widths)), how, "--repeats", processes)
    pairable = how == SEPARATE and base.machine == other.machine and base.case != other.case
    if comparison.conclusive or not (pairable or base.case.tracked):
        return comparison
    advice = "to pair them, measure them in one run, --by the axis that they differ in"
    if base.case.tracked:
        advice = LONGER_LOOPS
    elif base.records[0].run.id != other.records[0].run.id:
        advice = "measure both in one run, so that they are paired"
    elif base.pairings and other.pairings:
        advice = "their paired comparison failed, or was not one of both; run just these two"
    return replace(comparison, advice=advice)


def more_items(base: Outcome, other: Outcome) -> float:
    """Return how many times as many items a step of the other has; 1 where sizes are equal or unknown."""
    if all(getattr(base.case, size) == getattr(other.case, size) for size in (*SIZES, "ranks", "scaling")):
        return 1.0
    first, second = (outcome.records[0].fact("items_per_step") or outcome.case.batch for outcome in (base, other))
    return second / first if first and second else 1.0


def compared(pairs: Pairs, value: str = "step") -> list[Comparison]:
    """Compare pairs, where both sides have the value: the time of a step, or its energy."""
    return [comparison for base, other in pairs if (comparison := compare(base, other, value)) is not None]


def not_comparable(pairs: Pairs) -> list[str]:
    """Return why some pairs are not compared, each reason once."""
    return list(dict.fromkeys(filter(None, (why_not_comparable(base, other) for base, other in pairs))))


def _paired(base: Outcome, other: Outcome, value: str) -> Comparison | None:
    """Compare by the closest kind of pairing that has enough rounds; None where there is none."""
    pairings = _pairings(base, other, MEASURED[value])
    inside = [logs for pairing, logs in pairings if pairing == "interleaved"]
    if inside and base.case.framework == "command":  # every run is a process, whichever worker started it
        inside = [[log for logs in inside for log in logs]]
    if inside:
        return _interleaved(base, other, value, inside)
    apart = [(pairing, median(logs)) for pairing, logs in pairings]
    if len(apart) < 2:
        return None
    kinds = {pairing for pairing, _ in apart}
    turns = "taking turns" if kinds == {"live-processes"} else "in alternation"
    how = f"paired, {len(apart)} fresh pairs of processes {turns}"
    centres = [centre for _, centre in apart]
    return _with_interval(base, other, value, (mean(centres), half_width(centres)), how, "--repeats", len(apart))


def _interleaved(base: Outcome, other: Outcome, value: str, by_process: list[list[float]]) -> Comparison:
    """Compare by the log-ratios of interleaved rounds, a list for each process."""
    processes = len(by_process)
    drifts = [drift([math.exp(log) for log in logs]) for logs in by_process]
    moved = max((abs(shape.change) for shape in drifts if shape is not None), default=0.0)
    doubt = f"; the ratio drifted by {100 * moved:.1f} % meanwhile" if moved else ""
    where = " in one process" if processes == 1 else f" in {processes} processes"
    where = "" if base.case.framework == "command" else where
    how = f"paired, {sum(map(len, by_process)):,} rounds{where}{doubt}"
    more, now = ("--repeats", processes) if processes >= MIN_PROCESSES else ("--budget", 1)
    return _with_interval(base, other, value, pooled(by_process), how, more, now)


def _with_interval(
    base: Outcome, other: Outcome, value: str, logs: tuple[float, float], how: str, more: str = "", now: int = 1
) -> Comparison:
    """Return the comparison from a log-ratio and its half-width; if inconclusive, with what would settle it."""
    work = more_items(base, other)
    log_ratio, width = logs[0] + math.log(work), logs[1]
    speedup = Interval.of_logs(log_ratio, width)
    comparison = Comparison(base=base, other=other, speedup=speedup, how=how, per_item=work != 1, value=value)
    return comparison if comparison.conclusive else replace(comparison, advice=_advice(log_ratio, width, more, now))


def _advice(log_ratio: float, width: float, more: str, now: int) -> str:
    """Return how much more is needed if the ratio is as estimated: the width shrinks with the root of the number."""
    if math.isinf(width):
        return f"too few pairs: more {more}"
    wanted = max(abs(log_ratio), DELTA - abs(log_ratio))
    factor = (width / wanted) ** 2 * 1.2
    if factor > MAX_ADVISED_FACTOR:
        return f"more {more}, or a quieter machine"
    if more == "--repeats":
        return f"about --repeats {max(now + 1, math.ceil(now * factor))} would settle it"
    return f"about {math.ceil(factor)}x the {more} would settle it"


def _pairings(base: Outcome, other: Outcome, metric: str) -> list[tuple[Pairing, list[float]]]:
    """Return how both were paired, and the log-ratios of their rounds, for each pairing that succeeded."""

    def place(record: Record) -> tuple[str, int, int, str]:
        return record.run.id, record.run.repeat, record.run.group, record.shown_machine

    theirs = {place(record): record for record in other.pairings}
    pairings = []
    for record in base.pairings:
        partner = theirs.get(place(record))
        if partner is not None and record.status == partner.status == "ok":
            logs = log_ratios(times_of_rounds(record, metric), times_of_rounds(partner, metric))
            pairings += [(record.run.pairing, logs)] if logs else []
    return pairings


def differing_axes(a: Outcome, b: Outcome) -> list[str]:
    """Return the axes, machine among them, on which two outcomes differ."""
    return [name for name in (*NAMES, "machine") if column(a, name) != column(b, name)]


def differences(a: Outcome, b: Outcome) -> list[str]:
    """Return what differs between two outcomes: axes, machine, versions, threads."""
    names = differing_axes(a, b)
    (first, case), (second, other) = ((each.records[0].software, each.case) for each in (a, b))
    if case.version != other.version:
        names.append("workload version")
    if "framework" in names:
        return names
    if first.versions and second.versions and first.versions != second.versions:
        names.append("framework version")
    if first.threads and second.threads and first.threads != second.threads and not {"machine", "threads"} & {*names}:
        names.append("threads")
    return names


def alike(outcomes: Sequence[Outcome], *axes: str) -> list[list[Outcome]]:
    """Group outcomes that differ in nothing but these axes."""
    shared = attrgetter(*(name for name in NAMES if name not in axes))

    def rest(outcome: Outcome) -> tuple[object, ...]:
        machine = None if "machine" in axes else outcome.machine
        return machine, None if "workload" in axes else outcome.case.version, shared(outcome.case)

    return list(grouped(outcomes, rest).values())


def along(outcomes: Sequence[Outcome], axis: str) -> Pairs:
    """Pair outcomes that differ along one axis, each with the first value of that axis as base."""
    values = dict.fromkeys((column(outcome, axis),) for outcome in outcomes)
    order = list(values) if axis in AS_MEASURED else in_order(set(values))
    rank = {key[0]: place for place, key in enumerate(order)}
    pairs = []
    for group in alike(outcomes, axis):
        group.sort(key=lambda outcome: rank[column(outcome, axis)])
        pairs += [(group[0], other) for other in group[1:]]
    return pairs


def between_workloads(newest: Sequence[Outcome], every: Sequence[Outcome]) -> Pairs:
    """Pair each outcome with the workload that it was last paired with, or else with the first of the newest."""
    paired: Pairs = []
    for group in alike(every, "workload"):
        last: dict[str, tuple[Outcome, Outcome]] = {}
        for base, *rest in grouped(group, lambda outcome: column(outcome, "run")).values():
            last |= {other.case.workload: (base, other) for other in rest if _pairings(base, other, "step_time")}
        paired += last.values()
    known = {(outcome.machine, outcome.case.id) for pair in paired for outcome in pair}
    separate = [pair for pair in along(newest, "workload") if (pair[1].machine, pair[1].case.id) not in known]
    return [*paired, *separate]


def pairs(
    left: Sequence[Outcome], right: Sequence[Outcome], allowed: Collection[str], one_free: bool = False
) -> tuple[Pairs, set[str]]:
    """Pair outcomes that differ in what is compared only, or in one axis; return in what else the rest differ."""
    comparable, refused = [], set()
    for a in left:
        for b in right:
            if a.records[0].id == b.records[0].id:
                continue
            different = set(differences(a, b))
            if different <= set(allowed) or (one_free and len(different) == 1):
                comparable.append((a, b))
            else:
                refused.add(", ".join(sorted(different - set(allowed))))
    return comparable, refused


def match(left: Sequence[Outcome], right: Sequence[Outcome], allowed: Collection[str], one_free: bool = False) -> Pairs:
    """Return the pairs that can be compared; raise if there are none."""
    comparable, refused = pairs(left, right, allowed, one_free)
    if not comparable and not refused:
        raise MldynoError("nothing to compare: these are the same records.")
    if not comparable:
        nearest = min(refused, key=lambda words: (words.count(","), words))
        raise MldynoError(f"not comparable: they differ in {nearest} as well; --anyway compares them all the same.")
    return comparable


WITHOUT = (FAKE, COMMAND, TRACKED)  # frameworks that compute nothing that could be compared


def proof_of(outcome: Outcome) -> list[float]:
    """Return the outputs that an outcome's records hold, if any."""
    texts = (record.fact("proof") for record in outcome.records)
    try:
        return [float(word) for word in next(filter(None, texts), "").split()]
    except ValueError:  # another version may have written something else
        return []


def disagreement(base: Outcome, other: Outcome) -> tuple[float, float] | None:
    """Return the relative difference between the outputs of two outcomes, and its tolerance; None where unknown."""
    mine, yours = proof_of(base), proof_of(other)
    if not mine or not yours or len(mine) != len(yours):
        return None
    tolerance = max(TOLERANCE.get(side.case.precision or "fp32", 0.0) for side in (base, other))
    return relative_error(yours, mine), tolerance


def why_not_comparable(base: Outcome, other: Outcome) -> str:
    """Return why the times of two frameworks can't be compared; empty where they can, and within one framework."""
    frameworks = [base.case.framework, other.case.framework]
    if len({*frameworks}) == 1 or {*frameworks} & {*WITHOUT} or base.published or other.published:
        return ""
    which = f"{frameworks[0]} and {frameworks[1]}"
    difference, workload = disagreement(base, other), base.case.workload
    if difference is None:
        again = f"mldyno run {workload} --framework {','.join(frameworks)}"
        return f"it is not proven that {which} compute the same in {workload}; measure both in one run: {again}"
    error, tolerance = difference
    if error <= tolerance:
        return ""
    return f"{which} do not compute the same in {workload}: they differ by {error:.2g}, {tolerance:.2g} is allowed"
