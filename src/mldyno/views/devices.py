"""Devices in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from mldyno.records import Device, Fact
from mldyno.units import count, digits, show_bytes, show_hertz

_QUANTITIES: dict[str, Callable[[float], str]] = {
    "clock": lambda value: f"up to {show_hertz(value)}",
    "memory_clock": lambda value: f"memory at up to {show_hertz(value)}",
    "power_limit": lambda value: f"at most {digits(value)} W",
}
_LABELS = ("uuid", "pci_bus", "pci_product")  # say which one it is, not what it is


def device_line(device: Device) -> str:
    """A device in a line: what its vendor calls it, its memory, and what else is known of it."""
    memory = [show_bytes(device.memory)] if device.memory else []
    return ", ".join([device.title, *memory, *_facts(device.facts)])


def _facts(facts: Mapping[str, Fact]) -> Iterator[str]:
    for name, value in facts.items():
        spoken = name.replace("_", " ")
        if isinstance(value, str) and name not in _LABELS:
            yield f"{spoken} {value}"
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield _QUANTITIES[name](value) if name in _QUANTITIES else count(int(value), spoken.removesuffix("s"))
