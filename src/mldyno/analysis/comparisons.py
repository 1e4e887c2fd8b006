"""How much faster one case is than another, how sure that is, and how it was found out.

Paired: both took turns in one run; the ratio is the exponential of the mean log-ratio of turns, with
a t-interval over twelve batch medians, or over rounds of fresh processes once there are three.
Archived: they never took turns; the interval comes from each one's own, and what the machine did in
between is in neither.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mldyno.analysis.estimates import step_time
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import column, in_order
from mldyno.errors import MldynoError
from mldyno.intervals import batches, half_width, mean, median
from mldyno.records import AXES, Record

BATCHES = 12
DELTA = 0.02  # closer than this counts as equivalent
OWN_SPEED = 0.05  # what one process may be off by itself; several rounds measure it instead
SEVERAL = 3


@dataclass(frozen=True)
class Comparison:
    """`ratio` is how many times as fast `other` is as `base`, with a 95 % interval where there is one."""

    base: Outcome
    other: Outcome
    ratio: float
    low: float | None
    high: float | None
    how: str
    advice: str = ""

    @property
    def verdict(self) -> str:
        """faster, slower, equivalent or inconclusive."""
        if self.low is None or self.high is None:
            return "inconclusive"
        if self.low > 1 - DELTA and self.high < 1 + DELTA:
            return "equivalent"
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "inconclusive"


def compare(base: Outcome, other: Outcome) -> Comparison | None:
    """The comparison of two outcomes; None where one of them has no time of a step."""
    first, second = step_time(base.good), step_time(other.good)
    if first is None or second is None or min(first.value, second.value) <= 0:
        return None
    rounds = _paired_rounds(base, other)
    if rounds:
        return _paired(base, other, rounds)
    ratio = first.value / second.value
    if first.half_width is None or second.half_width is None:
        short = next(o for o, e in ((base, first), (other, second)) if e.half_width is None)
        why = "a published figure has no interval" if short.published else "too few samples for an interval"
        return Comparison(base, other, ratio, None, None, "archived", why)
    width = math.hypot(first.half_width / first.value, second.half_width / second.value)
    width = math.hypot(width, 0.0 if min(first.processes, second.processes) >= SEVERAL else OWN_SPEED)
    apart = base.machine != other.machine
    advice = "more --repeats on each" if apart else "measure both in one run, so that they take turns"
    return _with_interval(base, other, math.log(ratio), width, "archived", advice)


def _paired(base: Outcome, other: Outcome, rounds: list[list[float]]) -> Comparison:
    if len(rounds) >= SEVERAL:
        centres = [mean(logs) for logs in rounds]
        how = f"paired, {len(rounds)} rounds of fresh processes"
        return _with_interval(base, other, mean(centres), half_width(centres), how, "more --repeats")
    medians = [[median(batch) for batch in batches(logs, min(BATCHES, len(logs)))] for logs in rounds]
    centre = mean([mean(one) for one in medians])
    width = math.hypot(math.sqrt(sum(half_width(one) ** 2 for one in medians)) / len(medians), OWN_SPEED)
    how = f"paired, {sum(map(len, rounds))} turns, {len(rounds)} process{'es' if len(rounds) > 1 else ''} each"
    return _with_interval(base, other, centre, width, how, f"--repeats {SEVERAL + 2} can tell a smaller difference")


def _with_interval(base: Outcome, other: Outcome, log_ratio: float, width: float, how: str, advice: str) -> Comparison:
    low, high = math.exp(log_ratio - width), math.exp(min(log_ratio + width, 700))
    found = Comparison(base, other, math.exp(log_ratio), low, high, how)
    if found.verdict == "inconclusive":
        return Comparison(base, other, found.ratio, low, high, how, advice)
    return found


def _paired_rounds(base: Outcome, other: Outcome) -> list[list[float]]:
    """Log-ratios of the turns that both took, one list for each round; empty where they never did."""
    found = []
    theirs = {record.run.round: record for record in other.good}
    for record in base.good:
        partner = theirs.get(record.run.round)
        if partner is None or not _took_turns(record, partner):
            continue
        mine, yours = _turns(record), _turns(partner)
        logs = [math.log(mine[turn] / yours[turn]) for turn in mine if turn in yours]
        if len(logs) >= 2:
            found.append(logs)
    return found


def _took_turns(a: Record, b: Record) -> bool:
    return (a.run.id, a.run.group, a.machine.name) == (b.run.id, b.run.group, b.machine.name)


def _turns(record: Record) -> dict[int, float]:
    """The median step of each turn."""
    return {
        series.turn: median(series.values)
        for series in record.series
        if series.metric == "step_time" and series.phase == "steady" and series.turn is not None and series.values
    }


def differences(a: Outcome, b: Outcome) -> list[str]:
    """What differs between two outcomes, beside their times: axes, machine, versions, threads."""
    names = [*(axis.name for axis in AXES), "machine"]
    found = [name for name in names if column(a, name) != column(b, name)]
    mine, yours = a.records[0], b.records[0]
    if mine.case.version != yours.case.version:
        found.append("workload version")
    same_framework = "framework" not in found
    if same_framework and mine.software.versions and yours.software.versions:
        if mine.software.versions != yours.software.versions:
            found.append("framework version")
    known = mine.software.threads and yours.software.threads
    if known and "machine" not in found and "threads" not in found and same_framework:
        if mine.software.threads != yours.software.threads:
            found.append("threads")
    return found


def along(outcomes: Sequence[Outcome], axis: str) -> list[tuple[Outcome, Outcome]]:
    """Pairs of outcomes that differ along one axis, each with the first value of that axis as base."""
    order = in_order({(column(outcome, axis),) for outcome in outcomes})
    rank = {key[0]: place for place, key in enumerate(order)}
    pairs = []
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    names = [name for name in (*(a.name for a in AXES), "machine") if name != axis]
    for outcome in outcomes:
        groups.setdefault(tuple(column(outcome, name) for name in names), []).append(outcome)
    for group in groups.values():
        group.sort(key=lambda outcome: rank[column(outcome, axis)])
        pairs += [(group[0], other) for other in group[1:]]
    return pairs


def match(
    left: Sequence[Outcome], right: Sequence[Outcome], allowed: Collection[str], one_free: bool = False
) -> list[tuple[Outcome, Outcome]]:
    """Pairs that differ in nothing but what is compared, or in one thing; refuses where all are unlike."""
    pairs, refused = [], set()
    for a in left:
        for b in right:
            if a.records[0].id == b.records[0].id:
                continue
            different = set(differences(a, b))
            if different <= set(allowed) or (one_free and len(different) == 1):
                pairs.append((a, b))
            else:
                refused.add(", ".join(sorted(different - set(allowed))))
    if not pairs and not refused:
        raise MldynoError("nothing to compare: these are the same records.")
    if not pairs:
        nearest = min(refused, key=lambda words: words.count(","))
        raise MldynoError(f"not comparable: they differ in {nearest} as well; --anyway compares them all the same.")
    return pairs
