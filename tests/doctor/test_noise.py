"""The noise test itself: it works for as long as it is told, and looks up all the time."""

from __future__ import annotations

import pytest

from mldyno.doctor.noise import listen
from mldyno.frameworks.fake import FakeClock
from mldyno.runner.events import Interrupted


class Steady:
    """Work that takes exactly 0.5 ms, and every so often twice that."""

    def __init__(self, clock: FakeClock, slow: int = 0) -> None:
        self.clock, self.slow, self.done = clock, slow, 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.done += 1
            twice = self.slow and self.done // self.slow % 2
            self.clock.work(1e-3 if twice else 5e-4, 0.0)

    def synchronize(self) -> None:
        """Done when it returns."""


def test_steady_work_means_a_quiet_machine() -> None:
    clock, looks = FakeClock(), []
    found = listen(10.0, lambda: looks.append(clock.now), Steady(clock), clock)
    assert clock.now / 1e9 == pytest.approx(10.0, rel=0.02)
    assert found.variation == pytest.approx(0.0, abs=1e-3)
    assert found.drift == 0.0
    assert found.detectable_paired == pytest.approx(0.0, abs=1e-3)
    assert len(looks) > 300


def test_a_machine_with_two_speeds_is_noisy() -> None:
    clock = FakeClock()
    found = listen(10.0, lambda: None, Steady(clock, slow=1000), clock)
    assert found.verdict == "very noisy"
    assert found.two_speeds == pytest.approx(1.0, rel=0.05)


def test_it_ends_when_the_user_says_so() -> None:
    def ended() -> None:
        raise Interrupted("ended by SIGINT")

    with pytest.raises(Interrupted):
        listen(3600.0, ended)


def test_on_this_machine_it_gives_its_figures() -> None:
    longer_and_longer = (listen(0.3 * 2**n, lambda: None) for n in range(6))  # a busy machine may leave it no core
    noise = next(noise for noise in longer_and_longer if noise.detectable_paired is not None)
    assert noise.variation > 0
    assert noise.waiting is not None
    assert 0 <= noise.waiting <= 1
