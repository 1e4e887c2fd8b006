"""NVIDIA's cards: facts from `nvidia-smi`, throttling and energy from the driver's library, and Jetson boards.

`nvidia-smi` numbers cards in another order than CUDA, and CUDA_VISIBLE_DEVICES renumbers them again, so a device is
identified by its UUID. Only the heading of `nvidia-smi` has the newest CUDA that the driver supports, and only its
output says why a driver fails. The library is called by ctypes, since a worker has no packages.
"""

from __future__ import annotations

import ctypes
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mldyno import system_queries
from mldyno.hardware import (
    MILLI,
    Closed,
    Description,
    Facts,
    Found,
    Method,
    Reading,
    ReadingMeter,
    Sensor,
    Surroundings,
    Unreadable,
    agreed,
    known,
    number_in,
    quantity,
    subfolders,
    words,
)  # fmt: skip
from mldyno.records import Case, Device

# The fields of `nvidia-smi` by the names of the facts, each with the factor that makes it SI.
FIELDS: dict[str, tuple[str, float]] = {
    "name": ("name", 1.0), "uuid": ("uuid", 1.0), "pci_bus": ("pci.bus_id", 1.0), "driver": ("driver_version", 1.0),
    "power_limit": ("enforced.power.limit", 1.0), "clock": ("clocks.max.sm", 1e6),
    "memory_clock": ("clocks.max.memory", 1e6), "memory": ("memory.total", 2.0**20),
}  # fmt: skip
SMI = "nvidia-smi"
QUERY = f"--query-gpu={','.join(field for field, _ in FIELDS.values())}"
TEXTS = ("name", "uuid", "pci_bus", "driver")
KERNELS_OWN = "/proc/driver/nvidia/version"
_VERSION = re.compile(r"(?:(?:Driver|KMD) Version:|Kernel Module(?: for \S+)?)\s+(\d+(?:\.\d+)*)")  # KMD: from 610 on
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+(?:\.\d+)*)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver: its version, the newest CUDA that it supports, and its message if it fails; empty if unknown."""

    version: str = ""
    cuda: str = ""
    fault: str = ""


def driver() -> Driver:
    """Return the driver as `nvidia-smi` reports it; if that is missing or fails, as the kernel does."""
    if shutil.which(SMI) is None:
        return from_heading(system_queries.read(KERNELS_OWN))
    heading = system_queries.run(SMI)
    if heading.code == 0:
        return from_heading(heading.output)
    fault = f"{SMI} gave no answer within {system_queries.TOOL_TIMEOUT_S:.0f} s"
    if heading.code is not None:
        fault = words(heading.output.partition("\n")[0]) or f"{SMI} ended with exit code {heading.code}"
    return replace(from_heading(system_queries.read(KERNELS_OWN)), fault=fault)


def from_heading(text: str) -> Driver:
    """Return the driver from the heading of `nvidia-smi`, or from the kernel's file."""
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    return Driver(version.group(1) if version else "", cuda.group(1) if cuda else "")


def cards() -> list[Description]:
    """Return all cards of this machine; none if `nvidia-smi` does not answer."""
    return from_smi(system_queries.ask(SMI, QUERY, "--format=csv,noheader,nounits"))


def from_smi(text: str) -> list[Description]:
    """Return the cards in the output of `nvidia-smi`: a line each, with words in brackets for unknown values."""
    cards = []
    for line in text.splitlines():
        values = line.split(", ")
        if len(values) != len(FIELDS):
            continue
        texts = {name: words(value) for name, value in zip(FIELDS, values, strict=True) if name in TEXTS}
        numbers = {name: quantity(value, FIELDS[name][1])
                   for name, value in zip(FIELDS, values, strict=True) if name not in TEXTS}  # fmt: skip
        memory, name, uuid = numbers.pop("memory"), texts.pop("name"), texts["uuid"]
        if uuid and _UUID.fullmatch(uuid):  # which identifies the card
            named = {name: text for name, text in texts.items() if text and not text.startswith("[")}
            facts = known(**named, **numbers)
            cards.append(Description(current_name(name) if name else None, int(memory) if memory else None, facts))
    return cards


def current_name(name: str) -> str:
    """Return the current name of a card: NVIDIA T4 for the Tesla T4 of older drivers."""
    return f"NVIDIA {name.removeprefix('NVIDIA ').removeprefix('Tesla ')}"


def found_among(cards: Sequence[Description], title: str, facts: Facts) -> Description:
    """Return what the driver reports of the device with this title and these facts.

    It is identified by its UUID; without one, return what all cards of its name have in common. A part of a card has
    another UUID and name: only its driver is known.
    """
    uuid = str(facts.get("uuid")).lower()
    for card in cards:
        if str(card.facts["uuid"]).lower().removeprefix("gpu-") == uuid.removeprefix("gpu-"):
            return card
    alike = [card for card in cards if card.title == current_name(title)] if "uuid" not in facts else []
    if alike:
        return Description(alike[0].title, facts=agreed(alike))
    return Description(facts=known(driver=agreed(cards).get("driver")))


# -- the driver's library ------------------------------------------------------------------------

LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
# Metrics of the time that a limit was active, with the library's numbers of its kinds.
# Power, and the board's limit of current; heat. What limits a card in good health at its highest clock, such as its
# voltage (reliability, 5), is neither.
LIMITS = {"power_limit_time": (0, 3), "thermal_limit_time": (1,)}
SM_CLOCK = 1
MIG_ENABLED = 1
DONE = 0
WHOLE_CARD = "measure energy on a whole card: sudo nvidia-smi -mig 0, while nothing else uses it"


