"""MLP 784-256-10 on MNIST's digits, trained with momentum.

ReLU between; the 28×28 digits are flattened first. Train: SGD 0.01 with momentum 0.5,
cross-entropy. As example 4 of the published m2-vs-intel comparison, where 4 ranks share the training.
"""

from __future__ import annotations

from mldyno.workloads import Optimiser, _images

WORKLOAD = _images.two_layers(
    "mnist-linear", "MNIST MLP, 256 wide", version=1, hidden=256, params=203_530,
    optimiser=Optimiser("sgd", 0.01, momentum=0.5),
)  # fmt: skip
