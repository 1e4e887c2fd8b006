"""The CPU and GPUs as the Linux kernel describes them, in /proc and /sys.

Every file may be missing or not readable, as in containers and virtual machines: then it says nothing.
`root` is where the two lie; tests have trees of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from mldyno.machine._facts import Description, Facts, known, quantity, words
from mldyno.system_queries import read

ROOT = Path("/")
INTEL = "0x8086"  # Intel's number among the makers of PCI devices
Maker = Literal["nvidia", "amd", "intel"]
MAKERS: dict[str, Maker] = {"0x10de": "nvidia", "0x1002": "amd", INTEL: "intel"}
DISPLAY, PROCESSING = "0x03", "0x12"  # classes of PCI devices
ARC = ("0x56", "0xe2", "0x0bd")  # Intel's cards; what is built into its older CPUs no framework can use
HIGHEST_CPU_NUMBER = 1 << 16  # that is believed


# -- the CPU -------------------------------------------------------------------------------------


def cpu_name(cpuinfo: str) -> str | None:
    """What its maker calls the CPU, from /proc/cpuinfo; None where that does not say."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return words(value)
    return None


def virtualised(cpuinfo: str) -> bool | None:
    """Whether the CPU says that a hypervisor is below it, from /proc/cpuinfo; None where it has no flags."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    return "hypervisor" in flags.split() if flags else None


def numbers(text: str) -> set[int]:
    """The CPUs in a list of the kernel's, such as 0-3,8; empty where it is none."""
    cpus: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = (low, high if dash else low)
        if not all(
            end.isascii() and end.isdecimal() and len(end) < 6 and int(end) < HIGHEST_CPU_NUMBER for end in ends
        ):
            return set()
        cpus |= set(range(int(ends[0]), int(ends[1]) + 1))
    return cpus


def cpu(root: Path = ROOT) -> Description:
    """The CPU: its name, physical cores and threads, kinds of cores, highest clock, governor and power limit."""
    places = _cpus(root)
    cores = {number: _core(place) for number, place in places.items()}
    governors = {words(read(place / "cpufreq/scaling_governor")) for place in places.values()} - {None}
    clocks = [quantity(read(place / "cpufreq/cpuinfo_max_freq"), 1e3) for place in places.values()]
    facts = known(
        cores=_physical(cores.values()),
        threads=len(places) or None,
        clock=max((clock for clock in clocks if clock), default=None),
        governor=", ".join(sorted(map(str, governors))) or None,
        power_limit=_power_limit(root),
    )
    return Description(cpu_name(read(root / "proc/cpuinfo")), facts=facts | _kinds(root, cores))


def _cpus(root: Path) -> dict[int, Path]:
    """The folders of the CPUs that are switched on, by their numbers."""
    folder = root / "sys/devices/system/cpu"
    return {number: place for number in sorted(numbers(read(folder / "online")))
            if (place := folder / f"cpu{number}").is_dir()}  # fmt: skip


def _core(place: Path) -> str:
    """The threads that share a core with a CPU, as the kernel lists them: the same for all of them."""
    return read(place / "topology/core_cpus_list") or read(place / "topology/thread_siblings_list")


def _physical(cores: Iterable[str]) -> int | None:
    return len(set(cores) - {""}) or None


def _kinds(root: Path, cores: dict[int, str]) -> Facts:
    """How many cores are of which kind, on chips that have two."""
    kinds = {"performance_cores": "cpu_core", "efficiency_cores": "cpu_atom"}
    members = {kind: numbers(read(root / f"sys/devices/{place}/cpus")) for kind, place in kinds.items()}
    return known(**{kind: _physical(cores.get(cpu, "") for cpu in cpus) for kind, cpus in members.items()})


def _power_limit(root: Path) -> float | None:
    """What all packages may draw for long, in W."""
    limit = 0.0
    for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        package = zone.name.count(":") == 1 and read(zone / "name").startswith("package")
        if package and read(zone / "constraint_0_name") == "long_term":
            limit += quantity(read(zone / "constraint_0_power_limit_uw"), over=1e6) or 0.0
    return limit or None


# -- GPUs ----------------------------------------------------------------------------------------


def cards(root: Path = ROOT) -> list[tuple[Maker, str]]:
    """Makers and products of the cards on the PCI bus that could compute, whether they have a driver or not."""
    present = []
    for place in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind, maker, product = (read(place / name) for name in ("class", "vendor", "device"))
        fits = maker in MAKERS and kind.startswith((DISPLAY, PROCESSING))
        if fits and (maker != INTEL or product.startswith(ARC)):
            present.append((MAKERS[maker], product))
    return present


def intel_gpus(root: Path = ROOT) -> list[Description]:
    """Intel's GPUs, in the kernel's order: which product on which bus, its driver, highest clock and power limit."""
    cards = sorted((root / "sys/class/drm").glob("card*"))
    return [_gpu(card) for card in cards if card.name[4:].isdecimal() and read(card / "device/vendor") == INTEL]


def _gpu(card: Path) -> Description:
    clock = read(card / "gt_RP0_freq_mhz") or read(card / "device/tile0/gt0/freq0/rp0_freq")  # of i915, and of xe
    limits = (read(place) for place in sorted((card / "device/hwmon").glob("hwmon*/power1_max")))
    facts = known(
        kernel_driver=_target(card / "device/driver"),
        clock=quantity(clock, 1e6),
        power_limit=next((limit for text in limits if (limit := quantity(text, over=1e6))), None),
        pci_bus=_target(card / "device"),
        pci_product=words(read(card / "device/device")),
    )
    return Description(facts=facts)


def _target(link: Path) -> str | None:
    """The last name of what a link leads to; None where it is no link."""
    try:
        return words(os.readlink(link).rpartition("/")[2])
    except OSError:
        return None
