"""When steps are warm, and when enough has been measured.

Warm: the first step is kept apart; then steps run until the series and its counters are steady. The medians of the
series' 20 segments are described in two ways, as a start of some segments followed by one level, and as a start
followed by a slope. The description that leaves least, with a price for each segment of the start and for the slope,
says where the steady part begins, or that there is none: a slope won, by more than 2 %. The start is never longer than
half of the series. Counters: no new compiled graph and no growth of reserved memory over the last half. A first look
that finds it steady is confirmed by a second one, after as many blocks again.

Enough: both the 8-batch and the 16-batch half-width are under the target. Four things keep it from stopping at a lucky
moment. The widths are inflated by the autocorrelation of the batches; the width that follows from this correlation must
be under the target too; a series worth fewer than 30 independent values counts as less well known than it looks; and
its first two thirds must have agreed. Never a rule on dispersion: the spread of samples says nothing about how well
their mean is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mldyno.stats.intervals import autocorrelation, batch_half_width, batches, coarse, mean, median, spread, student_t
from mldyno.stats.shapes import SEGMENTS, line
from mldyno.timing.blocks import LONG_STEP, Blocks

BATCH_COUNTS = (8, 16)
MIN_INDEPENDENT = 30.0  # values that a series should be worth, before its batches can be trusted
EARLIER = 2 / 3  # the part of the series that must have agreed already
GROWTH = 1.5  # how much more is measured before the rule is looked at again
FIRST_LOOK = 0.25  # s
WARMUP_SHARE, SHORTEST_WARMUP_S = 0.25, 1.0  # of a process's budget, that its warm-up may take; and at least
SUSTAINED_S = 5.0  # under load, after which power and heat of an accelerator have mostly settled


def relative_half_width(values: Sequence[float]) -> float | None:
    """Return half of the mean's 95 % interval, relative to it; None under 16 values."""
    if len(values) < max(BATCH_COUNTS):
        return None
    earlier = values[: round(EARLIER * len(values))]
    return max(_half_width(values), _half_width(earlier) * math.sqrt(EARLIER)) / mean(values)


def _half_width(values: Sequence[float]) -> float:
    """Return the largest half-width from 8 batches, 16 batches and the correlation, in the unit of the values."""
    segments, correlation = coarse(values), autocorrelation(values)
    widths = [batch_half_width(segments, n) * correlation.inflation(n) for n in BATCH_COUNTS if len(values) >= n]
    # Eight batches alone are lucky now and then; all the segments know the spread better.
    freedom = max(1, round(correlation.independent) - 1)
    widths.append(student_t(freedom) * spread(segments) / math.sqrt(correlation.independent))
    return max(widths) * math.sqrt(max(1.0, MIN_INDEPENDENT / correlation.independent))


@dataclass(frozen=True)
class Stopping:
    """The rule: a target for the relative half-width, a budget in s, or a fixed number of steps."""

    target: float = 0.02
    budget: float = 20.0
    steps: int | None = None
    warm_up: float = 1.0  # time in s that the warm-up may take
    load: float = 0.0  # time in s that the device works before that, as in a long run
    min_time: float = 0.5  # time in s that is measured in any case

    def enough(self, half_width: float | None, elapsed: float, done: int) -> bool:
        """Return whether to stop, after `elapsed` s of measuring and `done` steps."""
        if self.steps is not None:
            return done >= self.steps
        if elapsed >= self.budget:
            return True
        return elapsed >= self.min_time and self.reached(half_width)

    def reached(self, half_width: float | None) -> bool:
        return half_width is not None and half_width <= self.target

    def next_turn(self, elapsed: float) -> float:
        """Return the time in s to measure before checking again."""
        return max(FIRST_LOOK, min((GROWTH - 1) * elapsed, self.budget - elapsed))


# -- warm-up ---------------------------------------------------------------------------------------


SEGMENT_TOLERANCE = 0.01  # segments that lie within this are alike, however quiet the series is
SEGMENT_TOLERANCE_DEVIATIONS = 3.0  # of a segment's median, that the tolerance is
MAX_CHANGE = 0.02  # a change over the steady part that moves its median by 1 % at most
SEGMENT_PRICE = 5.0  # in squared deviations of a segment's median: what leaving out a segment must gain
SLOPE_PRICE = 6.0  # and what a slope must gain: a steady series pays it in 1 to 2 % of cases
MIN_BLOCKS = 20  # before the series can be judged
MIN_TIME = 150_000_000  # ns: clocks ramp up and caches fill over time, however short the step
LOOK_GROWTH = 1.5  # how many more blocks there are at the next look
NOT_SETTLED = "step times had not settled"


