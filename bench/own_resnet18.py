"""`resnet18` of the catalogue as a user's own file would have it, for figure 17."""

from __future__ import annotations

from typing import Any

import torch

from mldyno.workloads import resnet
from mldyno.workloads.torch_layers import network_in_torch


def build(batch_size: int = 8) -> tuple[Any, ...]:
    """Model, images, labels, loss, optimiser."""
    model = network_in_torch(torch, lambda nn: resnet.network(nn, resnet.RESNET18))
    images, labels = torch.randn(batch_size, 3, 224, 224), torch.randint(1000, (batch_size,))
    return model, images, labels, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), 0.01, 0.9)
