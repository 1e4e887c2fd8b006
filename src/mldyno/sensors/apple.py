"""Apple's chips, by IOReport, without root: CPU, GPU and memory of the package (macOS, the extra `apple`)."""

from __future__ import annotations

import sys
from typing import Any

from mldyno.sensors import Found, Sensor, Surroundings, Unreadable

MILLI = 1e-3
PARTS = ("cpu_total_mj", "gpu_mj", "dram_mj", "ane_mj", "gpu_sram_mj")


class Chip(Sensor):
    """All parts of the chip that are counted, added up: they do not contain each other."""

    name, scope, method, device = "IOReport", "package", "counter", ""

    def __init__(self, monitor: Any) -> None:
        self.monitor = monitor

    def read(self) -> float:
        """Energy in J since some time."""
        try:
            counted = self.monitor.get_cumulative_energy()
        except RuntimeError as error:
            raise Unreadable(str(error)) from None
        parts = [getattr(counted, part, None) for part in PARTS]
        known = [part for part in parts if part is not None]
        if not known:
            raise Unreadable("IOReport counts nothing here")
        return float(sum(known)) * MILLI


def find(around: Surroundings) -> Found:
    """The chip, where the package that reads it is installed."""
    if sys.platform != "darwin":
        return Found()
    try:
        from zeus_apple_silicon import AppleEnergyMonitor  # type: ignore[import-not-found]
    except ImportError:
        return Found()
    chip = Chip(AppleEnergyMonitor())
    try:
        chip.read()
    except Unreadable:
        return Found()
    return Found([chip])
