"""A loop on a clock that moves only when it is told to: how long fetches and steps take is known exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

MS = 1_000_000  # ns


class VirtualClock:
    """Time in ns that passes by `sleep` only."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now

    def sleep(self, ns: float) -> None:
        self.now += round(ns)


class Loader:
    """Batches, each of which takes its time to fetch; with the attributes and the length of a real loader."""

    batch_size = 32

    def __init__(self, clock: VirtualClock, count: int, fetch: float | Callable[[int], float] = 2 * MS) -> None:
        self.clock, self.count = clock, count
        self.fetch = fetch if callable(fetch) else lambda place: fetch
        self.sampler = Sampler()
        self.given: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for place in range(self.count):
            self.clock.sleep(self.fetch(place))
            self.given.append(place)
            yield place


class Sampler:
    """What a loop may tell which epoch it is."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def run(loader: Iterable[Any], clock: VirtualClock, step: float | Callable[[int], float]) -> list[Any]:
    """A loop whose body takes so many ns; gives what it got."""
    batches = []
    for place, batch in enumerate(loader):
        batches.append(batch)
        clock.sleep(step(place) if callable(step) else step)
    return batches
