"""MLP 784-512-10 on MNIST's digits, for ranks that train together.

ReLU between; the 28×28 digits are flattened first. Train: SGD 0.001, cross-entropy. As example 3
of the published m2-vs-intel comparison, where 2 ranks share the training.
"""

from __future__ import annotations

from mldyno.workloads import Optimiser, _images

WORKLOAD = _images.two_layers(
    "mnist-mlp", "MNIST MLP, 512 wide", version=1, hidden=512, params=407_050,
    optimiser=Optimiser("sgd", 0.001),
)  # fmt: skip
