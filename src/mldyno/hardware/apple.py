"""Apple's chips: facts from `sysctl`, `ioreg` and `system_profiler`, energy from IOReport or powermetrics.

`ioreg` answers at once; `system_profiler`, which takes a second or two, is asked only if `ioreg` knows no GPU. Only
root can read clocks and power limits of Apple's chips.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from contextlib import suppress
from functools import partial
from typing import Any

from mldyno import system_queries
from mldyno.hardware import (
    MILLI,
    Closed,
    Description,
    Found,
    Sensor,
    Surroundings,
    Unreadable,
    count,
    known,
    quantity,
    words,
)  # fmt: skip

LEVELS = ("performance", "efficiency")  # kinds of cores, if the system gives them no name
SETTINGS = ("machdep.cpu.brand_string", "hw.physicalcpu", "hw.logicalcpu", "hw.cpufrequency_max",
            *(f"hw.perflevel{level}.{what}" for level in range(len(LEVELS)) for what in ("name", "physicalcpu")),
            "kern.osproductversion")  # fmt: skip
PROFILER_TIMEOUT_S = 20.0  # of system_profiler
_CORES = re.compile(r'"gpu-core-count"\s*=\s*(\d{1,5})\b')
_MODEL = re.compile(r'"model"\s*=\s*<?"([^"\n]+)"')


def settings() -> dict[str, str]:
    """Return what this Mac's kernel reports of the chip and the system; unknown settings are omitted."""
    return from_sysctl(system_queries.ask("sysctl", "-i", *SETTINGS))


def from_sysctl(text: str) -> dict[str, str]:
    """Return the settings that `sysctl NAME…` prints, a line each."""
    pairs = (line.partition(": ") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def cpu(settings: dict[str, str]) -> Description:
    """Return the CPU from the settings: name, cores, threads, kinds of cores, and clock if reported."""
    cores = count(settings.get("hw.physicalcpu"))
    kinds: dict[str, int | None] = {}
    for number, usual in enumerate(LEVELS):
        name = settings.get(f"hw.perflevel{number}.name", usual).lower()
        kinds[f"{name if name.isascii() and name.isalpha() else usual}_cores"] = count(
            settings.get(f"hw.perflevel{number}.physicalcpu")
        )
    mixed = sum(1 for number in kinds.values() if number) > 1  # an Intel Mac has one kind
    facts = known(cores=cores, threads=count(settings.get("hw.logicalcpu")), **(kinds if mixed else {}))
    title = words(settings.get("machdep.cpu.brand_string"))
    if title and title.startswith("Apple") and cores:
        title = f"{title} {cores}-core CPU"
    return Description(title, facts=facts | known(clock=quantity(settings.get("hw.cpufrequency_max"))))


def gpu(settings: dict[str, str]) -> Description:
    """Return the GPU that Metal offers; its driver is that of the system's version."""
    description = from_ioreg(system_queries.ask("ioreg", "-r", "-d", "1", "-c", "AGXAccelerator"))
    if description.title is None:
        description = from_system_profiler(
            system_queries.ask("system_profiler", "SPDisplaysDataType", "-json", timeout_s=PROFILER_TIMEOUT_S)
        )
    version = words(settings.get("kern.osproductversion"))
    return Description(description.title, facts=known(driver=version and f"macOS {version}") | description.facts)


def from_ioreg(text: str) -> Description:
    """Return Apple's GPU from the output of `ioreg -c AGXAccelerator`; unknown unless there is exactly one."""
    models, cores = _MODEL.findall(text), _CORES.findall(text)
    return _named(models[0], cores[0] if cores else None) if len(models) == 1 else Description()


def from_system_profiler(text: str) -> Description:
    """Return the one GPU that `system_profiler SPDisplaysDataType -json` lists; Metal's choice of two is unknown."""
    try:
        (card,) = json.loads(text)["SPDisplaysDataType"]
        return _named(card.get("sppci_model"), card.get("sppci_cores"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Description()


def _named(model: object, cores: object) -> Description:
    """Return a GPU by Apple's name, with its number of cores: the same chip is sold with different numbers."""
    name, number = words(model), count(cores)
    if name and name.startswith("Apple"):
        name += f" {number}-core GPU" if number else " GPU"
    return Description(name, facts=known(cores=number))


PARTS = ("cpu_total_mj", "gpu_mj", "dram_mj", "ane_mj", "gpu_sram_mj")
PACKAGE, INSTALL = "zeus_apple_silicon", "pip install 'mldyno[apple]', with a Python before 3.14"
TRIAL = f"from {PACKAGE} import AppleEnergyMonitor; AppleEnergyMonitor().get_cumulative_energy()"
TRIAL_TIMEOUT_S = 8.0  # to start Python and read once
REAL_MAC = "measure on the Mac itself: a virtual machine has no counters of energy"
POWERMETRICS = "MLDYNO_POWERMETRICS"  # set to 1, it allows Apple's tool, which only root may run
AVERAGED_MS = 200
_POWER = re.compile(r"^Combined Power \(CPU \+ GPU \+ ANE\): (\d+) mW$", re.MULTILINE)


def _counted_energy(monitor: Any) -> float:
    """Return the energy in J of all parts of the chip that IOReport counts; they do not contain each other."""
    try:
        counted = monitor.get_cumulative_energy()
    except RuntimeError as error:
        raise Unreadable(str(error)) from None
    parts = [part for name in PARTS if (part := getattr(counted, name, None)) is not None]
    if not parts:
        raise Unreadable("IOReport counts nothing here")
    return float(sum(parts)) * MILLI


def find_counted_chip(around: Surroundings) -> Found:
    """Find the chip, if the package that reads it without root is installed (the extra `apple`).

    In a virtual machine the package may end its process: another process tries it first.
    """
    if sys.platform != "darwin":
        return Found()
    if importlib.util.find_spec(PACKAGE) is None:
        return Found(closed=[Closed("IOReport", "package", f"{PACKAGE} is not installed", INSTALL)])
    if system_queries.run(sys.executable, "-c", TRIAL, timeout_s=TRIAL_TIMEOUT_S).code != 0:
        return Found(closed=[Closed("IOReport", "package", f"{PACKAGE} can't read it here", REAL_MAC)])
    from zeus_apple_silicon import AppleEnergyMonitor  # type: ignore[import-not-found]

    chip = Sensor("IOReport", "package", "counter", partial(_counted_energy, AppleEnergyMonitor()))
    with suppress(Unreadable):
        chip.read()
        return Found([chip])
    return Found()


def _metered_power() -> float:
    """Return the power in W of CPU, GPU and ANE together over the last moments, from powermetrics."""
    command = ("powermetrics", "--samplers", "cpu_power,gpu_power", "-i", str(AVERAGED_MS), "-n", "1")
    power = _POWER.search(system_queries.ask(*command) or "")
    if power is None:
        raise Unreadable("powermetrics reports no power")
    return int(power.group(1)) * MILLI


def find_metered_chip(around: Surroundings) -> Found:
    """Find the chip, if the user asks for powermetrics."""
    if sys.platform != "darwin" or not os.environ.get(POWERMETRICS):
        return Found()
    if os.geteuid() != 0:
        return Found(closed=[Closed("powermetrics", "package", "only root may run it", INSTALL)])
    return Found([Sensor("powermetrics", "package", "average", _metered_power)])


SENSORS = {"apple": find_counted_chip, "powermetrics": find_metered_chip}
