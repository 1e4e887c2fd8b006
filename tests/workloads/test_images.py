"""Networks on images: what they take, and what they are made of."""

from __future__ import annotations

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case

SET = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
FROM_DISK = ["mnist-cnn", "mnist-mlp", "mnist-linear", "cifar10-cnn"]


@pytest.mark.parametrize("name", FROM_DISK)
def test_it_takes_the_images_of_its_data_set(name: str) -> None:
    workload = plugins.workload(name)
    network = workload.build["torch"](torch, Case(name, batch=3)).network
    assert workload.data is not None
    assert network(torch.randn(3, *SET[workload.data])).shape == (3, 10)


@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-linear"])
def test_a_flat_image_is_the_same_as_one_with_two_sides(name: str) -> None:
    network = plugins.workload(name).build["torch"](torch, Case(name, batch=3)).network
    flat = torch.randn(3, 784)
    assert torch.equal(network(flat), network(flat.reshape(3, 1, 28, 28)))


def test_others_name_no_data_set() -> None:
    named = [
        name for name in plugins.names("workloads") if plugins.workload(name).data and plugins.workload(name).build
    ]
    assert sorted(named) == sorted(FROM_DISK)


def test_compute_loop_has_five_convolutions_without_bias_each_with_norm_and_pooling() -> None:
    with torch.device("meta"):
        network = plugins.workload("compute-loop").build["torch"](torch, Case("compute-loop", batch=1)).network
    kinds = [type(module).__name__ for module in network.modules() if not list(module.children())]
    assert kinds == 5 * ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"] + ["AdaptiveAvgPool2d", "Flatten", "Linear"]
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert [convolution.out_channels for convolution in convolutions] == [64, 128, 256, 256, 512]
    assert all(convolution.bias is None and convolution.padding == (1, 1) for convolution in convolutions)
