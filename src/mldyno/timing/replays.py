"""Repeat the batch in some steps of a loop: next to steps with real batches, these show what the loader costs.

A round is a block of steps with one batch that is held, and a block with real ones, in random order and with a random
number of steps between two rounds: what comes at regular intervals, such as a clock's tick, affects both alike. It
changes the training, so it is done only on request, and no more often than needed. The first rounds show how often that
is; checking an interval until it is narrow enough would make it too narrow.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from mldyno.stats.intervals import paired
from mldyno.timing.clock import Clock
from mldyno.timing.loops import END, MOST_MARKS, Advance, LoopTimes, Wait

WARM_BLOCKS = 20  # before batches are held
FEWEST_REPLAY_ROUNDS, MOST_REPLAY_ROUNDS = 24, 120  # of real and held batches
MOST_STEPS_BETWEEN = 3  # two rounds
FETCHES = 2  # of each worker of the loader in half a round: workers deliver in bursts
WAITED_SHARE = 0.05  # of a step: a longer wait means that no batch was ready
LONGEST_LEAD = 16  # steps for each batch that is fetched ahead: enough for a loader 7 % slower than the loop
TARGET = 0.02  # to which the ratio of real and held batches is to be known

Half = Generator[Any, None, tuple[float, Any]]  # batches; at its end the time of a step in ns, and the next batch


@dataclass(frozen=True)
class Ahead:
    """How far a loader works ahead: the batches that it may have ready, and its number of workers."""

    batches: int = 0
    workers: int = 0


class ReplayTimes(LoopTimes):
    """The times of a loop that gets some batches again, until the cost of its loader is known."""

    def __init__(self, clock: Clock, find_wait: Callable[[], Wait | None], ahead: Ahead) -> None:
        super().__init__(clock, find_wait)
        self.ahead = ahead
        self._chance = random.Random(0)  # a separate one: the user's random numbers stay the same
        self._wanted = FEWEST_REPLAY_ROUNDS

    def _until_work(self) -> int:
        return super()._until_work() if len(self.rounds) >= self._wanted else min(self._left, MOST_MARKS)

    def _between_blocks(self, batch: Any, advance: Advance) -> Generator[Any, None, tuple[Any, int]]:
        batch, _ = yield from super()._between_blocks(batch, advance)
        while batch is not END and self._wants_round():
            batch = yield from self._round(batch, advance)
        return batch, self._until_work()

    def _wants_round(self) -> bool:
        """Return whether the loop is warm, between two blocks, and needs another round."""
        return (
            len(self.rounds) < self._wanted and self._left == self.blocks.size and len(self.blocks.times) >= WARM_BLOCKS
        )

    def _round(self, batch: Any, advance: Advance) -> Generator[Any, None, Any]:
        """Run both halves of a round, then some steps with real batches; return the next batch."""
        blocks = math.ceil(max(1, FETCHES * self.ahead.workers) / self.blocks.size)
        real = held = 0.0
        for holds in self._chance.sample((True, False), 2):
            if holds and batch is not END:
                held, batch = yield from self._held_half(batch, advance, blocks * self.blocks.size)
            elif batch is not END:
                real, batch = yield from self._real_half(batch, advance, blocks)
        for _ in range(self._chance.randrange(MOST_STEPS_BETWEEN + 1) if batch is not END else 0):
            yield batch
            batch = _next_of(advance)
            if batch is END:
                break
        if batch is END:
            self.abandon()
            return END
        if not self.fault:
            self.rounds.append((real, held))
            if len(self.rounds) == FEWEST_REPLAY_ROUNDS:
                width = paired([math.log(real / held) for real, held in self.rounds])[1]
                self._wanted = round(min(MOST_REPLAY_ROUNDS, FEWEST_REPLAY_ROUNDS * max(1.0, width / TARGET) ** 2))
        self._begin_anew()
        return batch

    def _held_half(self, batch: Any, advance: Advance, steps: int) -> Half:
        """Run steps with one batch, after some in which the loader still fetches ahead; then use that up."""
        self.pause()
        for _ in range(self.ahead.batches + 1):
            yield batch
        self._settle()
        began = self.clock()
        for _ in range(steps):
            yield batch
        self._settle()
        held = max(1, self.clock() - began) / steps
        batch = yield from self._use_up(batch, advance, WAITED_SHARE * held)
        return held, batch

    def _real_half(self, batch: Any, advance: Advance, count: int) -> Half:
        """Run blocks of steps with real batches; they count like any other blocks of the loop."""
        self._begin_anew()
        blocks = self.blocks
        for _ in range(count * blocks.size):
            yield batch
            batch = self._fetch(advance)
            if batch is END:
                return 0.0, END
        return sum(blocks.times[-count:]) / (count * blocks.size), batch

    def _fetch(self, advance: Advance) -> Any:
        """Fetch the next batch, with which a step of a block ends."""
        asked = self.clock()
        batch = _next_of(advance)
        if batch is not END:
            self._marks += (asked, self.clock())
            if len(self._marks) >= 2 * min(self._left, MOST_MARKS):
                self.catch_up()
        return batch

    def _begin_anew(self) -> None:
        """Begin a block here: what was done since the last one is no part of it."""
        self._settle()
        self._paused = None
        self.begin(self.clock())

    def _use_up(self, batch: Any, advance: Advance, waited: float) -> Generator[Any, None, Any]:
        """Run steps with real batches until one took that many ns to come: then the loader has none ready.

        Where the loader is about as fast as the loop that takes long, or never happens; so the steps are limited.
        """
        for _ in range(1 + LONGEST_LEAD * self.ahead.batches):
            yield batch
            asked = self.clock()
            batch = _next_of(advance)
            if batch is END or self.clock() - asked > waited:
                break
        return batch


def _next_of(advance: Advance) -> Any:
    """Return the next batch, or END."""
    try:
        return advance()
    except StopIteration:
        return END
