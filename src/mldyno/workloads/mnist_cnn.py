"""Two convolutions and two linear layers on MNIST's 28×28 digits.

Convolution 1-10 of 5x5, max-pooling 2, ReLU; convolution 10-20 of 5x5, max-pooling 2, ReLU; linear
320-50, ReLU; linear 50-10. Train: SGD 0.01 with momentum 0.5, cross-entropy. As example 1 of the
published m2-vs-intel comparison.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mldyno.workloads import Optimiser, _images


def network(torch: ModuleType) -> Any:
    """The network in PyTorch."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50), nn.ReLU(),
        nn.Linear(50, 10),
    )  # fmt: skip


def layers(nn: Any) -> Any:
    """The network in any framework."""
    return _images.sequence(
        nn.convolution("0", 1, 10, 5), nn.max_pool(2), nn.relu,
        nn.convolution("3", 10, 20, 5), nn.max_pool(2), nn.relu,
        nn.flatten,
        nn.linear("7", 320, 50, image=(20, 4, 4)), nn.relu,
        nn.linear("9", 50, 10),
    )  # fmt: skip


WORKLOAD = _images.workload(
    "mnist-cnn", "MNIST CNN", version=1, batch=64, image=(1, 28, 28), classes=10, params=21_840, data="mnist",
    operations={"infer": 961_000, "train": 2_595_000},
    network=network,
    optimiser=Optimiser("sgd", 0.01, momentum=0.5),
    layers=layers,
)  # fmt: skip
