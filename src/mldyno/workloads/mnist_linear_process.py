"""The published training of mnist-linear, end to end: 10 epochs over MNIST, with ranks that share each of them.

As example 4 of the published m2-vs-intel comparison, with 4 ranks and a batch of 64 for each. A step is a run of all
its processes; the first one finds no data set and fetches or makes it, the later ones find it there. A run that learns
nothing fails.
"""

from __future__ import annotations

from mldyno.workloads import _images, mnist_linear

WORKLOAD = _images.whole_training(mnist_linear.WORKLOAD, "MNIST MLP 256, whole training", epochs=10)
