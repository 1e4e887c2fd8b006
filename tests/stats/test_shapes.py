"""Drift, jumps and modes on series whose shape is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import islice

import pytest

from mldyno.selftest import synthetic
from mldyno.stats.shapes import drift, jump, line, modes

SERIES = 200


def share_that_drift(make: Callable[[random.Random], list[float]]) -> float:
    chance = random.Random(11)
    return sum(drift(make(chance)) is not None for _ in range(SERIES)) / SERIES


def share_with_modes(make: Callable[[random.Random], float], count: int = 300) -> float:
    chance = random.Random(12)
    return sum(modes([make(chance) for _ in range(count)]) is not None for _ in range(SERIES)) / SERIES


def test_a_drift_of_five_percent_is_found_with_its_size_and_called_gradual() -> None:
    chance = random.Random(1)
    drifts = [drift(synthetic.drifting(synthetic.steps(chance, 500, 0.0, 0.02), 0.05)) for _ in range(50)]
    sizes = [each.change for each in drifts if each is not None]
    assert len(sizes) == 50
    assert sum(sizes) / 50 == pytest.approx(0.048, abs=0.004)
    assert sum(each is not None and each.change_point is None for each in drifts) >= 48


def test_a_series_that_gets_faster_drifts_downwards() -> None:
    shift = drift(synthetic.drifting(synthetic.steps(random.Random(2), 500, 0.0, 0.02), -0.1))
    assert shift is not None
    assert shift.change < 0
    assert shift.z < 0


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8, 0.95])
def test_correlated_noise_is_not_taken_for_drift(phi: float) -> None:
    assert share_that_drift(lambda chance: synthetic.steps(chance, 300, phi, 0.05)) <= 0.035


def test_changing_between_two_speeds_is_not_taken_for_drift() -> None:
    assert share_that_drift(lambda chance: list(islice(synthetic.modes(chance, 50, 0.03), 1000))) <= 0.035


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_a_jump_is_told_from_a_gradual_change_and_placed(place: float) -> None:
    shift = drift(synthetic.jumping(synthetic.steps(random.Random(3), 400, 0.0, 0.02), 0.1, place))
    assert shift is not None
    assert shift.change_point == pytest.approx(place, abs=0.051)
    assert shift.change == pytest.approx(0.1, abs=0.01)


def test_a_change_under_one_percent_is_nobodys_drift() -> None:
    assert drift([1 + 0.009 * i / 999 for i in range(1000)]) is None


@pytest.mark.parametrize("values", [[], [1.0] * 19, [1.0] * 500, [0.0] * 50])
def test_nothing_drifts_where_nothing_can_be_said_or_nothing_moves(values: list[float]) -> None:
    assert drift(values) is None
    assert modes(values) is None


def test_line_and_jump_leave_nothing_of_what_they_describe() -> None:
    assert line([1.0, 2.0, 3.0, 4.0]).left == pytest.approx(0.0)
    fitted = jump([1.0] * 6 + [2.0] * 4)
    assert fitted.left == pytest.approx(0.0)
    assert fitted.place == 6


@pytest.mark.parametrize("slow", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("spread", [0.03, 0.05])
def test_two_modes_a_factor_of_one_and_a_half_apart_are_found_with_their_levels(slow: float, spread: float) -> None:
    chance, pairs = random.Random(4), []
    for _ in range(SERIES):
        speeds = modes([(1.5 if chance.random() < slow else 1.0) * chance.gauss(1, spread) for _ in range(300)])
        if speeds is not None:
            pairs.append(speeds)
    assert len(pairs) >= 0.95 * SERIES
    assert sum(speeds.fast for speeds in pairs) / len(pairs) == pytest.approx(1.0, rel=0.01)
    assert sum(speeds.slow for speeds in pairs) / len(pairs) == pytest.approx(1.5, rel=0.01)
    assert sum(speeds.slow_share for speeds in pairs) / len(pairs) == pytest.approx(slow, abs=0.01)


def test_wild_values_do_not_hide_two_modes() -> None:
    def wild(chance: random.Random) -> float:
        return (1.5 if chance.random() < 0.3 else 1.0) * chance.gauss(1, 0.03) * (20 if chance.random() < 0.02 else 1)

    assert share_with_modes(wild) >= 0.95


@pytest.mark.parametrize(
    "make",
    [
        lambda chance: abs(chance.gauss(1, 0.05)),
        lambda chance: abs(chance.gauss(1, 0.2)) + 0.01,
        lambda chance: chance.uniform(1, 1.5),
        lambda chance: chance.uniform(1, 3),
        lambda chance: math.exp(chance.gauss(0, 0.3)),
        lambda chance: 1 + chance.expovariate(5),
        lambda chance: 1 + chance.expovariate(1),
        lambda chance: chance.gauss(1, 0.03) + (1.0 if chance.random() < 0.03 else 0.0),
    ],
    ids=["normal", "wide normal", "uniform", "wide uniform", "lognormal", "exponential tail", "long tail", "outliers"],
)
def test_one_mode_is_not_taken_for_two(make: Callable[[random.Random], float]) -> None:
    assert share_with_modes(make) <= 0.02
    assert share_with_modes(make, count=40) <= 0.05
