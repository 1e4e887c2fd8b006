"""A tracked loop, taken apart: its figures from raw samples, and none where there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mldyno.analysis.breakdown import loop_parts
from mldyno.analysis.comparisons import LONGER_LOOPS, compare
from mldyno.analysis.estimates import processes_of, varying_processes
from mldyno.analysis.outcomes import Outcome
from mldyno.axes import TRACKED, unstated
from mldyno.records import SCHEMA, Case, Machine, Record, Run, Series, seal


def loop_record(*series: Series, name: str = "train.py", run: str = "r") -> Record:
    case = unstated(name, TRACKED)
    record = Record(SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run(run), case, "ok", "", Machine("m"))
    return seal(replace(record, series=series, facts={"wall_time": 1.0, "steps": 100}))


def steps(*values: float, stage: str = "steady", block: int = 1) -> Series:
    return Series("step_time", "s", values, stage, block)


def waits(*values: float) -> Series:
    return Series("data_wait", "s", values)


def test_of_other_records_nothing_is_said() -> None:
    assert loop_parts(replace(loop_record(steps(0.01)), case=Case("mlp"))) is None
    assert loop_parts(replace(loop_record(steps(0.01)), status="failed")) is None


def test_a_loop_without_a_loader_does_not_wait() -> None:
    parts = loop_parts(loop_record(steps(*[0.01] * 30), waits(*[0.0] * 30)))
    assert parts is not None
    assert (parts.waiting, parts.loader, parts.change, parts.long_blocks) == (None, None, None, 0)


def test_few_blocks_have_a_share_of_waiting_without_an_interval() -> None:
    parts = loop_parts(loop_record(steps(*[0.01] * 5), waits(*[0.002] * 5)))
    assert parts is not None
    assert parts.waiting is not None
    assert parts.waiting.value == pytest.approx(0.2)
    assert parts.waiting.low is None


def test_steps_are_counted_from_the_very_first() -> None:
    values = [0.01] * 30 + [0.012] * 30
    record = loop_record(steps(1.0, stage="first"), steps(*[0.02] * 5, stage="warmup"), steps(*values, block=4))
    parts = loop_parts(record)
    assert parts is not None
    assert parts.change is not None
    assert parts.change.step == 1 + 5 + 4 * 30 + 1
    assert parts.change.change == pytest.approx(0.2)


def test_long_blocks_are_counted_with_all_of_their_time() -> None:
    parts = loop_parts(loop_record(steps(*[0.01] * 30), steps(0.5, 0.7, stage="long", block=4)))
    assert parts is not None
    assert (parts.long_blocks, parts.steps_each) == (2, 4)
    assert parts.long_time == pytest.approx(4.8)


def test_loops_are_compared_with_what_processes_usually_differ_by() -> None:
    fast, slow = (Outcome((loop_record(steps(*[size] * 40), run=str(size)),)) for size in (0.010, 0.011))
    comparison = compare(slow, fast)
    assert comparison is not None
    assert comparison.verdict == "inconclusive"
    assert comparison.advice == LONGER_LOOPS


def test_loops_tell_nothing_to_other_cases() -> None:
    record = loop_record(steps(*[0.01] * 40))
    assert len(processes_of(record)) == 1
    assert varying_processes([record]) == []
    assert len(varying_processes([replace(record, case=Case("mlp"))])) == 1
