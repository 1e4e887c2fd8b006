"""A Mac's chip, as `sysctl`, `ioreg` and `system_profiler` describe it.

`ioreg` answers at once and is asked first; `system_profiler`, which takes a second or two, only where
the other knows no GPU. Clocks and power limits of Apple's chips can't be read without being root.
"""

from __future__ import annotations

import json
import re

from mldyno import system_queries
from mldyno.machine._facts import Told, count, known, quantity, words

LEVELS = ("performance", "efficiency")  # kinds of cores, where the system numbers them without a name
SETTINGS = ("machdep.cpu.brand_string", "hw.physicalcpu", "hw.logicalcpu", "hw.cpufrequency_max",
            *(f"hw.perflevel{level}.{what}" for level in range(len(LEVELS)) for what in ("name", "physicalcpu")),
            "kern.osproductversion")  # fmt: skip
SLOW = 20.0  # s for system_profiler
_CORES = re.compile(r'"gpu-core-count"\s*=\s*(\d{1,5})\b')
_MODEL = re.compile(r'"model"\s*=\s*<?"([^"\n]+)"')


def settings() -> dict[str, str]:
    """What this Mac's kernel says of the chip and the system; settings that it does not have are left out."""
    return from_sysctl(system_queries.ask("sysctl", "-i", *SETTINGS))


def from_sysctl(text: str) -> dict[str, str]:
    """The settings that `sysctl NAME…` prints, a line each."""
    pairs = (line.partition(": ") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def cpu(found: dict[str, str]) -> Told:
    """The CPU, from the settings: its name, cores, threads, kinds of cores, and the clock where the system tells it."""
    cores = count(found.get("hw.physicalcpu"))
    kinds: dict[str, int | None] = {}
    for number, usual in enumerate(LEVELS):
        name = found.get(f"hw.perflevel{number}.name", usual).lower()
        kinds[f"{name if name.isascii() and name.isalpha() else usual}_cores"] = count(
            found.get(f"hw.perflevel{number}.physicalcpu")
        )
    several = sum(1 for number in kinds.values() if number) > 1  # an Intel Mac has one kind
    facts = known(cores=cores, threads=count(found.get("hw.logicalcpu")), **(kinds if several else {}))
    title = words(found.get("machdep.cpu.brand_string"))
    if title and title.startswith("Apple") and cores:
        title = f"{title} {cores}-core CPU"
    return Told(title, facts=facts | known(clock=quantity(found.get("hw.cpufrequency_max"))))


def gpu(found: dict[str, str]) -> Told:
    """The GPU that Metal offers; `found` are the settings, for the version of the system that brings its driver."""
    told = from_ioreg(system_queries.ask("ioreg", "-r", "-d", "1", "-c", "AGXAccelerator"))
    if told.title is None:
        told = from_system_profiler(system_queries.ask("system_profiler", "SPDisplaysDataType", "-json", patience=SLOW))
    version = words(found.get("kern.osproductversion"))
    return Told(told.title, facts=known(driver=version and f"macOS {version}") | told.facts)


def from_ioreg(text: str) -> Told:
    """The GPU of Apple's own that `ioreg -c AGXAccelerator` prints; unknown where there is not exactly one."""
    models, cores = _MODEL.findall(text), _CORES.findall(text)
    return _named(models[0], cores[0] if cores else None) if len(models) == 1 else Told()


def from_system_profiler(text: str) -> Told:
    """The one GPU that `system_profiler SPDisplaysDataType -json` lists; of several nobody says which Metal takes."""
    try:
        (card,) = json.loads(text)["SPDisplaysDataType"]
        return _named(card.get("sppci_model"), card.get("sppci_cores"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Told()


def _named(model: object, cores: object) -> Told:
    """A GPU as Apple calls it: with its cores, since the same chip is sold with several numbers of them."""
    name, number = words(model), count(cores)
    if name and name.startswith("Apple"):
        name += f" {number}-core GPU" if number else " GPU"
    return Told(name, facts=known(cores=number))
