"""How many loader workers: what each number brings is told over the fewest, and over the best before it."""

from __future__ import annotations

from typing import Any

from tests.analysis.made import met, outcome

from mldyno.analysis.answers import answers, unreported
from mldyno.analysis.outcomes import Outcome
from mldyno.views.answers import answer_lines
from mldyno.views.as_json import answers_json


def with_workers(times: dict[int, float], noise: float = 0.004, **axes: Any) -> list[Outcome]:
    """One case with so many loader workers, each with its time of a step in s, head-to-head."""
    sides = [outcome(time, placement="loader", loader_workers=workers, **axes) for workers, time in times.items()]
    return met(*sides, noise=noise)


def told(outcomes: list[Outcome]) -> str:
    (line,) = answer_lines(answers(outcomes))
    return line


def test_each_number_is_told_over_none_and_what_brings_nothing_over_the_best() -> None:
    line = told(with_workers({0: 1.7, 2: 1.0, 4: 1.0}))
    assert line.startswith("MLP, training, batch 8, from a data set on cpu: 2 loader workers: 1.7")
    assert " over 0; 4 gain nothing (1.0" in line
    assert " over 2) [paired, 48 rounds in one process" in line


def test_more_workers_can_be_faster_again_or_slower() -> None:
    assert "1 loader worker: 1.50" in (line := told(with_workers({0: 3.0, 1: 2.0, 2: 1.0, 4: 1.3})))
    assert "; 2: 3.00" in line
    assert "; slower with 4: 0.769x" in line


def test_one_worker_that_only_costs_is_told_as_such() -> None:
    assert ": slower with 1 loader worker: 0.909x" in told(with_workers({0: 1.0, 1: 1.1}))


def test_what_can_not_be_told_is_not_told() -> None:
    line = told(with_workers({0: 1.0, 2: 0.99}, noise=0.4))
    assert ": can't tell if 2 loader workers gain anything: 1.0" in line
    assert line.endswith("would settle it]") or "quieter machine]" in line


def test_it_is_said_once_and_other_axes_are_not_lost() -> None:
    outcomes = with_workers({0: 2.0, 2: 1.0})
    assert unreported(outcomes, answers(outcomes)) == []
    pinned = met(outcomes[1], outcome(0.5, placement="loader", loader_workers=2, pin_memory=True), group=2)
    everything = [outcomes[0], *pinned]
    (comparison,) = unreported(everything, answers(everything))
    assert comparison.other.case.pin_memory


def test_as_data_it_names_the_best_number() -> None:
    (gain,) = answers_json(answers(with_workers({0: 1.7, 2: 1.0, 4: 1.0})))["loaders"]
    assert (gain["fewest"], gain["best"]) == (0, 2)
    assert [(each["workers"], each["over_best"], each["best_verdict"]) for each in gain["workers"]] == [
        (2, 0, "faster"), (4, 2, "equivalent")
    ]  # fmt: skip
