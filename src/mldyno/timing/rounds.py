"""Rounds: several programs in one process take turns block by block, so that they can be paired.

Each round has one block of every program, in a new random order. What the machine does in the few
milliseconds of a round falls on all of them alike, and drops out of their ratio.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from mldyno.timing.blocks import Blocks


def rounds(
    programs: Sequence[Blocks],
    seconds: float,
    min_rounds: int,
    chance: random.Random,
    tick: Callable[[list[float], int], None],
) -> list[list[float]]:
    """For each program its time of a step in s, one value a round, for so many s but `min_rounds` at least.

    `tick` sees the first program's values and the clock after each round.
    """
    clock = programs[0].clock
    times: list[list[float]] = [[] for _ in programs]
    ends = clock() + round(seconds * 1e9)
    order = list(range(len(programs)))
    now = clock()
    while len(times[0]) < min_rounds or now < ends:
        chance.shuffle(order)
        for place in order:
            blocks = programs[place]
            times[place].append(blocks.time(blocks.size) / blocks.size / 1e9)
        now = clock()
        tick(times[0], now)
    return times
