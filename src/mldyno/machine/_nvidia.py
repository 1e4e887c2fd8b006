"""NVIDIA's cards, as their driver describes them: through its library, or else through `nvidia-smi`.

Both number the cards in another order than CUDA, and CUDA_VISIBLE_DEVICES renumbers them once more.
So a device is found among them by its UUID.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence

from mldyno import tools
from mldyno.machine import _nvml
from mldyno.machine._facts import Facts, Told, agreed, known, quantity, words

# What `nvidia-smi` is asked for, under the names of the facts, each with the factor that makes it SI.
FIELDS: dict[str, tuple[str, float]] = {
    "name": ("name", 1.0), "uuid": ("uuid", 1.0), "pci_bus": ("pci.bus_id", 1.0), "driver": ("driver_version", 1.0),
    "power_limit": ("enforced.power.limit", 1.0), "clock": ("clocks.max.sm", 1e6),
    "memory_clock": ("clocks.max.memory", 1e6), "memory": ("memory.total", 2.0**20),
}  # fmt: skip
QUERY = f"--query-gpu={','.join(field for field, _ in FIELDS.values())}"
PACKAGE = "pynvml"  # of nvidia-ml-py
TEXTS = ("name", "uuid", "pci_bus", "driver")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def cards() -> list[Told]:
    """All cards of this machine; none where neither the library nor the tool answers."""
    return _of_library() or from_smi(tools.ask("nvidia-smi", QUERY, "--format=csv,noheader,nounits"))


def _of_library() -> list[Told]:
    """The library is asked by a process of its own, and only where the package for it is installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        return []
    return from_nvml(tools.ask(sys.executable or "", _nvml.__file__))


def from_nvml(text: str) -> list[Told]:
    """The cards in what `_nvml.py` prints."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [card for one in found if isinstance(one, dict) and (card := _card(one))] if isinstance(found, list) else []


def from_smi(text: str) -> list[Told]:
    """The cards in what `nvidia-smi` prints: a line each, with words in brackets where it does not know."""
    found = []
    for line in text.splitlines():
        values = line.split(", ")
        if len(values) == len(FIELDS):
            raw = {name: value if name in TEXTS else quantity(value, FIELDS[name][1])
                   for name, value in zip(FIELDS, values, strict=True)}  # fmt: skip
            found.append(_card(raw))
    return [card for card in found if card]


def _card(raw: Mapping[str, object]) -> Told | None:
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
    return Told(called(name) if name else None, int(memory) if memory else None, facts)


def _word(value: object) -> str | None:
    text = words(value)
    return None if text is None or text.startswith("[") else text


def called(name: str) -> str:
    """What NVIDIA calls a card today: NVIDIA T4, where older drivers say Tesla T4."""
    return f"NVIDIA {name.removeprefix('NVIDIA ').removeprefix('Tesla ')}"


def found_among(cards: Sequence[Told], title: str, facts: Facts) -> Told:
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
        return Told(alike[0].title, facts=agreed(alike))
    return Told(facts=known(driver=agreed(cards).get("driver")))
