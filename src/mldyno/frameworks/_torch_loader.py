"""Batches from a data set on disk, by PyTorch's own DataLoader: read, decoded and collated item by item."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Unsupported

if TYPE_CHECKING:
    from mldyno.datasets import Opened, Split

TEST_BATCH = 1000  # items of a batch in the evaluation
SHUFFLE_SEED = 7


class Items:
    """One part of a data set as PyTorch sees it: normalised pixels and a label, made when asked for."""

    def __init__(self, torch: ModuleType, data: Opened, split: Split) -> None:
        self.torch, self.split = torch, split
        channels = (-1, *([1] * (len(split.shape) - 1)))
        self.mean = torch.tensor(data.mean).reshape(channels)
        self.spread = torch.tensor(data.spread).reshape(channels)

    def __len__(self) -> int:
        return self.split.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        pixels = self.torch.frombuffer(bytearray(self.split.pixels(index)), dtype=self.torch.uint8)
        image = pixels.reshape(self.split.shape).float() / 255
        return (image - self.mean) / self.spread, self.split.label(index)


class Loader:
    """Training takes the set's training part, shuffled; inference its held-out part, in order."""

    def __init__(self, torch: ModuleType, data: Opened, batch: int, training: bool) -> None:
        self.torch, self.batch, self.training = torch, batch, training
        self.train, self.test = Items(torch, data, data.train), Items(torch, data, data.test)
        self.split = self.train if training else self.test
        if batch > len(self.split):
            raise Unsupported(f"{data.name} has {len(self.split):,} items; a batch of {batch:,} is too large")
        self.generator = torch.Generator().manual_seed(SHUFFLE_SEED)

    @property
    def items(self) -> int:
        """Items of an epoch: all of the training part, in training, and all of the held-out part."""
        return len(self.test) + (len(self.train) if self.training else 0)

    @property
    def tested(self) -> int:
        """Items of the evaluation."""
        return len(self.test)

    def _batches(self, items: Items, batch: int, shuffle: bool, full_only: bool) -> Any:
        return self.torch.utils.data.DataLoader(
            items, batch_size=batch, shuffle=shuffle, drop_last=full_only, generator=self.generator
        )

    def first(self) -> tuple[Any, Any]:
        """The set's first items as a batch, for checks."""
        return next(iter(self._batches(self.split, self.batch, shuffle=False, full_only=True)))  # type: ignore[no-any-return]

    def endless(self) -> Iterator[tuple[Any, Any]]:
        """Batches of full size, epoch after epoch."""
        while True:
            yield from self._batches(self.split, self.batch, self.training, full_only=True)

    def epoch(self) -> Iterator[tuple[Any, Any]]:
        """Every item of the training part once; the last batch may be smaller."""
        return iter(self._batches(self.train, self.batch, shuffle=True, full_only=False))

    def held_out(self) -> Iterator[tuple[Any, Any]]:
        """Every item of the held-out part once, in order."""
        return iter(self._batches(self.test, TEST_BATCH, shuffle=False, full_only=False))
