"""The ResNets are torchvision's: its weights load."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import resnet
from mldyno.workloads.torch_layers import network_in_torch

Shapes = dict[str, tuple[int, ...]]


def norm(name: str, channels: int) -> Shapes:
    kinds = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{kind}": (channels,) for kind in kinds}, f"{name}.num_batches_tracked": ()}


def block(name: str, inputs: int, width: int, strided: bool, bottleneck: bool) -> Shapes:
    """One block as torchvision names it: BasicBlock, or Bottleneck with four times the outputs."""
    if bottleneck:
        convolutions = {1: (width, inputs, 1, 1), 2: (width, width, 3, 3), 3: (4 * width, width, 1, 1)}
    else:
        convolutions = {1: (width, inputs, 3, 3), 2: (width, width, 3, 3)}
    shapes: Shapes = {}
    for number, shape in convolutions.items():
        shapes[f"{name}.conv{number}.weight"] = shape
        shapes |= norm(f"{name}.bn{number}", shape[0])
    outputs = 4 * width if bottleneck else width
    if strided or inputs != outputs:
        shapes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
        shapes |= norm(f"{name}.downsample.1", outputs)
    return shapes


def torchvision(counts: tuple[int, ...], bottleneck: bool) -> Shapes:
    """Keys and shapes of the state dict of torchvision's ResNet with so many blocks in its layers."""
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    inputs = 64
    for layer, count in enumerate(counts, start=1):
        width = 32 * 2**layer
        for place in range(count):
            shapes |= block(f"layer{layer}.{place}", inputs, width, layer > 1 and place == 0, bottleneck)
            inputs = 4 * width if bottleneck else width
    return {**shapes, "fc.weight": (1000, inputs), "fc.bias": (1000,)}


@pytest.mark.parametrize(
    ("name", "counts", "bottleneck", "keys"),
    [("resnet18", (2, 2, 2, 2), False, 122), ("resnet50", (3, 4, 6, 3), True, 320)],
)
def test_it_has_the_state_dict_of_torchvision(name: str, counts: tuple[int, ...], bottleneck: bool, keys: int) -> None:
    with torch.device("meta"):
        state = plugins.workload(name).build["torch"](torch, Case(name, mode="infer", batch=1)).network.state_dict()
    expected = torchvision(counts, bottleneck)
    assert len(expected) == keys
    assert {key: tuple(value.shape) for key, value in state.items()} == expected


def test_only_the_large_stem_shrinks_an_image() -> None:
    sides = {}
    for shrinks in (True, False):
        shape = resnet.Shape(block=resnet.BASIC, counts=(1, 1, 1, 1), classes=10, shrinks=shrinks)
        network = network_in_torch(torch, partial(resnet.network, shape=shape)).eval()
        network.get_submodule("layer1.0.conv1").register_forward_pre_hook(
            lambda _, given, key=shrinks: sides.update({key: given[0].shape[2]})
        )
        with torch.inference_mode():
            assert network(torch.randn(1, 3, 64, 64)).shape == (1, 10)
    assert sides == {True: 16, False: 64}


def test_a_block_strides_where_torchvision_does() -> None:
    with torch.device("meta"):
        bottlenecks = plugins.workload("resnet50").build["torch"](torch, Case("resnet50", batch=1)).network
        basics = plugins.workload("resnet18").build["torch"](torch, Case("resnet18", batch=1)).network
    first, plain = bottlenecks.get_submodule("layer2.0"), basics.get_submodule("layer2.0")
    assert [first.conv1.stride, first.conv2.stride, first.conv3.stride] == [(1, 1), (2, 2), (1, 1)]
    assert [plain.conv1.stride, plain.conv2.stride, plain.get_submodule("downsample.0").stride] == [
        (2, 2),
        (1, 1),
        (2, 2),
    ]
