"""The devices that PyTorch finds have one name each, and tell by what they can be found again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mldyno.axes import AXIS
from mldyno.frameworks import Unsupported
from mldyno.frameworks.torch import Torch
from mldyno.frameworks.torch.devices import counted_memory, list_devices
from mldyno.records import Case, Device, Fact

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


def test_a_newer_pytorch_passes_on_what_metal_calls_its_device() -> None:
    made = torch_with("mps", 1, SimpleNamespace(recommended_max_memory=lambda: 1 << 34))
    made.backends = SimpleNamespace(mps=SimpleNamespace(get_name=lambda: "Apple M3 Max"))
    assert list_devices(made)[1].title == "Apple M3 Max"


def test_before_2_9_the_memory_of_a_device_is_counted_by_its_own_module() -> None:
    counters = SimpleNamespace(memory_reserved=lambda device: 7 << 20)
    old = SimpleNamespace(accelerator=SimpleNamespace(), cuda=counters, mps=SimpleNamespace())
    card, metal = SimpleNamespace(type="cuda"), SimpleNamespace(type="mps")
    assert counted_memory(old, card, "memory_reserved") == 7 << 20
    assert counted_memory(old, card, "max_memory_allocated") is None
    assert counted_memory(old, metal, "memory_reserved") is None
    newer = SimpleNamespace(accelerator=SimpleNamespace(memory_reserved=lambda device: 9 << 20), cuda=counters)
    assert counted_memory(newer, card, "memory_reserved") == 9 << 20
    assert counted_memory(newer, SimpleNamespace(type="cpu"), "memory_reserved") is None


def built(version: str = "2.13.0", **with_: str) -> Torch:
    """PyTorch as it says of itself that it was built, on a machine with an NVIDIA card of 2018 and Metal."""
    framework = Torch()
    names = dict.fromkeys(("cuda", "hip", "xpu")) | with_
    framework.torch = SimpleNamespace(
        __version__=version, version=SimpleNamespace(**names),
        cuda=SimpleNamespace(get_device_capability=lambda _: (7, 5)),
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91002)),
    )  # fmt: skip
    framework.devices = lambda: [Device("cpu", "torch"), Device("cuda:0", "torch"), Device("mps", "torch")]  # type: ignore[method-assign]
    return framework


def test_a_record_names_the_libraries_that_pytorch_was_built_with() -> None:
    assert built(cuda="12.8").versions() == {"torch": "2.13.0", "cuda": "12.8", "cudnn": "91002"}
    assert built(hip="6.4").versions() == {"torch": "2.13.0", "hip": "6.4"}
    assert built().versions() == {"torch": "2.13.0"}


def check(framework: Torch, **axes: Any) -> None:
    framework.check(Case("mlp", **axes), lambda torch, case: None, None)


def test_tf32_is_unsupported_on_a_card_from_before_it() -> None:
    with pytest.raises(Unsupported, match=r"tf32 needs a GPU of compute capability 8\.0; cuda:0 has 7\.5"):
        check(built(cuda="12.8"), device="cuda:0", precision="tf32")
    check(built(cuda="12.8"), device="cuda:0", precision="fp16")


def test_autocast_on_metal_needs_a_pytorch_that_does_not_crash_in_it() -> None:
    with pytest.raises(Unsupported, match=r"torch 2\.11\.0 crashes in batch norm under autocast on MPS; update it"):
        check(built("2.11.0"), device="mps", precision="amp-fp16")
    check(built("2.11.0"), device="mps", precision="fp16")
    check(built("2.12.1"), device="mps", precision="amp-fp16")


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
