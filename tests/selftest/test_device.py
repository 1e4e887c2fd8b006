"""The measures of a device's contract hold where the device does, and are missed where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.selftest import device
from mldyno.selftest.device import measure
from mldyno.selftest.measures import Measure
from mldyno.selftest.setup import TaskResult


def rows(*found: dict[str, Any]) -> TaskResult:
    return TaskResult([*found])


def judged(task: str, heard: TaskResult) -> list[Measure]:
    return [measure(task, heard, "mps")]


def case(precision: str, mode: str = "infer", status: str = "ok", reason: str = "", **seen: Any) -> dict[str, Any]:
    """What came of a case."""
    return {"precision": precision, "mode": mode, "status": status, "reason": reason, "error": 1e-7,
            "device_seen": "mps:0", "events_share": 1.0, "drained_share": 0.1, **seen}  # fmt: skip


def cases(*found: dict[str, Any], **troubles: str) -> list[Measure]:
    """The three measures that come from cases."""
    heard = {"case fp32": rows(*found)}
    heard |= {f"case {precision}": TaskResult(failure=trouble) for precision, trouble in troubles.items()}
    return device.measure_cases(heard, "mps")


FOUND = {"found": True, "title": "Apple M3 Max", "memory": 36 << 30, "sees": ["cpu", "mps"]}
OVERFLOW = {"asked": 1 << 40, "status": "oom", "reason": "MPS backend out of memory"}
LONG = {"issued": 0.001, "waited": 0.02, "read": 0.0201}


@pytest.mark.parametrize(
    ("measures", "value", "note"),
    [
        (judged("device", rows(FOUND)), 1.0, "Apple M3 Max, 36.0 GiB"),
        (judged("overflow", rows(OVERFLOW, {"computes": True})), 1.0, "oom: MPS backend out of memory"),
        (judged("memory", rows({"known": 100, "counted": 101})), 1.01, ""),
        (judged("work", rows(*[{"one": 1.0, "two": 2.02, "four": 3.98}] * 24)), 0.01, ""),
        (judged("wait", rows(*[LONG] * 4)), 0.995, "returned after 5.0 % of it"),
        (judged("identical", rows(*[{"log_ratio": 0.001, "half_width": 0.005}] * 20)), 0.0, "equivalent in 20"),
        (judged("placements", rows(*[{"device": 1.0, "host": 1.3}] * 24)), 1.3, ""),
    ],
    ids=lambda given: given[0].name if isinstance(given, list) else "",
)
def test_what_holds_is_met(measures: list[Measure], value: float, note: str) -> None:
    (measure,) = measures
    assert measure.ok
    assert measure.value == pytest.approx(value, abs=1e-3)
    assert note in measure.note
    assert measure.n > 0
    assert measure.raw


def test_a_few_comparisons_of_identical_code_are_too_few_to_judge() -> None:
    (measure,) = judged("identical", rows(*[{"log_ratio": 0.001, "half_width": 0.005}] * 10))
    assert (measure.ok, measure.n) == (None, 10)


@pytest.mark.parametrize(
    ("measures", "value", "note"),
    [
        (judged("device", rows(FOUND | {"title": "mps"})), 0.5, "mps, 36.0 GiB"),
        (judged("device", rows(FOUND | {"memory": None})), 0.5, "memory unknown"),
        (judged("device", rows(FOUND | {"found": False})), 0.0, "only cpu, mps here"),
        (judged("overflow", rows(OVERFLOW | {"status": "failed"}, {"computes": True})), 0.5, "failed: "),
        (judged("overflow", rows(OVERFLOW)), 0.5, "oom: "),
        (judged("memory", rows({"known": 100, "counted": 0})), 0.0, ""),
        (judged("work", rows(*[{"one": 1.0, "two": 1.2, "four": 1.6}] * 24)), 1.5, ""),
        (judged("wait", rows(*[LONG | {"waited": 0.0011}] * 4)), 0.055, "returned after"),
        (judged("identical", rows(*[{"log_ratio": 0.05, "half_width": 0.005}] * 10)), 1.0, "equivalent in 0"),
        (judged("placements", rows(*[{"device": 1.0, "host": 1.0}] * 24)), 1.0, ""),
    ],
    ids=lambda given: given[0].name if isinstance(given, list) else "",
)
def test_what_does_not_hold_is_missed(measures: list[Measure], value: float, note: str) -> None:
    (measure,) = measures
    assert not measure.ok
    assert measure.value == pytest.approx(value, abs=1e-3)
    assert note in measure.note


@pytest.mark.parametrize("name", ["overflow", "memory", "work", "wait", "identical", "placements"])
def test_a_task_that_found_nothing_is_missed_with_its_reason(name: str) -> None:
    (measure,) = judged(name, TaskResult(failure="its process was ended by SIGABRT"))
    assert not measure.ok
    assert measure.n == 0
    assert measure.note == "its process was ended by SIGABRT"


def test_a_task_that_broke_off_is_missed_however_good_it_was() -> None:
    (measure,) = judged("work", TaskResult([{"one": 1.0, "two": 2.0, "four": 4.0}] * 24, "failed: the device was lost"))
    assert not measure.ok
    assert measure.note == "failed: the device was lost"


def test_cases_that_hold_are_met_and_precisions_that_are_not_there_are_told() -> None:
    found = cases(case("fp32"), case("fp32", "train"), case("fp64", status="unsupported", reason="no float64"))
    assert [measure.ok for measure in found] == [True] * 3
    assert found[2].n == 2
    assert found[2].note == "fp32 infer off by 1.0e-07; fp32 train off by 1.0e-07; no fp64 (no float64)"


def test_events_that_disagree_with_the_clock_and_tensors_elsewhere_are_missed() -> None:
    events, places, _ = cases(case("fp32", events_share=0.5), case("fp32", "train", device_seen="cpu"))
    assert (events.ok, events.bound) == (False, 0.5)
    assert (places.ok, places.value, places.note) == (False, 0.5, "seen on cpu")


def test_a_device_without_events_or_counters_is_not_blamed_for_it() -> None:
    events, _, _ = cases(case("fp32", events_share=None))
    assert (events.ok, events.n, events.note) == (True, 0, "this device has no timing events")
    (counted,) = judged("memory", rows({"known": 100, "counted": None}))
    assert (counted.ok, counted.n, counted.note) == (True, 0, "this device does not count its memory")
    (counted,) = judged("memory", rows({"known": 100, "counted": 1024, "by": "driver"}))
    assert (counted.ok, counted.n) == (True, 0)
    assert "only its driver counts its memory" in counted.note


def test_what_befell_several_precisions_is_told_once() -> None:
    lost = [case(precision, mode, "failed", "lost") for precision in ("fp16", "bf16") for mode in ("infer", "train")]
    note = cases(case("fp32"), *lost)[2].note
    assert note == "fp32 infer off by 1.0e-07; fp16 infer, fp16 train, bf16 infer, bf16 train failed: lost"


@pytest.mark.parametrize(
    ("found", "note"),
    [
        (cases(case("fp32"), case("bf16", status="wrong", reason="off by 1")), "bf16 infer wrong: off by 1"),
        (cases(case("fp32"), bf16="its process was ended by SIGABRT"), "bf16: its process was ended by SIGABRT"),
        (cases(case("fp32", status="unsupported", reason="why", device_seen=None)), "no fp32 (why)"),
    ],
    ids=["wrong", "ended", "no fp32"],
)
def test_a_precision_that_is_wrong_or_ends_the_process_is_missed(found: list[Measure], note: str) -> None:
    assert not found[2].ok
    assert note in found[2].note


def test_what_a_framework_can_not_do_is_reported_and_not_held_against_the_device() -> None:
    (measure,) = judged("overflow", rows({"lacks": "openvino can't allocate memory by itself"}))
    assert (measure.ok, measure.n, measure.note) == (True, 0, "openvino can't allocate memory by itself")
    train = case("fp32", "train", "unsupported", "openvino does not train networks", device_seen=None)
    agreement = cases(case("fp32"), train)[2]
    assert (agreement.ok, agreement.n) == (True, 1)
    assert "no fp32 train (openvino does not train networks)" in agreement.note


def test_what_there_was_no_time_for_is_neither_met_nor_missed() -> None:
    (measure,) = judged("work", TaskResult(failure="not tried: the time was over"))
    assert (measure.ok, measure.n) == (None, 0)
    over = "not tried: the time was over"
    assert [measure.ok for measure in cases(case("fp32"), fp64=over)] == [True, True, None]
    assert [measure.ok for measure in cases(fp32=over, fp64=over)] == [None] * 3
