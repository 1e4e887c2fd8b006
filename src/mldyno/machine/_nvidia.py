"""NVIDIA's cards, as their driver describes them: through its library, or else through `nvidia-smi`.

Both number the cards in another order than CUDA, and CUDA_VISIBLE_DEVICES renumbers them once more.
So a device is found among them by its UUID. Which CUDA the driver takes stands only in the heading of
`nvidia-smi`, and why it fails only in what that prints then.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mldyno import system_queries
from mldyno.machine import _nvml
from mldyno.machine._facts import Description, Facts, agreed, known, quantity, words

# What `nvidia-smi` is asked for, under the names of the facts, each with the factor that makes it SI.
FIELDS: dict[str, tuple[str, float]] = {
    "name": ("name", 1.0), "uuid": ("uuid", 1.0), "pci_bus": ("pci.bus_id", 1.0), "driver": ("driver_version", 1.0),
    "power_limit": ("enforced.power.limit", 1.0), "clock": ("clocks.max.sm", 1e6),
    "memory_clock": ("clocks.max.memory", 1e6), "memory": ("memory.total", 2.0**20),
}  # fmt: skip
SMI = "nvidia-smi"
QUERY = f"--query-gpu={','.join(field for field, _ in FIELDS.values())}"
PACKAGE = "pynvml"  # of nvidia-ml-py
TEXTS = ("name", "uuid", "pci_bus", "driver")
KERNELS_OWN = "/proc/driver/nvidia/version"
_VERSION = re.compile(r"(?:(?:Driver|KMD) Version:|Kernel Module(?: for \S+)?)\s+(\d+(?:\.\d+)*)")  # KMD: from 610 on
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+(?:\.\d+)*)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver: its version, the newest CUDA that it takes, its own words where it fails; empty if unknown."""

    version: str = ""
    cuda: str = ""
    fault: str = ""


def driver() -> Driver:
    """The driver as `nvidia-smi` reports it; where that is missing or fails, as the kernel does."""
    if shutil.which(SMI) is None:
        return from_heading(system_queries.read(KERNELS_OWN))
    heading = system_queries.hear(SMI)
    if heading.code == 0:
        return from_heading(heading.said)
    return replace(from_heading(system_queries.read(KERNELS_OWN)), fault=_fault(heading))


def _fault(heading: system_queries.Answer) -> str:
    """Why the tool failed, in its own words if it has any."""
    if heading.code is None:
        return f"{SMI} gave no answer within {system_queries.TOOL_TIMEOUT_S:.0f} s"
    return words(heading.said.partition("\n")[0]) or f"{SMI} ended with exit code {heading.code}"


def from_heading(text: str) -> Driver:
    """The driver from the heading that `nvidia-smi` prints, or from the kernel's own file."""
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    return Driver(version.group(1) if version else "", cuda.group(1) if cuda else "")


def cards() -> list[Description]:
    """All cards of this machine; none where neither the library nor the tool answers."""
    return _of_library() or from_smi(system_queries.ask(SMI, QUERY, "--format=csv,noheader,nounits"))


def _of_library() -> list[Description]:
    """The library is asked by a process of its own, and only where the package for it is installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        return []
    return from_nvml(system_queries.ask(sys.executable or "", _nvml.__file__))


def from_nvml(text: str) -> list[Description]:
    """The cards in what `_nvml.py` prints."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return []
    rows = answer if isinstance(answer, list) else []
    return [card for row in rows if isinstance(row, dict) and (card := _card(row))]


def from_smi(text: str) -> list[Description]:
    """The cards in what `nvidia-smi` prints: a line each, with words in brackets where it does not know."""
    cards = []
    for line in text.splitlines():
        values = line.split(", ")
        if len(values) == len(FIELDS):
            raw = {name: value if name in TEXTS else quantity(value, FIELDS[name][1])
                   for name, value in zip(FIELDS, values, strict=True)}  # fmt: skip
            cards.append(_card(raw))
    return [card for card in cards if card]


def _card(raw: Mapping[str, object]) -> Description | None:
    """A card from what was said of it, in SI; None where it has no UUID, without which nothing can be made of it."""
    uuid, name, memory = words(raw.get("uuid")), words(raw.get("name")), quantity(raw.get("memory"))
    if not uuid or not _UUID.fullmatch(uuid):
        return None
    facts = known(
        driver=_word(raw.get("driver")),
        power_limit=quantity(raw.get("power_limit")),
        clock=quantity(raw.get("clock")),
        memory_clock=quantity(raw.get("memory_clock")),
        uuid=uuid,
        pci_bus=_word(raw.get("pci_bus")),
    )
    return Description(called(name) if name else None, int(memory) if memory else None, facts)


def _word(value: object) -> str | None:
    text = words(value)
    return None if text is None or text.startswith("[") else text


def called(name: str) -> str:
    """What NVIDIA calls a card today: NVIDIA T4, where older drivers say Tesla T4."""
    return f"NVIDIA {name.removeprefix('NVIDIA ').removeprefix('Tesla ')}"


def found_among(cards: Sequence[Description], title: str, facts: Facts) -> Description:
    """What the driver says of the device with this title and these facts.

    By its UUID; without one, what all cards of its name have in common. Of a part of a card, which has a
    UUID and a name of its own, only the driver is known.
    """
    uuid = str(facts.get("uuid")).lower()
    for card in cards:
        if str(card.facts["uuid"]).lower().removeprefix("gpu-") == uuid.removeprefix("gpu-"):
            return card
    alike = [card for card in cards if card.title == called(title)] if "uuid" not in facts else []
    if alike:
        return Description(alike[0].title, facts=agreed(alike))
    return Description(facts=known(driver=agreed(cards).get("driver")))
