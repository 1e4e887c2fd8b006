"""How a device behaves is told beside what is expected of its kind."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.selftest.device import measure
from mldyno.selftest.measures import Measure
from mldyno.selftest.setup import TaskResult


def rows(*found: dict[str, Any]) -> TaskResult:
    return TaskResult([*found])


def judged(task: str, heard: TaskResult, device: str = "cuda:0") -> list[Measure]:
    return [measure(task, heard, device)]


def issued(depth: int | None) -> TaskResult:
    return rows({"issue": 5e-6, "kernel": 1e-4, "issued": 4096, "depth": depth})


def loaded(*rates: float) -> TaskResult:
    seen = {"thermal_limit_time": [2.5]}
    return rows(*({"at": 1.0, "rate": rate} for rate in rates), {"meters": ["nvidia"], "seen": seen})


LATE, EARLY = rows(*[{"whole": 0.02, "left": 0.02}] * 4), rows(*[{"whole": 0.02, "left": 1e-4}] * 4)
BLOCKS: dict[str, Any] = {"latency": 5e-5, "block": 25, "long": 5e-4}
CONVOLUTIONS = {"status": "ok", "reason": "", "error": 1e-6, "step": 1e-3}


@pytest.mark.parametrize(
    ("measures", "value", "ok", "words"),
    [
        (judged("queue", issued(1023), "cuda:0"), 1023, True, "issuing one takes 5"),
        (judged("queue", issued(64), "cuda:0"), 64, False, "not as expected"),
        (judged("queue", issued(64), "xpu"), 64, True, "issuing one takes 5"),
        (judged("queue", issued(None), "cuda:0"), 4096, True, "no limit among 4,096"),
        (judged("lazy", EARLY, "cuda:0"), 0.005, True, "it starts by itself"),
        (judged("lazy", LATE, "cuda:0"), 1.0, False, "not as expected: it starts only when it is waited for"),
        (judged("lazy", LATE, "mps"), 1.0, True, "it starts only when it is waited for"),
        (judged("latency", rows(*[{**BLOCKS, "short": 5.01e-4}] * 9)), 0.002, True, "latency 50"),
        (judged("latency", rows(*[{**BLOCKS, "short": 5.1e-4}] * 9)), 0.02, False, "not as expected"),
        (judged("peak", rows({"size": 4096, "rate": 9e13}, {"size": 8192, "rate": 9.3e13})), 1.033, True, "93 TFLOP/s"),
        (judged("peak", rows({"size": 4096, "rate": 5e13}, {"size": 8192, "rate": 9e13})), 1.8, False, "at 8192"),
        (judged("sustained", loaded(1.0, 0.95)), 0.95, True, "meters: nvidia; thermal_limit_time 2.5"),
        (judged("sustained", loaded(1.0, 0.9, 0.7)), 0.7, False, "not as expected: meters: nvidia"),
        (judged("edge", rows({"share": 0.97, "status": "ok", "reason": ""})), 0.97, True, ""),
        (judged("edge", rows({"share": 0.7, "status": "ok", "reason": ""}), "mps"), 0.7, True, ""),
        (judged("edge", rows({"share": 0.7, "status": "ok", "reason": ""}), "cuda:0"), 0.7, False, "not as expected"),
        (judged("edge", rows({"share": 0.9, "status": "failed", "reason": "lost"})), 0.9, False, "lost"),
        (judged("layouts", rows({"layout": "contiguous", **CONVOLUTIONS})), 1.0, True, "contiguous 1.00 ms"),
        (judged("layouts", rows({"layout": "contiguous", **CONVOLUTIONS},
                                {"layout": "channels-last", **CONVOLUTIONS, "status": "wrong", "reason": "off"})),
         0.5, False, "channels-last wrong: off"),
    ],
)  # fmt: skip
def test_what_was_found_is_told_and_what_was_not_expected_is_said_to_be_so(
    measures: list[Measure], value: float, ok: bool, words: str
) -> None:
    (measure,) = measures
    assert measure.value == pytest.approx(value, rel=0.01)
    assert measure.ok is ok
    assert words in measure.note
    assert measure.raw


def test_a_pool_that_a_framework_takes_for_itself_is_no_surprise() -> None:
    row = {"share": 0.74, "status": "ok", "reason": ""}
    assert [judged("edge", rows({**row, "framework": name}))[0].ok for name in ("jax", "torch")] == [True, False]


@pytest.mark.parametrize("task", ["latency", "peak", "sustained", "edge", "layouts"])
def test_a_trial_that_failed_is_missed_with_its_reason(task: str) -> None:
    (measure,) = judged(task, TaskResult(failure="failed: the device was lost"))
    assert not measure.ok
    assert measure.note == "failed: the device was lost"
