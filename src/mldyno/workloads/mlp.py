"""MLP 1024-512-512-512-2 with ReLU: small kernels, where overheads show.

Train: SGD, cross-entropy. As in the published m1-chips comparison.
"""

from __future__ import annotations

import itertools
import random
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Portable, Recipe, Workload, random_integers, random_values

FEATURES, HIDDEN, CLASSES = 1024, 512, 2
OPTIMISER = Optimiser("sgd", 0.01)


def torch(torch: ModuleType, case: Case) -> Recipe:
    """The recipe for PyTorch."""
    nn = torch.nn
    network = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES),
    )  # fmt: skip
    return Recipe(
        network=network,
        draw=lambda: (torch.randn(case.batch, FEATURES), torch.randint(CLASSES, (case.batch,))),
        loss=nn.functional.cross_entropy,
        optimiser=lambda parameters: OPTIMISER.in_torch(torch, parameters),
    )


def network(nn: Any, _: Case) -> Any:
    """The network in any framework."""
    sizes = itertools.pairwise((FEATURES, HIDDEN, HIDDEN, HIDDEN, CLASSES))
    *inner, last = (nn.linear(f"{2 * place}", *size) for place, size in enumerate(sizes))

    def forward(x: Any) -> Any:
        for layer in inner:
            x = nn.relu(layer(x))
        return last(x)

    return forward


def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
    """Random features and labels."""
    batch = case.batch or WORKLOAD.batch
    return random_values(chance, (batch, FEATURES)), random_integers(chance, (batch,), 0, CLASSES)


def flops(case: Case) -> float:
    """Two per weight and item forward; backward twice that, but for the first layer's input gradient."""
    batch = case.batch or WORKLOAD.batch
    first = 2 * batch * FEATURES * HIDDEN
    forward = first + 2 * batch * (2 * HIDDEN * HIDDEN + HIDDEN * CLASSES)
    return float(forward if case.mode == "infer" else 3 * forward - first)


WORKLOAD = Workload(
    name="mlp", title="MLP", version=1, item="sample", batch=128, params=1_051_138, flops=flops, build={"torch": torch},
    portable=Portable(network, examples, OPTIMISER),
)  # fmt: skip
