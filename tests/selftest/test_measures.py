"""The bounds of the self-test against printed tables."""

from __future__ import annotations

import random

import pytest

from mldyno.selftest.measures import lower_bound, meets, quantile_with_bound, together, upper_bound


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


@pytest.mark.parametrize(
    ("hits", "n", "ok"),
    [
        (1, 2, None),  # 50 %, but chance explains it
        (0, 2, None),  # 0 %, but one failure would have been 50 %
        (0, 0, None),
        (0, 20, True),
        (1, 20, True),
        (3, 20, None),
        (4, 20, False),
        (8, 100, None),
        (10, 100, False),
        (51, 1000, False),  # chance is no excuse any more
        (50, 1000, True),
    ],
)
def test_a_target_of_5_percent_is_judged_only_where_the_trials_can_tell(hits: int, n: int, ok: bool | None) -> None:
    assert meets(hits, n, most=0.05) is ok
    assert meets(n - hits, n, least=0.95) is ok


def test_a_band_is_missed_on_either_side_and_open_where_chance_explains_it() -> None:
    assert [meets(hits, 40, 0.93, 0.97) for hits in (30, 37, 38, 39, 40)] == [False, None, True, None, None]
    assert meets(400, 400, 0.93, 0.97) is False
    assert [meets(4, 20, most=0.05, level=level) for level in (0.95, 0.99)] == [False, None]


def test_a_measure_is_missed_if_any_part_is_and_met_if_all_are() -> None:
    assert together([True, None, False]) is False
    assert together([True, None]) is None
    assert together([True, True]) is True
