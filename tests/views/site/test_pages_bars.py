"""Bars: where a number and its interval stand on a scale."""

from __future__ import annotations

import pytest

from mldyno.units import Interval
from mldyno.views.site.pages import LARGEST_RATIO, bar, scale_for


def test_bars_begin_at_zero_and_have_their_interval() -> None:
    scale = scale_for([Interval.around(50.0, 5.0), Interval.around(100.0, 25.0)])
    assert scale.linear
    assert bar(scale, Interval.around(50.0, 5.0)).start == 0
    assert bar(scale, Interval.around(50.0, 5.0)).end == 40
    assert bar(scale, Interval.around(50.0, 5.0)).ends == (36, 44)
    assert bar(scale, Interval.around(100.0, 25.0)).ends == (60, 100)
    assert bar(scale, Interval.around(50.0, None)).ends is None


def test_numbers_far_apart_are_dots_on_a_logarithmic_scale() -> None:
    numbers = [Interval.around(1.0, 0.1), Interval.around(LARGEST_RATIO, 1.0), Interval.around(LARGEST_RATIO**2, None)]
    scale = scale_for(numbers)
    assert not scale.linear
    middles = [(drawn.start + drawn.end) / 2 for drawn in (bar(scale, number) for number in numbers)]
    assert middles[1] - middles[0] == pytest.approx(middles[2] - middles[1], abs=2)
    assert middles[0] > 0


def test_an_interval_far_off_ends_at_the_edge() -> None:
    scale = scale_for([Interval.around(1.0, 1e20), Interval.around(2.0, 0.1)])
    assert bar(scale, Interval.around(1.0, 1e20)).ends == (0, 100)
    assert bar(scale, Interval.around(2.0, 0.1)).end > 70
