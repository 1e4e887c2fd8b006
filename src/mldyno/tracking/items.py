"""How many items a batch has: the length of its first tensor, or what the user says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ENOUGH = 64  # batches that show how many items one has
DEEPEST = 8  # levels of a nested batch that are looked into

Items = int | Callable[[Any], float] | None


def items_of(batch: Any, depth: int = 0) -> int | None:
    """The length of the first tensor within tuples, lists, mappings and objects of them; None where there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth >= DEEPEST or isinstance(batch, str | bytes):
        return None
    if isinstance(batch, Mapping):
        parts: Any = batch.values()
    elif isinstance(batch, list | tuple):
        parts = batch
    else:
        parts = getattr(batch, "__dict__", {}).values()
    lengths = (items_of(part, depth + 1) for part in parts)
    return next((length for length in lengths if length), None)


class ItemCount:
    """Counts the items of batches: of the first ones by their first tensor, of all where the user has a function."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.counts: list[float] = []
        self.total, self.batches = 0.0, 0

    def look_at(self, batch: Any) -> bool:
        """Take a batch into account; gives whether more of them tell more."""
        try:
            if callable(self.items):
                self.total += float(self.items(batch))
                self.batches += 1
                return True
            length = items_of(batch) if self.items is None else self.items
        except Exception:  # a batch may be anything
            return False
        if length is None:
            return False
        self.counts.append(length)
        return self.items is None and len(self.counts) < ENOUGH

    @property
    def per_step(self) -> int | None:
        """Items of a step; where only the first tensors are known, the usual number: the last batch may be short."""
        if isinstance(self.items, int):
            return self.items
        if self.batches:
            return round(self.total / self.batches) or None
        return round(sorted(self.counts)[len(self.counts) // 2]) if self.counts else None
