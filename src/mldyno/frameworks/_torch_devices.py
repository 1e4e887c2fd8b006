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
        return Device(name, "torch", memory=_recommended(module))


def _facts(properties: Any, readers: dict[str, Callable[[Any], Fact]]) -> dict[str, Fact]:
    """What the properties say; which of them there are depends on the version of PyTorch."""
    facts: dict[str, Fact] = {}
    for name, read in readers.items():
        with suppress(AttributeError, TypeError, ValueError, RuntimeError):
            facts[name] = read(properties) or None
    return {name: value for name, value in facts.items() if value is not None}


def _recommended(module: Any) -> int | None:
    """What Metal lets a process take of the memory that GPU and CPU share, in B; None for other devices."""
    with suppress(AttributeError, RuntimeError, AssertionError):
        return int(module.recommended_max_memory())
    return None
