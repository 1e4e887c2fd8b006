"""Blocks of several programs in turn, and stretches of one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mldyno.frameworks.fake import CLOCK, FakeProgram
from mldyno.records import Case
from mldyno.timing.blocks import Blocks, stretch
from mldyno.timing.rounds import rounds


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
    values, left = stretch(program(1e-3), 0.4, None, lambda values, now: now + 10_000_000)
    assert len(values) == pytest.approx(100, abs=1)
    assert left == 0
    values, left = stretch(program(1e-3), 0.4, 50, lambda values, now: now)
    assert (len(values), left) == (12, 2)


def test_most_blocks_of_a_stretch_follow_each_other_at_once() -> None:
    calls = []

    def between(values: list[float], now: int) -> int:
        calls.append(len(values))
        return now + 40_000_000

    stretch(program(1e-3), 0.4, None, between)
    assert len(calls) == pytest.approx(10, abs=2)


def test_what_is_done_between_blocks_is_in_no_block() -> None:
    def between(values: list[float], now: int) -> int:
        CLOCK.now += 50_000_000
        return now

    values, _ = stretch(program(1e-3), 0.4, None, between)
    assert values == pytest.approx([1e-3] * len(values), rel=1e-3)
