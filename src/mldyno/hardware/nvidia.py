"""NVIDIA's cards: facts from `nvidia-smi`, throttling and energy from the driver's library, and Jetson boards.

`nvidia-smi` numbers cards in another order than CUDA, and CUDA_VISIBLE_DEVICES renumbers them once more, so a device is
found by its UUID. The newest CUDA that the driver takes is only in the heading of `nvidia-smi`, and why the driver
fails only in what that prints then. The library is called by ctypes, since a worker has no packages.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mldyno import system_queries
from mldyno.hardware import (
    Description,
    Facts,
    Found,
    Meter,
    Method,
    Sensor,
    Surroundings,
    Unreadable,
    agreed,
    known,
    number_in,
    quantity,
    text_in,
    words,
)  # fmt: skip
from mldyno.records import Case, Device, Series

# What `nvidia-smi` is asked for, under the names of the facts, each with the factor that makes it SI.
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
    """Return all cards of this machine; none where `nvidia-smi` does not answer."""
    return from_smi(system_queries.ask(SMI, QUERY, "--format=csv,noheader,nounits"))


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


# -- the driver's library ------------------------------------------------------------------------

LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
# Kinds of limits, as the library numbers them, by the series that has their time.
LIMITS = {"power_limit_time": (0, 3), "thermal_limit_time": (1, 5)}  # power, board; heat, reliability
SM_CLOCK = 1
DONE = 0
MILLI = 1e-3


def load() -> Any:
    """Return NVIDIA's library, initialised; None where there is none."""
    for name in LIBRARIES:
        with suppress(OSError):
            library = ctypes.CDLL(name)
            return library if library.nvmlInit_v2() == DONE else None
    return None


def open_card(library: Any, device: Device) -> Any:
    """Return the library's handle of a CUDA device, by its UUID; None where it has none."""
    uuid, handle = str(device.facts.get("uuid") or ""), ctypes.c_void_p()
    if library is None or not uuid or not device.name.startswith("cuda"):
        return None
    full = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return handle if library.nvmlDeviceGetHandleByUUID(full.encode(), ctypes.byref(handle)) == DONE else None


class Violation(ctypes.Structure):
    """How long a limit has held the clock down, in ns, at a time in µs."""

    _fields_ = (("reference", ctypes.c_ulonglong), ("violation", ctypes.c_ulonglong))


class Nvidia(Meter):
    """Time that the driver held the case's own GPU below its clocks, for heat or power, and the clock meanwhile.

    The driver counts the time for each card: what the counters gain between start and end belongs to the case.
    """

    def start(self, case: Case, device: Device) -> bool:
        self._library: Any = load() if device.name.startswith("cuda") and device.facts.get("uuid") else None
        self._card = open_card(self._library, device)
        if self._card is None:
            return False
        self._before = self._limited()
        self._clocks: list[float] = []
        return True

    def end_window(self) -> None:
        clock = ctypes.c_uint()
        if self._library.nvmlDeviceGetClockInfo(self._card, SM_CLOCK, ctypes.byref(clock)) == DONE:
            self._clocks.append(clock.value * 1e6)  # from MHz

    def stop(self) -> list[Series]:
        after = self._limited()
        series = [
            Series(name, "s", (max(0, after[name] - before) / 1e9,), stage="process")
            for name, before in self._before.items()
            if name in after
        ]
        return series + ([Series("gpu_clock", "1/s", tuple(self._clocks), stage="window")] if self._clocks else [])

    def _limited(self) -> dict[str, int]:
        """Return the longest time in ns that any limit of a kind has held so far; kinds not counted are omitted."""
        times: dict[str, int] = {}
        for name, kinds in LIMITS.items():
            for kind in kinds:
                held = Violation()
                if self._library.nvmlDeviceGetViolationStatus(self._card, kind, ctypes.byref(held)) == DONE:
                    times[name] = max(times.get(name, 0), int(held.violation))
        return times


class Card(Sensor):
    """The driver's counter of energy, or its reading of power where a card has no counter (before Volta).

    The power of some cards covers a quarter of the time only: it is a sample, whatever it claims.
    """

    scope = "board"

    def __init__(self, library: Any, handle: Any, device: str, method: Method) -> None:
        self.library, self.handle, self.device, self.method = library, handle, device, method
        self.name = "NVML total energy" if method == "counter" else "NVML power"

    def read(self) -> float:
        value = ctypes.c_ulonglong() if self.method == "counter" else ctypes.c_uint()
        ask = "nvmlDeviceGetTotalEnergyConsumption" if self.method == "counter" else "nvmlDeviceGetPowerUsage"
        code = getattr(self.library, ask)(self.handle, ctypes.byref(value))
        if code != DONE:
            raise Unreadable(f"{ask}: error {code}")
        return value.value * MILLI


def find_cards(around: Surroundings) -> Found:
    """Find the best sensor of each card that the framework sees."""
    devices = [device for device in around.devices if device.facts.get("uuid") and device.name.startswith("cuda")]
    library = load() if devices else None
    sensors = []
    for device in devices:
        handle = open_card(library, device)
        methods: tuple[Method, ...] = ("counter", "sample") if handle is not None else ()
        for method in methods:
            card = Card(library, handle, device.name, method)
            with suppress(Unreadable, AttributeError):
                card.read()
                sensors.append(card)
                break
    return Found(sensors)


# -- Jetson boards -------------------------------------------------------------------------------

INA = "ina3221"
WHOLE_BOARD = ("VDD_IN", "POM_5V_IN", "VIN_SYS_5V0")  # the other rails are parts of it, and are not added


class Rail(Sensor):
    """Voltage times current of a rail, from the board's INA3221 (Linux, hwmon)."""

    method, scope = "sample", "system"

    def __init__(self, folder: Path, number: str, name: str) -> None:
        self.folder, self.number, self.name = folder, number, name

    def read(self) -> float:
        volts = number_in(self.folder / f"in{self.number}_input") * MILLI
        return volts * number_in(self.folder / f"curr{self.number}_input") * MILLI


def find_rails(around: Surroundings) -> Found:
    """Find the rail that feeds the board."""
    rails = []
    base = around.sysfs / "class" / "hwmon"
    for name in sorted(os.listdir(base)) if base.is_dir() else ():
        folder = base / name
        if text_in(folder / "name") != INA:
            continue
        for number in ("1", "2", "3"):
            label = text_in(folder / f"in{number}_label")
            if label in WHOLE_BOARD:
                rails.append(Rail(folder, number, label))
    return Found(rails)


METERS = (Nvidia,)
SENSORS = {"nvml": find_cards, "jetson": find_rails}
