"""The INA3221 of NVIDIA's Jetson boards: voltage and current of each rail (Linux, hwmon).

The rail VDD_IN, or one called alike, is what the whole board takes in; the others are parts of it, and are not added.
"""

from __future__ import annotations

import os
from pathlib import Path

from mldyno.sensors import Found, Sensor, Surroundings, number_in, text_in

DRIVER = "ina3221"
WHOLE = ("VDD_IN", "POM_5V_IN", "VIN_SYS_5V0")
MILLI = 1e-3


class Rail(Sensor):
    """Voltage times current."""

    method, scope = "sample", "system"

    def __init__(self, folder: Path, number: str, name: str) -> None:
        self.folder, self.number, self.name = folder, number, name

    def read(self) -> float:
        """Power in W."""
        volts = number_in(self.folder / f"in{self.number}_input") * MILLI
        return volts * number_in(self.folder / f"curr{self.number}_input") * MILLI


def find(around: Surroundings) -> Found:
    """The rail that feeds the board."""
    rails = []
    base = around.sysfs / "class" / "hwmon"
    for name in sorted(os.listdir(base)) if base.is_dir() else ():
        folder = base / name
        if text_in(folder / "name") != DRIVER:
            continue
        for number in ("1", "2", "3"):
            label = text_in(folder / f"in{number}_label")
            if label in WHOLE:
                rails.append(Rail(folder, number, label))
    return Found(rails)
