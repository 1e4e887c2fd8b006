"""Linux: the CPU, GPUs and control groups in /proc and /sys, and the energy counters of processors and cards.

Any file may be missing or unreadable, as in containers and virtual machines: then its facts are unknown. `root` is the
folder that holds /proc and /sys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache, partial
from glob import glob
from pathlib import Path
from typing import Literal

from mldyno.hardware import (
    Closed,
    Description,
    Found,
    Method,
    Reading,
    ReadingMeter,
    Scope,
    Sensor,
    Surroundings,
    known,
    number_in,
    quantity,
    subfolders,
    words,
)  # fmt: skip
from mldyno.records import Case, Device
from mldyno.system_queries import attempt, read

ROOT = Path("/")
INTEL = "0x8086"  # Intel's number among the makers of PCI devices
Maker = Literal["nvidia", "amd", "intel"]
MAKERS: dict[str, Maker] = {"0x10de": "nvidia", "0x1002": "amd", INTEL: "intel"}
DISPLAY, PROCESSING = "0x03", "0x12"  # classes of PCI devices
ARC = ("0x56", "0xe2", "0x0bd")  # products of Intel's cards; no framework can use the GPUs of its older CPUs
HIGHEST_CPU_NUMBER = 1 << 16


# -- the CPU -------------------------------------------------------------------------------------
def cpu_name(cpuinfo: str) -> str | None:
    """Return the maker's name of the CPU from the text of /proc/cpuinfo; None if it has none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return words(value)
    return None


def virtualised(cpuinfo: str) -> bool | None:
    """Return whether the CPU reports a hypervisor, from the text of /proc/cpuinfo; None if it has no flags."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    return "hypervisor" in flags.split() if flags else None


def numbers(text: str) -> set[int]:
    """Return the CPUs in a list of the kernel's, such as 0-3,8; nothing for any other text."""
    cpus: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = (low, high if dash else low)
        if not all(re.fullmatch("[0-9]{1,5}", end) and int(end) < HIGHEST_CPU_NUMBER for end in ends):
            return set()
        cpus |= set(range(int(ends[0]), int(ends[1]) + 1))
    return cpus


def cpu(root: Path = ROOT) -> Description:
    """Return the CPU: its name, physical cores and threads, kinds of cores, highest clock, governor and power limit."""
    folder = root / "sys/devices/system/cpu"
    online = {number: folder / f"cpu{number}" for number in sorted(numbers(read(folder / "online")))}
    places = {number: place for number, place in online.items() if place.is_dir()}
    # The kernel's list of the threads that share a core with a CPU is the same for all of them.
    cores = {number: read(place / "topology/core_cpus_list") or read(place / "topology/thread_siblings_list")
             for number, place in places.items()}  # fmt: skip
    governors = {words(read(place / "cpufreq/scaling_governor")) for place in places.values()} - {None}
    clocks = [quantity(read(place / "cpufreq/cpuinfo_max_freq"), 1e3) for place in places.values()]
    facts = known(
        cores=_distinct(cores.values()),
        threads=len(places) or None,
        clock=max((clock for clock in clocks if clock), default=None),
        governor=", ".join(sorted(map(str, governors))) or None,
        power_limit=_power_limit(root),
    )
    kinds = {"performance_cores": "cpu_core", "efficiency_cores": "cpu_atom"}  # of chips that have two
    members = {kind: numbers(read(root / f"sys/devices/{place}/cpus")) for kind, place in kinds.items()}
    facts |= known(**{kind: _distinct(cores.get(cpu, "") for cpu in cpus) for kind, cpus in members.items()})
    return Description(cpu_name(read(root / "proc/cpuinfo")), facts=facts)


def _distinct(cores: Iterable[str]) -> int | None:
    """Return the number of cores, each known by its list of threads; None if there is none."""
    return len(set(cores) - {""}) or None


def _power_limit(root: Path) -> float | None:
    """Return the long-term power limit of all packages in W."""
    limit = 0.0
    for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        package = zone.name.count(":") == 1 and read(zone / "name").startswith("package")
        if package and read(zone / "constraint_0_name") == "long_term":
            limit += quantity(read(zone / "constraint_0_power_limit_uw"), over=1e6) or 0.0
    return limit or None


