"""Small networks that sort images into classes, and whole trainings of them.

mnist-cnn: Two convolutions and two linear layers on MNIST's 28×28 digits
cifar10-cnn: Two convolutions and three linear layers on CIFAR-10's 32×32 images
cnn-224: Three convolutions and two linear layers on 224×224 images, 10 classes
compute-loop: Five convolutions with batch norm on 64×64 images: steady work for a device, no data loading
mnist-mlp: MLP 784-512-10 on MNIST's digits, for ranks that train together
mnist-linear: MLP 784-256-10 on MNIST's digits, trained with momentum
mnist-cnn-process: The published training of mnist-cnn in one process: 9 epochs over MNIST, each evaluated
cifar10-cnn-process: The published training of cifar10-cnn in one process: 2 epochs over CIFAR-10, each evaluated
mnist-mlp-process: The published training of mnist-mlp: 10 epochs over MNIST, with ranks that share each of them
mnist-linear-process: The published training of mnist-linear: 10 epochs over MNIST, with ranks that share each of them

Images are random and normal, labels are random, the loss is cross-entropy. mnist-cnn, cifar10-cnn, mnist-mlp and
mnist-linear are examples 1 to 4 of the published m2-vs-intel comparison, where 2 and 4 ranks share the last two.
cnn-224 is in the published m4-gpu comparison, compute-loop in m1-vs-rtx. A step of a whole training is a run of its
processes. The first run finds no data set and fetches or makes it, the later ones find it there. A run that learns
nothing fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Batch, EndToEnd, Optimiser, Portable, Workload

PIXELS, DIGITS = 784, 10  # of MNIST: points of an image, and classes
CHANNELS = (3, 64, 128, 256, 256, 512)  # of compute-loop

Layer = tuple[Any, ...]
"""A kind of layer and its sizes: ("convolution", inputs, outputs, kernel), ("linear", inputs, outputs) and, behind
images that were flattened, their channels, rows and columns; ("max_pool", size), ("relu",), ("flatten",)."""


def workload(
    name: str, title: str, *, version: int, batch: int, image: tuple[int, ...], classes: int, params: int,
    operations: Mapping[str, int], optimiser: Optimiser, network: Callable[[Any], Any] | None = None,
    torch_network: Callable[[ModuleType], Any] | None = None, torch_only: bool = False, data: str | None = None,
) -> Workload:  # fmt: skip
    """Return the workload of a network for images of that shape; `operations` are those of one image, by mode.

    `network` makes it of layers, `torch_network` of modules of PyTorch.
    """

    def examples(case: Case, draws: Any) -> Batch:
        count = case.batch or batch
        return draws.numbers((count, *image)), draws.labels((count,), classes)

    portable = Portable(
        lambda nn, case: network(nn) if network else None, examples, optimiser, torch_network=torch_network
    )
    return Workload(
        name=name, title=title, version=version, item="image", batch=batch, params=params, data=data,
        flops=lambda case: float((case.batch or batch) * operations[case.mode or "train"]),
        build={"torch": portable.in_torch}, portable=None if torch_only else portable,
    )  # fmt: skip


# -- one layer after the other -----------------------------------------------------------------------


def sequence(name: str, title: str, *network: Layer, **sizes: Any) -> Workload:
    """Return the workload of a network whose layers follow each other, from one description for all frameworks."""
    return workload(
        name, title, network=lambda nn: in_layers(nn, network), torch_network=lambda torch: in_torch(torch, network),
        **sizes,
    )  # fmt: skip


def in_torch(torch: ModuleType, network: tuple[Layer, ...]) -> Any:
    """Build the network in PyTorch: a Sequential, as people write it, which calls a module for each ReLU too."""
    nn = torch.nn
    kinds = {"convolution": nn.Conv2d, "linear": lambda inputs, outputs, *_: nn.Linear(inputs, outputs),
             "max_pool": nn.MaxPool2d, "relu": nn.ReLU, "flatten": nn.Flatten}  # fmt: skip
    return nn.Sequential(*(kinds[kind](*sizes) for kind, *sizes in network))


def in_layers(nn: Any, network: tuple[Layer, ...]) -> Callable[[Any], Any]:
    """Build the network in any other framework; a layer is named by its place, as in PyTorch."""
    functions: list[Callable[[Any], Any]] = []
    for place, (kind, *sizes) in enumerate(network):
        if kind == "linear":
            inputs, outputs, *image = sizes
            functions.append(nn.linear(str(place), inputs, outputs, image=tuple(image) or None))
        elif kind == "convolution":
            functions.append(nn.convolution(str(place), *sizes))
        else:
            functions.append(nn.max_pool(*sizes) if kind == "max_pool" else getattr(nn, kind))

    def forward(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return forward


MNIST_CNN = sequence(
    "mnist-cnn", "MNIST CNN",
    ("convolution", 1, 10, 5), ("max_pool", 2), ("relu",),
    ("convolution", 10, 20, 5), ("max_pool", 2), ("relu",),
    ("flatten",),
    ("linear", 320, 50, 20, 4, 4), ("relu",),
    ("linear", 50, 10),
    version=1, batch=64, image=(1, 28, 28), classes=10, params=21_840, data="mnist",
    operations={"infer": 961_000, "train": 2_595_000}, optimiser=Optimiser("sgd", 0.01, momentum=0.5),
)  # fmt: skip

CIFAR10_CNN = sequence(
    "cifar10-cnn", "CIFAR-10 CNN",
    ("convolution", 3, 6, 5), ("relu",), ("max_pool", 2),
    ("convolution", 6, 16, 5), ("relu",), ("max_pool", 2),
    ("flatten",),
    ("linear", 400, 120, 16, 5, 5), ("relu",),
    ("linear", 120, 84), ("relu",),
    ("linear", 84, 10),
    version=1, batch=4, image=(3, 32, 32), classes=10, params=62_006, data="cifar10",
    operations={"infer": 1_303_440, "train": 3_204_720}, optimiser=Optimiser("sgd", 0.001, momentum=0.9),
)  # fmt: skip

CNN_224 = sequence(
    "cnn-224", "CNN for 224 pixels",
    ("convolution", 3, 32, 3), ("relu",), ("max_pool", 2),
    ("convolution", 32, 64, 3), ("relu",), ("max_pool", 2),
    ("convolution", 64, 128, 3), ("relu",), ("max_pool", 2),
    ("flatten",),
    ("linear", 128 * 26 * 26, 128, 128, 26, 26), ("relu",),
    ("linear", 128, 10),
    version=1, batch=32, image=(3, 224, 224), classes=10, params=11_170_250,
    operations={"infer": 944_018_688, "train": 2_746_893_312}, optimiser=Optimiser("adam", 1e-3),
)  # fmt: skip


# -- in PyTorch only -----------------------------------------------------------------------------------


def compute_loop(torch: ModuleType) -> Any:
    """Build convolutions of 3x3 without bias, each with batch norm, ReLU and max-pooling 2; then mean and linear."""
    nn = torch.nn
    layers = [
        nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
        )
        for inputs, outputs in itertools.pairwise(CHANNELS)
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], DIGITS))


COMPUTE_LOOP = workload(
    "compute-loop", "Convolutions", version=1, batch=64, image=(3, 64, 64), classes=DIGITS, params=2_147_402,
    operations={"infer": 429_402_112, "train": 1_274_050_560}, torch_network=compute_loop, torch_only=True,
    optimiser=Optimiser("sgd", 0.01),
)  # fmt: skip


def two_layers(name: str, title: str, *, version: int, hidden: int, params: int, optimiser: Optimiser) -> Workload:
    """Return the workload of an MLP with one hidden layer and ReLU on MNIST's digits, which are flattened first."""
    first, second = 2 * PIXELS * hidden, 2 * hidden * DIGITS  # operations of the layers
    layers = ("flatten",), ("linear", PIXELS, hidden), ("relu",), ("linear", hidden, DIGITS)
    return sequence(
        name, title, *layers, version=version, batch=64, image=(PIXELS,), classes=DIGITS, params=params, data="mnist",
        operations={"infer": first + second, "train": 2 * first + 3 * second}, optimiser=optimiser, torch_only=True,
    )  # fmt: skip


