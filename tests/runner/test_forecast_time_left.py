"""The time left: right from the forecast, corrected by what was seen, and within a third even where that was wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from tests.conftest import OWN_KEY
from tests.views.report.made_records import BENCH, record

from mldyno import api
from mldyno.cli.progress import PlainLines
from mldyno.plan import Plan, expand, for_command
from mldyno.runner.forecast import GUESSED_START_S, WORKER_S, Forecast, TimeLeft, forecast
from mldyno.runner.pairing import FRESH_PAIRS, groups
from mldyno.store import Store
from mldyno.worker.client import WorkerProcess


@dataclass
class Clock:
    """Time that passes when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def plan_of(workloads: list[str], repeats: int = 1, limit: float | None = None) -> Plan:
    axes = {"framework": ["fake"], "device": ["cpu", "gpu"], "mode": ["infer"]}
    return expand(workloads, axes, {"repeats": repeats, "limit": limit}, lambda framework, python: ("cpu", "gpu"))


def shown_and_true(plan: Plan, alone: float, paired: float, real: dict[str, float]) -> list[tuple[float, float]]:
    """At the begin of each part of a run: the time left that is shown, and what it really was."""
    clock = Clock()
    repeats = plan.fewest_repeats
    expected = Forecast(plan.cases[0], repeats * (alone + paired), pairing=repeats * paired, processes=repeats)
    left = TimeLeft(plan, [replace(expected, case=case) for case in plan.cases], clock)
    left.begin([(case, number) for number in range(repeats) for case in plan.cases])
    seen: list[tuple[float, float]] = []
    for number in range(repeats):
        for group in groups(plan.cases, plan.by):
            for case in group:
                left.advance_to(case, number)
                seen.append((clock.now, left.seconds))
                clock.now += real[case.id]
            left.advance_to(group[0], number, pairing=True)
            seen.append((clock.now, left.seconds))
            clock.now += real["paired"]
    return [(shown, clock.now - at) for at, shown in seen]


@pytest.mark.parametrize("wrong_by", [0.75, 1.0, 1.3])
def test_from_the_first_to_the_last_part_it_is_right_within_a_third(wrong_by: float) -> None:
    plan = plan_of(["mlp", "lstm", "encoder", "bert-tiny", "mnist-cnn", "resnet18"], repeats=2)
    chance = random.Random(1)
    real = {case.id: 5.0 * wrong_by * chance.uniform(0.8, 1.25) for case in plan.cases} | {"paired": 6.0 * wrong_by}
    for shown, true in shown_and_true(plan, 5.0, 3.0, real):
        assert 2 / 3 < shown / true < 4 / 3


