"""Outcomes and comparisons as rows of a chart: numbers in the chart's unit, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.copying import CopyCost
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome
from mldyno.units import digits, show_percent, show_seconds
from mldyno.views.sentences import CANT_TELL, factor, shown_time, trust

UNITS = ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3), (120.0, "s", 1.0))


def time_unit(longest: float) -> tuple[str, float]:
    """The unit for times up to so many s, and how many of it a second has."""
    return next(((name, per) for top, name, per in UNITS if longest < top), ("min", 1 / 60))


Numbers = tuple[float, float | None, float | None]


def _row(
    label: str, side: str, numbers: Numbers, texts: tuple[str, str, str], end: float | None = None
) -> dict[str, Any]:
    """A row of bars: its numbers, and in words the number, the number with its interval, and why it can be trusted."""
    value, low, high = numbers
    number, shown, why = texts
    return {"label": label, "side": side, "value": value, "low": low, "high": high, "number": number, "shown": shown,
            "end": end if end is not None else value if high is None else high, "trust": why}  # fmt: skip


def time_row(outcome: Outcome, step: Estimate, label: str, side: str, per: float) -> dict[str, Any]:
    """The time of a step."""
    ends = (None if end is None else max(0.0, end) * per for end in (step.low, step.high))
    low, high = ends
    texts = (show_seconds(step.value, step.half_width), shown_time(step), trust(outcome))
    return _row(label, side, (step.value * per, low, high), texts)


def ratio_row(result: Comparison | Mean, label: str, side: str) -> dict[str, Any]:
    """How many times as fast."""
    why = result.how if isinstance(result, Comparison) else f"geometric mean of {len(result.comparisons)} cases"
    verdict = CANT_TELL if result.verdict == "inconclusive" else result.verdict
    shown = shown_ratio(result)
    texts = (shown.partition(" ")[0], shown, f"{factor(result)} {verdict}; {why}")
    return _row(label, side, (result.ratio, result.low, result.high), texts, max(1.0, result.high or result.ratio))


def shown_ratio(result: Comparison | Mean) -> str:
    """The ratio as it is, not turned, with its interval."""
    low, high = result.low, result.high
    if low is None or high is None:
        return f"{digits(result.ratio)}x"
    text = digits(result.ratio, (high - low) / 2)
    decimals = len(text.partition(".")[2])
    return f"{text}x ({low:,.{decimals}f}-{high:,.{decimals}f})"


def copy_row(cost: CopyCost, label: str) -> dict[str, Any]:
    """The share of a step in percent; one under 0 is drawn as nothing, and said as it is."""
    percent = tuple(None if part is None else max(0.0, 100 * part) for part in (cost.share, cost.low, cost.high))
    shown = f"{100 * cost.share:.1f} %" if abs(cost.share) < 0.1 else f"{100 * cost.share:.0f} %"
    texts = (shown, shown, cost.comparison.how)
    return _row(label, cost.way, (percent[0] or 0.0, percent[1], percent[2]), texts)


def share_row(share: float, label: str, side: str, why: str) -> dict[str, Any]:
    """A share of a peak in percent."""
    return _row(label, side, (100 * share, None, None), (show_percent(share), show_percent(share), why))


def sides_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The sides in the order in which they come."""
    return list(dict.fromkeys(str(row["side"]) for row in rows))
