"""The bounds of the self-test against printed tables."""

from __future__ import annotations

import random

import pytest

from mldyno.selftest.measures import allowed, lower_bound, quantile_with_bound, upper_bound


@pytest.mark.parametrize(("hits", "n", "bound"), [(0, 100, 0.02951), (5, 100, 0.10225), (0, 2000, 0.001497)])
def test_the_upper_bound_of_a_share_agrees_with_clopper_and_pearson(hits: int, n: int, bound: float) -> None:
    assert upper_bound(hits, n) == pytest.approx(bound, rel=1e-3)
    assert lower_bound(n - hits, n) == pytest.approx(1 - bound, rel=1e-3)


def test_all_or_nothing_has_a_bound_at_the_end() -> None:
    assert upper_bound(10, 10) == 1.0
    assert lower_bound(0, 10) == 0.0


def test_the_bound_of_a_quantile_lies_above_it_and_covers_the_truth() -> None:
    chance, covered = random.Random(5), 0
    for _ in range(100):
        value, bound = quantile_with_bound([chance.random() for _ in range(200)], 0.95)
        assert value <= bound
        covered += bound >= 0.95
    assert covered / 100 >= 0.9


def test_few_cases_are_given_the_benefit_of_chance_and_many_are_not() -> None:
    assert allowed(0.05, 100) > 0.03
    assert allowed(0.05, 1000) == 0.0
