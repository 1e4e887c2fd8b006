"""Held batches beside real ones: what the loader costs, its interval, and a training that gets every batch."""

from __future__ import annotations

import random

from tests.timing.virtual_loop import MS, Loader, VirtualClock, run

from mldyno.analysis.breakdown import loader_cost
from mldyno.timing.replays import Ahead, ReplayTimes


def timed(clock: VirtualClock, ahead: Ahead | None = None) -> ReplayTimes:
    return ReplayTimes(clock, lambda: None, ahead or Ahead())


def test_held_batches_are_extra_and_real_ones_stay_what_they_were() -> None:
    clock = VirtualClock()
    times, loader = timed(clock), Loader(clock, 400)
    batches = run(times.batches(iter(loader)), clock, 8 * MS)
    assert loader.given == list(range(400))
    assert list(dict.fromkeys(batches)) == list(range(400)), "each comes, in its order"
    assert len(times.rounds) == 24, "nothing varies, so that few rounds are enough"
    assert len(batches) == 400 + 24 * 2
    assert set(times.rounds) == {(10.0 * MS, 8.0 * MS)}
    assert set(times.blocks.times[:-1]) == {10 * MS}


def test_what_is_done_between_rounds_counts_for_neither_half() -> None:
    class SlowClock(VirtualClock):
        """Each look at it takes 0.1 ms, as code does that has not run for a while."""

        def __call__(self) -> int:
            self.now += MS // 10
            return self.now

    clock = SlowClock()
    times, loader = timed(clock), Loader(clock, 400)
    run(times.batches(iter(loader)), clock, 8 * MS)
    assert set(times.rounds) == {(10.2 * MS, 8.1 * MS)}, "a held step has one look at its end, a real one two"


def test_an_epoch_that_ends_within_a_round_ends_it() -> None:
    clock = VirtualClock()
    times, loader = timed(clock, Ahead(2, 1)), Loader(clock, 7)
    for _ in range(40):
        run(times.batches(iter(loader)), clock, 8 * MS)
    assert loader.given == list(range(7)) * 40
    assert set(times.rounds) == {(10.0 * MS, 8.0 * MS)}
    assert 8 * MS <= min(times.blocks.times) <= max(times.blocks.times) <= 10 * MS


def test_what_is_fetched_ahead_does_not_make_the_loader_look_cheap() -> None:
    """Four batches are ready after a while of held ones; each takes the worker 12 ms, and a step 8 ms."""
    clock = VirtualClock()
    ready = [clock()] * 4

    def prefetched(count: int) -> object:
        for place in range(count):
            due = ready.pop(0)
            clock.now = max(clock.now, due)
            ready.append(max(clock.now, ready[-1]) + 12 * MS)
            yield place

    times = timed(clock, Ahead(4, 2))
    run(times.batches(iter(prefetched(600))), clock, 8 * MS)  # type: ignore[call-overload]
    real, held = zip(*times.rounds, strict=True)
    assert set(held) == {8.0 * MS}
    assert set(real) == {12.0 * MS}


def test_the_interval_of_the_loaders_cost_holds_the_truth() -> None:
    """Steps of 8 ms and fetches of 1.5 ms whose noise is shared by neighbours: 95 of 100 intervals hold 1.5 ms."""
    held_truth = 0
    for seed in range(200):
        chance, clock, slow = random.Random(seed), VirtualClock(), [0.0]

        def noise(chance: random.Random = chance, slow: list[float] = slow) -> float:
            slow[0] = 0.9 * slow[0] + chance.gauss(0, 0.01)
            return 1 + slow[0] + chance.gauss(0, 0.03)

        times = timed(clock)
        loader = Loader(clock, 400, lambda place, noise=noise: 1.5 * MS * noise())  # type: ignore[misc]
        run(times.batches(iter(loader)), clock, lambda place, noise=noise: 8 * MS * noise())  # type: ignore[misc]
        cost = loader_cost(*zip(*times.rounds, strict=True))
        assert cost is not None
        assert cost.time.low is not None
        assert cost.time.high is not None
        held_truth += cost.time.low <= 1.5 * MS <= cost.time.high
    assert 184 <= held_truth <= 199
