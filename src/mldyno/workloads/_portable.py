"""A workload in any framework: a network of layers that the framework gives, its batches, and its first weights.

Parameters have the names and shapes of the workload's version in PyTorch, whatever a framework makes of them. Their
first values and the batches are drawn as random bytes from a seed, and every framework makes the same arrays of them.
So two frameworks start from the same weights, and what they compute can be compared: that is the proof that both do
the same work.
"""

from __future__ import annotations

import array
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from mldyno.records import Case
from mldyno.values import Values

SEED = 20240229
BIAS_DEVIATION, NORM_DEVIATION = 0.02, 0.1  # of first values: none is 0 or 1, so that one in the wrong place shows
NORM = 0.5  # around which the first scales of norms lie: at 1 the shortcuts of a deep network make much of rounding


def numbers(chance: random.Random, shape: tuple[int, ...], deviation: float = 1.0, centre: float = 0.0) -> Values:
    """Random numbers, evenly spread, of that standard deviation around the centre."""
    whole = array.array("i")
    whole.frombytes(chance.randbytes(whole.itemsize * math.prod(shape)))
    if sys.byteorder == "big":
        whole.byteswap()
    return Values(shape, whole, math.sqrt(3) * deviation / 2**31, centre)


def choices(chance: random.Random, shape: tuple[int, ...], low: int, high: int) -> Values:
    """Random whole numbers from `low` to below `high`."""
    return Values(shape, array.array("i", [chance.randrange(low, high) for _ in range(math.prod(shape))]))


def marked_words(chance: random.Random, batch: int, seq: int, vocabulary: int, labels: int) -> tuple[Values, Values]:
    """Sequences of words from that part of the vocabulary which is their label; none is word 0."""
    part = vocabulary // labels
    marks = choices(chance, (batch,), 0, labels)
    words = [chance.randrange(1, part) + part * label for label in marks.whole for _ in range(seq)]
    return Values((batch, seq), array.array("i", words)), marks


def first_values(name: str, shape: tuple[int, ...]) -> Values:
    """The first values of a parameter: by its name, and spread as far as its inputs are many."""
    chance = random.Random(f"{SEED} {name}")
    if len(shape) > 1:
        return numbers(chance, shape, 1 / math.sqrt(math.prod(shape[1:])))
    if name.endswith("weight"):  # of a norm
        return numbers(chance, shape, NORM_DEVIATION, NORM)
    return numbers(chance, shape, BIAS_DEVIATION)


@dataclass(frozen=True)
class Optimiser:
    """How a training step changes the parameters; the other constants are PyTorch's."""

    kind: Literal["sgd", "adam", "adamw"]
    rate: float
    momentum: float = 0.0
    decay: float = 0.0

    def in_torch(self, torch: ModuleType, parameters: Any) -> Any:
        """PyTorch's own."""
        if self.kind == "sgd":
            return torch.optim.SGD(parameters, lr=self.rate, momentum=self.momentum)
        if self.kind == "adam":
            return torch.optim.Adam(parameters, lr=self.rate)
        return torch.optim.AdamW(parameters, lr=self.rate, weight_decay=self.decay)


@dataclass(frozen=True)
class Portable:
    """A workload as any framework can build it."""

    network: Callable[[Any, Case], Callable[..., Any]]
    """From layers that the framework gives, the function from inputs to outputs."""
    examples: Callable[[Case, random.Random], tuple[Values, Values]]
    """Draws one learnable batch: inputs and targets, images with their channels first."""
    optimiser: Optimiser
    loss: Literal["cross-entropy", "squared-error"] = "cross-entropy"
    """Of the last axis: its cross-entropy, or the sum of its squared errors; the mean over all others."""
    updates: bool = True
    """Whether a training step ends with the optimiser's; else it is forward and backward only."""
    decoded: int = 0
    """Tokens that inference decodes after its prompt, one by one: its phases are then prefill and decode."""
    first_values: Callable[[str, tuple[int, ...]], Values] = first_values
    """The first values of a parameter, from its name and its shape in PyTorch."""

    def batch(self, case: Case, seed: int) -> tuple[Values, Values]:
        """The batch of a seed."""
        return self.examples(case, random.Random(SEED + seed))
