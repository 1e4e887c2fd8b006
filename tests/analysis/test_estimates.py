"""From samples to a number with its interval."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mldyno.analysis.estimates import Estimate, of_metric, step_time
from mldyno.analysis.outcomes import Outcome, known_value, missing, outcomes
from mldyno.errors import UsageError
from mldyno.metrics import METRICS
from mldyno.records import SCHEMA, Case, Machine, Record, Run, Series, seal
from mldyno.store.figures import published


def a_record(values: list[float], number: int = 0, **changes: object) -> Record:
    plain = Record(
        SCHEMA, "", "2026-01-01T00:00:00Z", "measured",
        Run("r", repeat=number), Case("mlp", batch=8), "ok", "", Machine("m"),
        series=(Series("step_time", "s", tuple(values)),), facts={"steps": len(values), "items_per_step": 8},
    )  # fmt: skip
    return seal(replace(plain, **changes))  # type: ignore[arg-type]


def noisy(level: float, seed: int, count: int = 200) -> list[float]:
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0, 0.05)) for _ in range(count)]


def test_one_process_gives_its_median_with_an_interval_of_batch_medians() -> None:
    found = of_metric([a_record(noisy(0.01, 1))], "step_time")
    assert found is not None
    assert found.value == pytest.approx(0.01, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.01 < found.high


def test_a_process_that_is_badly_known_itself_says_nothing_sure_of_the_next() -> None:
    wild = [0.01 * (1 + 30 * (number // 20 % 2)) for number in range(200)]
    found = of_metric([a_record(wild, facts={"steps": 200, "wall_time": 3.0})], "step_time")
    assert found is not None
    assert found.within is not None
    assert found.half_width is not None
    assert found.half_width > found.within > 0.5 * found.value


def test_few_samples_have_no_interval() -> None:
    found = of_metric([a_record([0.01] * 9)], "step_time")
    assert found is not None
    assert found.half_width is None


def test_several_processes_show_how_much_they_differ() -> None:
    records = [a_record(noisy(0.01 * factor, n), n) for n, factor in enumerate((0.9, 1.0, 1.1))]
    one, three = of_metric(records[:1], "step_time"), of_metric(records, "step_time")
    assert one is not None
    assert one.half_width is not None
    assert three is not None
    assert three.half_width is not None
    assert three.processes == 3
    assert three.half_width > 10 * one.half_width


def test_the_intervals_of_noisy_series_cover_their_truth() -> None:
    hits = 0
    for seed in range(300):
        found = of_metric([a_record(noisy(0.01, seed))], "step_time")
        assert found is not None
        assert found.half_width is not None
        hits += abs(found.value - 0.01) <= found.half_width
    assert 0.9 <= hits / 300 <= 0.99


def test_a_published_loop_gives_the_time_of_a_step() -> None:
    row = next(r for r in published() if r.case.workload == "bert-base" and r.series and r.series[0].values == (149.0,))
    found = step_time([row])
    assert found == Estimate(1.49, unit="s", processes=1, samples=1, steps=100)
    outcome = Outcome((row,))
    loop = outcome.figure("time:100steps")
    assert loop is not None
    assert loop.value == 149.0
    throughput = outcome.figure("throughput")
    assert throughput is not None
    assert throughput.value == pytest.approx(16 / 1.49)


def test_a_whole_process_has_no_time_of_a_step() -> None:
    row = next(r for r in published() if r.series and r.series[0].metric == "process_time")
    assert step_time([row]) is None
    found = Outcome((row,)).figure("process_time")
    assert found is not None
    assert found.unit == "s"


def test_an_outcome_that_is_not_ok_has_no_figure() -> None:
    failed = Outcome((a_record([0.1] * 20, status="wrong", reason="loss rose"),))
    assert failed.figure("step") is None
    assert (failed.status, failed.reason) == ("wrong", "loss rose")


def test_records_of_one_case_and_run_are_one_outcome() -> None:
    records = [a_record([0.1] * 20, n) for n in range(3)] + [a_record([0.1], run=Run("other"))]
    assert [len(outcome.records) for outcome in outcomes(records)] == [3, 1]


@pytest.mark.parametrize("value", ["stpe", "time:steps", "time:0steps", "time:100", "enrgy", "throughput:Decode"])
def test_an_unknown_value_is_refused(value: str) -> None:
    with pytest.raises(UsageError):
        known_value(value, ["peak_power"])
    known_value("peak_power", ["peak_power"])


@pytest.mark.parametrize("value", [*(metric.name for metric in METRICS), "throughput:decode"])
def test_a_value_that_was_not_measured_is_known(value: str) -> None:
    assert known_value(value, []) == value
    reasons = ("no energy was measured", f"none of these records has {value} (", "none of these records has a price of")
    assert str(missing(value)).startswith(reasons)
