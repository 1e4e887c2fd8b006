"""The published training of mnist-linear, end to end: 10 epochs over MNIST, with ranks that share each of them.

As example 4 of the published m2-vs-intel comparison, with 4 ranks and a batch of 64 for each. A step is a run of all
its processes; the first one finds no data set and fetches or makes it, the later ones find it there. A run that learns
nothing fails.
"""

from __future__ import annotations

from mldyno.workloads import EndToEnd, Workload

WORKLOAD = Workload(
    name="mnist-linear-process", title="MNIST MLP 256, whole training", version=1, item="run",
    batch=64, params=203_530, flops=lambda case: 0.0, build={},
    modes=("train",), placement="loader", data="mnist", end_to_end=EndToEnd("mnist-linear", epochs=10),
    count=lambda case: 1,
)  # fmt: skip
