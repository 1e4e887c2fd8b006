"""The recorded trajectories that `venv-ppo` learns from, as `bench/make_trajectories.py` makes them.

The file holds, for each trajectory, 31 times 6 observations, then 30 times 4 actions, as little-endian
whole numbers of 16 bits that count 1/4096. The first 80 trajectories are for training, 20 are held out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).parent.parent / "data" / "trajectories.int16"
TRAJECTORIES, STEPS = 100, 30
OBSERVED, ACTED = 6, 4  # numbers in an observation and in an action
FRACTION = 4096
TRAINING = 80


@dataclass(frozen=True)
class Transitions:
    """Observation, action and next observation of each row; where drawn, also the logarithms of their densities."""

    observation: Any
    action: Any
    following: Any
    acting: Any = None
    """Of the action."""
    moving: Any = None
    """Of the next observation."""

    def each(self, change: Callable[[Any], Any]) -> Transitions:
        """The same done to all parts that are there."""
        return Transitions(*(None if part is None else change(part) for part in vars(self).values()))


def read(torch: ModuleType) -> tuple[Transitions, Transitions]:
    """Transitions for training and those held out, in rows, on the CPU."""
    observations, actions = (STEPS + 1) * OBSERVED, STEPS * ACTED
    numbers = struct.unpack(f"<{TRAJECTORIES * (observations + actions)}h", FILE.read_bytes())
    values = torch.tensor(numbers, dtype=torch.float32).div(FRACTION).view(TRAJECTORIES, -1)
    observation = values[:, :observations].unflatten(1, (-1, OBSERVED))
    action = values[:, observations:].unflatten(1, (-1, ACTED))
    whole = Transitions(observation[:, :-1], action, observation[:, 1:])
    parts = (slice(TRAINING), slice(TRAINING, None))
    training, held = (whole.each(lambda part, of=of: part[of].flatten(0, 1)) for of in parts)  # type: ignore[misc]
    return training, held
