"""What the copy costs, which precision pays; and answers only where the axes allow them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.made import met, outcome

from mldyno.analysis.answers import Answers, answers, copy_costs, precision_gains
from mldyno.analysis.outcomes import Outcome


def placed(**steps: float) -> list[Outcome]:
    return met(*(outcome(step, placement=name) for name, step in steps.items()))


def test_the_copy_costs_what_a_step_is_longer_with_it() -> None:
    there, back_too, back = copy_costs(placed(device=3e-3, host=4e-3, roundtrip=6e-3))
    assert [there.way, back_too.way, back.way] == ["in", "in and back", "back"]
    assert [one.share.value for one in (there, back_too, back)] == pytest.approx([1 / 4, 1 / 2, 1 / 3], abs=0.003)
    assert there.seconds == pytest.approx(1e-3, rel=0.02)
    assert there.share.low is not None
    assert there.share.high is not None
    assert there.share.low < 1 / 4 < there.share.high
    assert there.share.high - there.share.low < 0.02


def test_a_copy_that_costs_nothing_has_a_share_of_none() -> None:
    (found,) = copy_costs(placed(device=3e-3, roundtrip=3e-3))
    assert found.share.value == pytest.approx(0, abs=0.003)
    assert found.comparison.verdict == "equivalent"


def test_loaders_and_placements_that_failed_tell_nothing_of_copies() -> None:
    lost = outcome(1.0, status="failed", reason="x", placement="host")
    assert copy_costs([outcome(1.0, placement="device"), outcome(2.0, placement="loader"), lost]) == []


def test_each_precision_is_held_against_fp32_with_its_error_the_fastest_first() -> None:
    known = (("fp32", 2e-3, None), ("fp64", 5e-3, 1e-9), ("bf16", 1e-3, 0.008), ("amp-bf16", 1.5e-3, 0.004))
    sides = [outcome(step, precision=name, error=error) for name, step, error in known]
    lost = outcome(1.0, status="unsupported", reason="not here", precision="tf32")
    found = precision_gains([lost, *met(*sides)])
    assert [one.outcome.case.precision for one in found] == ["bf16", "amp-bf16", "fp64", "tf32"]
    assert [one.outcome.error for one in found] == [0.008, 0.004, 1e-9, None]
    assert found[0].comparison is not None
    assert found[0].comparison.ratio == pytest.approx(2.0, rel=0.01)
    assert found[0].comparison.how.startswith("paired")
    assert found[-1].comparison is None


def test_the_worst_error_of_all_processes_counts() -> None:
    one = outcome(1e-3, precision="bf16", error=0.008)
    worse = replace(one.records[1], checks=replace(one.records[1].checks, error=0.02))
    (found,) = precision_gains([outcome(2e-3, precision="fp32"), Outcome((one.records[0], worse))])
    assert found.outcome.error == 0.02


def test_without_fp32_nothing_is_said_of_precisions() -> None:
    assert precision_gains([outcome(1.0, precision="bf16"), outcome(2.0, precision="fp16")]) == []
    assert precision_gains([outcome(1.0, precision="bf16"), outcome(2.0, precision="fp32", device="mps")]) == []


def test_one_case_has_no_answers_and_a_published_one_none_either() -> None:
    assert answers([outcome(1.0)]) == Answers([], [], [], [], [])
    published = [Outcome(tuple(replace(record, provenance="published") for record in one.records))
                 for one in placed(device=3e-3, host=4e-3)]  # fmt: skip
    assert answers(published) == Answers([], [], [], [], [])


def test_along_an_axis_there_are_only_its_own_answers() -> None:
    known = [*placed(device=3e-3, host=4e-3), outcome(1e-3, precision="bf16", placement="device")]
    assert len(answers(known).copies) == len(answers(known).precisions) == 1
    assert answers(known, "placement").precisions == ()
    assert answers(known, "precision").copies == ()
    assert answers(known, "machine") == Answers([], (), (), ())
