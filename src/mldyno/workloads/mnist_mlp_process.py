"""The published training of mnist-mlp, end to end: 10 epochs over MNIST, with ranks that share each of them.

As example 3 of the published m2-vs-intel comparison, with 2 ranks and a batch of 64 for each, but with a loss that
can't be negative. A step is a run of all its processes; the first one finds no data set and fetches or makes it, the
later ones find it there. A run that learns nothing fails.
"""

from __future__ import annotations

from mldyno.workloads import _images, mnist_mlp

WORKLOAD = _images.whole_training(mnist_mlp.WORKLOAD, "MNIST MLP, whole training", epochs=10)
