"""MLP 1024-512-512-512-2 with ReLU: small kernels, where overheads show.

Train: SGD, cross-entropy. As in the published m1-chips comparison.
"""

from __future__ import annotations

from typing import Any

from mldyno.records import Case
from mldyno.workloads import Batch, Optimiser, Portable, Workload
from mldyno.workloads.images import in_layers, in_torch

FEATURES, HIDDEN, CLASSES = 1024, 512, 2
LAYERS = (
    ("linear", FEATURES, HIDDEN), ("relu",),
    ("linear", HIDDEN, HIDDEN), ("relu",),
    ("linear", HIDDEN, HIDDEN), ("relu",),
    ("linear", HIDDEN, CLASSES),
)  # fmt: skip


def examples(case: Case, draws: Any) -> Batch:
    """Draw random features and labels."""
    batch = case.batch or WORKLOAD.batch
    return draws.numbers((batch, FEATURES)), draws.labels((batch,), CLASSES)


def flops(case: Case) -> float:
    """Count two per weight and item forward; backward twice that, but for the first layer's input gradient."""
    batch = case.batch or WORKLOAD.batch
    first = 2 * batch * FEATURES * HIDDEN
    forward = first + 2 * batch * (2 * HIDDEN * HIDDEN + HIDDEN * CLASSES)
    return float(forward if case.mode == "infer" else 3 * forward - first)


PORTABLE = Portable(
    lambda nn, case: in_layers(nn, LAYERS), examples, Optimiser("sgd", 0.01),
    torch_network=lambda torch: in_torch(torch, LAYERS),
)  # fmt: skip
WORKLOAD = Workload(
    name="mlp", title="MLP", version=1, item="sample", batch=128, params=1_051_138, flops=flops,
    build={"torch": PORTABLE.in_torch}, portable=PORTABLE,
)  # fmt: skip
