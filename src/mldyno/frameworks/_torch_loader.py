"""Batches from a data set on disk, by PyTorch's own DataLoader: read, decoded and collated item by item."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks._loader import SHUFFLE_SEED, Loader

if TYPE_CHECKING:
    from mldyno.datasets import Opened, Split


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


class TorchLoader(Loader):
    """By a DataLoader."""

    def __init__(
        self, torch: ModuleType, data: Opened, batch: int, training: bool, rank: int = 0, ranks: int = 1
    ) -> None:
        super().__init__(data, batch, training, ranks)
        self.torch, self.rank, self.epochs = torch, rank, 0
        self.generator = torch.Generator().manual_seed(SHUFFLE_SEED)

    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Any:
        """As a DataLoader gives them."""
        items, data = Items(self.torch, self.data, split), self.torch.utils.data
        if shuffle and self.ranks > 1:  # each rank has a part of every epoch, another one in each
            shares = data.DistributedSampler(items, self.ranks, self.rank, seed=SHUFFLE_SEED, drop_last=full_only)
            shares.set_epoch(self.epochs)
            self.epochs += 1
            return data.DataLoader(items, batch_size=batch, sampler=shares, drop_last=full_only)
        return data.DataLoader(items, batch_size=batch, shuffle=shuffle, drop_last=full_only, generator=self.generator)
