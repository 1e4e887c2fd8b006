"""MLP 1024-512-512-512-2 with ReLU: small kernels, where overheads show.

Train: SGD, cross-entropy. As in the published m1-chips comparison.
"""

from __future__ import annotations

import random
from types import ModuleType

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Portable, Recipe, Workload, random_integers, random_values
from mldyno.workloads.images import in_layers, in_torch

FEATURES, HIDDEN, CLASSES = 1024, 512, 2
OPTIMISER = Optimiser("sgd", 0.01)
LAYERS = (
    ("linear", FEATURES, HIDDEN), ("relu",),
    ("linear", HIDDEN, HIDDEN), ("relu",),
    ("linear", HIDDEN, HIDDEN), ("relu",),
    ("linear", HIDDEN, CLASSES),
)  # fmt: skip


def torch(torch: ModuleType, case: Case) -> Recipe:
    """Return the recipe for PyTorch."""
    return Recipe(
        network=in_torch(torch, LAYERS),
        draw=lambda: (torch.randn(case.batch, FEATURES), torch.randint(CLASSES, (case.batch,))),
        loss=torch.nn.functional.cross_entropy,
        optimiser=lambda parameters: OPTIMISER.in_torch(torch, parameters),
    )


def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
    """Draw random features and labels."""
    batch = case.batch or WORKLOAD.batch
    return random_values(chance, (batch, FEATURES)), random_integers(chance, (batch,), 0, CLASSES)


def flops(case: Case) -> float:
    """Count two per weight and item forward; backward twice that, but for the first layer's input gradient."""
    batch = case.batch or WORKLOAD.batch
    first = 2 * batch * FEATURES * HIDDEN
    forward = first + 2 * batch * (2 * HIDDEN * HIDDEN + HIDDEN * CLASSES)
    return float(forward if case.mode == "infer" else 3 * forward - first)


WORKLOAD = Workload(
    name="mlp", title="MLP", version=1, item="sample", batch=128, params=1_051_138, flops=flops, build={"torch": torch},
    portable=Portable(lambda nn, case: in_layers(nn, LAYERS), examples, OPTIMISER),
)  # fmt: skip
