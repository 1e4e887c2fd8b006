"""ResNet-50 on 224×224 images, 1000 classes.

As He et al. 2015, with the stride in the 3x3 convolution.
The state-dict keys are torchvision's, so that its weights load. Train: SGD 0.01 with momentum 0.9,
cross-entropy. As in the published m1-chips comparison.
"""

from __future__ import annotations

from mldyno.workloads import Optimiser, _images, _resnet

SHAPE = _resnet.Shape(block=_resnet.BOTTLENECK, counts=(3, 4, 6, 3), classes=1000, shrinks=True)
WORKLOAD = _images.workload(
    "resnet50", "ResNet-50", version=1, batch=32, image=(3, 224, 224), classes=SHAPE.classes, params=25_557_032,
    operations={"infer": 8_178_368_512, "train": 24_299_077_632},
    network=lambda torch: _resnet.network(torch, SHAPE),
    optimiser=Optimiser("sgd", 0.01, momentum=0.9),
    layers=lambda nn: _resnet.layers(nn, SHAPE),
)  # fmt: skip
