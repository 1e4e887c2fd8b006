"""The processes that a record was measured in."""

from __future__ import annotations

import math

import pytest
from tests.analysis.test_estimates import a_record

from mldyno.analysis.estimates import processes_of, step_time
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Case, Series, Warning_
from mldyno.views.outcomes import trust

MEASURED = {"steps": 20, "wall_time": 3.0, "reference_size": 256}
KERNELS = (Series("step_time", "s", (0.01,) * 20), Series("reference_time", "s", (1e-3, 2e-3, 3e-3)))


def test_a_record_tells_of_one_process_with_the_reference_kernel_beside_it() -> None:
    (process,) = processes_of(a_record([], series=KERNELS, facts=MEASURED))
    assert math.exp(process.time) == pytest.approx(0.01)
    assert math.exp(process.reference) == pytest.approx(2e-3)


def test_each_run_of_a_command_is_a_process() -> None:
    record = a_record([1.0, 2.0, 3.0], facts={"wall_time": 7.0, "end_to_end": True})
    assert [math.exp(process.time) for process in processes_of(record)] == pytest.approx([1.0, 2.0, 3.0])


def test_the_smaller_kernel_of_earlier_versions_is_not_taken_for_the_one_of_today() -> None:
    old = {name: value for name, value in MEASURED.items() if name != "reference_size"}
    (process,) = processes_of(a_record([], series=KERNELS, facts=old))
    assert process.reference == 0.0
    assert process.kernel == ("cpu", None)


@pytest.mark.parametrize("facts", [{"steps": 20}, {**MEASURED, "fake_time": True}])
def test_figures_and_fake_time_have_no_processes(facts: dict[str, object]) -> None:
    assert processes_of(a_record([0.01] * 20, facts=facts)) == []


def test_a_function_timed_where_it_was_called_is_known_as_well_as_its_samples_say() -> None:
    record = a_record([0.01] * 20, facts=MEASURED, case=Case("step", framework="python"))
    assert processes_of(record) == []
    estimate = step_time([record])
    assert estimate is not None
    assert estimate.half_width == pytest.approx(0.0)


def test_one_long_step_has_an_interval_too() -> None:
    estimate = step_time([a_record([12.5], facts={**MEASURED, "process_spread": 0.04, "process_freedom": 20.0})])
    assert estimate is not None
    assert estimate.half_width is not None
    assert 0.07 < estimate.half_width / estimate.value < 0.1
    assert estimate.within is None


def test_processes_that_waited_for_a_core_are_left_out_where_others_did_not() -> None:
    quiet, waited = (
        a_record([0.01] * 20, facts=MEASURED),
        a_record([0.2] * 20, 1, facts=MEASURED, warnings=(Warning_("contended", "its threads waited"),)),
    )
    both, alone = step_time([quiet, waited]), step_time([waited])
    assert both is not None
    assert alone is not None
    assert both.value == pytest.approx(0.01)
    assert both.processes == 1
    assert alone.value == pytest.approx(0.2)
    assert "contended (1 of 2 processes, left out)" in trust(Outcome((quiet, waited)))
