"""The published training of mnist-cnn, end to end in one process: 9 epochs over MNIST, each with its evaluation.

As in the published m2-vs-intel comparison, with its batch of 64. A step is a run of the process; the first one finds
no data set and fetches or makes it, the later ones find it there. A run that learns nothing fails.
"""

from __future__ import annotations

from mldyno.workloads import _images, mnist_cnn

WORKLOAD = _images.whole_training(mnist_cnn.WORKLOAD, "MNIST CNN, whole training", epochs=9)
