"""What a section of the report is made of: paragraphs, tables and charts, all plain data; templates escape text.

Below them, outcomes and comparisons as marks of a chart: numbers in the chart's unit, and the same in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.answers import CopyCost
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome
from mldyno.units import Interval, digits, interval_parts, show_percent
from mldyno.views.charts import Drawing, Mark, Point
from mldyno.views.claims import IN_A_CHART
from mldyno.views.outcomes import shown, trust

UNITS = ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3), (120.0, "s", 1.0))


@dataclass(frozen=True)
class Paragraphs:
    """Sentences as a list; those after the first `shown` unfold on demand."""

    id: str
    lines: Sequence[str]
    shown: int = 6
    kind: str = "paragraphs"

    def __bool__(self) -> bool:
        return bool(self.lines)


@dataclass(frozen=True)
class GridCell:
    """A cell of a table: its text, a number to sort by, how fast it is from 0 to 9, and whether it is doubtful."""

    text: str
    sort: float | None = None
    heat: int | None = None
    under: str = ""
    doubtful: bool = False
    head: bool = False


@dataclass(frozen=True)
class Grid:
    """A table that can be sorted by each column; one without column heads can't."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[GridCell]]
    notes: Sequence[str] = ()
    numbers: int = 1
    """The first column that holds numbers."""
    shown: int = 50
    kind: str = "grid"


@dataclass(frozen=True)
class Chart:
    """A chart whose title states the finding."""

    id: str
    title: str
    about: str
    drawing: Drawing
    caption: str = ""
    narrow: Drawing | None = None
    """A smaller drawing for phones."""
    kind: str = "chart"

    @property
    def described(self) -> str:
        """The chart in words, for screen readers."""
        return f"{self.title}. {self.about}. The numbers are in the table of all cases."


@dataclass(frozen=True)
class SideBySide:
    """Small charts, or small tables, in a row."""

    parts: Sequence[Chart] | Sequence[Grid]

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def kind(self) -> str:
        """Charts or grids."""
        return f"{self.parts[0].kind}s"


Part = Paragraphs | Grid | Chart | SideBySide
Content = tuple[str, Sequence[Part]]  # how to read a section, if that must be said; and its parts


@dataclass(frozen=True)
class Section:
    """A section of the page: a question, its short name for the navigation, and the answer."""

    id: str
    title: str
    short: str
    lead: str
    parts: Sequence[Part]

    @property
    def single_parts(self) -> list[Part]:
        """All parts, those side by side one by one."""
        return [each for part in self.parts for each in (part.parts if isinstance(part, SideBySide) else (part,))]


# -- marks -----------------------------------------------------------------------------------------


def time_unit(longest: float) -> tuple[str, float]:
    """Return the unit for times up to `longest` in s, and how many of it make a second."""
    return next(((name, per) for top, name, per in UNITS if longest < top), ("min", 1 / 60))


def point(x: float, number: Interval, hover: str) -> Point:
    """Return the point of a number with its interval."""
    return Point(x, number.value, hover, number.low, number.high)


def speed(outcome: Outcome) -> Estimate | None:
    """Return the throughput in items/s; in steps/s where a step has no items."""
    rate, step = outcome.figure("throughput"), outcome.step
    if rate is not None or step is None or not step.value:
        return rate
    return step.per(1, "1/s")


def unit_of(outcome: Outcome) -> str:
    """Return the unit of an outcome's speed: tokens/s."""
    counted = "item" if outcome.figure("throughput") is not None else "run" if outcome.case.own_command else "step"
    return f"{outcome.good[0].fact('item') or counted}s/s"


def shown_speed(outcome: Outcome, rate: Estimate) -> str:
    """Show a speed with its unit: 860 tokens/s."""
    return f"{digits(rate.value, rate.half_width)} {unit_of(outcome)}"


def speed_mark(outcome: Outcome, rate: Estimate, colour: str) -> Mark:
    """Return the mark of a case's speed; its unit is written at the end of the row."""
    step = outcome.step
    time = f", {shown(step)} a step" if step is not None else ""
    hover = f"{shown_speed(outcome, rate)} on {outcome.case.device}{time}; {trust(outcome)}"
    low, high = (None, None) if step is None else _ends_of_speed(rate.value, step)
    return Mark(rate.value, digits(rate.value, rate.half_width), hover, low, high, colour)


def _ends_of_speed(speed: float, step: Estimate) -> tuple[float | None, float | None]:
    """Return the ends of a speed, from the time of a step; a time that may be 0 leaves the speed without a bound."""
    if step.low is None or step.high is None:
        return None, None
    return speed * step.value / step.high, speed * step.value / step.low if step.low > 0 else math.inf


def league_mark(outcome: Outcome, best: Outcome) -> Mark:
    """Return the speed relative to the best of ours; published figures are hollow, since they have no interval."""
    ours, theirs = best.step, outcome.step
    assert ours is not None
    assert theirs is not None
    value = ours.value / theirs.value
    hover = f"{shown(theirs)} a step; {trust(outcome)}"
    rate = theirs.per(outcome.case.batch or 1, "1/s")  # of a batch: publications do not say what else is counted
    number = f"{digits(rate.value, rate.half_width)}/s"
    return Mark(value, number, hover, *_ends_of_speed(value, theirs), "soft", outcome.published)


def ratio_mark(result: Comparison | Mean, colour: str) -> Mark:
    """Return the mark of a speed-up."""
    why = result.how if isinstance(result, Comparison) else f"geometric mean of {len(result.comparisons)} cases"
    number, _ = interval_parts(result.speedup, "x")
    return Mark(result.ratio, number, f"{IN_A_CHART.of(result)}; {why}", result.low, result.high, colour)


def copy_mark(cost: CopyCost, colour: str) -> Mark:
    """Return the share of a step in percent; one under 0 is drawn as nothing, and its number stays as it is."""
    drawn, (number, _) = cost.share.scaled_by(100).clipped(0, math.inf), interval_parts(cost.share, "%")
    hover = f"copying {cost.way} takes {number} of a step; {cost.comparison.how}"
    return Mark(drawn.value, number, hover, drawn.low, drawn.high, colour)


def share_mark(share: float, kind: str, colour: str, why: str) -> Mark:
    """Return the mark of a share of a peak in percent."""
    return Mark(100 * share, show_percent(share), f"{kind} at {show_percent(share)} of its peak; {why}", colour=colour)
