"""The rounds of a paired comparison, with and without the time that a thread had no core."""

from __future__ import annotations

import math

import pytest

from mldyno.analysis.estimates import log_ratios, times_in_process, undelayed
from mldyno.records import Series


def rounds(metric: str, *values: float) -> Series:
    return Series(metric, "s", values, stage="paired")


def test_time_without_a_core_is_taken_out_of_a_round() -> None:
    series = [rounds("step_time", 0.010, 0.014), rounds("run_delay", 0.0, 0.004)]
    assert times_in_process(series) == pytest.approx({0: 0.010, 1: 0.010})


def test_looks_follow_each_other_in_their_order() -> None:
    series = [
        rounds("step_time", 1.0), rounds("run_delay", 0.5), rounds("step_time", 2.0, 3.0), rounds("run_delay", 0.0, 1.0)
    ]  # fmt: skip
    assert times_in_process(series) == {0: 0.5, 1: 2.0, 2: 2.0}


@pytest.mark.parametrize("delays", [[], [0.5]])
def test_where_not_every_delay_is_known_the_times_count_as_they_are(delays: list[float]) -> None:
    assert undelayed([1.0, 2.0], delays) == {0: 1.0, 1: 2.0}


def test_a_round_whose_delay_fell_outside_of_its_time_is_left_out_on_both_sides() -> None:
    mine = undelayed([1.0, 1.0, 4.0], [0.0, 1.5, 0.0])
    logs = log_ratios(mine, {0: 2.0, 1: 1.0, 2: 2.0})
    assert logs == pytest.approx([-math.log(2), math.log(2)])
