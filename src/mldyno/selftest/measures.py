"""A measure of mldyno's own errors: its value, its bound, and the target that it must meet.

The value of a measure is that of its worst kind of series. A share outside its target is a miss only if chance can't
explain it, or from 1,000 trials on; with fewer trials it is neither met nor missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mldyno.stats.intervals import quantile

Row = dict[str, Any]
ENOUGH_TRIALS = 1000  # from here on, chance is no excuse


@dataclass(frozen=True)
class SeriesKind:
    """One kind of series within a measure."""

    name: str
    value: float
    bound: float | None
    ok: bool | None
    n: int
    note: str = ""
    counts: bool = True  # whether the verdict of the measure depends on it; else it is only reported


@dataclass(frozen=True)
class Measure:
    """One row of the table: shares and relative errors are fractions of 1."""

    id: int
    name: str
    value: float
    bound: float | None  # 95 % one-sided bound on the unfavourable side
    target: str
    ok: bool | None  # whether the target is met; None with too few trials to judge
    n: int
    unit: str = "1"  # `share` is shown as a percentage
    peers: str = ""
    note: str = ""
    cells: tuple[SeriesKind, ...] = ()  # the kinds of series; the value is that of the worst
    raw: tuple[dict[str, Any], ...] = ()  # the rows that it was computed from
    failure: str = ""  # why its task did not reach its end
    framework: str = ""  # the framework that was tested, of a device


@dataclass
class Process:
    """A process of the contract: its tasks, how it ended, and the last lines of its standard error."""

    framework: str
    tasks: list[str] = field(default_factory=list)
    ended: str = ""  # empty if it did all that was asked of it
    printed: list[str] = field(default_factory=list)


def upper_bound(hits: int, n: int, level: float = 0.95) -> float:
    """Return the upper limit of a share after `hits` of `n` trials (Clopper-Pearson, one-sided)."""
    if hits >= n:
        return 1.0
    low, high = hits / n, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(hits, n, middle) > 1 - level else (low, middle)
    return (low + high) / 2


def lower_bound(hits: int, n: int, level: float = 0.95) -> float:
    """Return the lower limit of a share after `hits` of `n` trials (Clopper-Pearson, one-sided)."""
    return 1.0 - upper_bound(n - hits, n, level)


def _at_most(hits: int, n: int, p: float) -> float:
    """Return P(X <= hits) of a binomial distribution of n trials with probability p."""
    if p >= 1.0:
        return 1.0 if hits >= n else 0.0
    if p <= 0.0:
        return 1.0
    whole, yes, no = math.lgamma(n + 1), math.log(p), math.log1p(-p)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * yes + (n - k) * no) for k in range(hits + 1)
    )


def quantile_with_bound(values: Sequence[float], p: float) -> tuple[float, float]:
    """Return the p-quantile and its one-sided 95 % bound by order statistics (the largest value if there is none)."""
    ordered = sorted(values)
    n = len(ordered)
    rank = next((k for k in range(math.floor(n * p), n) if _at_most(k, n, p) >= 0.95), n - 1)
    return quantile(ordered, p), ordered[rank]


def meets(hits: int, n: int, least: float = 0.0, most: float = 1.0, level: float = 0.95) -> bool | None:
    """Return whether a share of n trials lies between its limits; None with too few trials to judge.

    A share outside the limits is a miss if its interval excludes the limit too, and from 1,000 trials on anyway. A
    share within them counts only if one failure more could not have put it outside.
    """
    if not n:
        return None
    share, failures = hits / n, min(most if most < 1 else 1.0, 1 - least if least > 0 else 1.0)
    if least <= share <= most:
        return True if n * failures >= 1 else None
    missed = lower_bound(hits, n, level) > most or upper_bound(hits, n, level) < least
    return False if missed or n >= ENOUGH_TRIALS else None


def series_kind(
    name: str, hits: int, n: int, least: float = 0.0, most: float = 1.0, level: float = 0.95, note: str = "",
    counts: bool = True,
) -> SeriesKind:  # fmt: skip
    """Return a kind of series: the share of hits, its bound on the unfavourable side, and whether it meets its limits.

    `level` is the confidence with which a miss must be certain.
    """
    share = hits / n if n else 0.0
    too_low = most == 1.0 or (least > 0 and share < (least + most) / 2)
    bound = (lower_bound if too_low else upper_bound)(hits, n) if n else None
    return SeriesKind(name, share, bound, meets(hits, n, least, most, level), n, note, counts)


def together(verdicts: Iterable[bool | None]) -> bool | None:
    """Return the verdict on a measure from those on its parts: missed if any is missed, met if all are met."""
    known = set(verdicts)
    return False if False in known else None if None in known else True
