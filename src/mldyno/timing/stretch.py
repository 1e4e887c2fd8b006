"""A stretch of measuring: block after block of one program, with what must be done between them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mldyno.timing.blocks import Blocks

Between = Callable[[list[float], int], int]


def stretch(blocks: Blocks, seconds: float, steps: int | None, between: Between) -> tuple[list[float], int]:
    """Times of a step in s, one for each block, for so many s or steps; and the steps left, fewer than a block.

    `between` sees the values so far and the clock, and says at what time it wants to be called again:
    most blocks follow each other at once.
    """
    scale = 1e9 * blocks.size
    values: list[float] = []
    most = sys.maxsize if steps is None else steps // blocks.size
    ends = blocks.clock() + round(seconds * 1e9) if steps is None else sys.maxsize
    due = 0
    while len(values) < most:
        times, now = blocks.run(most - len(values), min(due, ends))
        values += [time / scale for time in times]
        if now >= ends:
            break
        due = between(values, now)
    return values, 0 if steps is None else steps % blocks.size
