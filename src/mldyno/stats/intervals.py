"""Statistics that both sides share: quantiles, Student's t, batch intervals, autocorrelation, variance of processes.

Standard library only, since the runner stops on these numbers and the read side shows them.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

PAIRED_BATCHES = 12  # of the rounds of a comparison
MOST_SEGMENTS = 240  # of a long series: neighbours far apart show more about slow changes
MIN_CORRELATED = 16  # values; fewer say nothing about how neighbours are correlated
UPPER_TAIL = (1 - 0.95) / 2  # beyond a 95 % interval, on one side
CLIP_DEVIATIONS = 2.5  # normal deviations beyond which a value counts as one that far off


def quantile(ordered: Sequence[float], p: float) -> float:
    """Return the p-quantile of sorted values, interpolated linearly."""
    place = p * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """Return the median of at least one value."""
    return quantile(sorted(values), 0.5)


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """Return the sample standard deviation of at least two values."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Round to six digits: a millionth is below any clock's accuracy, and a record stays small."""
    return tuple(float(f"{value:.6g}") for value in values)


def _t_upper_tail(t: float, df: int) -> float:
    """Return P(T > t) of Student's t with whole degrees of freedom, by its finite sum (Abramowitz 26.7.3-4)."""
    theta = math.atan2(t, math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    total, term = 0.0, 1.0
    first = 3 if df % 2 else 2
    if df > 1:
        total = 1.0
        for k in range(first, df - 1, 2):
            term *= cos2 * (k - 1) / k
            total += term
    if df % 2:
        inside = (theta + math.sin(theta) * math.cos(theta) * total) * 2 / math.pi
    else:
        inside = math.sin(theta) * total
    return (1 - inside) / 2


@lru_cache(maxsize=1024)
def student_t(df: int, tail: float = UPPER_TAIL) -> float:
    """Return the value that Student's t exceeds with that probability; 2.262 for 9 degrees of freedom, at 95 %."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_upper_tail(middle, df) > tail else (low, middle)
    return (low + high) / 2


def batches(values: Sequence[float], count: int) -> list[Sequence[float]]:
    """Cut the series, in its order, into `count` runs of nearly equal length."""
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return [values[a:b] for a, b in itertools.pairwise(edges)]


def half_width(samples: Sequence[float]) -> float:
    """Return half of the 95 % interval of the mean of independent samples; infinite for fewer than two."""
    n = len(samples)
    return student_t(n - 1) * spread(samples) / math.sqrt(n) if n > 1 else math.inf


def batch_half_width(values: Sequence[float], count: int) -> float:
    """Return the half-width of the mean from `count` batch means: right for correlated series too."""
    return half_width([mean(batch) for batch in batches(values, count)]) if len(values) >= count else math.inf


@dataclass(frozen=True)
class Autocorrelation:
    """The correlation of neighbouring values in a series: `share * decay**k` at k segments apart."""

    share: float
    decay: float
    segments: int

    @property
    def independent(self) -> float:
        """Number of independent segments that the series is worth; at most as many as it was cut into."""
        return self.segments / (1 + 2 * self.share * self.decay / (1 - self.decay))

    def inflation(self, count: int) -> float:
        """Return by how much an interval from `count` batches is too narrow, since neighbours are alike."""
        if self.share * self.decay == 0 or count < 2:
            return 1.0
        length, rest = self.segments / count, 1 - self.decay
        faded = self.decay**length
        alike = length * (1 + self.decay) / rest - 2 * self.decay * (1 - faded) / rest**2
        variance = self.share * alike + (1 - self.share) * length
        first = self.share * self.decay * ((1 - faded) / rest) ** 2 / variance
        excess = sum(2 * (1 - k / count) * first * faded ** (k - 1) for k in range(1, count))
        # The mean varies more than independent batches would make it, and their spread shows less.
        return math.sqrt((1 + excess) / max(0.05, 1 - excess / (count - 1)))


def coarse(values: Sequence[float]) -> Sequence[float]:
    """Return the series itself, or the means of 240 segments where it is at least twice as long."""
    return values if len(values) < 2 * MOST_SEGMENTS else [mean(segment) for segment in batches(values, MOST_SEGMENTS)]


def autocorrelation(values: Sequence[float]) -> Autocorrelation:
    """Estimate how neighbours are correlated, from the correlations at one and two segments apart.

    Two, since independent noise in every value hides a slow common change from the first one.
    """
    if len(values) < MIN_CORRELATED:
        return Autocorrelation(0.0, 0.0, len(values))
    segments = coarse(values)
    count = len(segments)
    centre = median(segments)
    far = CLIP_DEVIATIONS * 1.4826 * median([abs(v - centre) for v in segments]) or math.inf
    off = [max(-far, min(far, v - centre)) for v in segments]
    power = sum(v * v for v in off)
    if power == 0:
        return Autocorrelation(0.0, 0.0, count)
    first = sum(map(operator.mul, off, itertools.islice(off, 1, None))) / power
    second = sum(map(operator.mul, off, itertools.islice(off, 2, None))) / power
    # Short series show too little.
    first, second = first + (1 + 3 * first) / count, second + (1 + 3 * second) / count
    if first <= 2 / math.sqrt(count):
        return Autocorrelation(1.0, max(0.0, first), count)
    decay = min(0.99, max(first, second / first))
    return Autocorrelation(min(1.0, first / decay), decay, count)


def paired(logs: Sequence[float]) -> tuple[float, float]:
    """Return the mean log-ratio of paired rounds, and half of its 95 % interval: t over 12 batch medians.

    The interval is inflated by the autocorrelation of the batches; it is infinite for fewer than two rounds.
    """
    count = min(PAIRED_BATCHES, len(logs))
    if count == 0:
        return 0.0, math.inf
    medians = [median(batch) for batch in batches(logs, count)]
    return mean(medians), half_width(medians) * autocorrelation(logs).inflation(count)


def trend(values: Sequence[float]) -> tuple[float, float]:
    """Return Mann-Kendall's z of a series, and its Theil-Sen change over the whole series.

    The change is in the unit of the values; |z| over 2.58 is a trend at the 1 % level.
    """
    n = len(values)
    if n < 3:
        return 0.0, 0.0
    pairs = [(values[j] - values[i], j - i) for i in range(n) for j in range(i + 1, n)]
    score = sum((rise > 0) - (rise < 0) for rise, _ in pairs)
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    z = (score - (score > 0) + (score < 0)) / deviation
    return z, median([rise / run for rise, run in pairs]) * (n - 1)


# -- variance of processes -------------------------------------------------------------------------


PREDICTED_PROCESSES = 30  # fresh ones, whose mean an interval is to hold
MOST_FREEDOM = 1000  # degrees: more make an interval no narrower


@dataclass(frozen=True)
class Variation:
    """The variance of the logarithm of a time, and the degrees of freedom with which it is known.

    Two or three processes hardly show their spread, and one shows nothing of it. Other cases of the machine do: their
    variances follow a distribution, and the variance of a case is drawn towards its scale. A spread of 0.05 is 5 %.
    """

    variance: float
    freedom: float

    def with_(self, other: Variation) -> Variation:
        """Combine two estimates of the same variance."""
        freedom = self.freedom + other.freedom
        if freedom == 0:
            return self
        return Variation((self.freedom * self.variance + other.freedom * other.variance) / freedom, freedom)

    def plus(self, other: Variation) -> Variation:
        """Return the variance of a sum, with the degrees of freedom of Welch and Satterthwaite."""
        variance = self.variance + other.variance
        if not other.variance:
            return self
        return Variation(variance, variance**2 / (self.variance**2 / self.freedom + other.variance**2 / other.freedom))

    @property
    def whole_freedom(self) -> int:
        return max(1, min(MOST_FREEDOM, math.floor(self.freedom)))

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of a value with this variance."""
        return student_t(self.whole_freedom) * math.sqrt(self.variance)


def of_values(logs: Sequence[float]) -> Variation:
    """Return the variance of some values."""
    return Variation(spread(logs) ** 2, len(logs) - 1) if len(logs) > 1 else Variation(0.0, 0.0)


def pooled(groups: Iterable[Variation]) -> Variation:
    """Return what the variances of some groups say about the variance of one more group: a moderated t (Smyth 2004).

    It uses the moments of the logarithms of their variances. These differ by chance, by an amount that follows from
    their degrees of freedom; any further difference is how much groups really differ.
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
    """Return the x with trigamma(x) = value, by halving: it falls from infinity to 0."""
    low, high = 1e-3, 1e6
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return high
