"""Batches from a data set on disk: their items and order; and a loader that needs no framework."""

from __future__ import annotations

import array
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Unsupported
from mldyno.values import Values

if TYPE_CHECKING:
    from mldyno.datasets import Opened, Split

FETCHED_BATCHES = 20  # in the phase that times the loader alone
TEST_BATCH = 1000  # items in a batch of the evaluation
SHUFFLE_SEED = 7


class Loader(ABC):
    """Batches of a data set: training reads its training part, shuffled; inference its held-out part, in order."""

    ahead = 0  # batches that loader workers prefetch at most
    cycle = 1  # batches after which the same loader worker has its turn

    def __init__(self, data: Opened, batch: int, training: bool, ranks: int = 1) -> None:
        """`ranks` share the training part: each has different batches."""
        self.data, self.batch, self.training, self.ranks = data, batch, training, ranks
        self.split = data.train if training else data.test
        if batch * ranks > self.split.count:
            raise Unsupported(f"{data.name} has {self.split.count:,} items; a batch of {batch * ranks:,} is too large")

    @abstractmethod
    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Iterable[tuple[Any, Any]]:
        """Return batches of all items of a part; the last one may be smaller, unless `full_only`."""

    def passes(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Iterable[tuple[Any, Any]]:
        """Return the same batches for steps and epochs, from loader workers if there are any."""
        return self.batches(split, batch, shuffle, full_only)

    def end(self) -> None:  # noqa: B027 (most have no workers)
        """End the loader's workers."""

    @property
    def phases(self) -> dict[str, int]:
        trained = self.data.train.count if self.training else 0
        return {"data": FETCHED_BATCHES * self.batch * self.ranks, "epoch": trained + self.tested}

    @property
    def tested(self) -> int:
        return self.data.test.count

    def first(self) -> tuple[Any, Any]:
        """Return the set's first items as a batch, for checks."""
        return next(iter(self.batches(self.split, self.batch, shuffle=False, full_only=True)))

    def of_each_size(self, split: Split, batch: int) -> Iterator[tuple[Any, Any]]:
        """Yield a batch of each size that a part has: a full one, and the rest."""
        for size in filter(None, (min(batch, split.count), split.count % batch)):
            yield next(iter(self.batches(split, size, shuffle=False, full_only=True)))

    def endless(self) -> Iterator[tuple[Any, Any]]:
        """Yield full batches, epoch after epoch."""
        while True:
            yield from self.passes(self.split, self.batch, self.training, full_only=True)

    def epoch(self) -> Iterator[tuple[Any, Any]]:
        """Return batches of the whole training part; the last one may be smaller."""
        return iter(self.passes(self.data.train, self.batch, shuffle=True, full_only=False))

    def held_out(self) -> Iterator[tuple[Any, Any]]:
        """Return batches of the whole held-out part, in order."""
        return iter(self.passes(self.data.test, TEST_BATCH, shuffle=False, full_only=False))


class PlainLoader(Loader):
    """A loader that reads item by item in this process; `to_array` makes normalised arrays of the bytes."""

    def __init__(self, data: Opened, batch: int, training: bool, to_array: Callable[[Values], Any]) -> None:
        super().__init__(data, batch, training)
        self.to_array = to_array
        self.chance = random.Random(SHUFFLE_SEED)
        self.scale = tuple(1 / (255 * spread) for spread in data.spread)
        self.offset = tuple(-mean / spread for mean, spread in zip(data.mean, data.spread, strict=True))

    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Iterator[tuple[Any, Any]]:
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
            yield self.to_array(images), self.to_array(Values((len(chosen),), labels))
