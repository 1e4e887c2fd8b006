"""NVIDIA's cards: the driver's counter of energy, or its reading of power where a card has none (before Volta).

Some cards' power is a look of a quarter of the time: it is a sample, whatever it says. Asked through NVIDIA's library
by ctypes, since a worker has no packages.
"""

from __future__ import annotations

import ctypes
from typing import Any

from mldyno.meters.nvidia import DONE, load
from mldyno.sensors import Found, Method, Sensor, Surroundings, Unreadable

MILLI = 1e-3


class Card(Sensor):
    """One card, by its UUID."""

    scope = "board"

    def __init__(self, library: Any, handle: Any, device: str, method: Method) -> None:
        self.library, self.handle, self.device, self.method = library, handle, device, method
        self.name = "NVML total energy" if method == "counter" else "NVML power"

    def read(self) -> float:
        """Energy in J since the driver was loaded, or power in W."""
        value = ctypes.c_ulonglong() if self.method == "counter" else ctypes.c_uint()
        ask = "nvmlDeviceGetTotalEnergyConsumption" if self.method == "counter" else "nvmlDeviceGetPowerUsage"
        code = getattr(self.library, ask)(self.handle, ctypes.byref(value))
        if code != DONE:
            raise Unreadable(f"{ask}: error {code}")
        return value.value * MILLI


def find(around: Surroundings) -> Found:
    """The best sensor of each card that the framework sees."""
    cards = [device for device in around.devices if device.facts.get("uuid") and device.name.startswith("cuda")]
    library = load() if cards else None
    if library is None:
        return Found()
    sensors = []
    for device in cards:
        uuid, handle = str(device.facts["uuid"]), ctypes.c_void_p()
        full = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        if library.nvmlDeviceGetHandleByUUID(full.encode(), ctypes.byref(handle)) != DONE:
            continue
        methods: tuple[Method, ...] = ("counter", "sample")
        for method in methods:
            card = Card(library, handle, device.name, method)
            try:
                card.read()
            except (Unreadable, AttributeError):
                continue
            sensors.append(card)
            break
    return Found(sensors)
