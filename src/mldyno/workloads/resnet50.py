"""ResNet-50 on images of 224 x 224, 1000 classes.

As He et al. 2015, with the stride in the 3x3 convolution.
The state-dict keys are torchvision's, so that its weights load. Train: SGD with momentum 0.9,
cross-entropy.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.workloads import Recipe, Workload

if TYPE_CHECKING:
    from mldyno.records import Case

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # channels and blocks of layer1 to layer4
WIDEN, CLASSES, SIDE = 4, 1000, 224


def torch(torch: ModuleType, case: Case) -> Recipe:
    """The recipe for PyTorch."""
    nn = torch.nn

    class Bottleneck(nn.Module):  # type: ignore[name-defined,misc]
        """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

        def __init__(self, inputs: int, channels: int, stride: int) -> None:
            super().__init__()
            outputs = channels * WIDEN
            self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(channels)
            self.conv3 = nn.Conv2d(channels, outputs, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            shortcut = x if self.downsample is None else self.downsample(x)
            x = self.relu(self.bn1(self.conv1(x)))
            x = self.relu(self.bn2(self.conv2(x)))
            return self.relu(self.bn3(self.conv3(x)) + shortcut)

    class ResNet(nn.Module):  # type: ignore[name-defined,misc]
        """Stem, four stages, mean pooling, one linear layer."""

        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, padding=1)
            inputs = 64
            for number, (channels, count) in enumerate(STAGES, start=1):
                blocks = []
                for place in range(count):
                    stride = 2 if place == 0 and number > 1 else 1
                    blocks.append(Bottleneck(inputs, channels, stride))
                    inputs = channels * WIDEN
                self.add_module(f"layer{number}", nn.Sequential(*blocks))
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(inputs, CLASSES)
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x: Any) -> Any:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(torch.flatten(self.avgpool(x), 1))

    return Recipe(
        network=ResNet(),
        draw=lambda: (torch.randn(case.batch, 3, SIDE, SIDE), torch.randint(CLASSES, (case.batch,))),
        loss=nn.functional.cross_entropy,
        optimiser=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    )


FLOPS_PER_IMAGE = {"infer": 8_178_368_512, "train": 24_299_077_632}


def flops(case: Case) -> float:
    """In proportion to the batch."""
    return float((case.batch or WORKLOAD.batch) * FLOPS_PER_IMAGE[case.mode or "train"])


WORKLOAD = Workload(
    name="resnet50", version=1, item="image", batch=32, params=25_557_032, flops=flops, build={"torch": torch}
)