MNIST_MLP = two_layers(
    "mnist-mlp", "MNIST MLP, 512 wide", version=1, hidden=512, params=407_050, optimiser=Optimiser("sgd", 0.001)
)
MNIST_LINEAR = two_layers(
    "mnist-linear", "MNIST MLP, 256 wide", version=1, hidden=256, params=203_530,
    optimiser=Optimiser("sgd", 0.01, momentum=0.5),
)  # fmt: skip


# -- whole trainings -----------------------------------------------------------------------------------


def whole_training(trained: Workload, title: str, epochs: int) -> Workload:
    """Return the training of a workload from its data set, end to end: a step is a run of it."""
    return Workload(
        name=f"{trained.name}-process", title=title, version=1, item="run", batch=trained.batch, params=trained.params,
        flops=lambda case: 0.0, build={}, modes=("train",), placement="loader", data=trained.data,
        end_to_end=EndToEnd(trained.name, epochs), count=lambda case: 1,
    )  # fmt: skip


WORKLOADS = {each.name: each for each in (
    MNIST_CNN, CIFAR10_CNN, CNN_224, COMPUTE_LOOP, MNIST_MLP, MNIST_LINEAR,
    whole_training(MNIST_CNN, "MNIST CNN, whole training", epochs=9),
    whole_training(CIFAR10_CNN, "CIFAR-10 CNN, whole training", epochs=2),
    whole_training(MNIST_MLP, "MNIST MLP, whole training", epochs=10),
    whole_training(MNIST_LINEAR, "MNIST MLP 256, whole training", epochs=10),
)}  # fmt: skip
