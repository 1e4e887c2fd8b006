"""A result from elsewhere is judged by what is expected today, whatever it holds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mldyno.selftest import replay
from mldyno.selftest.measures import Measure
from mldyno.selftest.replay import SIMULATED, UNREADABLE, judged_anew

QUEUE = {"issue": 5e-6, "kernel": 1e-4, "issued": 4096, "depth": 64}
WAIT = {"issued": 0.001, "waited": 0.002, "read": 0.02}


def measure(number: int, *rows: dict[str, Any], ok: bool | None = True, **fields: Any) -> Measure:
    return Measure(number, "", 0.0, None, "", ok, len(rows), "share", raw=rows, framework="torch", **fields)


def test_raw_rows_are_judged_by_the_expectations_of_the_kind_of_device() -> None:
    assert judged_anew(measure(31, QUEUE), "cuda:0").ok is False
    assert judged_anew(measure(31, QUEUE), "mps").ok is True
    assert judged_anew(measure(36, {"share": 0.7, "status": "ok", "reason": ""}, ok=False), "mps").ok is True
    wrong = judged_anew(measure(25, *[WAIT] * 4), "cuda:0")
    assert (wrong.ok, wrong.peers) == (False, "100 %")
    assert wrong.value == pytest.approx(0.1)


def test_a_task_that_failed_differs_however_good_its_rows_are() -> None:
    good = {**WAIT, "waited": 0.02}
    assert judged_anew(measure(25, good), "cuda:0").ok is True
    failed = judged_anew(measure(25, good, failure="failed: the device was lost"), "cuda:0")
    assert (failed.ok, failed.note) == (False, "failed: the device was lost")


def test_what_a_framework_can_not_do_and_what_was_not_tried_do_not_differ() -> None:
    assert judged_anew(measure(22, {"lacks": "openvino can't allocate memory by itself"}), "xpu").ok is True
    assert judged_anew(measure(24, failure="not tried: the time was over"), "xpu").ok is None


def test_measures_of_a_cpu_and_unknown_ones_keep_their_verdict() -> None:
    for number in (2, 99):
        assert judged_anew(measure(number, ok=False, note="x" * 5000), "cpu").note == "x" * 299 + "…"


@pytest.mark.parametrize("number", sorted(replay.TASKS))
@pytest.mark.parametrize(
    "row", [{}, {"rate": "x"}, dict.fromkeys(["issued", "waited", "read", "one", "two", "four", "log_ratio"], None),
            {"share": 10**4000, "status": "ok", "reason": []}, {"waited": 1, "read": 0, "issued": math.nan},
            {"lacks": ["a"]}, {"size": {}, "rate": []}],
)  # fmt: skip
def test_rows_that_no_selftest_has_written_are_unreadable_and_nothing_else(number: int, row: dict[str, Any]) -> None:
    anew = judged_anew(measure(number, row), "cuda:0")
    assert anew.note == UNREADABLE or anew.note.isprintable()


def test_every_measure_that_the_simulated_device_has_is_known() -> None:
    assert set(SIMULATED) < set(replay.TASKS)
