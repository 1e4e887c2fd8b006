"""The published training of cifar10-cnn, end to end in one process: 2 epochs over CIFAR-10, each with its evaluation.

As in the published m2-vs-intel comparison, with its batch of 4. A step is a run of the process; the first one finds
no data set and fetches or makes it, the later ones find it there. A run that learns nothing fails.
"""

from __future__ import annotations

from mldyno.workloads import EndToEnd, Workload

WORKLOAD = Workload(
    name="cifar10-cnn-process", title="CIFAR-10 CNN, whole training", version=1, item="run",
    batch=4, params=62_006, flops=lambda case: 0.0, build={},
    modes=("train",), placement="loader", data="cifar10", end_to_end=EndToEnd("cifar10-cnn", epochs=2),
    count=lambda case: 1,
)  # fmt: skip
