"""The contract of every workload: it builds, counts right, learns, and is a file with a title."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import Recipe, Workload

SMALL = {"resnet50": 2}
NAMES = plugins.names("workloads")


def built(name: str, mode: str, batch: int | None = None) -> tuple[Workload, Case, Recipe]:
    workload = plugins.workload(name)
    case = Case(name, version=workload.version, mode=mode, batch=batch or SMALL.get(name, workload.batch))  # type: ignore[arg-type]
    torch.manual_seed(1)
    return workload, case, workload.build["torch"](torch, case)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_as_its_file_and_says_what_it_is(name: str) -> None:
    workload = plugins.workload(name)
    assert workload.name == name
    assert len(plugins.about("workloads", name)[0]) > 10


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_parameters_that_it_states(name: str) -> None:
    with torch.device("meta"):
        workload, _, recipe = built(name, "train")
    assert sum(parameter.numel() for parameter in recipe.network.parameters()) == workload.params


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", NAMES)
def test_its_stated_operations_are_those_that_torch_counts(name: str, mode: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        workload, case, recipe = built(name, mode)
        inputs, targets = recipe.draw()
        with FlopCounterMode(display=False) as counter:
            output = recipe.network.train(mode == "train")(inputs)
            if mode == "train":
                recipe.loss(output, targets).backward()
    assert counter.get_total_flops() == workload.flops(case)


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_a_batch(name: str) -> None:
    _, _, recipe = built(name, "train")
    inputs, targets = recipe.draw()
    optimiser = recipe.optimiser(recipe.network.parameters())
    losses = []
    for _ in range(6):
        loss = recipe.loss(recipe.network.train()(inputs), targets)
        losses.append(float(loss.detach()))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    assert all(0 <= loss < float("inf") for loss in losses)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_its_inputs_are_random_and_of_the_batch_asked_for(name: str) -> None:
    _, case, recipe = built(name, "infer")
    (first, _), (second, _) = recipe.draw(), recipe.draw()
    assert first.shape[0] == case.batch
    assert not torch.equal(first, second)
    assert float(first.abs().sum()) > 0


def test_items_grow_with_the_batch() -> None:
    workload = plugins.workload("mlp")
    case = Case("mlp", batch=8)
    assert workload.items(replace(case, batch=16)) == 2 * workload.items(case) == 16


def test_resnet50_has_the_state_dict_of_torchvision() -> None:
    _, _, recipe = built("resnet50", "infer")
    keys = recipe.network.state_dict()
    assert len(keys) == 320
    shapes: dict[str, Any] = {
        "conv1.weight": (64, 3, 7, 7), "bn1.running_mean": (64,), "layer1.0.conv1.weight": (64, 64, 1, 1),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1), "layer1.0.downsample.1.num_batches_tracked": (),
        "layer2.0.conv2.weight": (128, 128, 3, 3), "layer3.5.bn3.bias": (1024,),
        "layer4.2.conv3.weight": (2048, 512, 1, 1),
        "fc.weight": (1000, 2048), "fc.bias": (1000,),
    }  # fmt: skip
    assert {key: tuple(keys[key].shape) for key in shapes} == shapes
