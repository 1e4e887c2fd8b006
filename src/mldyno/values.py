"""Numbers from which every framework makes the same array: random numbers of a seed, or items of a data set.

Rule: standard library only, since a worker in any interpreter imports this.
"""

from __future__ import annotations

import array
from dataclasses import dataclass

IMAGE_DIMENSIONS = 4  # of a batch of images: items, channels, rows, columns
SEED = 20240229  # of first weights, batches and all other random numbers


@dataclass(frozen=True)
class Values:
    """Integers with a shape; with a scale, the values are integer * scale + offset.

    Images may have a scale and an offset for each channel.
    """

    shape: tuple[int, ...]
    whole: array.array[int]
    scale: float | tuple[float, ...] | None = None
    offset: float | tuple[float, ...] = 0.0
