"""How many processes a case gets, and how long each of them is measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.analysis.test_estimates import a_record

from mldyno.plan import Plan
from mldyno.records import Case, Record
from mldyno.runner.pairing import budget_of_process, longest_warm_up, paired_budget, wants_another

CASES = (Case("mlp"),)
PLAN = Plan(CASES)


def process(number: int, step: float = 0.01, start: float = 5.0, spread: float = 0.05) -> Record:
    """A process that was measured for two seconds, after it took so long to start."""
    values = [step * (1 + 0.01 * math.sin(3.0 * place)) for place in range(200)]
    facts = {"steps": 200, "wall_time": start + sum(values), "process_spread": spread, "process_freedom": 40.0}
    return a_record(values, number, facts=facts)


def several(count: int, apart: float, **changes: float) -> list[Record]:
    return [process(number, 0.01 * (1 + apart * (-1) ** number), **changes) for number in range(count)]


def test_a_case_has_three_processes_at_least() -> None:
    assert wants_another(PLAN, [])
    assert wants_another(PLAN, several(2, 0.0, spread=0.001))


def test_it_has_no_more_once_its_time_is_known_to_the_target() -> None:
    assert not wants_another(PLAN, several(3, 0.0, spread=0.001))
    assert wants_another(PLAN, several(3, 0.0))


def test_it_has_no_more_than_the_budget_lets_it() -> None:
    counts = [count for count in range(3, 31) if wants_another(PLAN, several(count, 0.1))]
    assert counts == list(range(3, 10)), "ten processes of 2 s, seven of which take 5 s to start"
    slow = [count for count in range(3, 31) if wants_another(PLAN, several(count, 0.1, start=60.0))]
    assert slow == []


def test_as_many_as_were_asked_for_are_measured_whatever_they_show() -> None:
    assert wants_another(Plan(CASES, repeats=5), several(4, 0.0, spread=0.001))
    assert not wants_another(Plan(CASES, repeats=1), several(1, 0.1))


def test_a_fixed_number_of_steps_has_three_processes() -> None:
    plan = Plan(CASES, steps=100)
    assert wants_another(plan, several(2, 0.1))
    assert not wants_another(plan, several(3, 0.1))


def test_a_case_that_fails_three_times_is_given_up() -> None:
    failed = [a_record([], number, status="failed", reason="no") for number in range(3)]
    assert wants_another(PLAN, failed[:2])
    assert not wants_another(PLAN, failed)


def test_a_case_that_can_not_work_is_tried_once() -> None:
    assert not wants_another(PLAN, [replace(a_record([], 0, status="unsupported", reason="no such device"), series=())])
    assert not wants_another(PLAN, [replace(a_record([], 0, status="failed", reason="not installed"), series=())])
    assert wants_another(PLAN, [a_record([0.1], 0, status="failed", reason="crashed while it ran")])


def test_where_a_ratio_is_asked_for_each_case_alone_has_three_short_processes() -> None:
    plan = replace(PLAN, by="workload")
    assert budget_of_process(plan, []) == budget_of_process(plan, several(2, 0.1)) == 2.0
    assert wants_another(plan, several(2, 0.1))
    assert not wants_another(plan, several(3, 0.1))
    assert paired_budget(plan) == 2 * paired_budget(PLAN) == 20.0


def test_the_budget_is_shared_where_the_number_of_processes_is_given() -> None:
    assert budget_of_process(Plan(CASES, repeats=3), []) == 20.0
    assert budget_of_process(Plan(CASES, repeats=1, budget=2.0), []) == 2.0


def test_the_first_process_is_short_and_the_next_ones_as_long_as_pays() -> None:
    assert budget_of_process(PLAN, []) == 2.0
    assert budget_of_process(PLAN, [process(0, spread=0.1)]) == 2.0
    long = budget_of_process(PLAN, [process(0, start=400.0, spread=0.001)])
    assert 2.0 < long <= 20.0


@pytest.mark.parametrize(("plan", "seconds"), [(PLAN, 5.0), (Plan(CASES, repeats=1, budget=2.0), 1.0)])
def test_a_warm_up_may_take_a_quarter_of_what_three_processes_had(plan: Plan, seconds: float) -> None:
    assert longest_warm_up(plan) == seconds
