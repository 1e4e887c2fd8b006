"""A laptop's battery while it discharges: what the whole machine takes (Linux).

Its charge counts in steps of some J to 100 J, so its power is taken, which most batteries renew every few seconds.
"""

from __future__ import annotations

import os
from pathlib import Path

from mldyno.sensors import Found, Sensor, Surroundings, Unreadable, number_in, text_in

MICRO = 1e-6


class Battery(Sensor):
    """Its power, or voltage times current."""

    scope, method, every_s = "system", "average", 1.0

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name

    def read(self) -> float:
        """Power in W; while it is charged, nobody knows what the machine takes."""
        if text_in(self.folder / "status") != "Discharging":
            raise Unreadable("the battery is not discharging")
        if (self.folder / "power_now").exists():
            return number_in(self.folder / "power_now") * MICRO
        return number_in(self.folder / "voltage_now") * MICRO * number_in(self.folder / "current_now") * MICRO


def find(around: Surroundings) -> Found:
    """Batteries that discharge now."""
    base = around.sysfs / "class" / "power_supply"
    found = []
    for name in sorted(os.listdir(base)) if base.is_dir() else ():
        battery = Battery(base / name)
        if text_in(base / name / "type") == "Battery":
            try:
                battery.read()
            except Unreadable:
                continue
            found.append(battery)
    return Found(found)
