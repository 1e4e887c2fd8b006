"""What this machine is. Never raises: what can't be found out is 'unknown' or None.

The host's name is left out on purpose: records are made to be passed on.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from mldyno.records import Device, Machine

T = TypeVar("T")


def describe(devices: Iterable[Device] = ()) -> Machine:
    """The facts of this machine; MLDYNO_MACHINE gives it a name of the user's choice."""
    cpu = _known(_cpu_name, "unknown")
    cores = _known(_cores, None)
    memory = _known(_memory, None)
    size = f", {round(memory / 2**30)} GB" if memory else ""
    name = os.environ.get("MLDYNO_MACHINE") or f"{cpu}, {cores or '?'} cores{size}"
    return Machine(
        name=name,
        system=_known(platform.system, "") or "unknown",
        release=_known(platform.release, "") or "unknown",
        arch=_known(platform.machine, "") or "unknown",
        cpu=cpu,
        cores=cores,
        memory=memory,
        devices=tuple(devices),
        power=_known(_power, "unknown"),
        virtualised=_known(_virtualised, None),
        low_power=_known(_low_power, None),
    )


def _known(find: Callable[[], T], otherwise: T) -> T:
    try:
        return find()
    except Exception:
        return otherwise


def _ask(*command: str) -> str:
    """What a system tool prints; empty where it is missing, slow or fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=5, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return ""


def _cpu_name() -> str:
    if sys.platform == "darwin":
        return _ask("sysctl", "-n", "machdep.cpu.brand_string") or "unknown"
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and value.strip():
                return " ".join(value.split())
    return platform.processor() or "unknown"


def _cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory() -> int | None:
    import psutil

    total = int(psutil.virtual_memory().total)
    limit = _cgroup_number("memory.max")
    return min(total, limit) if limit else total


def _power() -> str:
    import psutil

    battery = psutil.sensors_battery()
    if battery is None:
        return "mains"
    return "mains" if battery.power_plugged else "battery"


def _virtualised() -> bool | None:
    if sys.platform == "darwin":
        answer = _ask("sysctl", "-n", "kern.hv_vmm_present")
        return answer == "1" if answer else None
    if sys.platform == "linux":
        flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
        return "hypervisor" in flags.split() if flags else None
    return None


def _low_power() -> bool | None:
    """Whether the user or the system has asked for less power."""
    if sys.platform == "darwin":
        lines = [line.split() for line in _ask("pmset", "-g").splitlines() if "lowpowermode" in line]
        return lines[0][-1] == "1" if lines else None
    if sys.platform == "linux":
        with suppress(OSError):
            return Path("/sys/firmware/acpi/platform_profile").read_text().strip() == "low-power"
    return None


def _cgroup_number(name: str) -> int | None:
    """A number of this process's memory control group (version 2); None where there is no limit."""
    with suppress(OSError, ValueError):
        place = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2].lstrip("/")
        return int((Path("/sys/fs/cgroup") / place / name).read_text())
    return None


def available_memory() -> int | None:
    """Memory in B that can still be taken before the machine, or its container, swaps or kills."""
    free = _known(_free, None)
    limit, used = _cgroup_number("memory.max"), _cgroup_number("memory.current")
    if limit is not None and used is not None:
        left = limit - used + (_cgroup_cache() or 0)
        return left if free is None else min(free, left)
    return free


def _free() -> int | None:
    if sys.platform == "linux":  # a plain read: the watchdog asks a few times a second
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    import psutil

    return int(psutil.virtual_memory().available)


def _cgroup_cache() -> int | None:
    """File cache in B that the container can give back."""
    with suppress(OSError, ValueError, StopIteration):
        place = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2].lstrip("/")
        lines = (Path("/sys/fs/cgroup") / place / "memory.stat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("inactive_file ")))
    return None


def resident_memory(pid: int) -> int | None:
    """Resident memory in B of a process; None where it is gone or can't be seen."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return None
    import psutil

    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return None
