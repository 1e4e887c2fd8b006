"""Batches from a data set on disk, by PyTorch's own DataLoader: read, decoded and collated item by item.

Its workers are started as PyTorch starts them on this system, so all that they get can be pickled. They live from the
first batch to the end of the case, over all epochs (`persistent_workers`), and die with the process that started them.
"""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks.loader import FETCHED_BATCHES, SHUFFLE_SEED, Loader

if TYPE_CHECKING:
    from mldyno.datasets import Opened, Split
    from mldyno.records import Case
    from mldyno.workloads import Recipe

USUAL_PREFETCH = 2  # batches a worker, where nothing is said: PyTorch's own


class Items:
    """One part of a data set as PyTorch sees it: normalised pixels and a label, made when asked for."""

    def __init__(self, torch: ModuleType, data: Opened, split: Split) -> None:
        self.split = split
        channels = (-1, *([1] * (len(split.shape) - 1)))
        self.mean = torch.tensor(data.mean).reshape(channels)
        self.spread = torch.tensor(data.spread).reshape(channels)

    def __len__(self) -> int:
        return self.split.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch  # a module that is kept can't be pickled for a worker

        pixels = torch.frombuffer(bytearray(self.split.pixels(index)), dtype=torch.uint8)
        image = pixels.reshape(self.split.shape).float() / 255
        return (image - self.mean) / self.spread, self.split.label(index)


def die_with_process(worker: int) -> None:
    """Let Linux kill a loader worker with the process that started it, which PyTorch notices after 5 s only."""
    from torch import multiprocessing

    with contextlib.suppress(AttributeError):  # other systems
        multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)


class TorchLoader(Loader):
    """Batches by a DataLoader, with the workers of its case."""

    def __init__(self, torch: ModuleType, data: Opened, case: Case, rank: int = 0, ranks: int = 1) -> None:
        super().__init__(data, case.batch or 1, case.mode == "train", ranks)
        self.torch, self.rank, self.epochs = torch, rank, 0
        self.workers, self.prefetch = case.loader_workers, case.prefetch or USUAL_PREFETCH
        self.pinned = case.pin_memory
        self.order, self.seeds = (torch.Generator().manual_seed(SHUFFLE_SEED) for _ in range(2))
        self.loaders: dict[tuple[Any, ...], Any] = {}
        """Those with workers, by what they load."""

    @property
    def ahead(self) -> int:
        """Return how many batches workers hold ready at most."""
        return self.workers * self.prefetch

    def batches(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Any:
        return self._loader(split, batch, shuffle, full_only, {"pin_memory": self.pinned})

    def passes(self, split: Split, batch: int, shuffle: bool, full_only: bool) -> Any:
        """Load by workers, which stay for the next pass."""
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
            self._begin_epoch(loader.sampler)
        return loader

    def items(self, split: Split) -> Any:
        """Return a part of the data set as PyTorch sees it."""
        return Items(self.torch, self.data, split)

    def _loader(self, split: Split, batch: int, shuffle: bool, full_only: bool, options: dict[str, Any]) -> Any:
        items, data = self.items(split), self.torch.utils.data
        options = {"batch_size": batch, "drop_last": full_only, "generator": self.seeds, **options}
        if shuffle and self.ranks > 1:  # each rank has a part of every epoch, another one in each
            shares = data.DistributedSampler(items, self.ranks, self.rank, seed=SHUFFLE_SEED, drop_last=full_only)
            if not options.get("num_workers"):
                self._begin_epoch(shares)
            return data.DataLoader(items, sampler=shares, **options)
        # The order has a separate generator: of the other one, workers that stay take fewer seeds.
        sampler = data.RandomSampler(items, generator=self.order) if shuffle else data.SequentialSampler(items)
        return data.DataLoader(items, sampler=sampler, **options)

    def _begin_epoch(self, shares: Any) -> None:
        shares.set_epoch(self.epochs)
        self.epochs += 1

    def end(self) -> None:
        """End the workers: those of a DataLoader go with it."""
        self.loaders.clear()


@dataclass(frozen=True)
class OwnData:
    """A data set of the user's own, all of it one part."""

    dataset: Any
    name: str = "your data set"

    @property
    def count(self) -> int:
        """Return how many items it has."""
        return len(self.dataset)

    @property
    def train(self) -> OwnData:
        """Return all of it."""
        return self

    test = train


class OwnLoader(TorchLoader):
    """Batches by a DataLoader, from a data set of the user's own."""

    def __init__(self, torch: ModuleType, recipe: Recipe, case: Case, rank: int = 0, ranks: int = 1) -> None:
        self.collate = recipe.collate
        super().__init__(torch, OwnData(recipe.dataset), case, rank, ranks)  # type: ignore[arg-type]

    def items(self, split: Any) -> Any:
        return split.dataset

    def _loader(self, split: Any, batch: int, shuffle: bool, full_only: bool, options: dict[str, Any]) -> Any:
        return super()._loader(split, batch, shuffle, full_only, {**options, "collate_fn": self.collate})

    @property
    def phases(self) -> dict[str, int]:
        """Leave out the epoch: only the user knows what an evaluation would be."""
        return {"data": FETCHED_BATCHES * self.batch * self.ranks}
