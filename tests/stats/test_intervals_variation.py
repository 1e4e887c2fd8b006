"""Variances that are known from elsewhere: pooled, combined, and the intervals that follow."""

from __future__ import annotations

import math
import random

import pytest

from mldyno.stats.intervals import Variation, of_values, pooled


def variance_of_a_case(chance: random.Random, scale: float, freedom: int) -> float:
    """A variance as Smyth's model draws it: the scale over a chi-square that is divided by its degrees of freedom."""
    return scale * freedom / math.fsum(chance.gauss(0, 1) ** 2 for _ in range(freedom))


def some_cases(chance: random.Random, cases: int, values: int, scale: float, freedom: int) -> list[Variation]:
    spreads = [math.sqrt(variance_of_a_case(chance, scale, freedom)) for _ in range(cases)]
    return [of_values([chance.gauss(0, spread) for _ in range(values)]) for spread in spreads]


def test_cases_tell_the_scale_of_their_variances_and_how_much_they_differ() -> None:
    found = pooled(some_cases(random.Random(1), cases=400, values=6, scale=0.05**2, freedom=8))
    assert math.sqrt(found.variance) == pytest.approx(0.05, rel=0.1)
    assert 5 < found.freedom < 13


def test_cases_that_are_alike_are_worth_all_their_degrees_of_freedom() -> None:
    chance = random.Random(2)
    found = pooled(of_values([chance.gauss(0, 0.03) for _ in range(4)]) for _ in range(100))
    assert found.freedom > 12
    assert math.sqrt(found.variance) == pytest.approx(0.03, rel=0.15)


def test_nothing_tells_nothing_and_one_case_tells_its_own() -> None:
    assert pooled([]) == Variation(0.0, 0.0)
    assert pooled([Variation(0.04, 3.0)]).variance == pytest.approx(0.04)
    assert pooled([Variation(0.04, 3.0)]).freedom == 3.0
    assert of_values([1.0]) == Variation(0.0, 0.0)


def test_two_values_of_a_case_with_what_others_tell_give_intervals_that_hold() -> None:
    chance, held, widths, plain = random.Random(3), 0, [], []
    for _ in range(1500):
        known = pooled(some_cases(chance, cases=12, values=2, scale=0.05**2, freedom=8))
        spread = math.sqrt(variance_of_a_case(chance, 0.05**2, 8))
        values = [chance.gauss(0, spread) for _ in range(2)]
        own = of_values(values)
        both = known.with_(own)
        widths.append(Variation(both.variance / 2, both.freedom).half_width)
        plain.append(Variation(own.variance / 2, own.freedom).half_width)
        held += abs(sum(values) / 2) <= widths[-1]
    assert 0.93 <= held / 1500 <= 0.98
    assert sorted(widths)[750] < sorted(plain)[750] / 2


def test_variances_add_up_with_the_degrees_of_freedom_of_welch() -> None:
    both = Variation(1.0, 4.0).plus(Variation(1.0, 4.0))
    assert both == Variation(2.0, 8.0)
    assert Variation(1.0, 4.0).plus(Variation(0.0, 1.0)) == Variation(1.0, 4.0)


def test_a_half_width_is_that_of_student() -> None:
    assert Variation(4.0, 9.0).half_width == pytest.approx(2 * 2.262, rel=1e-3)
    assert Variation(1.0, 1e9).half_width == pytest.approx(1.96, rel=1e-2)
    assert Variation(1.0, 0.3).half_width == pytest.approx(12.706, rel=1e-3)
