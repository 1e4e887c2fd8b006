"""Windows of energy on simulated counters: right to a per cent, and never a joule that was not counted."""

from __future__ import annotations

import math
import random
import threading

import pytest
from tests.hardware.simulated import Counter, QuarterSensor, Time, watched

from mldyno.stats.intervals import half_width, mean, spread
from mldyno.timing import energy
from mldyno.timing.energy import Lost, StepLog, Tick, Ticks, Watch, Watched, Window, per_step


@pytest.mark.parametrize("period", [1e-3, 0.02, 0.1])
def test_a_window_on_ticks_is_right_to_a_per_cent(period: float) -> None:
    for seed in range(20):
        time = Time()
        seen = watched(Counter(time, 65.0, period, jitter=0.02, seed=seed), time)
        assert len(seen.counted) >= 5
        assert not seen.lost
        assert mean([window.watts for window in seen.counted]) == pytest.approx(65.0, rel=0.01)
        for window in seen.counted:
            assert window.relative_error <= 0.02
            assert window.watts == pytest.approx(65.0, rel=max(0.01, 3 * window.relative_error))


def test_a_window_off_its_ticks_is_off_by_what_the_theory_says() -> None:
    period, errors = 0.1, []
    chance = random.Random(1)
    for seed in range(2000):
        time = Time(10**9 + round(chance.random() * 1e9))
        counter = Counter(time, 100.0, period, seed=seed)
        first, began = counter.read(), time.now
        time.sleep(0.5 + chance.random() * period)
        gained = counter.read() - first
        errors.append(gained / 100.0 - (time.now - began) / 1e9)
    assert spread(errors) == pytest.approx(0.41 * period, rel=0.05)


def test_the_period_is_found_by_looking() -> None:
    for period in (1e-3, 0.02, 0.1):
        time = Time()
        assert Ticks(Counter(time, 50.0, period), time.clock, time.sleep).period_s() == pytest.approx(period, rel=0.05)


def test_a_counter_that_is_full_goes_on_from_zero() -> None:
    time = Time()
    seen = watched(Counter(time, 50.0, largest=300.0, start_j=200.0), time, seconds=8.0)
    assert not seen.lost
    assert all(window.watts == pytest.approx(50.0, rel=0.01) for window in seen.counted)


def test_a_counter_that_was_set_back_is_told_and_costs_its_window_only() -> None:
    time = Time()
    counter = Counter(time, 50.0, largest=262_143.0, start_j=100_000.0)
    counter.set_back_at = 2.2
    seen = watched(counter, time)
    assert ["set back" in why for why in seen.lost] == [True]
    assert len([window for window in seen.counted if window.ended < 2.2e9]) >= 3
    assert all(window.watts <= 51 for window in seen.counted)


def test_one_that_runs_backward_and_has_no_end_is_told() -> None:
    ticks = Ticks(Counter(Time()), lambda: 0, lambda seconds: None)
    with pytest.raises(Lost, match="ran backward"):
        ticks.between(Tick(0, 100.0, 0), Tick(10**9, 90.0, 0))


def test_one_that_gains_what_no_machine_takes_was_set_anew() -> None:
    ticks = Ticks(Counter(Time()), lambda: 0, lambda seconds: None)
    with pytest.raises(Lost, match="it was reset"):
        ticks.between(Tick(0, 100.0, 0), Tick(10**9, 1e6, 0))


def test_one_that_stands_still_is_told() -> None:
    time = Time()
    counter = Counter(time, 50.0)
    counter.frozen_from = 1.0
    seen = watched(counter, time, seconds=12.0)
    assert any("does not change" in why for why in seen.lost)
    assert all(window.ended <= 1.1e9 for window in seen.counted)


def test_a_look_that_fails_is_no_wrap() -> None:
    time = Time()
    counter = Counter(time, 50.0, largest=262_143.0)
    counter.fails_at = {700, 701, 702}
    seen = watched(counter, time)
    assert seen.lost
    assert all(window.watts == pytest.approx(50.0, rel=0.01) for window in seen.counted)


def test_steps_are_counted_between_ticks() -> None:
    log = StepLog([0, 10**9, 2 * 10**9], [0, 100, 200])
    seen = Watched(Counter(Time()), [Window(50.0, 5 * 10**8, 15 * 10**8), Window(50.0, 15 * 10**8, 25 * 10**8)])
    ((window, steps),) = per_step(seen, [log], 0.5)
    assert (window.joules, steps) == pytest.approx((50.0, 100.0))