def load() -> Any:
    """Return NVIDIA's library, initialised; None if there is none."""
    for name in LIBRARIES:
        with suppress(OSError):
            library = ctypes.CDLL(name)
            return library if library.nvmlInit_v2() == DONE else None
    return None


@dataclass(frozen=True)
class Card:
    """The library's handle of a card, and whether the device that was asked for is only a part of it (MIG)."""

    handle: Any
    part: bool


def open_card(library: Any, device: Device) -> Card | None:
    """Return the card of a CUDA device, by the device's UUID; None if the library has none.

    CUDA writes a UUID without the prefix that says whether it is that of a card or of a part. The library has clocks,
    limits and energy of whole cards only.
    """
    uuid, handle, card = str(device.facts.get("uuid") or ""), ctypes.c_void_p(), ctypes.c_void_p()
    if library is None or not uuid or not device.name.startswith("cuda"):
        return None
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    if library.nvmlDeviceGetHandleByUUID(f"GPU-{bare}".encode(), ctypes.byref(handle)) == DONE:
        return Card(handle, _is_partitioned(library, handle))
    if library.nvmlDeviceGetHandleByUUID(f"MIG-{bare}".encode(), ctypes.byref(handle)) != DONE:
        return None
    library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle, ctypes.byref(card))
    return Card(card, True)


def _is_partitioned(library: Any, handle: Any) -> bool:
    """Return whether CUDA sees only parts of a card, whatever UUID it gives them."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    with suppress(AttributeError):  # a driver from before there were parts
        done = library.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending)) == DONE
        return done and current.value == MIG_ENABLED
    return False


class Violation(ctypes.Structure):
    """The total time in ns that a limit has held the clock down, at a time in µs."""

    _fields_ = (("reference", ctypes.c_ulonglong), ("violation", ctypes.c_ulonglong))


def _limited(library: Any, card: Any, kinds: Sequence[int]) -> float | None:
    """Return the longest time in s that any of these limits has held the clock down; None if not counted."""
    times, held = list[float](), Violation()
    for kind in kinds:
        if library.nvmlDeviceGetViolationStatus(card, kind, ctypes.byref(held)) == DONE:
            times.append(held.violation / 1e9)
    return max(times, default=None)


def _clock(library: Any, card: Any) -> float | None:
    clock = ctypes.c_uint()
    done = library.nvmlDeviceGetClockInfo(card, SM_CLOCK, ctypes.byref(clock)) == DONE
    return clock.value * 1e6 if done else None  # from MHz


class Nvidia(ReadingMeter):
    """Read the time that the driver held the case's GPU below its clocks, for heat or power, and the clock meanwhile.

    The driver counts the time for each card: what the counters gain between start and end belongs to the case.
    """

    def readings(self, case: Case, device: Device) -> list[Reading]:
        library = load() if device.name.startswith("cuda") and device.facts.get("uuid") else None
        card = open_card(library, device)
        if card is None:
            return []
        read = partial(_limited, library, card.handle)
        limits = [Reading(name, "s", "gain", partial(read, kinds)) for name, kinds in LIMITS.items()]
        return [*limits, Reading("gpu_clock", "1/s", "end of a window", partial(_clock, library, card.handle))]


def _energy_or_power(library: Any, card: Any, method: Method) -> float:
    """Return the driver's counter of energy in J, or its reading of power in W."""
    value = ctypes.c_ulonglong() if method == "counter" else ctypes.c_uint()
    name = "nvmlDeviceGetTotalEnergyConsumption" if method == "counter" else "nvmlDeviceGetPowerUsage"
    code = getattr(library, name)(card, ctypes.byref(value))
    if code != DONE:
        raise Unreadable(f"{name}: error {code}")
    return value.value * MILLI


def find_cards(around: Surroundings) -> Found:
    """Find the best sensor of each card that the framework sees: its counter, or power for cards before Volta.

    The power of some cards covers a quarter of the time only: it is a sample, whatever it claims.
    """
    devices = [device for device in around.devices if device.facts.get("uuid") and device.name.startswith("cuda")]
    library = load() if devices else None
    sensors, closed = [], []
    for device in devices:
        card = open_card(library, device)
        if card is None:
            continue
        if card.part:
            reason = f"{device.name} is a part of a card (MIG), and NVIDIA's driver counts the energy of whole cards"
            closed.append(Closed("NVML", "board", reason, WHOLE_CARD))
            continue
        names: dict[Method, str] = {"counter": "NVML total energy", "sample": "NVML power"}
        for method, name in names.items():
            read = partial(_energy_or_power, library, card.handle, method)
            with suppress(Unreadable, AttributeError):
                read()
                sensors.append(Sensor(name, "board", method, read, device.name))
                break
    return Found(sensors, closed)


# -- Jetson boards -------------------------------------------------------------------------------

INA = "ina3221"
WHOLE_BOARD = ("VDD_IN", "POM_5V_IN", "VIN_SYS_5V0")  # the other rails are parts of it, and are not added


def _rail(folder: Path, number: str) -> float:
    """Return the power of a rail in W: voltage times current, from the board's INA3221 (Linux, hwmon)."""
    return number_in(folder / f"in{number}_input") * MILLI * number_in(folder / f"curr{number}_input") * MILLI


def find_rails(around: Surroundings) -> Found:
    """Find the rail that feeds the board."""
    rails = [
        Sensor(label, "system", "sample", partial(_rail, folder, number))
        for folder in subfolders(around.sysfs / "class" / "hwmon")
        if system_queries.read(folder / "name") == INA
        for number in ("1", "2", "3")
        if (label := system_queries.read(folder / f"in{number}_label")) in WHOLE_BOARD
    ]
    return Found(rails)


METERS = (Nvidia,)
SENSORS = {"nvml": find_cards, "jetson": find_rails}
