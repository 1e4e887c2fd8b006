"""Outcomes and comparisons as marks of a chart: numbers in the chart's unit, and the same in words."""

from __future__ import annotations

import math

from mldyno.analysis.answers import CopyCost
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome
from mldyno.units import digits, interval_parts, show_percent
from mldyno.views.charts import Mark
from mldyno.views.claims import IN_A_CHART
from mldyno.views.outcomes import shown, trust

UNITS = ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3), (120.0, "s", 1.0))


def time_unit(longest: float) -> tuple[str, float]:
    """The unit for times up to so many s, and how many of it a second has."""
    return next(((name, per) for top, name, per in UNITS if longest < top), ("min", 1 / 60))


def speed(outcome: Outcome) -> Estimate | None:
    """Items a second; steps where a step has none."""
    rate, step = outcome.figure("throughput"), outcome.step
    if rate is not None or step is None or not step.value:
        return rate
    return step.per(1, "1/s")


def unit_of(outcome: Outcome) -> str:
    """What its speed counts: tokens/s."""
    counted = "item" if outcome.figure("throughput") is not None else "run" if outcome.case.own_command else "step"
    return f"{outcome.good[0].fact('item') or counted}s/s"


def shown_speed(outcome: Outcome, rate: Estimate) -> str:
    """A speed with what is counted: 860 tokens/s."""
    return f"{digits(rate.value, rate.half_width)} {unit_of(outcome)}"


def speed_mark(outcome: Outcome, rate: Estimate, colour: str) -> Mark:
    """The speed of a case; what is counted is said at the end of its row."""
    step = outcome.step
    time = f", {shown(step)} a step" if step is not None else ""
    hover = f"{shown_speed(outcome, rate)} on {outcome.case.device}{time}; {trust(outcome)}"
    ends = (None, None) if step is None else _turned(step)
    low, high = (None if end is None else rate.value * end for end in ends)
    return Mark(rate.value, digits(rate.value, rate.half_width), hover, low, high, colour)


def _turned(step: Estimate) -> tuple[float | None, float | None]:
    """The ends of the speed that a time stands for, relative to it; that of no time at all is without bounds."""
    if step.low is None or step.high is None:
        return None, None
    return step.value / step.high, step.value / step.low if step.low > 0 else math.inf


def league_mark(outcome: Outcome, best: Outcome) -> Mark:
    """How many times as fast as the best of ours; a published figure is hollow, since it has no interval."""
    ours, theirs = best.step, outcome.step
    assert ours is not None
    assert theirs is not None
    value = ours.value / theirs.value
    low, high = (None if end is None else value * end for end in _turned(theirs))
    hover = f"{shown(theirs)} a step; {trust(outcome)}"
    rate = theirs.per(outcome.case.batch or 1, "1/s")  # of a batch: what else is counted, others do not say
    number = f"{digits(rate.value, rate.half_width)}/s"
    return Mark(value, number, hover, low, high, "soft", outcome.published)


def ratio_mark(result: Comparison | Mean, colour: str) -> Mark:
    """How many times as fast."""
    why = result.how if isinstance(result, Comparison) else f"geometric mean of {len(result.comparisons)} cases"
    number, _ = interval_parts(result.speedup, "x")
    return Mark(result.ratio, number, f"{IN_A_CHART.of(result)}; {why}", result.low, result.high, colour)


def copy_mark(cost: CopyCost, colour: str) -> Mark:
    """The share of a step in percent; one under 0 is drawn as nothing, and said as it is."""
    drawn, (shown, _) = cost.share.scaled_by(100).clipped(0, math.inf), interval_parts(cost.share, "%")
    hover = f"copying {cost.way} takes {shown} of a step; {cost.comparison.how}"
    return Mark(drawn.value, shown, hover, drawn.low, drawn.high, colour)


def share_mark(share: float, kind: str, colour: str, why: str) -> Mark:
    """A share of a peak in percent."""
    return Mark(100 * share, show_percent(share), f"{kind} at {show_percent(share)} of its peak; {why}", colour=colour)
