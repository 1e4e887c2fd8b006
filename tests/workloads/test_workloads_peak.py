"""Workloads of bare operations: a product and a copy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case


def built(**axes: Any) -> Any:
    return plugins.workload(axes["workload"]).build["torch"](torch, Case(**{"mode": "infer", **axes}))


@pytest.mark.parametrize("name", ["matmul", "copy"])
def test_it_is_for_inference_only_and_has_no_parameters(name: str) -> None:
    workload = plugins.workload(name)
    assert workload.modes == ("infer",)
    assert workload.params == 0


def test_matmul_multiplies_by_its_own_matrix() -> None:
    recipe = built(workload="matmul", batch=5)
    inputs, _ = recipe.draw()
    assert inputs.shape == recipe.network.factor.shape == (5, 5)
    by_hand = (inputs[:, :, None] * recipe.network.factor[None]).sum(1)
    torch.testing.assert_close(recipe.network(inputs), by_hand, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mebibytes", [1, 3])
def test_copy_moves_so_many_mebibytes(mebibytes: int) -> None:
    recipe = built(workload="copy", batch=mebibytes)
    inputs, _ = recipe.draw()
    assert inputs.nbytes == mebibytes * 2**20 == plugins.workload("copy").items(Case("copy", batch=mebibytes))


def test_copy_on_the_device_goes_into_one_buffer() -> None:
    recipe = built(workload="copy", batch=1)
    (first, _), (second, _) = recipe.draw(), recipe.draw()
    with torch.inference_mode():
        place = recipe.network(first).data_ptr()
        copied = recipe.network(second)
    assert copied.data_ptr() == place not in (first.data_ptr(), second.data_ptr())
    assert torch.equal(copied, second)


def test_copy_keeps_its_bytes_in_any_precision() -> None:
    inputs, _ = built(workload="copy", batch=1, precision="fp16").draw()
    assert not inputs.is_floating_point()


@pytest.mark.parametrize("placement", ["host", "roundtrip"])
def test_where_the_transfer_is_the_work_the_network_only_hands_on(placement: str) -> None:
    network = built(workload="copy", batch=1, device="cuda:0", placement=placement).network
    data = torch.ones(3)
    assert network(data) is data
    assert [buffer.numel() for buffer in network.buffers()] == [1]


@pytest.mark.parametrize("placement", ["host", "roundtrip"])
def test_nothing_is_copied_between_the_host_and_its_own_cpu(placement: str) -> None:
    with pytest.raises(NotImplementedError, match="nothing is copied between the host and its own CPU"):
        built(workload="copy", batch=1, placement=placement)
