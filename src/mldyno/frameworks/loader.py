"""Batches from a data set on disk: which items, in which order; and a loader that needs no framework."""

from __future__ import annotations

import array
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Unsupported
from mldyno.values import Values

if TYPE_CHECKING:
    from mldyno.datasets import Opened, Split

FETCHED_BATCHES = 20  # got from disk in a row, to time that
TEST_BATCH = 1000  # items of a batch in the evaluation
SHUFFLE_SEED = 7


class Loader(ABC):
    """Training takes the set's training part, shuffled; inference its held-out part, in order."""

    def __init__(self, data: Opened, batch: int, training: bool, ranks: int = 1) -> None:
        """`ranks` share the training part, each with different batches."""
        self.data, self.batch, self.training, self.ranks = data, batch, training, ranks
        self.split = data.train if training else data.test
        if batch * ranks > self.split.count:
            raise Unsupported(f"{data.name} has {self.split.count:,} items; a batch of {batch * ranks:,} is too large")

    @abstractmethod
    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Iterable[tuple[Any, Any]]:
        """Give all items of a part once; the last batch may be smaller, unless only full ones are wanted."""

    def passes(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Iterable[tuple[Any, Any]]:
        """Give the same for steps and epochs, by the loader's workers, where it has some."""
        return self.batches(split, batch, shuffle, full_only)

    def end(self) -> None:  # noqa: B027 (most have no workers)
        """End the loader's workers."""

    @property
    def phases(self) -> dict[str, int]:
        """Return the phases that can be timed apart from the step, and the items in each."""
        trained = self.data.train.count if self.training else 0
        return {"data": FETCHED_BATCHES * self.batch * self.ranks, "epoch": trained + self.tested}

    @property
    def tested(self) -> int:
        """Return the items of the evaluation."""
        return self.data.test.count

    def first(self) -> tuple[Any, Any]:
        """Return the set's first items as a batch, for checks."""
        return next(iter(self.batches(self.split, self.batch, shuffle=False, full_only=True)))

    def of_each_size(self, split: Split, batch: int) -> Iterator[tuple[Any, Any]]:
        """Give a batch of each size that a part comes in: full, and what is left at its end."""
        for size in filter(None, (min(batch, split.count), split.count % batch)):
            yield next(iter(self.batches(split, size, shuffle=False, full_only=True)))

    def endless(self) -> Iterator[tuple[Any, Any]]:
        """Give batches of full size, epoch after epoch."""
        while True:
            yield from self.passes(self.split, self.batch, self.training, full_only=True)

    def epoch(self) -> Iterator[tuple[Any, Any]]:
        """Give every item of the training part once; the last batch may be smaller."""
        return iter(self.passes(self.data.train, self.batch, shuffle=True, full_only=False))

    def held_out(self) -> Iterator[tuple[Any, Any]]:
        """Give every item of the held-out part once, in order."""
        return iter(self.passes(self.data.test, TEST_BATCH, shuffle=False, full_only=False))


class PlainLoader(Loader):
    """Read item by item and join them; the framework makes arrays of their bytes, and normalises these."""

    def __init__(self, data: Opened, batch: int, training: bool) -> None:
        super().__init__(data, batch, training)
        self.chance = random.Random(SHUFFLE_SEED)
        self.scale = tuple(1 / (255 * spread) for spread in data.spread)
        self.offset = tuple(-mean / spread for mean, spread in zip(data.mean, data.spread, strict=True))

    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Iterator[tuple[Values, Values]]:
        order = list(range(split.count))
        if shuffle:
            self.chance.shuffle(order)
        for begin in range(0, split.count, batch):
            chosen = order[begin : begin + batch]
            if full_only and len(chosen) < batch:
                return
            pixels = array.array("B", b"".join(map(split.pixels, chosen)))
            labels = array.array("i", map(split.label, chosen))
            images = Values((len(chosen), *split.shape), pixels, self.scale, self.offset)
            yield images, Values((len(chosen),), labels)
