"""A loop some of whose steps get a batch again: beside real ones, these show what the loader costs.

A round is a block of steps with one batch that is held, and a block with real ones. It changes the training, so it is
done only where it is asked for, and no more often than it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from mldyno.stats.intervals import paired
from mldyno.timing.clock import Clock
from mldyno.timing.loops import END, MOST_MARKS, Advance, LoopTimes, Wait

WARM_BLOCKS = 20  # before batches are held
FEWEST_ROUNDS, MOST_ROUNDS = 24, 120  # of real and held batches
ROUNDS_GROWTH = 1.5  # how many more rounds there are at the next look
FETCHES = 2  # of each worker of the loader in half a round: what they have ready together comes in bursts
WAITED = 0.05  # of a step: then a batch was not there
LONGEST_LEAD = 16  # steps for each batch that is fetched ahead: a loader 7 % slower than the loop is found out
TARGET = 0.02  # to which the ratio of real and held batches is to be known


@dataclass(frozen=True)
class Ahead:
    """What a loader does before it is asked: how many batches it may have ready, and in how many workers."""

    batches: int = 0
    workers: int = 0


class ReplayTimes(LoopTimes):
    """The times of a loop that gets some batches again, until it is known what its loader costs."""

    def __init__(self, clock: Clock, find_wait: Callable[[], Wait | None], ahead: Ahead) -> None:
        super().__init__(clock, find_wait)
        self.ahead = ahead
        self._next_look, self._known = FEWEST_ROUNDS, False

    def _until_work(self) -> int:
        return super()._until_work() if self._known else min(self._left, MOST_MARKS)

    def _between_blocks(self, batch: Any, advance: Advance) -> Generator[Any, None, tuple[Any, int]]:
        batch, _ = yield from super()._between_blocks(batch, advance)
        while batch is not END and self._wants_round():
            batch = yield from self._round(batch, advance)
        return batch, self._until_work()

    def _fetch(self, advance: Advance) -> Any:
        """The next batch, with which a step of a round ends."""
        asked = self.clock()
        try:
            batch = advance()
        except StopIteration:
            return END
        self._marks += (asked, self.clock())
        if len(self._marks) >= 2 * min(self._left, MOST_MARKS):
            self.catch_up()
        return batch

    def _wants_round(self) -> bool:
        """Whether the loop is warm, between two blocks, and another round would tell more."""
        done = len(self.rounds)
        if self._known or self._left != self.blocks.size or len(self.blocks.times) < WARM_BLOCKS:
            return False
        if done >= FEWEST_ROUNDS and done == self._next_look:
            self._next_look = round(ROUNDS_GROWTH * done)
            self._known = paired([math.log(real / held) for real, held in self.rounds])[1] <= TARGET
        self._known = self._known or done >= MOST_ROUNDS
        return not self._known

    def _round(self, batch: Any, advance: Advance) -> Generator[Any, None, Any]:
        """Steps with one batch that is held, then as many with real batches; gives the next one."""
        blocks = self.blocks
        count = math.ceil(max(1, FETCHES * self.ahead.workers) / blocks.size)
        steps = count * blocks.size
        self.pause()
        for _ in range(self.ahead.batches + 1):  # while it still fetches ahead
            yield batch
        self._settle()
        began = self.clock()
        for _ in range(steps):
            yield batch
        self._settle()
        held = max(1, self.clock() - began)
        batch = yield from self._use_up(batch, advance, WAITED * held / steps)
        self._begin_anew()
        for _ in range(steps if batch is not END else 0):
            yield batch
            batch = self._fetch(advance)
            if batch is END:
                break
        if batch is END:
            self.abandon()
        elif not self.fault and len(blocks.times) >= count:
            self.rounds.append((sum(blocks.times[-count:]) / steps, held / steps))
        return batch

    def _begin_anew(self) -> None:
        """A block begins here: what was done since the last one, between the blocks too, is no part of it."""
        self._settle()
        self._paused = None
        self.begin(self.clock())

    def _use_up(self, batch: Any, advance: Advance, waited: float) -> Generator[Any, None, Any]:
        """Steps with real batches until one was waited for, so many ns: what was ready from before is used up then.

        Where the loader is about as fast as the loop that takes long, or never comes; so there is an end to it.
        """
        for _ in range(1 + LONGEST_LEAD * self.ahead.batches):
            yield batch
            asked = self.clock()
            try:
                batch = advance()
            except StopIteration:
                return END
            if self.clock() - asked > waited:
                break
        return batch
