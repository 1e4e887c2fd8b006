"""The published training of mnist-cnn, end to end in one process: 9 epochs over MNIST, each with its evaluation.

As in the published m2-vs-intel comparison, with its batch of 64. A step is a run of the process; the first one finds
no data set and fetches or makes it, the later ones find it there. A run that learns nothing fails.
"""

from __future__ import annotations

from mldyno.workloads import EndToEnd, Workload

WORKLOAD = Workload(
    name="mnist-cnn-process", title="MNIST CNN, whole training", version=1, item="run",
    batch=64, params=21_840, flops=lambda case: 0.0, build={},
    modes=("train",), placement="loader", data="mnist", end_to_end=EndToEnd("mnist-cnn", epochs=9),
    count=lambda case: 1,
)  # fmt: skip