def test_a_forecast_that_is_wrong_by_a_factor_is_corrected_by_half_of_the_run() -> None:
    plan = plan_of(["mlp", "lstm", "encoder", "bert-tiny", "mnist-cnn", "resnet18"], repeats=2)
    real = {case.id: 15.0 for case in plan.cases} | {"paired": 18.0}
    found = shown_and_true(plan, 5.0, 3.0, real)
    assert found[0][0] / found[0][1] == pytest.approx(1 / 3, rel=0.01)  # nothing was seen yet
    for shown, true in found[len(found) // 2 :]:
        assert 2 / 3 < shown / true < 4 / 3


def test_within_a_part_it_runs_down_and_never_below_what_follows() -> None:
    plan, clock = plan_of(["mlp"]), Clock()
    left = TimeLeft(plan, [Forecast(case, 10.0, pairing=4.0) for case in plan.cases], clock)
    left.begin([(case, 0) for case in plan.cases])
    assert left.seconds == pytest.approx(20.0)
    clock.now = 3.0
    assert left.seconds == pytest.approx(17.0)
    clock.now = 9.0  # longer than foreseen
    assert left.seconds == pytest.approx(14.0)
    assert left.share == pytest.approx(9 / 23)


def test_it_never_shows_more_than_the_limit_leaves() -> None:
    plan, clock = plan_of(["mlp"], limit=15.0), Clock()
    left = TimeLeft(plan, [Forecast(case, 100.0) for case in plan.cases], clock)
    left.begin([(case, 0) for case in plan.cases])
    clock.now = 5.0
    assert left.seconds == pytest.approx(10.0)


def test_of_a_resumed_run_only_what_is_missing_counts() -> None:
    plan = plan_of(["mlp", "lstm"])
    left = TimeLeft(plan, [Forecast(case, 10.0, pairing=4.0) for case in plan.cases], Clock())
    left.begin([(case, 0) for case in plan.cases if case.workload == "lstm"])
    assert left.seconds == pytest.approx(20.0)
    left.advance_to(plan.cases[0], 0)  # what is not in the row changes nothing
    assert left.seconds == pytest.approx(20.0)


@pytest.mark.parametrize("axes", [{"threads": ["1", "2"]}, {"device": ["cpu", "gpu"]}])
@pytest.mark.parametrize("repeats", [1, None])
def test_what_a_paired_run_is_said_to_take_at_its_start_is_right_within_a_third(
    axes: dict[str, list[str]], repeats: int | None, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake", "mode": "infer", **axes}, {"repeats": repeats})
    clock, start = Clock(), WorkerProcess.start

    def started(self: WorkerProcess) -> None:
        clock.now += WORKER_S  # which is all that a fake case takes
        start(self)

    monkeypatch.setattr(WorkerProcess, "start", started)
    left = TimeLeft(plan, forecast(plan, store), clock)
    left.begin([(case, number) for number in range(plan.most_repeats) for case in plan.cases])
    said = left.seconds
    api.run_plan(plan, store, PlainLines())
    assert 2 / 3 < said / clock.now < 4 / 3


def test_the_base_of_a_large_group_takes_part_in_all_of_its_paired_comparisons(store: Store) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake", "mode": "infer", "threads": list("123456789")}, {"repeats": 1})
    base, *others = (expected.pairing for expected in forecast(plan, store))
    assert others == pytest.approx([FRESH_PAIRS * WORKER_S] * 8)
    assert base == pytest.approx(2 * others[0])


def test_cases_that_were_only_measured_alone_before_still_have_their_paired_comparison_to_come(store: Store) -> None:
    plan = api.make_plan(["mlp"], {"mode": "infer", "threads": ["1", "2"]}, {"repeats": 1})
    bench = replace(BENCH, name="test bench", key=OWN_KEY)
    store.append([record(case, 0.002, bench, wall_time=5.0) for case in plan.cases])
    for expected in forecast(plan, store):
        assert expected.known
        assert expected.seconds == pytest.approx(5.0 + expected.pairing, rel=0.01)
        assert expected.pairing > 5 * GUESSED_START_S, "five fresh pairs of processes"


def test_of_a_process_that_takes_minutes_the_first_run_tells_how_long_the_rest_takes() -> None:
    plan, clock = for_command(["slow", "--", "slower"]), Clock()
    left = TimeLeft(plan, [Forecast(case, 30.0) for case in plan.cases], clock)
    left.begin([(case, 0) for case in plan.cases])
    left.advance_to(plan.cases[0], 0, pairing=True)
    assert left.seconds == pytest.approx(60.0)
    clock.now = 400.0
    left.note_step(plan.cases[0], 400.0)
    assert left.seconds == pytest.approx(2 * 400.0), "two more runs of the first, which count"
    clock.now = 900.0
    left.note_step(plan.cases[1], 500.0)
    assert left.seconds == pytest.approx(2 * 400.0 + 2 * 500.0), "and two of the other"


def test_a_short_step_and_fake_time_change_nothing() -> None:
    plan, clock = plan_of(["mlp"]), Clock()
    left = TimeLeft(plan, [Forecast(case, 10.0) for case in plan.cases], clock)
    left.begin([(case, 0) for case in plan.cases])
    left.note_step(plan.cases[0], 1000.0)
    left.note_step(replace(plan.cases[0], framework="torch"), 0.001)
    assert left.seconds == pytest.approx(20.0)
