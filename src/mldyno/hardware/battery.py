"""A laptop's battery while it discharges: the power of the whole machine (Linux, macOS).

Its charge counts in steps of some J to 100 J, so its power is read, which most batteries update every few seconds.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

from mldyno.hardware import Found, Sensor, Surroundings, Unreadable, number_in, subfolders
from mldyno.system_queries import ask, attempt, read

MICRO, MILLI = 1e-6, 1e-3
_PROPERTY = re.compile(r'"(Voltage|InstantAmperage|ExternalConnected)" = (\w+)')
_WRAP = 1 << 64  # a current that flows out is negative, and shown without a sign


def power_of(folder: Path) -> float:
    """Return the power in W, or voltage times current; while it is charged, the machine's power is unknown."""
    if read(folder / "status") != "Discharging":
        raise Unreadable("the battery is not discharging")
    if (folder / "power_now").exists():
        return number_in(folder / "power_now") * MICRO
    return number_in(folder / "voltage_now") * MICRO * number_in(folder / "current_now") * MICRO


def power_of_mac() -> float:
    """Return the power in W of a Mac's battery, from mV and mA in the system's registry."""
    properties = dict(_PROPERTY.findall(ask("ioreg", "-rn", "AppleSmartBattery")))
    if properties.get("ExternalConnected") != "No":
        raise Unreadable("the battery is not discharging")
    try:
        volts, amperes = int(properties["Voltage"]) * MILLI, int(properties["InstantAmperage"])
    except (KeyError, ValueError):
        raise Unreadable("the battery reports no current") from None
    return volts * (_WRAP - amperes if amperes > _WRAP // 2 else abs(amperes)) * MILLI


def find(around: Surroundings) -> Found:
    """Find the batteries that discharge now."""
    folders = subfolders(around.sysfs / "class" / "power_supply")
    powers = {folder.name: partial(power_of, folder) for folder in folders if read(folder / "type") == "Battery"}
    if sys.platform == "darwin":
        powers["AppleSmartBattery"] = partial(power_of_mac)
    batteries = [Sensor(name, "system", "average", power, every_s=1.0) for name, power in powers.items()]
    return Found([battery for battery in batteries if attempt(battery.read, None) is not None])


SENSORS = {"battery": find}
