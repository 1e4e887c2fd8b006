"""The recorded trajectories that `venv-ppo` learns from, and its nets, all in one module.

`bench/make_trajectories.py` makes the trajectories. Their file holds, for each of them, 31 times 6 observations, then
30 times 4 actions, as little-endian whole numbers of 16 bits that count 1/4096. The first 80 trajectories are for
training, 20 are held out.

| net | from | to | layers |
|---|---|---|---|
| `imitator` | observation | mean of the action | residual 4 x 256 |
| `transition` | observation, action | mean of the next observation, as a change of this one | residual 4 x 256 |
| `discriminator` | observation, action, next observation | logit of being real | 4 x 256 |
| `policy` | observation | mean of the action | 4 x 256 |
| `critic` | observation | return | 4 x 256 |

The generator is imitator and transition together. What gives a mean draws around it with a learned spread for
each number, the same everywhere. Means of actions are within ±1, as actions in the data are.
"""

from __future__ import annotations

import math
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

LAYERS, WIDTH = 4, 256
ACTION_SPREAD, TRANSITION_SPREAD = 0.5, 0.1  # standard deviations at the start

SHAPES = {
    "imitator": (OBSERVED, ACTED),
    "transition": (OBSERVED + ACTED, OBSERVED),
    "discriminator": (OBSERVED + ACTED + OBSERVED, 1),
    "policy": (OBSERVED, ACTED),
    "critic": (OBSERVED, 1),
}
"""Inputs and outputs of each net."""


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
    values = torch.tensor(numbers, dtype=torch.float32, device="cpu").div(FRACTION).view(TRAJECTORIES, -1)
    observation = values[:, :observations].unflatten(1, (-1, OBSERVED))
    action = values[:, observations:].unflatten(1, (-1, ACTED))
    whole = Transitions(observation[:, :-1], action, observation[:, 1:])
    parts = (slice(TRAINING), slice(TRAINING, None))
    training, held = (whole.each(lambda part, of=of: part[of].flatten(0, 1)) for of in parts)  # type: ignore[misc]
    return training, held


def forward_flops(*nets: str) -> int:
    """Floating-point operations of one row's forward pass through the nets."""
    return sum(2 * WIDTH * (SHAPES[net][0] + (LAYERS - 1) * WIDTH + SHAPES[net][1]) for net in nets)


def training_flops(*nets: str) -> int:
    """Those of one row's forward and backward pass: no gradient of the inputs is asked for."""
    return 3 * forward_flops(*nets) - sum(2 * WIDTH * SHAPES[net][0] for net in nets)


def network(torch: ModuleType) -> Any:
    """All nets in PyTorch; called, they give the mean of the next observation from observation and action."""
    nn = torch.nn

    class Layers(nn.Module):  # type: ignore[name-defined,misc]
        """Four layers of 256 with ReLU, with or without skips from one to the next, and a linear one."""

        def __init__(self, net: str, skips: bool = False) -> None:
            super().__init__()
            inputs, outputs = SHAPES[net]
            self.skips = skips
            self.first = nn.Linear(inputs, WIDTH)
            self.others = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS - 1))
            self.last = nn.Linear(WIDTH, outputs)
            for layer in (self.first, *self.others):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
            nn.init.zeros_(self.last.weight)  # at first nothing changes, no action is meant, nothing is distinguished
            nn.init.zeros_(self.last.bias)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.first(x))
            for layer in self.others:
                y = torch.relu(layer(x))
                x = x + y if self.skips else y
            return self.last(x)

    class Gaussian(nn.Module):  # type: ignore[name-defined,misc]
        """Normal distributions around the means that a subclass gives."""

        def __init__(self, net: str, spread: float, skips: bool) -> None:
            super().__init__()
            self.layers = Layers(net, skips)
            self.log_spread = nn.Parameter(torch.full((SHAPES[net][1],), math.log(spread)))

        def draw(self, x: Any, noise: Any) -> tuple[Any, Any]:
            """A value for each row, from standard normal numbers, and the logarithm of its density."""
            return self(x) + self.log_spread.exp() * noise, self._log_density(noise)

        def log_density(self, x: Any, value: Any) -> Any:
            """The logarithm of the density at a value, for each row."""
            return self._log_density((value - self(x)) / self.log_spread.exp())

        def _log_density(self, apart: Any) -> Any:
            return (-0.5 * apart.square() - self.log_spread - 0.5 * math.log(2 * math.pi)).sum(-1)

    class Policy(Gaussian):
        """From observations to actions."""

        def forward(self, observation: Any) -> Any:
            return torch.tanh(self.layers(observation))

    class Transition(Gaussian):
        """From observations and actions to the next observations."""

        def forward(self, inputs: Any) -> Any:
            return inputs[:, :OBSERVED] + self.layers(inputs)

    class Nets(nn.Module):  # type: ignore[name-defined,misc]
        """The nets by their names."""

        def __init__(self) -> None:
            super().__init__()
            self.imitator = Policy("imitator", ACTION_SPREAD, skips=True)
            self.transition = Transition("transition", TRANSITION_SPREAD, skips=True)
            self.discriminator = Layers("discriminator")
            self.policy = Policy("policy", ACTION_SPREAD, skips=False)
            self.critic = Layers("critic")

        def forward(self, inputs: Any) -> Any:
            return self.transition(inputs)

    return Nets()
