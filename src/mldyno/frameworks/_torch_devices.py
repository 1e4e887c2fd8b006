"""The devices that PyTorch finds, with what it knows of them itself.

Titles and facts of vendors are no matter of a framework's: the parent adds them. What PyTorch knows is
what they are found by there: a UUID, a product.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mldyno.records import Device, Fact

# What the properties of a device say, under the names of the facts, in SI units.
FACTS: dict[str, dict[str, Callable[[Any], Fact]]] = {
    "cuda": {
        "compute_capability": lambda its: f"{its.major}.{its.minor}",
        "multiprocessors": lambda its: int(its.multi_processor_count),
        "clock": lambda its: its.clock_rate * 1e3,  # from kHz
        "memory_clock": lambda its: its.memory_clock_rate * 1e3,
        "uuid": lambda its: str(its.uuid),
    },
    "xpu": {
        "driver": lambda its: str(its.driver_version),
        "compute_units": lambda its: int(its.max_compute_units),
        "uuid": lambda its: str(its.uuid),
        "pci_product": lambda its: f"0x{its.device_id:04x}",
    },
}


def list_devices(torch: Any) -> list[Device]:
    """The CPU, and every accelerator that torch.accelerator offers now."""
    devices = [Device("cpu", "torch")]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type
        devices += [_accelerator(torch, kind, index) for index in range(torch.accelerator.device_count())]
    return devices


def _accelerator(torch: Any, kind: str, index: int) -> Device:
    name = f"{kind}:{index}" if index or kind == "cuda" else kind
    module: Any = getattr(torch, kind, None)
    try:
        properties = module.get_device_properties(index)
        readers = {} if getattr(torch.version, "hip", None) else FACTS.get(kind, {})  # AMD's cards are called cuda too
        return Device(name, "torch", str(properties.name), int(properties.total_memory), _facts(properties, readers))
    except (AttributeError, RuntimeError, AssertionError):
        return Device(name, "torch", _metal_name(torch, kind), memory=_recommended(module))


def _facts(properties: Any, readers: dict[str, Callable[[Any], Fact]]) -> dict[str, Fact]:
    """What the properties say; which of them there are depends on the version of PyTorch."""
    facts: dict[str, Fact] = {}
    for name, read in readers.items():
        with suppress(AttributeError, TypeError, ValueError, RuntimeError):
            facts[name] = read(properties) or None
    return {name: value for name, value in facts.items() if value is not None}


def _metal_name(torch: Any, kind: str) -> str:
    """What Metal calls its device; newer versions of PyTorch pass it on."""
    with suppress(AttributeError, RuntimeError):
        if kind == "mps":
            return str(torch.backends.mps.get_name())
    return Device.title


def _recommended(module: Any) -> int | None:
    """What Metal lets a process take of the memory that GPU and CPU share, in B; None for other devices."""
    with suppress(AttributeError, RuntimeError, AssertionError):
        return int(module.recommended_max_memory())
    return None


def counted_memory(torch: Any, device: Any, counter: str) -> int | None:
    """What a counter of a device's memory says, in B: torch.accelerator's, or, before 2.9, that of the device's module.

    None on the CPU, and where neither counts.
    """
    if device.type == "cpu":
        return None
    for module in (torch.accelerator, getattr(torch, device.type, None)):
        with suppress(AttributeError, RuntimeError, ValueError, TypeError):
            return int(getattr(module, counter)(device))
    return None
