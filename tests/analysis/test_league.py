"""This machine among others in the same work: the fastest first, doubtful and fake figures in none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.made import outcome

from mldyno.analysis.league import league
from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.store.figures import newest

PUBLISHED = outcomes(newest())


def bert(step: float, device: str = "cpu") -> Outcome:
    made = outcome(step, mode="infer", batch=16, seq=128, placement="host", device=device)
    return Outcome(tuple(replace(record, case=replace(record.case, workload="bert-base")) for record in made.records))


def test_only_shared_work_makes_a_division_and_the_fastest_comes_first() -> None:
    (division,) = league([bert(1.0), outcome(1e-3, batch=77)], PUBLISHED)
    steps = [each.step.value for each in division.outcomes if each.step is not None]
    assert steps == sorted(steps)
    assert division.case == bert(1.0).case
    assert {"NVIDIA V100 SXM2 16GB", "m"} <= {each.machine for each in division.outcomes}


def test_the_fastest_of_our_devices_stands_for_the_machine() -> None:
    (division,) = league([bert(1.0), bert(0.02, device="cuda:0")], PUBLISHED)
    assert division.best.case.device == "cuda:0"
    assert len(division.ours) == 2
    v100 = next(each for each in division.rivals if each.base.machine.startswith("NVIDIA V100"))
    assert v100.base.step is not None
    assert v100.ratio == pytest.approx(v100.base.step.value / 0.02, rel=0.01)


def test_figures_that_their_authors_doubt_and_fake_times_are_in_none() -> None:
    mine = outcome(1e-3, batch=128, mode="infer")
    (division,) = league([mine], PUBLISHED)
    assert "Intel Xeon Gold 5218R 20 threads" not in {each.machine for each in division.outcomes}
    fake = Outcome(tuple(replace(record, facts={"fake_time": True}) for record in mine.records))
    assert league([fake], PUBLISHED) == []
