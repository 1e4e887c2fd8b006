"""Facts of this machine, and what vendors report of its devices. Nothing here raises: what is unknown is None.

The host's name is omitted on purpose: records are made to be shared. `keys` distinguishes machines of one name.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from mldyno.hardware import Description, agreed, linux
from mldyno.hardware.linux import cards as cards_on_bus
from mldyno.hardware.linux import cores_allowed
from mldyno.hardware.system import resident
from mldyno.keys import own_key
from mldyno.printable import name_from, printable
from mldyno.records import Device, Fact, Machine
from mldyno.system_queries import ask, attempt, kernel_number, read
from mldyno.units import count

if TYPE_CHECKING:
    from mldyno.hardware.nvidia import Driver

__all__ = ["Vendors", "allowances", "available_memory", "cards_on_bus", "cores_allowed", "describe", "load",
           "resident_memory", "total_memory"]  # fmt: skip


def describe(devices: Iterable[Device] = ()) -> Machine:
    """Return the facts of this machine; MLDYNO_MACHINE sets its name."""
    cpu = printable(attempt(_cpu_name, "unknown"))
    own_cores = hasattr(os, "sched_getaffinity")
    cores = attempt(lambda: len(os.sched_getaffinity(0)) if own_cores else os.cpu_count(), None)
    memory = attempt(total_memory, None)
    size = f", {round(memory / 2**30)} GB" if memory else ""
    name = os.environ.get("MLDYNO_MACHINE") or f"{cpu}, {count(cores, 'core') if cores else '? cores'}{size}"
    return Machine(
        name_from(name), attempt(platform.system, "") or "unknown", attempt(platform.release, "") or "unknown",
        attempt(platform.machine, "") or "unknown", cpu, cores, memory, tuple(devices),
        power=attempt(_power, "unknown"), virtualised=attempt(_virtualised, None),
        low_power=attempt(_low_power, None), key=own_key(),
    )  # fmt: skip


def allowances() -> dict[str, Fact]:
    """Return what this process, and those that it starts, are allowed: niceness, cores, and limits of control groups.

    A scheduler or a container sets them, and nothing in a step's time shows that.
    """
    import psutil

    limit, _ = linux.memory_allowed()
    there = attempt(lambda: int(psutil.virtual_memory().total), 0)
    known: dict[str, Fact] = {
        "niceness": attempt(lambda: os.getpriority(os.PRIO_PROCESS, 0), None),
        "cores_allowed": attempt(lambda: len(os.sched_getaffinity(0)), None) or os.cpu_count(),
        "cores_present": os.cpu_count(),
        "cpu_quota": attempt(cores_allowed, None),
        "memory_limit": limit if limit and limit < there else None,  # version 1 has a number for "no limit" too
    }
    return {name: value for name, value in known.items() if value is not None}


def load() -> float | None:
    """Return how many processes of this machine ran or waited for a core, on average over the last minute."""
    return attempt(lambda: os.getloadavg()[0], None)


def _cpu_name() -> str:
    if sys.platform == "darwin":
        return ask("sysctl", "-n", "machdep.cpu.brand_string") or "unknown"
    name = linux.cpu_name(read("/proc/cpuinfo")) if sys.platform == "linux" else None
    return name or platform.processor() or "unknown"


def _power() -> str:
    import psutil

    battery = psutil.sensors_battery()
    return "mains" if battery is None or battery.power_plugged else "battery"


def _virtualised() -> bool | None:
    if sys.platform == "darwin":
        answer = ask("sysctl", "-n", "kern.hv_vmm_present")
        return answer == "1" if answer else None
    if sys.platform == "linux":
        return linux.virtualised(read("/proc/cpuinfo"))
    return None


POWER_MODES = ("lowpowermode", "powermode")  # the second on Macs with a high-power mode; 1 is low


def _low_power() -> bool | None:
    """Return whether the user or the system has chosen low power."""
    if sys.platform == "darwin":
        lines = [line.split() for line in ask("pmset", "-g").splitlines()]
        modes = [line[1] for line in lines if len(line) > 1 and line[0] in POWER_MODES]
        return "1" in modes if modes else None
    if sys.platform == "linux":
        profile = read("/sys/firmware/acpi/platform_profile")
        return profile == "low-power" if profile else None
    return None


PRESSURE, CRITICAL = "kern.memorystatus_vm_pressure_level", 4  # of macOS: 1 normal, 2 warning


def total_memory() -> int | None:
    """Return the memory in B of the machine, or the limit of its container; None if unknown."""
    import psutil

    total = attempt(lambda: int(psutil.virtual_memory().total), None)
    limit, _ = linux.memory_allowed()
    return min(total, limit) if total and limit else total


def available_memory() -> int | None:
    """Return the memory in B that can still be used before the machine, or its container, swaps or kills."""
    free = attempt(_free, None)
    _, left = linux.memory_allowed()
    return left if free is None else free if left is None else min(free, left)


def resident_memory(pid: int) -> int | None:
    """Return the resident memory in B of a process; None if it is gone or can't be read."""
    size = resident(pid)
    if size is not None or sys.platform == "linux":
        return size
    import psutil

    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return None


