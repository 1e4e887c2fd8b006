"""How much faster one case is than another, how sure that is, and how it was found out.

Paired: both were measured against each other in one run, in paired comparisons. The ratio is the exponential
of the mean log-ratio of their rounds. In one process its interval comes from batches of rounds;
between processes, each of which has a speed of its own, from several fresh pairs of them.
Archived: they never met; the interval comes from each one's own, and what the machine did in
between is in neither.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import column, in_order
from mldyno.axes import NAMES
from mldyno.errors import MldynoError
from mldyno.records import Pairing, Record
from mldyno.stats.intervals import half_width, mean, median, paired
from mldyno.stats.shapes import drift

DELTA = 0.02  # closer than this counts as equivalent
OWN_SPEED = 0.05  # what one process may be off by itself; several rounds measure it instead
SEVERAL = 3
MOST_ADVISED = 100  # times as long: nobody would wait
Pairs = list[tuple[Outcome, Outcome]]


def verdict(low: float | None, high: float | None) -> str:
    """What a 95 % interval of a ratio says: faster, slower, equivalent or inconclusive."""
    if low is None or high is None:
        return "inconclusive"
    if low > 1 - DELTA and high < 1 + DELTA:
        return "equivalent"
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "inconclusive"


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
        return verdict(self.low, self.high)


@dataclass(frozen=True)
class Mean:
    """The geometric mean of comparisons between the same two sides."""

    comparisons: tuple[Comparison, ...]
    ratio: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """faster, slower, equivalent or inconclusive."""
        return verdict(self.low, self.high)


def geometric_mean(comparisons: Sequence[Comparison]) -> Mean:
    """The geometric mean of the ratios, with an interval where each of them has one.

    Its ends are those of the intervals' ends: as if all erred the same way, since what slows a machine
    down for a while slows all of its cases down.
    """

    def centre(values: Sequence[float]) -> float:
        return math.exp(mean([math.log(value) for value in values]))

    lows = [one.low for one in comparisons if one.low is not None]
    highs = [one.high for one in comparisons if one.high is not None]
    known = len(lows) == len(highs) == len(comparisons)
    ratio = centre([one.ratio for one in comparisons])
    return Mean(tuple(comparisons), ratio, centre(lows) if known else None, centre(highs) if known else None)


def between_machines(comparisons: Sequence[Comparison]) -> list[Mean]:
    """The mean of all cases that two machines share, where they are several; devices that differ are kept apart."""
    sides: dict[tuple[object, ...], list[Comparison]] = {}
    for one in comparisons:
        if one.base.machine != one.other.machine:
            names = differing(one.base, one.other)
            side = tuple((name, column(one.base, name), column(one.other, name)) for name in names)
            sides.setdefault(side, []).append(one)
    return [geometric_mean(several) for several in sides.values() if len(several) > 1]


def compare(base: Outcome, other: Outcome) -> Comparison | None:
    """The comparison of two outcomes; None where one of them has no time of a step."""
    first, second = base.step, other.step
    if first is None or second is None or min(first.value, second.value) <= 0:
        return None
    found = _paired(base, other)
    if found is not None:
        return found
    ratio = first.value / second.value
    if first.half_width is None or second.half_width is None:
        short = next(o for o, e in ((base, first), (other, second)) if e.half_width is None)
        why = "a published figure has no interval" if short.published else "too few samples for an interval"
        return Comparison(base, other, ratio, None, None, "archived", why)
    width = math.hypot(first.half_width / first.value, second.half_width / second.value)
    width = math.hypot(width, 0.0 if min(first.processes, second.processes) >= SEVERAL else OWN_SPEED)
    processes = min(first.processes, second.processes)
    found = _with_interval(base, other, math.log(ratio), width, "archived", "--repeats", processes)
    if found.verdict == "inconclusive" and base.machine == other.machine:
        return replace(found, advice=_how_to_meet(base, other))
    return found


def compared(found: Pairs) -> list[Comparison]:
    """The comparisons of pairs, as far as both sides have a time of a step."""
    return [one for base, other in found if (one := compare(base, other)) is not None]


def _how_to_meet(base: Outcome, other: Outcome) -> str:
    """What would make two cases of one machine meet, or what helps where they can't."""
    if base.records[0].facts.get("end_to_end"):
        return "more --steps of each would tell"
    if base.records[0].run.id != other.records[0].run.id:
        return "measure both in one run, so that they are paired"
    if base.pairings and other.pairings:
        return "their paired comparison failed, or was not one of both; run just these two"
    return "run them with --by and the axis that they differ in, so that they are paired"


def _paired(base: Outcome, other: Outcome) -> Comparison | None:
    """From the paired comparisons of the two, the nearest kind of which there is enough; None where they never met."""
    held = _pairings(base, other)
    inside = [logs for pairing, logs in held if pairing == "interleaved"]
    if inside:
        return _in_one_process(base, other, inside)
    apart = [(pairing, mean(logs)) for pairing, logs in held]
    if len(apart) < 2:
        return None
    kinds = {pairing for pairing, _ in apart}
    turns = "taking turns" if kinds == {"live-processes"} else "in alternation"
    how = f"paired, {len(apart)} fresh pairs of processes {turns}"
    centres = [centre for _, centre in apart]
    return _with_interval(base, other, mean(centres), half_width(centres), how, "--repeats", len(apart))


