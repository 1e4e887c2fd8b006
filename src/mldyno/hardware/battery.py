"""A laptop's battery while it discharges: what the whole machine takes (Linux, macOS).

Its charge counts in steps of some J to 100 J, so its power is taken, which most batteries renew every few seconds.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mldyno.hardware import Found, Sensor, Surroundings, Unreadable, number_in, text_in
from mldyno.system_queries import ask

MICRO, MILLI = 1e-6, 1e-3
_PROPERTY = re.compile(r'"(Voltage|InstantAmperage|ExternalConnected)" = (\w+)')
_WRAP = 1 << 64  # a current that flows out is negative, and shown as if it had no sign


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


class MacBattery(Sensor):
    """A Mac's, as the system's registry shows it: mV and mA."""

    name, scope, method, every_s = "AppleSmartBattery", "system", "average", 1.0

    def read(self) -> float:
        """Power in W, on the same terms."""
        said = dict(_PROPERTY.findall(ask("ioreg", "-rn", "AppleSmartBattery")))
        if said.get("ExternalConnected") != "No":
            raise Unreadable("the battery is not discharging")
        try:
            volts, amperes = int(said["Voltage"]) * MILLI, int(said["InstantAmperage"])
        except (KeyError, ValueError):
            raise Unreadable("the battery tells no current") from None
        return volts * (_WRAP - amperes if amperes > _WRAP // 2 else abs(amperes)) * MILLI


def find(around: Surroundings) -> Found:
    """Batteries that discharge now."""
    base = around.sysfs / "class" / "power_supply"
    batteries: list[Sensor] = [Battery(base / name) for name in (sorted(os.listdir(base)) if base.is_dir() else ())
                               if text_in(base / name / "type") == "Battery"]  # fmt: skip
    return Found([each for each in (*batteries, *([MacBattery()] if sys.platform == "darwin" else [])) if _tells(each)])


def _tells(battery: Sensor) -> bool:
    try:
        battery.read()
    except Unreadable:
        return False
    return True


SENSORS = {"battery": find}
