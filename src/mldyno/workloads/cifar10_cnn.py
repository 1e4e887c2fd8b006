"""Two convolutions and three linear layers on CIFAR-10's 32×32 images.

Convolution 3-6 of 5x5, ReLU, max-pooling 2; convolution 6-16 of 5x5, ReLU, max-pooling 2; linear
400-120-84-10 with ReLU between. Train: SGD 0.001 with momentum 0.9, cross-entropy. As example 2 of
the published m2-vs-intel comparison.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mldyno.workloads import Optimiser, _images


def network(torch: ModuleType) -> Any:
    """The network in PyTorch."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def layers(nn: Any) -> Any:
    """The network in any framework."""
    return _images.sequence(
        nn.convolution("0", 3, 6, 5), nn.relu, nn.max_pool(2),
        nn.convolution("3", 6, 16, 5), nn.relu, nn.max_pool(2),
        nn.flatten,
        nn.linear("7", 400, 120, image=(16, 5, 5)), nn.relu,
        nn.linear("9", 120, 84), nn.relu,
        nn.linear("11", 84, 10),
    )  # fmt: skip


WORKLOAD = _images.workload(
    "cifar10-cnn", "CIFAR-10 CNN", version=1, batch=4, image=(3, 32, 32), classes=10, params=62_006, data="cifar10",
    operations={"infer": 1_303_440, "train": 3_204_720},
    network=network,
    optimiser=Optimiser("sgd", 0.001, momentum=0.9),
    layers=layers,
)  # fmt: skip
