"""ResNet-18 on 224×224 images, 1000 classes.

As He et al. 2015. The state-dict keys are torchvision's, so that its weights load. Train: SGD 0.01
with momentum 0.9, cross-entropy.
"""

from __future__ import annotations

from mldyno.workloads import Optimiser, _images, _resnet

SHAPE = _resnet.Shape(block=_resnet.BASIC, counts=(2, 2, 2, 2), classes=1000, shrinks=True)
WORKLOAD = _images.workload(
    "resnet18", "ResNet-18", version=1, batch=32, image=(3, 224, 224), classes=SHAPE.classes, params=11_689_512,
    operations={"infer": 3_628_146_688, "train": 10_648_412_160},
    network=lambda torch: _resnet.network(torch, SHAPE),
    optimiser=Optimiser("sgd", 0.01, momentum=0.9),
)  # fmt: skip
