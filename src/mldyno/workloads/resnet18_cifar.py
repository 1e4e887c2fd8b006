"""ResNet-18 for small images: 64×64, 10 classes, a stem that keeps their size.

As resnet18, but the stem is one 3x3 convolution of stride 1 and no max-pooling. Train: Adam 1e-3,
cross-entropy. As in the published m4-gpu comparison.
"""

from __future__ import annotations

from mldyno.workloads import Optimiser, _images, _resnet

SHAPE = _resnet.Shape(block=_resnet.BASIC, counts=(2, 2, 2, 2), classes=10, shrinks=False)
WORKLOAD = _images.workload(
    "resnet18-cifar", "ResNet-18 for 64 pixels", version=1, batch=32, image=(3, 64, 64), classes=SHAPE.classes,
    params=11_173_962,
    operations={"infer": 4_443_351_040, "train": 13_315_897_344},
    network=lambda torch: _resnet.network(torch, SHAPE),
    optimiser=Optimiser("adam", 1e-3),
    layers=lambda nn: _resnet.layers(nn, SHAPE),
)  # fmt: skip
