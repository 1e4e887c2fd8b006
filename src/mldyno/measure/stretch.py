"""A stretch of measuring: block after block of one program, with whatever must be done between them."""

from __future__ import annotations

from collections.abc import Callable

from mldyno.measure.blocks import Blocks


def stretch(
    blocks: Blocks, seconds: float, steps: int | None, between: Callable[[list[float]], None]
) -> tuple[list[float], int]:
    """Times of a step in s, one for each block, for so many s or steps; and the steps left, fewer than a block.

    `between` sees the values so far after each block; its time is nobody's.
    """
    size, clock, time = blocks.size, blocks.clock, blocks.time
    scale = 1e9 * size
    values: list[float] = []
    left = steps
    ends = clock() + round(seconds * 1e9)
    while left is None or left >= size:
        values.append(time(size) / scale)
        between(values)
        if left is not None:
            left -= size
        elif clock() >= ends:
            break
    return values, left or 0
