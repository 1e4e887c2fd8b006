"""ResNet of any size.

resnet18: ResNet-18 on 224×224 images, 1000 classes
resnet18-cifar: ResNet-18 for small images: 64×64, 10 classes, a stem that keeps their size
resnet50: ResNet-50 on 224×224 images, 1000 classes

As He et al. 2015, with a bottleneck's stride in the 3x3 convolution. The state-dict keys are
torchvision's, so that its weights load. Train: SGD 0.01 with momentum 0.9, cross-entropy. resnet18-cifar has a stem
of one 3x3 convolution of stride 1 and no max-pooling, and trains by Adam 1e-3; it is in the published m4-gpu
comparison, resnet50 in m1-chips.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from mldyno.workloads import Optimiser, images

CHANNELS = (64, 128, 256, 512)  # of layer1 to layer4


class Convolution(NamedTuple):
    """One convolution of a block; its outputs are the layer's channels times `expansion`."""

    kernel: int
    expansion: int = 1
    strided: bool = False  # whether it is the one that has the block's stride


BASIC = (Convolution(3, strided=True), Convolution(3))
BOTTLENECK = (Convolution(1), Convolution(3, strided=True), Convolution(1, expansion=4))


@dataclass(frozen=True)
class Shape:
    """The parameters of a ResNet."""

    block: tuple[Convolution, ...]
    counts: tuple[int, int, int, int]  # blocks of layer1 to layer4
    classes: int
    shrinks: bool  # whether the stem quarters the sides: 7x7 with stride 2, then max-pooling; else it is 3x3


def network(nn: Any, shape: Shape) -> Any:
    """Make the network: from images of any size to logits (batch, classes)."""

    def normed(name: str, number: int | str, inputs: int, outputs: int, kernel: int, stride: int) -> Any:
        """Make a convolution and its batch norm."""
        names = ("0", "1") if number == "downsample" else (f"conv{number}", f"bn{number}")
        place = f"{name}{number}." if number == "downsample" else name
        convolution = nn.convolution(place + names[0], inputs, outputs, kernel, stride, kernel // 2, bias=False)
        norm = nn.batch_norm(place + names[1], outputs)
        return lambda x: norm(convolution(x))

    def make_block(name: str, inputs: int, channels: int, stride: int) -> Any:
        parts, outputs = [], inputs
        for number, (kernel, expansion, strided) in enumerate(shape.block, start=1):
            parts.append(normed(name, number, outputs, channels * expansion, kernel, stride if strided else 1))
            outputs = channels * expansion
        shrinks = stride != 1 or inputs != outputs
        downsample = normed(name, "downsample", inputs, outputs, 1, stride) if shrinks else None

        def forward(x: Any) -> Any:
            shortcut = x if downsample is None else downsample(x)
            for part in parts[:-1]:
                x = nn.relu_in_place(part(x))
            return nn.relu_in_place(parts[-1](x) + shortcut)

        return forward

    kernel, stride = (7, 2) if shape.shrinks else (3, 1)
    stem = normed("", 1, 3, CHANNELS[0], kernel, stride)
    pool = nn.max_pool(3, 2, 1) if shape.shrinks else None
    blocks, inputs = [], CHANNELS[0]
    for number, (channels, count) in enumerate(zip(CHANNELS, shape.counts, strict=True), start=1):
        for place in range(count):
            name = f"layer{number}.{place}."
            blocks.append(make_block(name, inputs, channels, 2 if place == 0 and number > 1 else 1))
            inputs = channels * shape.block[-1].expansion
    head = nn.linear("fc", inputs, shape.classes)
    nn.initialise("kaiming_normal_", dimensions=4, mode="fan_out", nonlinearity="relu")

    def forward(x: Any) -> Any:
        x = nn.relu_in_place(stem(x))
        x = x if pool is None else pool(x)
        for block in blocks:
            x = block(x)
        return head(nn.mean_pool(x))

    return forward


RESNET18 = Shape(block=BASIC, counts=(2, 2, 2, 2), classes=1000, shrinks=True)
RESNET18_CIFAR = Shape(block=BASIC, counts=(2, 2, 2, 2), classes=10, shrinks=False)
RESNET50 = Shape(block=BOTTLENECK, counts=(3, 4, 6, 3), classes=1000, shrinks=True)
WORKLOADS = {each.name: each for each in (
    images.workload(
        "resnet18", "ResNet-18", version=1, batch=32, image=(3, 224, 224), classes=RESNET18.classes, params=11_689_512,
        operations={"infer": 3_628_146_688, "train": 10_648_412_160},
        network=lambda nn: network(nn, RESNET18), optimiser=Optimiser("sgd", 0.01, momentum=0.9), torch_only=True,
    ),
    images.workload(
        "resnet18-cifar", "ResNet-18 for 64 pixels", version=1, batch=32, image=(3, 64, 64),
        classes=RESNET18_CIFAR.classes, params=11_173_962,
        operations={"infer": 4_443_351_040, "train": 13_315_897_344},
        network=lambda nn: network(nn, RESNET18_CIFAR), optimiser=Optimiser("adam", 1e-3),
    ),
    images.workload(
        "resnet50", "ResNet-50", version=1, batch=32, image=(3, 224, 224), classes=RESNET50.classes, params=25_557_032,
        operations={"infer": 8_178_368_512, "train": 24_299_077_632},
        network=lambda nn: network(nn, RESNET50), optimiser=Optimiser("sgd", 0.01, momentum=0.9),
    ),
)}  # fmt: skip
