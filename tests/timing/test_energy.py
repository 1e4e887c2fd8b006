"""Windows of energy on simulated counters: right to a per cent, and never a joule that was not counted."""

from __future__ import annotations

import random

import pytest
from tests.sensors.simulated import Counter, Time

from mldyno.stats.intervals import mean, spread
from mldyno.timing.energy import Lost, Progress, Tick, Ticks, Window, per_step, watch

EDGE_S = 0.5


def watched(counter: Counter, time: Time, seconds: float = 5.0, edge_s: float = EDGE_S):  # type: ignore[no-untyped-def]
    ends = time.now + round(seconds * 1e9)
    return watch(counter, time.clock, time.sleep, edge_s, lambda: time.now < ends)


@pytest.mark.parametrize("period", [1e-3, 0.02, 0.1])
def test_a_window_on_ticks_is_right_to_a_per_cent(period: float) -> None:
    for seed in range(20):
        time = Time()
        counter = Counter(time, 65.0, period, jitter=0.02, seed=seed)
        seen = watched(counter, time)
        assert len(seen.windows) >= 5
        assert not seen.lost
        for window in seen.windows:
            assert window.watts == pytest.approx(65.0, rel=0.01)
            assert window.relative_error <= 0.02


def test_a_window_off_its_ticks_is_off_by_what_the_theory_says() -> None:
    period, length, errors = 0.1, 0.55, []
    chance = random.Random(1)
    for seed in range(2000):
        time = Time(round(chance.random() * 1e9))
        counter = Counter(time, 100.0, period, seed=seed)
        first = counter.read()
        time.sleep(length)
        errors.append((counter.read() - first) / 100.0 - length)
    assert spread(errors) == pytest.approx(0.41 * period, rel=0.25)


def test_the_period_is_found_by_looking() -> None:
    for period in (1e-3, 0.02, 0.1):
        time = Time()
        assert Ticks(Counter(time, 50.0, period), time.clock, time.sleep).period_s() == pytest.approx(period, rel=0.05)


def test_a_counter_that_is_full_goes_on_from_zero() -> None:
    time = Time()
    seen = watched(Counter(time, 50.0, largest=300.0, start_j=200.0), time, seconds=8.0)
    assert not seen.lost
    assert all(window.watts == pytest.approx(50.0, rel=0.01) for window in seen.windows)


def test_a_counter_that_was_set_back_is_told_and_costs_its_window_only() -> None:
    time = Time()
    counter = Counter(time, 50.0, largest=262_143.0, start_j=100_000.0)
    counter.set_back_at = 2.2
    seen = watched(counter, time)
    assert len(seen.lost) == 1
    assert "set back" in seen.lost[0]
    before = [window for window in seen.windows if window.ended < 2.2e9]
    assert all(window.watts == pytest.approx(50.0, rel=0.01) for window in before)
    assert all(window.watts <= 51 for window in seen.windows)


def test_one_that_runs_backward_and_has_no_end_is_told() -> None:
    ticks = Ticks(Counter(Time()), lambda: 0, lambda seconds: None)
    with pytest.raises(Lost, match="ran backward"):
        ticks.between(Tick(0, 100.0, 0), Tick(10**9, 90.0, 0))


def test_one_that_stands_still_is_told() -> None:
    time = Time()
    counter = Counter(time, 50.0)
    counter.frozen_from = 1.0
    seen = watched(counter, time, seconds=12.0)
    assert any("stands still" in why for why in seen.lost)
    assert all(window.ended <= 1.1e9 for window in seen.windows)


def test_a_look_that_fails_is_no_wrap() -> None:
    time = Time()
    counter = Counter(time, 50.0, largest=262_143.0)
    counter.fails_at = {700, 701, 702}
    seen = watched(counter, time)
    assert seen.lost
    assert all(window.watts == pytest.approx(50.0, rel=0.01) for window in seen.windows)


def test_steps_are_counted_between_ticks() -> None:
    progress = Progress([0, 10**9, 2 * 10**9], [0, 100, 200])
    (told,) = per_step([Window(50.0, 5 * 10**8, 15 * 10**8, 0)], progress)
    assert told == pytest.approx((50.0, 1.0, 100.0))
    assert per_step([Window(50.0, 5 * 10**8, 25 * 10**8, 0)], progress) == []


def test_the_mean_of_windows_is_the_energy_of_all() -> None:
    time = Time()
    chance = random.Random(3)
    levels = [chance.gauss(60.0, 3.0) for _ in range(1000)]
    counter = Counter(time, lambda seconds: levels[int(seconds / 0.1)], jitter=0.02)
    seen = watched(counter, time, seconds=20.0)
    truth = mean([levels[int(each / 0.1)] for each in [window.began / 1e9 for window in seen.windows]])
    assert mean([window.watts for window in seen.windows]) == pytest.approx(truth, rel=0.03)
