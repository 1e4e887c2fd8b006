"""Scores: a geometric mean over a frozen set, only where all of it came out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.made import outcome

from mldyno import api
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.scores import figure_of, missing, reference, scores
from mldyno.errors import MldynoError
from mldyno.store import Store


def of_set(speed: float, mode: str = "train", machine: str = "m", apart: float = 0.002) -> list[Outcome]:
    """All cases of the set in one mode, so many times as fast as the reference."""
    made = []
    for case, rate in reference().rates.items():
        if case.mode == mode:
            records = outcome(1 / rate / speed, apart=apart).records
            own = (replace(record, case=case, machine=replace(record.machine, name=machine)) for record in records)
            made.append(Outcome(tuple(own)))
    return made


def test_the_reference_machine_scores_100_and_one_twice_as_fast_200() -> None:
    (score,) = scores(of_set(1.0))
    assert score.value == pytest.approx(100.0)
    (score,) = scores(of_set(2.0, "infer"))
    assert score.value == pytest.approx(200.0)
    assert (score.machine, score.case.device, score.case.mode) == ("m", "cpu", "infer")


def test_a_score_has_an_interval_as_if_all_cases_erred_the_same_way() -> None:
    (score,) = scores(of_set(1.0, apart=0.02))
    widths = {each.step.half_width / each.step.value for each in score.outcomes if each.step and each.step.half_width}
    assert len(widths) >= 1
    assert score.half_width is not None
    assert 0.5 * min(widths) < score.half_width / score.value < 2 * max(widths)


def test_there_is_no_score_where_a_case_is_missing_or_failed() -> None:
    cases = of_set(1.0)
    assert scores(cases[1:]) == []
    assert missing(cases[1:], "train") == [cases[0].case]
    failed = Outcome(tuple(replace(record, status="oom", series=()) for record in cases[0].records))
    assert scores([failed, *cases[1:]]) == []


def test_another_version_of_a_workload_or_another_way_to_do_it_does_not_count() -> None:
    first, *others = of_set(1.0)
    for change in ({"version": 2}, {"precision": "bf16"}, {"threads": 1}):
        changed = Outcome(tuple(replace(each, case=replace(each.case, **change)) for each in first.records))
        assert scores([changed, *others]) == []


def test_machines_and_devices_have_scores_of_their_own() -> None:
    rows = scores([*of_set(1.0), *of_set(3.0, machine="other"), *of_set(1.5, "infer")])
    assert [(row.machine, row.case.mode, round(row.value)) for row in rows] == [
        ("m", "train", 100), ("m", "infer", 150), ("other", "train", 300),
    ]  # fmt: skip


def test_the_reference_rates_name_cases_that_quick_measures() -> None:
    planned = {replace(case, device="cpu") for case in api.make_plan(["quick"], {}).cases}
    assert reference().rates.keys() <= planned
    assert {case.mode for case in reference().rates} == {"train", "infer"}


def test_without_all_cases_a_table_of_scores_says_what_to_run(store: Store) -> None:
    api.run("mlp", framework="fake", repeats=1, store=store)
    with pytest.raises(MldynoError, match=r"no device has a time of every case of the score yet; .* mldyno quick"):
        api.table(value="score", store=store)


def test_a_score_as_a_figure_names_its_version() -> None:
    (score,) = scores(of_set(1.0))
    assert figure_of(score).run.suite == f"quick {reference().version}"