def test_a_window_that_holds_a_pause_is_left_out() -> None:
    logs = [StepLog([0, 10**9], [0, 100]), StepLog([12 * 10**8, 3 * 10**9], [100, 300])]
    seen = Watched(Counter(Time()), [Window(50.0, 5 * 10**8, 15 * 10**8), Window(50.0, 15 * 10**8, 25 * 10**8)])
    assert [window.began for window, _ in per_step(seen, logs, 0.5)] == [15 * 10**8]


def test_a_reading_that_fails_costs_its_window_only() -> None:
    readings = [(number * 10**8, 40.0 if number != 7 else math.nan) for number in range(20)]
    quarter = QuarterSensor(Time(), lambda seconds: 40.0)
    windows = Watched(quarter, readings=readings).windows(0, 2 * 10**9, 0.5)
    assert [window.watts for window in windows] == pytest.approx([40.0, 40.0, 40.0])


def test_an_error_that_nobody_knows_costs_its_sensor_only() -> None:
    class Broken(Counter):
        def read(self) -> float:
            raise ZeroDivisionError("a driver's own")

    time = Time()
    with Watch([Ticks(Broken(time), time.clock, time.sleep)], 0.5) as watch:
        pass
    assert watch.results[0].lost == ["simulated: ZeroDivisionError: a driver's own"]


def test_a_sensor_that_hangs_is_named_and_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "HUNG_SENSOR_S", 0.05)
    answers = threading.Event()

    class Hanging(Counter):
        def read(self) -> float:
            self.looks += 1
            answers.wait()
            return 0.0

    time = Time()
    sensors = [Ticks(Hanging(time), time.clock, time.sleep), Ticks(Hanging(time), time.clock, time.sleep)]
    for _ in range(2):
        with Watch(sensors, 0.5) as watch:
            pass
    answers.set()
    assert [ticks.hung for ticks in sensors] == [True, True]
    assert [ticks.sensor.looks for ticks in sensors] == [1, 1]  # type: ignore[attr-defined]
    assert [watched.lost for watched in watch.results] == [[], []]


def test_a_counter_whose_file_is_gone_is_not_looked_at_without_a_pause() -> None:
    time = Time()
    counter = Counter(time, 50.0)
    counter.fails_at = set(range(700, 10**6))
    assert len(watched(counter, time, seconds=20.0).lost) < 250


def test_the_interval_of_an_energy_holds_the_truth_as_often_as_it_says() -> None:
    """500 machines whose power wanders; ticks that come early and late."""
    held = 0
    for seed in range(500):
        time, chance = Time(), random.Random(seed)
        levels = [chance.gauss(60.0, 3.0) for _ in range(200)]
        counter = Counter(time, lambda s, levels=levels: levels[int(s / 0.1)], 0.02, 0.02, seed=seed)  # type: ignore[misc]
        powers = [window.watts for window in watched(counter, time, seconds=6.5).counted]
        held += abs(mean(powers) - 60.0) <= half_width(powers)
    assert 0.93 <= held / 500 <= 0.97


def test_a_sensor_that_sees_a_quarter_of_the_time_is_right_on_average_where_steps_pause_by_chance() -> None:
    """A load that works in just the quarter that is seen: three times the truth, unless its phase moves."""
    chance, told, blind = random.Random(5), list[float](), list[float]()
    for paused in (False, True):
        for _ in range(200):
            shift = chance.uniform(0.0, 0.1) if paused else 0.0
            time = Time(10**9)
            sensor = QuarterSensor(time, lambda s, shift=shift: 200.0 if (s + shift) % 0.1 < 0.025 else 40.0)  # type: ignore[misc]
            seen = watched(sensor, time, seconds=0.6)
            (window,) = seen.windows(seen.readings[0][0], seen.readings[-1][0], 0.6)
            (told if paused else blind).append(window.watts)
    assert mean(blind) == pytest.approx(200.0, rel=0.02)
    assert abs(mean(told) - 80.0) <= half_width(told)
    assert spread(told) > 20.0  # which is how it shows that little is seen