def settled_from(values: Sequence[float]) -> int | None:
    """Return the index from which the series is steady; None where it has not settled by its last half."""
    if len(values) < 8:
        return 0
    segments = batches(values, min(SEGMENTS, len(values)))
    medians = [median(segment) for segment in segments]
    half = len(medians) // 2
    level = median(medians[half:])
    variance = _variance(segments[half:], medians[half:], level)
    best, start, change = float("inf"), 0, 0.0
    for first in range(half + 1):
        rest = medians[first:]
        n, centre = len(rest), sum(rest) / len(rest)
        flat = sum((v - centre) ** 2 for v in rest)
        weight = n * (n * n - 1) / 12
        slope = sum((i - (n - 1) / 2) * v for i, v in enumerate(rest)) / weight
        price = SEGMENT_PRICE * first
        for cost, size in (
            (flat / variance + price, 0.0),
            ((flat - slope * slope * weight) / variance + price + SLOPE_PRICE, abs(slope) * (n - 1)),
        ):
            if cost < best:
                best, start, change = cost, first, size
    if change > MAX_CHANGE * level:
        return None
    return sum(len(segment) for segment in segments[:start])


def _variance(segments: Sequence[Sequence[float]], medians: Sequence[float], level: float) -> float:
    """Return the variance of a segment's median: from the steps within, or from the medians if they vary more."""
    sloped = line(medians)
    noise = coarse([value - at for segment, at in zip(segments, sloped.levels, strict=True) for value in segment])
    spread = 1.4826 * median([abs(value) for value in noise])
    alike = min(1.0, len(segments) / autocorrelation(noise).independent)
    among = sloped.left / max(1, len(medians) - 2)
    within = min(1.571 * spread * spread * alike, 4 * among)  # a correlation by chance must not excuse a slope
    return max((SEGMENT_TOLERANCE / SEGMENT_TOLERANCE_DEVIATIONS * level) ** 2, within, among, 1e-300)


def warm_from(values: Sequence[float]) -> tuple[int, str]:
    """Return the index from which a finished series is warm, and why it never was, if so.

    A slow start that the whole series shows is one. Otherwise the checks are those of a warm-up: a much later jump or
    drift is not for it to judge.
    """
    if len(values) < MIN_BLOCKS:
        return 0, ""
    whole = settled_from(values)
    if whole and median(values[:whole]) > median(values[whole:]):
        return whole, ""
    look, first_look = MIN_BLOCKS, 0
    while look <= len(values):
        start = settled_from(values[:look])
        if start is not None and first_look and start < first_look:
            return start, ""
        first_look = look if start is not None else 0
        look = round((2 if start is not None else LOOK_GROWTH) * look)
    return (0, NOT_SETTLED) if whole is None else (whole, "")


@dataclass
class WarmUp:
    """The times before the steady state, in ns: one value per block, each per step."""

    first_step: int
    values: list[float] = field(default_factory=list)
    steady: bool | None = None  # None where the budget allowed too few blocks to judge
    reason: str = ""


def warm_up(
    blocks: Blocks, steady_counters: Callable[[], tuple[int, ...]], budget: float,
    tick: Callable[[list[float], int], None], after_first: Callable[[], None] = lambda: None, load: float = 0.0,
) -> WarmUp:  # fmt: skip
    """Run until steady, for at most `budget` s but at least two steps; `tick` gets the values and the clock.

    Nothing of the program may run before the first step; `after_first` comes right after it. Then it works for `load`
    s, which are not judged: a device that has just woken up is faster than it stays. Without a budget a long first step
    is all there is.
    """
    began = blocks.clock()
    result = WarmUp(first_step=blocks.time(1))
    after_first()
    tick([float(result.first_step)], blocks.clock())  # all that is known of a step that takes minutes
    if not budget and result.first_step >= LONG_STEP:
        blocks.fit(float(result.first_step))
        return result
    fastest = float(blocks.time(1))
    blocks.fit(fastest)
    loaded: list[float] = []
    load_began = now = blocks.clock()
    while now - load_began < load * 1e9:
        loaded.append(blocks.time(blocks.size) / blocks.size)
        now = blocks.clock()
        tick(loaded, now)
    began += now - load_began
    limit = began + round(budget * 1e9)
    values, counters, check, first_look = result.values, [steady_counters()], MIN_BLOCKS, 0
    if blocks.clock() >= limit and blocks.size == 1:  # steps so long that each of them counts
        values.append(fastest)
        return result
    while True:
        values.append(blocks.time(blocks.size) / blocks.size)
        counters.append(steady_counters())
        now = blocks.clock()
        tick(values, now)
        if values[-1] < 0.7 * fastest:  # the step got faster: its block may need more of them
            fastest = values[-1]
            blocks.fit(fastest)
        late = now >= limit
        due = len(values) >= check and now - began >= MIN_TIME
        if due or (late and len(values) >= MIN_BLOCKS):
            still, start = counters[-1] == counters[len(counters) // 2], settled_from(values)
            result.steady = still and start is not None
            result.reason = "" if still else "graphs or reserved memory kept growing"
            if start is None:
                result.reason = NOT_SETTLED
            # A slow start that outlasts the first look seems steady then; the second look shows its end.
            if result.steady and first_look and start is not None and start < first_look:
                return result
            first_look = len(values) if result.steady else 0
            check = round((2 if result.steady else LOOK_GROWTH) * len(values))
        if late:
            return result
