"""What this machine is, and what vendors say of its devices. Never raises: what can't be found out is unknown or None.

One file for each source: `_linux` (/proc and /sys), `_apple` (sysctl, ioreg, system_profiler), `_nvidia`
(the driver's library, nvidia-smi), `_cgroup`, `_memory`. Those that read what a tool prints are functions of its text.
The host's name is left out on purpose: records are made to be passed on. `keys` tells machines of one name apart.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mldyno import system_queries
from mldyno.keys import own_key
from mldyno.machine import _linux
from mldyno.machine._cgroup import cores as cores_allowed
from mldyno.machine._linux import cards as cards_on_bus
from mldyno.machine._memory import available_memory, resident_memory, total_memory
from mldyno.printable import name_from, printable
from mldyno.records import Device, Machine
from mldyno.units import count

__all__ = ["Vendors", "available_memory", "cards_on_bus", "cores_allowed", "describe", "resident_memory",
           "total_memory"]  # fmt: skip

if TYPE_CHECKING:
    from mldyno.machine._devices import Vendors
else:

    def __getattr__(name: str) -> object:
        if name != "Vendors":
            raise AttributeError(f"module 'mldyno.machine' has no attribute {name!r}")
        from mldyno.machine._devices import Vendors  # loaded only where there is a device to ask about

        return Vendors


def describe(devices: Iterable[Device] = ()) -> Machine:
    """The facts of this machine; MLDYNO_MACHINE gives it a name of the user's choice."""
    cpu = printable(system_queries.attempt(_cpu_name, "unknown"))
    cores = system_queries.attempt(_cores, None)
    memory = system_queries.attempt(total_memory, None)
    size = f", {round(memory / 2**30)} GB" if memory else ""
    name = os.environ.get("MLDYNO_MACHINE") or f"{cpu}, {count(cores, 'core') if cores else '? cores'}{size}"
    return Machine(
        name=name_from(name),
        system=system_queries.attempt(platform.system, "") or "unknown",
        release=system_queries.attempt(platform.release, "") or "unknown",
        arch=system_queries.attempt(platform.machine, "") or "unknown",
        cpu=cpu,
        cores=cores,
        memory=memory,
        devices=tuple(devices),
        power=system_queries.attempt(_power, "unknown"),
        virtualised=system_queries.attempt(_virtualised, None),
        low_power=system_queries.attempt(_low_power, None),
        key=own_key(),
    )


def _cpu_name() -> str:
    name = None
    if sys.platform == "darwin":
        return system_queries.ask("sysctl", "-n", "machdep.cpu.brand_string") or "unknown"
    if sys.platform == "linux":
        name = _linux.cpu_name(system_queries.read("/proc/cpuinfo"))
    return name or platform.processor() or "unknown"


def _cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _power() -> str:
    import psutil

    battery = psutil.sensors_battery()
    if battery is None:
        return "mains"
    return "mains" if battery.power_plugged else "battery"


def _virtualised() -> bool | None:
    if sys.platform == "darwin":
        answer = system_queries.ask("sysctl", "-n", "kern.hv_vmm_present")
        return answer == "1" if answer else None
    if sys.platform == "linux":
        return _linux.virtualised(system_queries.read("/proc/cpuinfo"))
    return None


POWER_MODES = ("lowpowermode", "powermode")  # the second on Macs that have a high-power mode, too; 1 is low


def _low_power() -> bool | None:
    """Whether the user or the system has asked for less power."""
    if sys.platform == "darwin":
        lines = [line.split() for line in system_queries.ask("pmset", "-g").splitlines()]
        modes = [line[1] for line in lines if len(line) > 1 and line[0] in POWER_MODES]
        return "1" in modes if modes else None
    if sys.platform == "linux":
        profile = system_queries.read("/sys/firmware/acpi/platform_profile")
        return profile == "low-power" if profile else None
    return None
