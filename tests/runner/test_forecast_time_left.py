"""The time left: right from the forecast, corrected by what was seen, and within a third even where that was wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from mldyno.plan import Plan, expand
from mldyno.runner.forecast import Forecast, TimeLeft
from mldyno.runner.pairing import groups


@dataclass
class Clock:
    """Time that passes when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def plan_of(workloads: list[str], repeats: int = 1, limit: float | None = None) -> Plan:
    axes = {"framework": ["fake"], "device": ["cpu", "gpu"], "mode": ["infer"]}
    return expand(workloads, axes, {"repeats": repeats, "limit": limit}, lambda framework: ("cpu", "gpu"))


def shown_and_true(plan: Plan, alone: float, paired: float, real: dict[str, float]) -> list[tuple[float, float]]:
    """At the begin of each part of a run: the time left that is shown, and what it really was."""
    clock = Clock()
    repeats = plan.fewest
    expected = Forecast(plan.cases[0], repeats * (alone + paired), pairing=repeats * paired, processes=repeats)
    left = TimeLeft(plan, [replace(expected, case=case) for case in plan.cases], clock)
    left.begin([(case, number) for number in range(repeats) for case in plan.cases])
    seen: list[tuple[float, float]] = []
    for number in range(repeats):
        for group in groups(plan.cases, plan.by):
            for case in group:
                left.reached(case, number)
                seen.append((clock.now, left.seconds))
                clock.now += real[case.id]
            left.reached(group[0], number, pairing=True)
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
    assert left.part_share == pytest.approx(0.5)
    clock.now = 9.0  # longer than foreseen
    assert left.seconds == pytest.approx(14.0)
    assert left.part_share == 0.99
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
    left.reached(plan.cases[0], 0)  # what is not in the row changes nothing
    assert left.seconds == pytest.approx(20.0)
