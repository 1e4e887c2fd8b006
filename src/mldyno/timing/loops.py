"""Time a loop that a user runs: its steps, and how long each of them waits for its batch.

A step ends when the next batch is there. A step has two reads of the clock and no more: they are processed once in many
steps, since code that has not run for a while is slow. The device is waited for once in a block of steps, right after a
batch has come: so it works on while the loader does.
Rule: nothing here changes which batches the loop gets, their order, or an error on the way.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from operator import sub
from typing import Any

from mldyno.stats.intervals import median
from mldyno.timing.blocks import MAX_OVERHEAD, MIN_BLOCK
from mldyno.timing.clock import Clock

PROBES = 3  # steps after the first one, which show how many a block should have
LOOKS = (PROBES, 20, 100)  # blocks after which their size is checked: steps may have become faster
FASTER = 1.4  # times as many steps as now fit into a block: then it gets more
MOST_BLOCKS = 4096  # beyond that, pairs are merged: a loop of weeks fits into a record
MIN_SYNCED_BLOCK = 50_000_000  # ns: a queue that was emptied fills again in tens of microseconds
EMPTY_WAITS = 3  # that show what waiting for nothing costs
FEWEST_MARKS, MOST_MARKS = 256, 1024  # steps after which the clock reads are processed
LONG = 3.0  # times the usual step without its fetch: something else was done in it, such as saving
MOST_LONG = 0.1  # of all blocks: what is more frequent is usual for the loop or its machine

END: Any = object()  # instead of a batch, at the end of an epoch
Wait = Callable[[], object]
Advance = Callable[[], Any]


def ignore_batch(batch: Any) -> None:
    """Ignore a batch: no more of them are counted."""


@dataclass
class LoopBlocks:
    """Blocks in a row: their times in ns, and how much of each was spent within the loader."""

    size: int = 1  # steps of a block
    times: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    def without_long(self) -> tuple[LoopBlocks, LoopBlocks]:
        """Split off the few blocks that are long while neither neighbour is."""
        own = [time - wait for time, wait in zip(self.times, self.waits, strict=True)]
        most = LONG * median(own) if own else 0.0
        over = [False, *(time > most for time in own), False]
        alone = [over[i] and not over[i - 1] and not over[i + 1] for i in range(1, len(own) + 1)]
        if sum(alone) > MOST_LONG * len(own):
            return self, LoopBlocks(self.size)
        parts = LoopBlocks(self.size), LoopBlocks(self.size)
        for time, wait, apart in zip(self.times, self.waits, alone, strict=True):
            parts[apart].times.append(time)
            parts[apart].waits.append(wait)
        return parts


class LoopTimes:
    """The times of a loop so far, in ns.

    `find_wait` is called when the first step has ended: the loop has its device then. It returns what waits for that
    device, or None where it is done when its calls return.
    """

    def __init__(self, clock: Clock, find_wait: Callable[[], Wait | None]) -> None:
        self.clock, self._find_wait = clock, find_wait
        self.wait: Wait | None = None
        self.epochs = 0
        self.first: int | None = None
        self.blocks = LoopBlocks()
        self.smaller: list[LoopBlocks] = []  # blocks of fewer steps, before it was known how many they should have
        self.long: list[LoopBlocks] = []
        self.fetches: list[int] = []  # within the loader, for the first batch of each epoch
        self.between: list[int] = []  # from the end of an epoch to the begin of the next one's first fetch
        self.apart: list[int] = []  # what the user has excluded from steps
        self.rounds: list[tuple[float, float]] = []  # a step with a real batch and one with a held one: see `replays`
        self.fault = ""  # what went wrong in here; the loop goes on, untimed
        self.look_at: Callable[[Any], None] = ignore_batch  # gets some of the batches, until it has enough
        self.every_batch = False  # whether it has to see all of them
        self._marks: list[int] = []  # of each step not processed yet: when its next batch was asked for, and came
        self._began = self._waited = self._ended = self._fetched = self._worked = 0
        self._left, self._look = 1, 1
        self._paused: int | None = None

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self._worked + len(self._marks) // 2

    # -- steps -------------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """Begin the first step, or the next one after a pause."""
        if self._paused is None:
            self._began = now
        else:
            self.catch_up()
            self._began += now - self._paused
            self._paused = None

    def fetched(self, waited: bool = True) -> None:
        """Begin the next step, in a loop that fetches by itself; `waited`: it has waited since its last step."""
        if self._paused is not None:
            self.end_apart()
        elif not self.steps:
            self.begin(self.clock())
        elif waited:
            self._fetched = self.clock() - self._ended

    def end_step(self) -> None:
        """End a step, in a loop that says so itself."""
        now = self._ended = self.clock() if self._paused is None else self._paused  # it had ended then
        self._marks += (now - self._fetched, now)
        self._fetched = 0
        if len(self._marks) >= 2 * self._until_work():
            self.catch_up()

    def _until_work(self) -> int:
        """Return the steps until clock reads are processed: up to the end of a block, or of many short ones."""
        size = self.blocks.size
        more = size * (FEWEST_MARKS // size) if self.wait is None and self._look >= LOOKS[1] else 0
        return min(self._left + more, MOST_MARKS)

    def catch_up(self) -> None:
        """Make blocks of the clock reads; a fault here, or an error of the device, does not end the loop."""
        marks, began = self._marks[:], self.clock()
        if not marks:
            return
        self._worked += len(marks) // 2
        self._marks.clear()  # it stays the same list, which a loop holds on to
        try:
            self._make_blocks(marks[::2], marks[1::2])
        except Exception as error:
            self._fail(error)
        self._began += self.clock() - max(began, self._began)  # this was no part of a step

    def _make_blocks(self, asked: list[int], got: list[int]) -> None:
        """Make blocks from the times at which batches were asked for, and at which they came."""
        blocks, now = self.blocks, len(self.blocks.times) + len(got)
        if self.wait is None and self._left == blocks.size == 1 and now < self._look:  # the usual case, made quick
            blocks.times += map(max, map(sub, got, [self._began, *got]), repeat(1))
            blocks.waits += map(sub, got, asked)
            self._began = got[-1]
            return
        for begun, ended in zip(asked, got, strict=True):
            self._waited += ended - begun
            self._left -= 1
            if not self._left:
                self._end_block(ended)

    def _fail(self, error: Exception) -> None:
        self.fault = self.fault or f"{type(error).__name__}: {error}"
        self.wait, self._left = None, sys.maxsize

    def _end_block(self, now: int) -> None:
        if self.first is None:
            self.wait = self._find_wait()
        if self.wait is not None:
            self.wait()
            now = self.clock()
        blocks = self.blocks
        blocks.times.append(max(1, now - self._began))
        blocks.waits.append(min(self._waited, blocks.times[-1]))
        self._began, self._waited, self._left = now, 0, blocks.size
        if len(blocks.times) >= self._look:
            self._look_again()

    def pause(self, now: int | None = None) -> None:
        """Exclude what follows from steps, until `begin`; what the device still has to do belongs to the last step."""
        if self._paused is not None:
            return
        began = self.clock()
        now = began if now is None else now
        self.catch_up()
        now += self.clock() - began
        if self.wait is not None:
            self._settle()
            now = self.clock()
        self._paused = max(self._began, now)

    def resume(self) -> int:
        """Continue with steps, once the device has done its work; return the length of the pause."""
        if self._paused is None:
            return 0
        self._settle()
        now = self.clock()
        length = now - self._paused
        self.begin(now)
        return length

    def end_apart(self) -> None:
        """Continue with steps after work that was excluded."""
        _note(self.apart, self.resume())

    def abandon(self) -> None:
        """Drop the step within which the loop was left, and its block."""
        self.catch_up()
        self._began = self._paused = self.clock()
        self._waited = 0
        if not self.fault:
            self._left = self.blocks.size

    # -- blocks ------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Choose the block's size anew, now and then: after the first step, after some blocks, after too many."""
        blocks = self.blocks
        if self.first is None:
            self.first, self._look = blocks.times.pop(), PROBES
            blocks.waits.pop()
            return
        if len(blocks.times) >= MOST_BLOCKS:
            self._halve()
            return
        self._look = next((look for look in LOOKS if look > len(blocks.times)), MOST_BLOCKS)
        size = self._fitting(median(blocks.times) / blocks.size)
        if size >= FASTER * blocks.size:
            self.smaller.append(blocks)
            self.blocks, self._left, self._look = LoopBlocks(size), size, LOOKS[1]

    def _fitting(self, step: float) -> int:
        """Return how many steps of that many ns hide the cost of clock and wait."""
        if self.wait is None:
            return max(1, math.ceil(MIN_BLOCK / step))
        costs = []
        for _ in range(EMPTY_WAITS):
            began = self.clock()
            self.wait()
            costs.append(self.clock() - began)
        return max(1, math.ceil(max(MIN_SYNCED_BLOCK, median(costs) / MAX_OVERHEAD) / step))

    def _halve(self) -> None:
        """Merge each two blocks into one, without those that are long by themselves."""
        usual, long = self.blocks.without_long()
        if long.times:
            self.long.append(long)
        pairs = len(usual.times) // 2
        self.blocks = LoopBlocks(
            2 * usual.size,
            [sum(usual.times[2 * i : 2 * i + 2]) for i in range(pairs)],
            [sum(usual.waits[2 * i : 2 * i + 2]) for i in range(pairs)],
        )
        self._left = self.blocks.size
        if len(usual.times) % 2:  # half of the next one
            self._began -= usual.times[-1]
            self._waited, self._left = usual.waits[-1], usual.size

    # -- loops -------------------------------------------------------------------------------------

    def batches(self, iterator: Iterator[Any], ended: Callable[[bool], None] = lambda end: None) -> Iterator[Any]:
        """Yield the batches of an iterator, each timed; `ended` gets whether it came to its end, or was left before."""
        clock, advance, batch = self.clock, iterator.__next__, None
        mark, every_batch = self._marks.append, self.every_batch  # what a step touches is little, and near
        try:
            batch = self._first_batch(advance)
            left = self._until_work()
            while batch is not END:
                yield batch
                asked = clock()
                try:
                    batch = advance()
                except BaseException as error:
                    self._marks += (asked, asked)  # the last step ends without a fetch that counts
                    self.pause(asked)
                    if not isinstance(error, StopIteration):
                        raise
                    batch = END
                    break
                got = clock()
                mark(asked)
                mark(got)
                left -= 1
                if not left:
                    batch, left = yield from self._between_blocks(batch, advance)
                elif every_batch:
                    self.look_at(batch)
        except GeneratorExit:
            self.abandon()
            raise
        finally:
            ended(batch is END)

    def _first_batch(self, advance: Advance) -> Any:
        """Fetch the first batch of an epoch, which includes starting the loader."""
        asked = self.clock()
        if self._paused is not None:
            _note(self.between, asked - self._paused)
        try:
            batch = advance()
        except StopIteration:
            return END
        got = self.clock()
        _note(self.fetches, got - asked)
        self.epochs += 1
        self.begin(got)
        self.look_at(batch)
        return batch

    def _between_blocks(self, batch: Any, advance: Advance) -> Generator[Any, None, tuple[Any, int]]:
        """Do what is done once in many steps; return the next batch, and the steps until the next time."""
        self.catch_up()
        self.look_at(batch)
        yield from ()
        return batch, self._until_work()

    def _settle(self) -> None:
        """Wait for the device, where it works asynchronously."""
        if self.wait is not None:
            try:
                self.wait()
            except Exception as error:
                self._fail(error)


def _note(values: list[int], value: int) -> None:
    """Add a value; beyond a limit the last value adds up all that follow."""
    if len(values) < MOST_BLOCKS:
        values.append(value)
    else:
        values[-1] += value
