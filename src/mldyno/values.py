"""Numbers of which every framework makes the same array: random ones of a seed, or items of a data set.

Rule: standard library only, since a worker in any interpreter uses this.
"""

from __future__ import annotations

import array
from dataclasses import dataclass

IMAGE_DIMENSIONS = 4  # of a batch: items, channels, rows, columns
SEED = 20240229  # of first weights, batches and whatever else is drawn


@dataclass(frozen=True)
class Values:
    """Whole numbers in a shape; with a scale, these times it plus offset.

    Images may have a scale and an offset for each channel.
    """

    shape: tuple[int, ...]
    whole: array.array[int]
    scale: float | tuple[float, ...] | None = None
    offset: float | tuple[float, ...] = 0.0
