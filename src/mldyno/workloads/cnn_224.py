"""Three convolutions and two linear layers on 224×224 images, 10 classes.

Convolutions 3-32-64-128 of 3x3 without padding, each with ReLU and max-pooling 2; linear 86,528-128,
ReLU; linear 128-10. Train: Adam 1e-3, cross-entropy. As in the published m4-gpu comparison.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mldyno.workloads import Optimiser, _images


def network(torch: ModuleType) -> Any:
    """The network in PyTorch."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128 * 26 * 26, 128), nn.ReLU(),
        nn.Linear(128, 10),
    )  # fmt: skip


def layers(nn: Any) -> Any:
    """The network in any framework."""
    return _images.sequence(
        nn.convolution("0", 3, 32, 3), nn.relu, nn.max_pool(2),
        nn.convolution("3", 32, 64, 3), nn.relu, nn.max_pool(2),
        nn.convolution("6", 64, 128, 3), nn.relu, nn.max_pool(2),
        nn.flatten,
        nn.linear("10", 128 * 26 * 26, 128, image=(128, 26, 26)), nn.relu,
        nn.linear("12", 128, 10),
    )  # fmt: skip


WORKLOAD = _images.workload(
    "cnn-224", "CNN for 224 pixels", version=1, batch=32, image=(3, 224, 224), classes=10, params=11_170_250,
    operations={"infer": 944_018_688, "train": 2_746_893_312},
    network=network,
    optimiser=Optimiser("adam", 1e-3),
    layers=layers,
)  # fmt: skip
