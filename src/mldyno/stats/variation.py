"""How much fresh processes differ, and what a few of them tell of the next ones: a moderated t (Smyth 2004).

Two or three processes hardly show their own spread, and one shows nothing of it. Other cases of the same machine do:
their variances follow a distribution that has a scale and is worth some degrees of freedom, and the variance of a
case is drawn towards that scale. All of this is about logarithms of times: a spread of 0.05 is one of 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mldyno.stats.intervals import mean, spread, student_t

OTHERS = 30  # fresh processes, whose mean an interval is to hold
MOST_FREEDOM = 1000  # degrees: with more of them an interval is no narrower


@dataclass(frozen=True)
class Variation:
    """The variance of a value, known as well as from so many degrees of freedom."""

    variance: float
    freedom: float

    def with_(self, other: Variation) -> Variation:
        """The same variance, known from both."""
        freedom = self.freedom + other.freedom
        if freedom == 0:
            return self
        return Variation((self.freedom * self.variance + other.freedom * other.variance) / freedom, freedom)

    def plus(self, other: Variation) -> Variation:
        """The variance of a sum, with the degrees of freedom that Welch and Satterthwaite give it."""
        variance = self.variance + other.variance
        if not other.variance:
            return self
        return Variation(variance, variance**2 / (self.variance**2 / self.freedom + other.variance**2 / other.freedom))

    @property
    def whole_freedom(self) -> int:
        """Its degrees of freedom as Student's t takes them."""
        return max(1, min(MOST_FREEDOM, math.floor(self.freedom)))

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of a value with this variance."""
        return student_t(self.whole_freedom) * math.sqrt(self.variance)


def of_values(logs: Sequence[float]) -> Variation:
    """What values show of their own variance."""
    return Variation(spread(logs) ** 2, len(logs) - 1) if len(logs) > 1 else Variation(0.0, 0.0)


def pooled(groups: Iterable[Variation]) -> Variation:
    """What groups of values, each with a variance of its own, tell of the variance of one more group.

    By the moments of the logarithms of their variances: these differ by chance, as far as their degrees of
    freedom say; what they differ by beyond that is how much groups really differ.
    """
    known = [group for group in groups if group.freedom > 0 and group.variance > 0]
    if not known:
        return Variation(0.0, 0.0)
    centred = [math.log(group.variance) - _digamma(group.freedom / 2) + math.log(group.freedom / 2) for group in known]
    centre = mean(centred)
    total = sum(group.freedom for group in known)
    freedom = total
    if len(known) > 1:
        excess = spread(centred) ** 2 - mean([_trigamma(group.freedom / 2) for group in known])
        freedom = min(total, 2 * _inverse_trigamma(excess)) if excess > 0 else total
    scale = math.exp(centre + _digamma(freedom / 2) - math.log(freedom / 2))
    return Variation(scale, freedom)


def _digamma(x: float) -> float:
    shift = 0.0
    while x < 6:
        shift -= 1 / x
        x += 1
    return shift + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _trigamma(x: float) -> float:
    shift = 0.0
    while x < 6:
        shift += 1 / x**2
        x += 1
    return shift + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5) + 1 / (42 * x**7)


def _inverse_trigamma(value: float) -> float:
    """The x with trigamma(x) = value, by halving: it falls from infinity to 0."""
    low, high = 1e-3, 1e6
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return high