def _free() -> int | None:
    if sys.platform == "linux":  # a plain read: the watchdog asks a few times a second
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    import psutil

    if kernel_number(PRESSURE) == CRITICAL:
        return 0  # what is reported as available is compressed or on the disk by then
    return int(psutil.virtual_memory().available)


UNNAMED = Device.title  # of a device without a name by its framework


class Vendors:
    """Descriptions of this machine's devices from the system and the vendors' tools.

    Each tool is run at most once in the life of this object, and only if it has such a device. It may take seconds:
    never use it while a case is measured.
    """

    def describe(self, devices: Iterable[Device]) -> tuple[Device, ...]:
        """Return the devices with their best names and all known facts; those of other kinds unchanged."""
        return tuple(self._described(device) for device in devices)

    def _described(self, device: Device) -> Device:
        try:
            description = self._description(device)
        except Exception:  # facts are never worth a run
            return device
        return replace(
            device,
            title=description.title or device.title,
            memory=device.memory or description.memory,
            facts={**device.facts, **description.facts},
        )

    def _description(self, device: Device) -> Description:
        kind = device.name.partition(":")[0]
        if kind == "cpu" and device.title == UNNAMED:  # one with a name is the fake framework's
            return self._cpu
        if kind == "mps":
            return self.metal
        if kind == "cuda":
            from mldyno.hardware import nvidia

            return nvidia.found_among(self.nvidia_cards, device.title, device.facts)
        if kind == "xpu":
            product = device.facts.get(
                "pci_product"
            )  # what all cards of it have in common; of all, where it is unknown
            alike = [card for card in self._intel if product in (None, card.facts.get("pci_product"))]
            return Description(facts=agreed(alike))
        return Description()

    @cached_property
    def _cpu(self) -> Description:
        from mldyno.hardware import apple

        description = apple.cpu(self._settings) if sys.platform == "darwin" else linux.cpu()
        return replace(description, memory=total_memory())

    @cached_property
    def _settings(self) -> dict[str, str]:
        from mldyno.hardware import apple

        return apple.settings()

    @cached_property
    def metal(self) -> Description:
        """The GPU of this Mac."""
        from mldyno.hardware import apple

        return apple.gpu(self._settings)

    @cached_property
    def nvidia_driver(self) -> Driver:
        """NVIDIA's driver, and its fault, if it has one."""
        from mldyno.hardware import nvidia

        return nvidia.driver()

    @cached_property
    def nvidia_cards(self) -> list[Description]:
        from mldyno.hardware import nvidia

        return nvidia.cards()

    @cached_property
    def _intel(self) -> list[Description]:
        return linux.intel_gpus()