def _in_one_process(base: Outcome, other: Outcome, held: list[list[float]]) -> Comparison:
    rounds = sum(map(len, held))
    ratios = [[math.exp(log) for log in logs] for logs in held]
    moved = max((abs(found.change) for one in ratios if (found := drift(one)) is not None), default=0.0)
    doubt = f"; the ratio drifted by {100 * moved:.1f} % meanwhile" if moved else ""
    if len(held) >= SEVERAL:
        centres = [paired(logs)[0] for logs in held]
        how = f"paired, {rounds:,} rounds in {len(held)} processes{doubt}"
        return _with_interval(base, other, mean(centres), half_width(centres), how, "--repeats", len(held))
    known = [paired(logs) for logs in held]
    width = math.sqrt(sum(one**2 for _, one in known)) / len(known)
    how = f"paired, {rounds:,} rounds in {'one process' if len(held) == 1 else f'{len(held)} processes'}{doubt}"
    return _with_interval(base, other, mean([centre for centre, _ in known]), width, how, "--budget", 1)


def _with_interval(
    base: Outcome, other: Outcome, log_ratio: float, width: float, how: str, more: str, now: int
) -> Comparison:
    """The comparison with its interval; where it can't tell, what would make it: more of what, and how much."""
    if not math.isfinite(width):
        return Comparison(base, other, math.exp(log_ratio), None, None, how, f"too few pairs: more {more}")
    low, high = math.exp(log_ratio - width), math.exp(min(log_ratio + width, 700))
    found = Comparison(base, other, math.exp(log_ratio), low, high, how)
    if found.verdict != "inconclusive":
        return found
    return Comparison(base, other, found.ratio, low, high, how, _advice(log_ratio, width, more, now))


def _advice(log_ratio: float, width: float, more: str, now: int) -> str:
    """How much more it would take, if the ratio is what it looks like: the width shrinks with the root."""
    wanted = max(abs(log_ratio), DELTA - abs(log_ratio))
    factor = (width / wanted) ** 2 * 1.2
    if more == "--repeats":
        return f"about --repeats {max(now + 1, math.ceil(now * factor))} would tell"
    if factor > MOST_ADVISED:
        return f"more {more}, or a quieter machine"
    return f"about {math.ceil(factor)} times the {more} would tell"


def _pairings(base: Outcome, other: Outcome) -> list[tuple[Pairing, list[float]]]:
    """How both met, and the log-ratios of their rounds, one list for each paired comparison that came out well."""
    theirs = {_place(record): record for record in other.pairings}
    found = []
    for record in base.pairings:
        partner = theirs.get(_place(record))
        if partner is None or record.status != "ok" or partner.status != "ok":
            continue
        mine, yours = _rounds(record), _rounds(partner)
        logs = [math.log(mine[number] / yours[number]) for number in mine if number in yours]
        if logs:
            found.append((record.run.pairing, logs))
    return found


def _place(record: Record) -> tuple[str, int, int, str]:
    return record.run.id, record.run.repeat, record.run.group, record.machine.name


def _rounds(record: Record) -> dict[int, float]:
    """The time of a step in each round: one block of a round within a process, the median of a turn between them."""
    paired_ones = [s for s in record.series if (s.metric, s.stage) == ("step_time", "paired") and s.values]
    if record.run.pairing == "interleaved":
        return dict(enumerate(value for series in paired_ones for value in series.values))
    if record.run.pairing == "alternating-processes":
        return {0: median([value for series in paired_ones for value in series.values])} if paired_ones else {}
    return {series.turn: median(series.values) for series in paired_ones if series.turn is not None}


def differing(a: Outcome, b: Outcome) -> list[str]:
    """The axes, machine among them, on which two outcomes differ."""
    return [name for name in (*NAMES, "machine") if column(a, name) != column(b, name)]


def differences(a: Outcome, b: Outcome) -> list[str]:
    """What differs between two outcomes, beside their times: axes, machine, versions, threads."""
    found = differing(a, b)
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


def alike(outcomes: Sequence[Outcome], *axes: str) -> list[list[Outcome]]:
    """Outcomes in groups that differ in nothing but these axes."""
    names = [name for name in (*NAMES, "machine") if name not in axes]
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(tuple(column(outcome, name) for name in names), []).append(outcome)
    return list(groups.values())


def along(outcomes: Sequence[Outcome], axis: str) -> Pairs:
    """Pairs of outcomes that differ along one axis, each with the first value of that axis as base."""
    order = in_order({(column(outcome, axis),) for outcome in outcomes})
    rank = {key[0]: place for place, key in enumerate(order)}
    found = []
    for group in alike(outcomes, axis):
        group.sort(key=lambda outcome: rank[column(outcome, axis)])
        found += [(group[0], other) for other in group[1:]]
    return found


def pairs(
    left: Sequence[Outcome], right: Sequence[Outcome], allowed: Collection[str], one_free: bool = False
) -> tuple[Pairs, set[str]]:
    """Pairs that differ in nothing but what is compared, or in one thing; and in what else the others differ."""
    found, refused = [], set()
    for a in left:
        for b in right:
            if a.records[0].id == b.records[0].id:
                continue
            different = set(differences(a, b))
            if different <= set(allowed) or (one_free and len(different) == 1):
                found.append((a, b))
            else:
                refused.add(", ".join(sorted(different - set(allowed))))
    return found, refused


def match(left: Sequence[Outcome], right: Sequence[Outcome], allowed: Collection[str], one_free: bool = False) -> Pairs:
    """The pairs that can be compared; refuses where all are unlike."""
    found, refused = pairs(left, right, allowed, one_free)
    if not found and not refused:
        raise MldynoError("nothing to compare: these are the same records.")
    if not found:
        nearest = min(refused, key=lambda words: (words.count(","), words))
        raise MldynoError(f"not comparable: they differ in {nearest} as well; --anyway compares them all the same.")
    return found
