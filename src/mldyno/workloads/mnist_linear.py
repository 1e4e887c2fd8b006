"""MLP 784-256-10 on MNIST's digits, trained with momentum.

ReLU between; the 28×28 digits are flattened first. Train: SGD 0.01 with momentum 0.5,
cross-entropy. As example 4 of the published m2-vs-intel comparison, where 4 ranks share the training.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mldyno.workloads import _images

PIXELS, HIDDEN, CLASSES = 784, 256, 10
FIRST, SECOND = 2 * PIXELS * HIDDEN, 2 * HIDDEN * CLASSES  # operations of the layers


def network(torch: ModuleType) -> Any:
    """The network in PyTorch."""
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


WORKLOAD = _images.workload(
    "mnist-linear", version=1, batch=64, image=(PIXELS,), classes=CLASSES, params=203_530, data="mnist",
    operations={"infer": FIRST + SECOND, "train": 2 * FIRST + 3 * SECOND},
    network=network,
    optimiser=lambda torch, parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.5),
)  # fmt: skip
