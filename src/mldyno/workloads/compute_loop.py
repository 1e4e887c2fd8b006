"""Five convolutions with batch norm on 64×64 images: steady work for a device, no data loading.

Convolutions 3-64-128-256-256-512 of 3x3 with padding 1 and no bias, each with batch norm, ReLU and
max-pooling 2; mean over the image; linear 512-10. Train: SGD 0.01, cross-entropy. As in the
published m1-vs-rtx comparison.
"""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

from mldyno.workloads import Optimiser, _images

CHANNELS = (3, 64, 128, 256, 256, 512)
CLASSES = 10


def network(torch: ModuleType) -> Any:
    """The network in PyTorch."""
    nn = torch.nn
    layers = [
        nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
        )
        for inputs, outputs in itertools.pairwise(CHANNELS)
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], CLASSES))


WORKLOAD = _images.workload(
    "compute-loop", "Convolutions", version=1, batch=64, image=(3, 64, 64), classes=CLASSES, params=2_147_402,
    operations={"infer": 429_402_112, "train": 1_274_050_560},
    network=network,
    optimiser=Optimiser("sgd", 0.01),
)  # fmt: skip
