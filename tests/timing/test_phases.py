"""Phases of a step are timed each by itself, in their order, with a wait after each."""

from __future__ import annotations

import pytest

from mldyno.timing.phases import time_phases


class InPhases:
    """Phases whose times are known: issued at once, done when waited for."""

    def __init__(self, **times: float) -> None:
        self.times, self.now, self.issued = times, 0.0, 0.0
        self.order: list[str] = []

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


@pytest.mark.parametrize(("length", "rounds"), [(0.01, 100), (0.6, 3), (5.0, 1)])
def test_a_long_phase_is_timed_three_times_where_twice_the_time_allows_it_and_once_in_any_case(
    length: float, rounds: int
) -> None:
    program = InPhases(epoch=length)
    assert len(time_phases(program, program.times, 1.0, program.clock, lambda values, now: None)["epoch"]) == rounds
