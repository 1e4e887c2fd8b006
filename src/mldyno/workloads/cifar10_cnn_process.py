"""The published training of cifar10-cnn, end to end in one process: 2 epochs over CIFAR-10, each with its evaluation.

As in the published m2-vs-intel comparison, with its batch of 4. A step is a run of the process; the first one finds
no data set and fetches or makes it, the later ones find it there. A run that learns nothing fails.
"""

from __future__ import annotations

from mldyno.workloads import _images, cifar10_cnn

WORKLOAD = _images.whole_training(cifar10_cnn.WORKLOAD, "CIFAR-10 CNN, whole training", epochs=2)
