"""Bars as small drawings: numbers with their intervals as places on a scale from 0 to 100."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.units import Interval

WIDTH = 100.0
DOT = 2.0  # half of what a dot takes of the width
LARGEST_RATIO = 25.0  # of the longest bar to the shortest: beyond it dots stand on a logarithmic scale
MARGIN = 1.3  # times the longest bar, up to which its interval is drawn


@dataclass(frozen=True)
class Bar:
    """Where a bar begins and ends, and where its interval does."""

    start: float
    end: float
    ends: tuple[float, float] | None


@dataclass(frozen=True)
class Scale:
    """From numbers to places; logarithmic where it has a lowest number."""

    lowest: float
    highest: float

    @property
    def logarithmic(self) -> bool:
        """Whether there are dots instead of bars."""
        return self.lowest > 0

    def place(self, value: float) -> float:
        """The place of a number; what is off the scale is at its edge."""
        if self.logarithmic:
            share = math.log(max(value, self.lowest) / self.lowest) / math.log(self.highest / self.lowest)
        else:
            share = value / self.highest
        return round(WIDTH * min(1.0, max(0.0, share)), 1)

    def bar(self, number: Interval) -> Bar:
        """The bar of a number with its interval, or its dot."""
        end = self.place(number.value)
        ends = None if number.low is None or number.high is None else (self.place(number.low), self.place(number.high))
        if self.logarithmic:
            return Bar(round(max(0.0, end - DOT), 1), round(min(WIDTH, end + DOT), 1), ends)
        return Bar(0.0, end, ends)


def scale_for(numbers: Sequence[Interval]) -> Scale:
    """The scale of these numbers over 0, one at least, with most of their intervals on it."""
    shortest, longest = min(number.value for number in numbers), max(number.value for number in numbers)
    highest = min(MARGIN * longest, max(number.high or number.value for number in numbers))
    return Scale(shortest / MARGIN if longest > LARGEST_RATIO * shortest else 0.0, max(longest, highest))
