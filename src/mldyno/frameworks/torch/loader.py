"""Batches from a data set on disk, read by PyTorch's own DataLoader: decoded and collated item by item.

Its workers start as PyTorch starts them on this system, so their arguments can be pickled. They live from the first
batch to the end of the case, over all epochs (`persistent_workers`), and die with the process that started them. On
macOS, and on Linux since Python 3.14, a worker imports torch before its first batch, which takes seconds.
"""

from __future__ import annotations

import collections
import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks.loader import SHUFFLE_SEED, Loader

if TYPE_CHECKING:
    from mldyno.datasets import Opened, Split
    from mldyno.records import Case

DEFAULT_PREFETCH = 2  # batches a worker: PyTorch's default


class Items:
    """A part of a data set as a PyTorch Dataset: normalised pixels and a label for each item."""

    def __init__(self, torch: ModuleType, data: Opened, split: Split) -> None:
        self.split = split
        channels = (-1, *([1] * (len(split.shape) - 1)))
        self.mean = torch.tensor(data.mean).reshape(channels)
        self.spread = torch.tensor(data.spread).reshape(channels)

    def __len__(self) -> int:
        return self.split.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch  # a module in an attribute can't be pickled for a worker

        pixels = torch.frombuffer(bytearray(self.split.pixels(index)), dtype=torch.uint8)
        image = pixels.reshape(self.split.shape).float() / 255
        return (image - self.mean) / self.spread, self.split.label(index)


def die_with_process(worker: int) -> None:
    """Make Linux kill a loader worker with its parent process, whose death PyTorch notices only after 5 s."""
    from torch import multiprocessing

    with contextlib.suppress(AttributeError):  # other systems
        multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)


class TorchLoader(Loader):
    """Batches of a DataLoader, with the workers of its case."""

    def __init__(self, torch: ModuleType, data: Opened, case: Case, rank: int = 0, ranks: int = 1) -> None:
        super().__init__(data, case.batch or 1, case.mode == "train", ranks)
        self.torch, self.rank, self.epochs = torch, rank, 0
        self.workers, self.prefetch = case.loader_workers, case.prefetch or DEFAULT_PREFETCH
        self.ahead, self.cycle = self.workers * self.prefetch, max(1, self.workers)
        self.pinned = case.pin_memory
        self.order, self.seeds = (torch.Generator().manual_seed(SHUFFLE_SEED) for _ in range(2))
        self.starting = threading.Event()  # set while workers start, for which a batch each is enough
        self.loaders: dict[tuple[Any, ...], Any] = {}  # DataLoaders with workers, by the arguments of `passes`

    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Any:
        return self._loader(split, batch, shuffle, full_only, {"pin_memory": self.pinned})

    def passes(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Any:
        """Load with workers, which stay for the next pass."""
        if not self.workers:
            return self.batches(split, batch, shuffle, full_only)
        key = (split is self.data.train, batch, shuffle, full_only)
        if key not in self.loaders:
            options = {
                "num_workers": self.workers, "prefetch_factor": self.prefetch, "persistent_workers": True,
                "worker_init_fn": die_with_process, "pin_memory": self.pinned,
            }  # fmt: skip
            self.loaders[key] = self._loader(split, batch, shuffle, full_only, options)
        loader = self.loaders[key]
        if shuffle and self.ranks > 1:
            self._begin_epoch(loader.sampler.sampler)
        return loader

    def start_workers(self) -> None:
        """Start the workers of an epoch and of its evaluation; wait until each of them has loaded a batch."""
        if self.workers and "epoch" in self.phases:
            epochs = self.epochs
            self.starting.set()
            for batches in ([self.epoch()] if self.training else []) + [self.held_out()]:
                collections.deque(batches, maxlen=0)
            self.starting.clear()
            self.epochs = epochs

    @property
    def phases(self) -> dict[str, int]:
        """Leave out the epoch of a user's data set: only the user knows how to evaluate."""
        phases = super().phases
        return {"data": phases["data"]} if isinstance(self.data, OwnData) else phases

    def _loader(self, split: Split, batch: int, shuffle: bool, full_only: bool, options: dict[str, Any]) -> Any:
        data, collate = self.torch.utils.data, getattr(self.data, "collate", None)
        items = split.dataset if isinstance(split, OwnData) else Items(self.torch, self.data, split)
        make = partial(data.DataLoader, items, batch, drop_last=full_only, generator=self.seeds, collate_fn=collate)
        if shuffle and self.ranks > 1:  # each rank has a different part of every epoch
            shares = data.DistributedSampler(items, self.ranks, self.rank, seed=SHUFFLE_SEED, drop_last=full_only)
            if not options.get("num_workers"):
                self._begin_epoch(shares)
            return make(sampler=Order(shares, self.starting, self.workers * batch), **options)
        # The order has a separate generator: persistent workers take fewer seeds from the other one.
        sampler = data.RandomSampler(items, generator=self.order) if shuffle else data.SequentialSampler(items)
        return make(sampler=Order(sampler, self.starting, self.workers * batch), **options)

    def _begin_epoch(self, shares: Any) -> None:
        shares.set_epoch(self.epochs)
        self.epochs += 1

    def end(self) -> None:
        """Delete the DataLoaders, and their workers with them."""
        self.loaders.clear()


@dataclass
class Order:
    """The order in which a DataLoader reads its items: a sampler's, or the first few items while workers start."""

    sampler: Any
    starting: threading.Event
    few: int

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        if self.starting.is_set():
            return iter(range(min(len(self), self.few)))
        items: Iterator[int] = iter(self.sampler)
        return items


@dataclass(frozen=True)
class OwnData:
    """A user's data set, used whole for training and for inference."""

    dataset: Any
    collate: Any  # makes a batch of items; None: PyTorch's default
    name: str = "your data set"

    @property
    def count(self) -> int:
        return len(self.dataset)

    @property
    def train(self) -> OwnData:
        return self

    test = train
