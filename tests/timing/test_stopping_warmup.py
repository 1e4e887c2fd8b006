"""Warm-up ends when series and counters stand still, and says so when they never do."""

from __future__ import annotations

import random

import pytest

from mldyno.frameworks.fake import CLOCK, FakeProgram
from mldyno.records import Case
from mldyno.timing.blocks import Blocks
from mldyno.timing.stopping import WarmUp, settled_from, warm_up


def warmed(budget: float = 5.0, steady_counters: list[int] | None = None, **rule: object) -> WarmUp:
    program = FakeProgram(Case("mlp", framework="fake", batch=8), {"step": 1e-3, "noise": 0.01, **rule})
    growing = iter(steady_counters or [])
    return warm_up(Blocks(program, CLOCK), lambda: (next(growing, 0),), budget, lambda values, now: None)


def test_the_first_step_is_a_measurement_of_its_own() -> None:
    warm = warmed(slow=(1, 50.0))
    assert warm.first_step == pytest.approx(50e6, rel=0.1)
    assert max(warm.values) < 2e6


def test_the_first_step_is_told_at_once_since_the_next_one_may_take_as_long() -> None:
    told: list[tuple[int, float]] = []
    program = FakeProgram(Case("mlp", framework="fake", batch=8), {"step": 60.0, "slow": (1, 2.0)})
    began = CLOCK()
    warm = warm_up(Blocks(program, CLOCK), tuple, 1.0, lambda values, now: told.append((now - began, values[-1])))
    assert len(told) == 1
    assert told[0][0] == pytest.approx(warm.first_step, rel=0.01)
    assert told[0][1] == warm.first_step == pytest.approx(120e9, rel=0.01)


def test_warm_up_goes_on_until_a_slow_start_is_behind() -> None:
    warm = warmed(slow=(40, 3.0))
    assert warm.steady is True
    assert len(warm.values) > 60


def test_a_series_that_never_settles_is_flagged() -> None:
    warm = warmed(budget=0.5, fail="unsettled")
    assert warm.steady is False
    assert "settled" in warm.reason


def test_memory_that_keeps_growing_keeps_the_warm_up_going() -> None:
    warm = warmed(budget=0.2, steady_counters=list(range(100_000)))
    assert warm.steady is False
    assert "memory" in warm.reason


def test_a_budget_of_a_few_long_steps_leaves_the_question_open() -> None:
    warm = warmed(budget=0.01, step=0.005)
    assert warm.steady is None


def test_a_steady_noisy_series_counts_as_settled_and_a_falling_one_does_not() -> None:
    chance = random.Random(6)
    noisy = [[1 + chance.gauss(0, 0.05) for _ in range(100)] for _ in range(200)]
    assert sum(settled_from(series) is None for series in noisy) <= 6
    falling = [[1 - 0.003 * i + chance.gauss(0, 0.01) for i in range(100)] for _ in range(50)]
    assert all(settled_from(series) is None for series in falling)


def test_the_slow_start_of_a_series_is_cut_off() -> None:
    chance = random.Random(7)
    series = [(3.0 if i < 20 else 1.0) + chance.gauss(0, 0.01) for i in range(200)]
    start = settled_from(series)
    assert start is not None
    assert 20 <= start <= 40


def test_a_slow_start_that_outlasts_the_first_look_is_seen_by_the_second() -> None:
    warm = warmed(slow=(100, 2.0))
    assert warm.steady is True
    assert warm.values[-1] == pytest.approx(1e6, rel=0.1)


def test_a_series_steady_from_the_start_ends_its_warm_up_after_two_looks() -> None:
    warm = warmed(slow=(1, 1.0))
    assert warm.steady is True
    assert 0.28e9 <= sum(warm.values) <= 0.35e9


def test_a_steady_series_that_is_short_of_time_is_taken_at_the_first_look() -> None:
    warm = warmed(budget=0.2, slow=(1, 1.0))
    assert warm.steady is True


def test_a_slope_all_through_is_not_taken_for_a_warm_up() -> None:
    chance = random.Random(9)
    growing = [[(1 + 0.1 * i / 299) * chance.gauss(1, 0.05) for i in range(300)] for _ in range(200)]
    assert all(settled_from(series) is None for series in growing)


def test_a_change_too_small_to_matter_leaves_the_series_settled() -> None:
    assert settled_from([1 + 0.015 * i / 299 for i in range(300)]) == 0
    assert settled_from([1.0] * 5) == 0
    assert settled_from([0.0] * 40) == 0


def test_a_device_that_slows_down_when_it_is_warm_is_judged_after_that() -> None:
    def warmed_after(load: float) -> WarmUp:
        rule = {"step": 1e-3, "slow": (0, 1.0), "heat": [3, 1.4]}
        program = FakeProgram(Case("mlp", framework="fake", device="gpu"), rule)
        return warm_up(Blocks(program, CLOCK, asynchronous=True), tuple, 1.0, lambda values, now: None, load=load)

    assert warmed_after(0.0).values[-1] == pytest.approx(1e6, rel=0.01)
    sustained = warmed_after(5.0)
    assert sustained.steady is True
    assert sustained.values == pytest.approx([1.4e6] * len(sustained.values), rel=0.01)
