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

    def __init__(self, torch: ModuleType, data: Opened, batch: int, training: bool) -> None:
        super().__init__(data, batch, training)
        self.torch = torch
        self.generator = torch.Generator().manual_seed(SHUFFLE_SEED)

    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Any:
        """As a DataLoader gives them."""
        return self.torch.utils.data.DataLoader(
            Items(self.torch, self.data, split),
            batch_size=batch, shuffle=shuffle, drop_last=full_only, generator=self.generator,
        )  # fmt: skip
