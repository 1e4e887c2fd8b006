"""Stopping looks at how well the mean is known, never at how far samples spread."""

from __future__ import annotations

import math
import random

import pytest

from mldyno.stats.intervals import mean
from mldyno.timing.stopping import Stopping, _half_width, relative_half_width


def noise(count: int, spread: float, phi: float = 0.0) -> list[float]:
    chance, level, values = random.Random(8), 0.0, []
    for _ in range(count):
        level = phi * level + chance.gauss(0, spread * (1 - phi * phi) ** 0.5)
        values.append(1 + level)
    return values


def test_a_well_known_mean_stops_though_its_samples_spread() -> None:
    assert Stopping(target=0.02).enough(relative_half_width(noise(2000, 0.2)), elapsed=1.0, done=2000)


def test_correlated_samples_do_not_stop_too_early() -> None:
    independent, correlated = noise(400, 0.1), noise(400, 0.1, phi=0.9)
    assert (relative_half_width(correlated) or 0) > 2 * (relative_half_width(independent) or 9)


def test_sixteen_blocks_and_half_a_second_are_the_least() -> None:
    rule = Stopping(target=0.5)
    assert relative_half_width([1.0] * 15) is None
    assert not rule.enough(None, elapsed=5.0, done=15)
    assert not rule.enough(0.0, elapsed=0.2, done=100)
    assert rule.enough(relative_half_width([1.0] * 16), elapsed=0.6, done=16)


def test_the_budget_ends_it_and_the_target_counts_as_missed() -> None:
    rule = Stopping(target=0.001, budget=2.0)
    width = relative_half_width(noise(100, 0.3))
    assert rule.enough(width, elapsed=2.0, done=100)
    assert not rule.reached(width)


def test_a_number_of_steps_is_run_to_its_end_whatever_the_target() -> None:
    rule = Stopping(steps=50)
    assert not rule.enough(0.0, elapsed=1e9, done=49)
    assert rule.enough(None, elapsed=0.0, done=50)


def test_a_series_of_few_correlation_times_counts_as_less_well_known_than_it_looks() -> None:
    short, long = noise(100, 0.02, phi=0.95), noise(5000, 0.02, phi=0.95)
    assert (relative_half_width(short) or 0) > 0.02
    assert (relative_half_width(long) or 9) < 0.01


def test_the_first_two_thirds_must_have_agreed_already() -> None:
    wild = noise(600, 0.3)
    values = wild + [1.0] * 300
    rule = Stopping(target=0.026)
    assert rule.enough(_half_width(values) / mean(values), elapsed=1.0, done=900)  # taken together they would be enough
    assert relative_half_width(values) == pytest.approx(math.sqrt(2 / 3) * _half_width(wild) / mean(values))
    assert not rule.enough(relative_half_width(values), elapsed=1.0, done=900)
