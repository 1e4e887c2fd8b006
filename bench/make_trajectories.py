"""Makes the data set that `venv-ppo` learns from: 100 trajectories of 30 steps, in src/mldyno/data.

Three masses stand in a row between two walls. In each of the four gaps are a spring that stiffens and an actuator.
Observed are the places and the speeds of the masses (6 numbers), acted are the pulls of the actuators (4, each
within ±1). The controller that drove them damps too little and is noisy: there is a better one.

Nothing is used but + - * / and Python's own random numbers, so that every machine makes the same bytes.
src/mldyno/workloads/venv_ppo.py describes the form of the file.
"""

from __future__ import annotations

import random
import struct
from itertools import pairwise

from mldyno.workloads.venv_ppo import FILE, FRACTION, STEPS, TRAJECTORIES

MASSES = 3
SEED = 20220601

INTERVAL = 0.2  # s
STIFFNESS, STIFFENING = 1.5, 0.2  # of a spring, and by how much of it more for a stretch of 1
DRAG, STRENGTH = 0.1, 2.0  # of a mass, of an actuator
START = 1.2  # places and speeds at the start are within ± that
SHAKE = 0.08  # what chance adds to a place and to a speed in a step is within ± that
GAIN, TREMBLE = 0.15, 0.6  # of the controller: against the speed of a gap, and what chance adds, within ± that


def gaps(values: list[float]) -> list[float]:
    """Differences from one to the next of the masses, walls included: one for each gap."""
    return [right - left for left, right in pairwise([0.0, *values, 0.0])]


def moved(places: list[float], speeds: list[float], pulls: list[float]) -> tuple[list[float], list[float]]:
    """Places and speeds one interval later, without chance."""
    tensions = [
        STIFFNESS * (stretch + STIFFENING * stretch * stretch * stretch) + STRENGTH * pull
        for stretch, pull in zip(gaps(places), pulls, strict=True)
    ]
    forces = [right - left for left, right in pairwise(tensions)]
    later = [speed + INTERVAL * (force - DRAG * speed) for speed, force in zip(speeds, forces, strict=True)]
    return [place + INTERVAL * speed for place, speed in zip(places, later, strict=True)], later


def trajectory(chance: random.Random) -> list[float]:
    """One trajectory: its observations, then its actions."""

    def within(limit: float) -> float:
        return limit * (2 * chance.random() - 1)

    places, speeds = ([within(START) for _ in range(MASSES)] for _ in range(2))
    observations, actions = [*places, *speeds], []
    for _ in range(STEPS):
        pulls = [max(-1.0, min(1.0, GAIN * rate + within(TREMBLE))) for rate in gaps(speeds)]
        places, speeds = moved(places, speeds, pulls)
        places, speeds = ([value + within(SHAKE) for value in values] for values in (places, speeds))
        observations += [*places, *speeds]
        actions += pulls
    return observations + actions


def made() -> bytes:
    """The whole file."""
    chance = random.Random(SEED)
    numbers = [round(value * FRACTION) for _ in range(TRAJECTORIES) for value in trajectory(chance)]
    return struct.pack(f"<{len(numbers)}h", *numbers)


if __name__ == "__main__":
    FILE.write_bytes(made())
    print(f"{FILE.name}: {FILE.stat().st_size:,} B")
