"""Networks that sort images into classes: what those workloads share.

Images are random and normal, labels are random, the loss is cross-entropy. A workload is a file with
a network and an optimiser of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import EndToEnd, Optimiser, Portable, Recipe, Workload, random_integers, random_values


def workload(
    name: str,
    title: str,
    *,
    version: int,
    batch: int,
    image: tuple[int, ...],
    classes: int,
    params: int,
    operations: Mapping[str, int],
    network: Callable[[ModuleType], Any],
    optimiser: Optimiser,
    data: str | None = None,
    layers: Callable[[Any], Any] | None = None,
) -> Workload:
    """The workload of a network for images of that shape; `operations` are those of one image, by mode.

    `network` is the one in PyTorch, `layers` the one in any other framework.
    """

    def build(torch: ModuleType, case: Case) -> Recipe:
        count = case.batch or batch
        return Recipe(
            network=network(torch),
            draw=lambda: (torch.randn(count, *image), torch.randint(classes, (count,))),
            loss=torch.nn.functional.cross_entropy,
            optimiser=lambda parameters: optimiser.in_torch(torch, parameters),
        )

    def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
        count = case.batch or batch
        return random_values(chance, (count, *image)), random_integers(chance, (count,), 0, classes)

    portable = layers and Portable(lambda nn, case: layers(nn), examples, optimiser)
    return Workload(
        name=name, title=title, version=version, item="image", batch=batch, params=params, data=data,
        flops=lambda case: float((case.batch or batch) * operations[case.mode or "train"]),
        build={"torch": build}, portable=portable,
    )  # fmt: skip


def sequence(*parts: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One part after the other."""

    def forward(x: Any) -> Any:
        for part in parts:
            x = part(x)
        return x

    return forward


def two_layers(name: str, title: str, *, version: int, hidden: int, params: int, optimiser: Optimiser) -> Workload:
    """The workload of an MLP with one hidden layer and ReLU on MNIST's digits, which are flattened first."""
    pixels, classes = 784, 10
    first, second = 2 * pixels * hidden, 2 * hidden * classes  # operations of the layers

    def network(torch: ModuleType) -> Any:
        nn = torch.nn
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    return workload(
        name, title, version=version, batch=64, image=(pixels,), classes=classes, params=params, data="mnist",
        operations={"infer": first + second, "train": 2 * first + 3 * second}, network=network, optimiser=optimiser,
    )  # fmt: skip


def whole_training(trained: Workload, title: str, epochs: int) -> Workload:
    """The training of a workload from its data set, end to end: a step is a run of it."""
    return Workload(
        name=f"{trained.name}-process", title=title, version=1, item="run", batch=trained.batch, params=trained.params,
        flops=lambda case: 0.0, build={}, modes=("train",), placement="loader", data=trained.data,
        end_to_end=EndToEnd(trained.name, epochs), count=lambda case: 1,
    )  # fmt: skip