# -- GPUs ----------------------------------------------------------------------------------------
def cards(root: Path = ROOT) -> list[tuple[Maker, str]]:
    """Return makers and products of the cards on the PCI bus that could compute, with a driver or without."""
    present = []
    for place in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind, maker, product = (read(place / name) for name in ("class", "vendor", "device"))
        fits = maker in MAKERS and kind.startswith((DISPLAY, PROCESSING))
        if fits and (maker != INTEL or product.startswith(ARC)):
            present.append((MAKERS[maker], product))
    return present


def intel_gpus(root: Path = ROOT) -> list[Description]:
    """Return Intel's GPUs in the kernel's order: product, bus, driver, highest clock and power limit."""
    gpus = []
    for card in sorted((root / "sys/class/drm").glob("card*")):
        if not card.name[4:].isdecimal() or read(card / "device/vendor") != INTEL:
            continue
        clock = read(card / "gt_RP0_freq_mhz") or read(card / "device/tile0/gt0/freq0/rp0_freq")  # of i915, and of xe
        limits = (read(place) for place in sorted((card / "device/hwmon").glob("hwmon*/power1_max")))
        facts = known(
            kernel_driver=_target(card / "device/driver"), clock=quantity(clock, 1e6),
            power_limit=next((limit for text in limits if (limit := quantity(text, over=1e6))), None),
            pci_bus=_target(card / "device"), pci_product=words(read(card / "device/device")),
        )  # fmt: skip
        gpus.append(Description(facts=facts))
    return gpus


def _target(link: Path) -> str | None:
    """Return the last part of the target of a link; None if it is no link."""
    return attempt(lambda: words(os.readlink(link).rpartition("/")[2]), None)


# -- control groups: what this process may use, in a container -------------------------------------

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


# Of version 2 and of version 1: the controller; the files of limit and use in B; the row of cache that can be freed.
_MEMORY = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@cache
def _cgroup_folders(root: Path, own: Path, controller: str = "") -> list[Path]:
    """Return the folders of this control group (of version 1: with a controller) and of those around it."""
    rows = [line.split(":", 2) for line in read(own).splitlines() if line.count(":") > 1]
    path = next((path for _, controllers, path in rows if controller in controllers.split(",")), "")
    place = root / controller / path.lstrip("/")
    return [place, *(above for above in place.parents if above.is_relative_to(root / controller))]


def memory_allowed() -> tuple[int | None, int | None]:
    """Return the lowest limit of memory in B of the groups up to the root, and what is left until one is reached."""
    limits, left = [], []
    for controller, most, used, freeable in _MEMORY:
        for folder in _cgroup_folders(CGROUP_ROOT, OWN_CGROUP, controller):
            limit, now = _number(folder / most), _number(folder / used)
            if limit is not None:
                limits.append(limit)
                left += [limit - now + (_number(folder / "memory.stat", freeable) or 0)] if now is not None else []
    return min(limits, default=None), min(left, default=None)


def _number(file: Path, key: str = "") -> int | None:
    """Return the number in a file, or in its row with this key; None without one."""
    match = re.search(rf"^{key and key + ' '}([0-9]+)$", read(file), re.MULTILINE)
    return int(match[1]) if match else None


