"""The devices that PyTorch finds have one name each, and tell by what they can be found again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mldyno.axes import AXIS
from mldyno.frameworks import Unsupported
from mldyno.frameworks._torch_devices import list_devices
from mldyno.frameworks.torch import Torch
from mldyno.records import Device, Fact

T4 = {"name": "Tesla T4", "total_memory": 15_634_661_376, "major": 7, "minor": 5, "multi_processor_count": 40,
      "clock_rate": 1_590_000, "memory_clock_rate": 5_001_000,
      "uuid": "3f1c9a52-7b0e-4d6a-9c55-0a1b2c3d4e5f"}  # fmt: skip
ARC = {"name": "Intel(R) Arc(TM) A770 Graphics", "total_memory": 1 << 34, "driver_version": "1.6.33578+15",
       "max_compute_units": 512, "device_id": 0x56A0, "memory_clock_rate": 2187}  # fmt: skip


def torch_with(kind: str, count: int, module: Any, hip: str | None = None) -> Any:
    """PyTorch on a machine with so many accelerators of a kind."""
    accelerator = SimpleNamespace(
        is_available=lambda: count > 0,
        current_accelerator=lambda: SimpleNamespace(type=kind),
        device_count=lambda: count,
    )
    return SimpleNamespace(accelerator=accelerator, version=SimpleNamespace(hip=hip), **{kind: module})


def knowing(**properties: Any) -> Any:
    """A module such as torch.cuda that knows the same properties of every device."""
    return SimpleNamespace(get_device_properties=lambda index: SimpleNamespace(**properties))


def test_without_an_accelerator_there_is_the_cpu_which_pytorch_has_no_name_for() -> None:
    assert list_devices(torch_with("cuda", 0, None)) == [Device("cpu", "torch")]


def test_a_card_of_nvidias_tells_what_pytorch_knows_of_it_in_si_units() -> None:
    _, first, second = list_devices(torch_with("cuda", 2, knowing(**T4)))
    facts: dict[str, Fact] = {
        "compute_capability": "7.5", "multiprocessors": 40, "clock": 1.59e9, "memory_clock": 5.001e9,
        "uuid": str(T4["uuid"]),
    }  # fmt: skip
    assert first == Device("cuda:0", "torch", "Tesla T4", 15_634_661_376, facts)
    assert second.name == "cuda:1"


def test_what_a_version_of_pytorch_does_not_tell_is_left_out() -> None:
    few = {name: value for name, value in T4.items() if name not in ("uuid", "clock_rate")} | {"memory_clock_rate": 0}
    assert list_devices(torch_with("cuda", 1, knowing(**few)))[1].facts == {
        "compute_capability": "7.5",
        "multiprocessors": 40,
    }


def test_a_card_of_amds_is_called_cuda_but_has_no_facts_of_nvidias() -> None:
    device = list_devices(torch_with("cuda", 1, knowing(**T4 | {"name": "AMD Instinct MI300X"}), hip="6.2"))[1]
    assert (device.name, device.title, device.facts) == ("cuda:0", "AMD Instinct MI300X", {})


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_of_intels_gpus_has_the_same_name_however_many_there_are(count: int) -> None:
    devices = list_devices(torch_with("xpu", count, knowing(**ARC)))[1:]
    assert [device.name for device in devices] == ["xpu", "xpu:1"][:count]
    assert devices[0].facts == {"driver": "1.6.33578+15", "compute_units": 512, "pci_product": "0x56a0"}


def test_metal_names_no_device_but_says_how_much_memory_it_recommends() -> None:
    metal = SimpleNamespace(recommended_max_memory=lambda: 103_079_215_104)
    assert list_devices(torch_with("mps", 1, metal))[1:] == [Device("mps", "torch", memory=103_079_215_104)]


@pytest.mark.parametrize("error", [RuntimeError, AssertionError])
def test_a_device_that_can_not_be_asked_is_still_named(error: type[Exception]) -> None:
    def lost(index: int) -> Any:
        raise error("the driver has lost it")

    assert list_devices(torch_with("cuda", 1, SimpleNamespace(get_device_properties=lost)))[1:] == [
        Device("cuda:0", "torch")
    ]
    assert list_devices(torch_with("odd", 1, None))[1:] == [Device("odd", "torch")]


@pytest.mark.parametrize("name", ["cpu", "cuda:0", "cuda:1", "xpu", "xpu:1", "mps"])
def test_every_name_is_the_one_that_a_user_may_type(name: str) -> None:
    assert AXIS["device"].parse(name) == name


def test_a_pytorch_without_accelerators_is_too_old_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "accelerator")
    with pytest.raises(Unsupported, match=r"torch 2\.\S+ is too old: mldyno needs 2\.6 or newer"):
        Torch().start()
