"""Simulated series with a known truth: correlated noise, two speeds, warm-ups, drifts, jumps, paired rounds.

Times are relative to a true level of 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import islice

SLOW_OVER_FAST = 1.5  # ratio of the two modes
WARM_UP_EXCESS = 2.0  # a warm-up starts at 3 times the steady level


def noise(chance: random.Random, phi: float, spread: float) -> Iterator[float]:
    """Yield normal noise around 0 with correlation `phi` between neighbours and standard deviation `spread`."""
    gauss, fresh, value = chance.gauss, spread * math.sqrt(1 - phi * phi), chance.gauss(0.0, spread)
    if phi == 0:
        while True:
            yield gauss(0.0, spread)
    while True:
        yield value
        value = phi * value + gauss(0.0, fresh)


def modes(chance: random.Random, stay: float, spread: float) -> Iterator[float]:
    """Yield steps of mean 1 that switch between two speeds; `stay` is the mean number of steps in one of them."""
    fast = 2 / (1 + SLOW_OVER_FAST)
    slow = chance.random() < 0.5
    while True:
        level = fast * SLOW_OVER_FAST if slow else fast
        until = math.log(1.0 - chance.random()) / math.log1p(-min(1 / stay, 0.999999))
        for _ in range(int(until) + 1):
            yield level * (1.0 + chance.gauss(0.0, spread))
        slow = not slow


def around_one(chance: random.Random, phi: float, spread: float) -> Iterator[float]:
    """Yield steady steps around 1."""
    return (1.0 + value for value in noise(chance, phi, spread))


def steps(chance: random.Random, count: int, phi: float, spread: float) -> list[float]:
    """Return steady steps around 1."""
    return list(islice(around_one(chance, phi, spread), count))


def warming(steady: list[float], warm_up: int, plateau: bool) -> list[float]:
    """Slow down the first `warm_up` steps: to three times the level throughout, or falling from there."""
    late = steady[warm_up:]
    if plateau:
        return [v * (1 + WARM_UP_EXCESS) for v in steady[:warm_up]] + late
    falling = [1 + WARM_UP_EXCESS * math.exp(-5 * i / warm_up) for i in range(warm_up)]
    return [v * factor for v, factor in zip(steady, falling, strict=False)] + late


def drifting(steady: list[float], change: float) -> list[float]:
    """Move the level evenly by `change` from the first to the last step."""
    last = len(steady) - 1
    return [v * (1 + change * i / last) for i, v in enumerate(steady)]


def decaying(steady: list[float], excess: float, steps_to_fade: float) -> list[float]:
    """Add an excess over the level that falls to 1/e in `steps_to_fade` steps and never quite ends."""
    return [v * (1 + excess * math.exp(-i / steps_to_fade)) for i, v in enumerate(steady)]


def jumping(steady: list[float], change: float, place: float) -> list[float]:
    """Change the level by `change` at `place`, a share of the series."""
    first = round(place * len(steady))
    return steady[:first] + [v * (1 + change) for v in steady[first:]]


def log_ratios(
    chance: random.Random, rounds: int, ratio: float, phi: float, two_speeds: bool = False, outliers: float = 0.0
) -> list[float]:
    """Return logarithms of the ratio of two cases, interleaved in random order on a machine whose speed varies.

    The machine wanders by 10 %, or has two modes; each case adds noise of 3 %.
    """
    machine = modes(chance, 50, 0.0) if two_speeds else (1 + v for v in noise(chance, 0.95, 0.1))
    own, logs = (noise(chance, phi, 0.03), noise(chance, phi, 0.03)), []
    for _ in range(rounds):
        first, second = next(machine), next(machine)
        if chance.random() < 0.5:
            first, second = second, first
        value = math.log(ratio) + math.log(max(first, 0.1) / max(second, 0.1)) + next(own[0]) - next(own[1])
        if outliers:
            value += _outlier(chance, outliers) - _outlier(chance, outliers)
        logs.append(value)
    return logs


def _outlier(chance: random.Random, share: float) -> float:
    return math.log1p(chance.expovariate(1.0)) if chance.random() < share else 0.0
