"""Blocks on the fake clock: the truth is known, so the harness must report it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import Any

import pytest

from mldyno.frameworks.fake import CLOCK, FakeProgram
from mldyno.records import Case
from mldyno.timing.blocks import (
    MAX_OVERHEAD,
    MIN_BLOCK,
    Blocks,
    BlocksOfOneThread,
    rounds,
    settle,
    time_blocks,
    time_phases,
)
from mldyno.timing.clock import run_delay


def a_program(device: str = "cpu", **rule: Any) -> FakeProgram:
    return FakeProgram(Case("mlp", framework="fake", device=device, batch=8), {"slow": (0, 1.0), **rule})


@pytest.mark.parametrize("step", [30e-6, 0.2e-3, 5e-3, 1.0])
@pytest.mark.parametrize("issue", [0.0, 20e-6])
def test_a_block_gives_the_true_time_of_a_step_within_half_a_percent(step: float, issue: float) -> None:
    blocks = Blocks(a_program(step=step, issue=issue), CLOCK, asynchronous=issue > 0)
    blocks.fit(step * 1e9)
    measured = blocks.time(blocks.size) / blocks.size / 1e9
    assert measured == pytest.approx(step, rel=1.05 * MAX_OVERHEAD)


def fitted(**rule: Any) -> float:
    """The time of a step in s that blocks of the fitted size give."""
    blocks = Blocks(a_program("gpu", **rule), CLOCK, asynchronous=True)
    blocks.time(1)
    blocks.fit(blocks.time(1))
    return blocks.time(blocks.size) / blocks.size / 1e9


def test_the_tail_of_the_last_kernel_is_hidden_where_the_host_is_slower_than_the_device() -> None:
    assert fitted(step=1e-5, issue=0.95e-3, tail=60e-6) == pytest.approx(0.95e-3, rel=1.05 * MAX_OVERHEAD)


def test_a_device_that_gathers_operations_before_it_starts_is_given_longer_blocks() -> None:
    assert fitted(step=1e-3, issue=0.4e-3, kernels=20, commit=40) == pytest.approx(1e-3, rel=1.05 * MAX_OVERHEAD)


def test_a_queue_that_is_full_holds_the_host_up_and_not_the_device() -> None:
    blocks = Blocks(a_program("gpu", step=2e-3, issue=1e-4, kernels=500), CLOCK)
    issued, total = blocks.drain(1)
    assert issued < 0.1 * total
    issued, total = blocks.drain(40)
    assert issued > 0.9 * total
    assert total / 40e9 == pytest.approx(2e-3, rel=0.01)


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


def test_blocks_of_one_thread_also_say_how_long_it_had_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1_000_000, 5_000_000, 5_000_000, 5_000_000])
    monkeypatch.setattr("mldyno.timing.blocks.run_delay", lambda: next(readings))
    blocks = BlocksOfOneThread(a_program(step=30e-6), CLOCK, size=4)
    assert [blocks.time(4) / 4e9 for _ in range(2)] == pytest.approx([30e-6] * 2, rel=0.01)
    assert blocks.delays == pytest.approx([1e-3, 0.0])


def test_where_that_is_not_counted_there_are_only_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.timing.blocks.run_delay", lambda: None)
    blocks = BlocksOfOneThread(a_program(step=30e-6), CLOCK)
    assert blocks.time(4) > 0
    assert blocks.delays == []


@pytest.mark.skipif(run_delay() is None, reason="this system does not count it")
def test_a_thread_that_sleeps_is_not_delayed_and_one_beside_others_on_its_core_is() -> None:
    before = run_delay()
    time.sleep(0.2)
    slept = run_delay()
    assert before is not None
    assert slept is not None
    assert slept - before < 0.15e9
    cores = os.sched_getaffinity(0)
    spin = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    os.sched_setaffinity(0, {min(cores)})
    other = subprocess.Popen([sys.executable, "-c", spin])
    try:
        deadline = time.monotonic() + 15
        while (run_delay() or 0) - slept < 20e6 and time.monotonic() < deadline:
            pass
        assert (run_delay() or 0) - slept >= 20e6
    finally:
        os.sched_setaffinity(0, cores)
        other.kill()
        other.wait()


def test_a_long_step_is_a_block_by_itself() -> None:
    blocks = Blocks(a_program(step=0.05), CLOCK)
    blocks.fit(50e6)
    assert blocks.size == 1


def test_the_drain_test_tells_an_asynchronous_device_from_one_that_waits() -> None:
    issued, total = Blocks(a_program(step=1e-3, issue=10e-6), CLOCK).drain(4)
    assert issued < 0.1 * total
    issued, total = Blocks(a_program(step=1e-3), CLOCK).drain(4)
    assert issued > 0.99 * total


def program(step: float, **rule: Any) -> Blocks:
    made = Blocks(FakeProgram(Case("mlp", framework="fake", batch=8), {"step": step, "slow": (0, 1.0), **rule}), CLOCK)
    made.size = 4
    return made


def silent(values: list[float], now: int) -> None:
    pass


def test_each_round_has_one_block_of_every_program() -> None:
    times = rounds([program(1e-3), program(2e-3), program(1e-3)], 0.0, 50, random.Random(1), silent)
    assert [len(values) for values in times] == [50, 50, 50]
    assert times[1] == pytest.approx([2e-3] * 50, rel=1e-3)


def test_the_order_within_a_round_is_random() -> None:
    order: list[int] = []

    class Named(Blocks):
        def time(self, steps: int) -> int:
            order.append(id(self))
            return super().time(steps)

    arms = [Named(program(1e-3).program, CLOCK) for _ in range(2)]
    rounds(arms, 0.0, 100, random.Random(1), silent)
    firsts = sum(arm == id(arms[0]) for arm in order[::2])
    assert 30 < firsts < 70


def test_rounds_go_on_for_the_time_that_is_given() -> None:
    times = rounds([program(1e-3), program(1e-3)], 0.4, 2, random.Random(1), silent)
    assert len(times[0]) == pytest.approx(50, abs=1)


def test_a_stretch_ends_with_its_time_or_its_steps() -> None:
    values, left = time_blocks(program(1e-3), 0.4, None, lambda values, now: now + 10_000_000)
    assert len(values) == pytest.approx(100, abs=1)
    assert left == 0
    values, left = time_blocks(program(1e-3), 0.4, 50, lambda values, now: now)
    assert (len(values), left) == (12, 2)


def test_most_blocks_of_a_stretch_follow_each_other_at_once() -> None:
    calls = []

    def between(values: list[float], now: int) -> int:
        calls.append(len(values))
        return now + 40_000_000

    time_blocks(program(1e-3), 0.4, None, between)
    assert len(calls) == pytest.approx(10, abs=2)


def test_what_is_done_between_blocks_is_in_no_block() -> None:
    def between(values: list[float], now: int) -> int:
        CLOCK.now += 50_000_000
        return now

    values, _ = time_blocks(program(1e-3), 0.4, None, between)
    assert values == pytest.approx([1e-3] * len(values), rel=1e-3)


class InPhases:
    """Phases whose times are known: issued at once, done when waited for."""

    def __init__(self, **times: float) -> None:
        self.times, self.now, self.issued = times, 0.0, 0.0
        self.order: list[str] = []

    def drop_loaded(self) -> None:
        self.now += self.times.get("dropping", 0.0)

    def run_phase(self, name: str) -> None:
        self.order.append(name)
        self.issued += self.times[name]

    def synchronize(self) -> None:
        self.now += self.issued
        self.issued = 0.0

    def clock(self) -> int:
        return round(self.now * 1e9)


def test_each_phase_has_its_own_time() -> None:
    program = InPhases(prefill=0.2, decode=0.5)
    times = time_phases(program, program.times, 7.0, program.clock, lambda values, now: None)
    assert times["prefill"] == pytest.approx([0.2] * 10)
    assert times["decode"] == pytest.approx([0.5] * 10)
    assert program.order[:4] == ["prefill", "decode", "prefill", "decode"]


def test_what_was_loaded_ahead_is_dropped_before_a_phase_and_its_time_is_not_in_it() -> None:
    program = InPhases(data=0.2, dropping=0.3)
    times = time_phases(program, ["data"], 2.5, program.clock, lambda values, now: None)
    assert times["data"] == pytest.approx([0.2] * 5)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_block_holds_a_turn_of_each_worker_so_that_all_blocks_are_alike(workers: int) -> None:
    bunches = [6e-3, *[1e-4] * (workers - 1)]  # all of them are ready at once, and then none is
    blocks = Blocks(a_program(times=bunches), CLOCK, cycle=workers)
    assert blocks.size == workers
    blocks.fit(1e6)
    assert blocks.size == workers
    values, _ = time_blocks(blocks, 0.2, None, lambda values, now: sys.maxsize)
    assert values == pytest.approx([sum(bunches) / workers] * len(values), rel=0.01)
    blocks.fit(0.1e6)
    assert blocks.size % workers == 0


def test_steps_before_a_turn_end_with_their_time_or_when_they_are_enough() -> None:
    program = a_program(step=0.1)
    settle(Blocks(program, CLOCK, cycle=2), 8, 10.0)
    assert program.done == 8
    settle(Blocks(program, CLOCK, cycle=2), 8, 0.3)
    assert program.done == 12


@pytest.mark.parametrize(("length", "rounds"), [(0.01, 100), (0.6, 3), (5.0, 1)])
def test_a_long_phase_is_timed_three_times_where_twice_the_time_allows_it_and_once_in_any_case(
    length: float, rounds: int
) -> None:
    program = InPhases(epoch=length)
    assert len(time_phases(program, program.times, 1.0, program.clock, lambda values, now: None)["epoch"]) == rounds