def cores_allowed() -> float | None:
    """Return the cores' worth of time that this group may use: the lowest limit up to the root, of both versions."""
    limits = [read(folder / "cpu.max") for folder in _cgroup_folders(CGROUP_ROOT, OWN_CGROUP)]
    for folder in _cgroup_folders(CGROUP_ROOT, OWN_CGROUP, "cpu"):
        limits.append(" ".join(read(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")))
    return min((cores for limit in limits if (cores := _ratio(limit)) is not None), default=None)


def _ratio(text: str) -> float | None:
    """Return cores from a quota and its period, such as `150000 100000`; None for `max`, -1 and anything else."""
    match = re.fullmatch(r"([0-9]+)\s+([0-9]+)", text.strip())
    return int(match[1]) / int(match[2]) if match and int(match[2]) else None


# -- energy --------------------------------------------------------------------------------------
def _micro(path: Path) -> float:
    """Return a number in J or W, from a file in microjoules or microwatts."""
    return number_in(path) * 1e-6


def cure(subsystem: str, file: str, rules: str, condition: str = "") -> str:
    """Return how root opens a file of a subsystem to a group, now and after each boot."""
    opened = f'RUN+="/bin/chgrp power %S%p/{file}", RUN+="/bin/chmod g+r %S%p/{file}"'
    rule = f'SUBSYSTEM=="{subsystem}", ACTION=="add", {condition}{opened}'
    return (
        "as root: groupadd -f power; usermod -aG power YOU; "
        f"echo '{rule}' > /etc/udev/rules.d/70-{rules}.rules; "
        f"udevadm trigger --action=add --subsystem-match={subsystem}; log in again"
    )


# RAPL, the counters of Intel's and AMD's processors (powercap). Domains nest: a package contains its cores and its
# graphics, psys contains the packages; memory is separate. They are never added up across levels. What
# `intel-rapl-mmio` shows is a package of `intel-rapl` again, and is skipped.
RAPL = "intel-rapl"  # of AMD's too
RAPL_SCOPES: dict[str, Scope] = {"package": "package", "core": "cores", "dram": "memory", "psys": "system"}
RAPL_CURE = cure("powercap", "energy_uj", "rapl")
RAPL_PRICE = "programs of that group can watch the processor: such counters have revealed keys (CVE-2020-8694)"


def find_rapl(around: Surroundings) -> Found:
    """Find all domains; only root may be allowed to read them."""
    sensors, closed = [], []
    for zone in subfolders(around.sysfs / "class" / "powercap"):  # packages before what they contain
        if not zone.name.startswith(f"{RAPL}:"):
            continue
        name, counter = read(zone / "name"), zone / "energy_uj"
        scope = RAPL_SCOPES.get(name.partition("-")[0])
        if scope is None or not counter.exists():  # uncore: graphics, within the package
            continue
        if not os.access(counter, os.R_OK):
            closed.append(Closed(name, scope, "only root may read it", RAPL_CURE, RAPL_PRICE))
            continue
        largest = quantity(read(zone / "max_energy_range_uj"), over=1e6)
        sensors.append(Sensor(name, scope, "counter", partial(_micro, counter), "cpu", largest))
    return Found(sensors, closed)


# Cards (hwmon): amdgpu has `power1_average`; i915 and xe have `energy1_input`. Which card it is follows from its bus.
CARD_DRIVERS = ("amdgpu", "i915", "xe")
CARD_PRICE = "programs of that group can watch the card"
CARD_FILES: tuple[tuple[str, Method], ...] = (
    ("energy1_input", "counter"), ("power1_average", "average"), ("power1_input", "sample"),
)  # fmt: skip


def find_cards(around: Surroundings) -> Found:
    """Find the best sensor of each card."""
    sensors, closed = [], []
    for folder in subfolders(around.sysfs / "class" / "hwmon"):
        driver = read(folder / "name")
        if driver not in CARD_DRIVERS:
            continue
        bus = os.path.basename(os.path.realpath(folder / "device"))
        device = next((each.name for each in around.devices if str(each.facts.get("pci_bus") or "-") in bus), "")
        path, method = next(
            ((folder / name, how) for name, how in CARD_FILES if (folder / name).exists()), (None, None)
        )
        if path is None or method is None:
            continue
        if os.access(path, os.R_OK):
            sensors.append(Sensor(driver, "board", method, partial(_micro, path), device))
        else:
            opened = cure("hwmon", path.name, f"{driver}-energy", f'ATTR{{name}}=="{driver}", ')
            closed.append(Closed(driver, "board", "only root may read it", opened, CARD_PRICE))
    return Found(sensors, closed)


# -- AMD's cards -----------------------------------------------------------------------------------

# The kernel shows a report of the card's firmware as one block of bytes. Only the layouts of cards since 2020 are
# known. With several cards it is unknown which one the case uses, and nothing is read.
AMD_METRICS = "/sys/class/drm/card*/device/gpu_metrics"
AMD_LAYOUTS = ((1, 1), (1, 2), (1, 3))  # format and content, as in the header of the block
THROTTLE_STATUS = slice(68, 72)  # in all of these: a bit for each reason


def held_back(block: bytes) -> bool | None:
    """Return whether any reason to hold the clock down is set; None if the layout is unknown."""
    if len(block) < THROTTLE_STATUS.stop or (block[2], block[3]) not in AMD_LAYOUTS:
        return None
    return any(block[THROTTLE_STATUS])


class Amd(ReadingMeter):
    """Observe in how many windows the driver held the GPU's clock down, for heat, power or current."""

    def readings(self, case: Case, device: Device) -> list[Reading]:
        paths = [Path(path) for path in glob(AMD_METRICS)] if device.name.startswith("cuda") else []

        def read() -> float | None:
            return attempt(lambda: held_back(paths[0].read_bytes()), None)

        return [Reading("gpu_held_back", "1", "mean", read)] if len(paths) == 1 and read() is not None else []


METERS = (Amd,)
SENSORS = {"powercap": find_rapl, "hwmon": find_cards}
