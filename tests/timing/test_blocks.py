"""Blocks on the fake clock: the truth is known, so the harness must report it."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.frameworks.fake import CLOCK, FakeProgram
from mldyno.records import Case
from mldyno.timing.blocks import MAX_OVERHEAD, MIN_BLOCK, Blocks


def a_program(device: str = "cpu", **rule: Any) -> FakeProgram:
    return FakeProgram(Case("mlp", framework="fake", device=device, batch=8), {"slow": (0, 1.0), **rule})


@pytest.mark.parametrize("step", [30e-6, 0.2e-3, 5e-3, 1.0])
@pytest.mark.parametrize("issue", [0.0, 20e-6])
def test_a_block_gives_the_true_time_of_a_step_within_half_a_percent(step: float, issue: float) -> None:
    blocks = Blocks(a_program(step=step, issue=issue), CLOCK)
    blocks.fit(step * 1e9)
    measured = blocks.time(blocks.size) / blocks.size / 1e9
    assert measured == pytest.approx(step, rel=1.05 * MAX_OVERHEAD)


def test_without_the_sync_the_same_measurement_is_far_off() -> None:
    class Unsynced(FakeProgram):
        def synchronize(self) -> None:
            pass

    case = Case("mlp", framework="fake", device="gpu", batch=8)
    blocks = Blocks(Unsynced(case, {"slow": (0, 1.0), "step": 2e-3, "issue": 20e-6}), CLOCK)
    assert blocks.time(10) / 10 / 1e9 == pytest.approx(20e-6, rel=0.01)  # the time to issue a step, not 2 ms


def test_a_short_step_gets_the_smallest_block_that_lasts_950_microseconds_on_the_cpu() -> None:
    blocks = Blocks(a_program(step=30e-6), CLOCK)
    blocks.fit(30e3)
    assert blocks.size == 32  # 960 µs; 31 steps would last 930 µs
    assert (blocks.size - 1) * 30e3 < MIN_BLOCK <= blocks.time(blocks.size) < 1e6


def test_a_long_step_is_a_block_by_itself() -> None:
    blocks = Blocks(a_program(step=0.05), CLOCK)
    blocks.fit(50e6)
    assert blocks.size == 1


def test_the_drain_test_tells_an_asynchronous_device_from_one_that_waits() -> None:
    issued, total = Blocks(a_program(step=1e-3, issue=10e-6), CLOCK).drain(4)
    assert issued < 0.1 * total
    issued, total = Blocks(a_program(step=1e-3), CLOCK).drain(4)
    assert issued > 0.99 * total
