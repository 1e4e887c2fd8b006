"""A laptop's battery while it discharges: the power of the whole machine (Linux).

Its charge counts in steps of some J to 100 J, so its power is read, which most batteries update every few seconds.
macOS renews its reading about once a minute, longer than the work that is measured: there it is not a sensor.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mldyno.hardware import Found, Sensor, Surroundings, Unreadable, number_in, subfolders
from mldyno.system_queries import attempt, read

MICRO = 1e-6


def power_of(folder: Path) -> float:
    """Return the power in W, or voltage times current; while it is charged, the machine's power is unknown."""
    if read(folder / "status") != "Discharging":
        raise Unreadable("the battery is not discharging")
    if (folder / "power_now").exists():
        return number_in(folder / "power_now") * MICRO
    return number_in(folder / "voltage_now") * MICRO * number_in(folder / "current_now") * MICRO


def find(around: Surroundings) -> Found:
    """Find the batteries that discharge now."""
    folders = subfolders(around.sysfs / "class" / "power_supply")
    powers = {folder.name: partial(power_of, folder) for folder in folders if read(folder / "type") == "Battery"}
    batteries = [Sensor(name, "system", "average", power, every_s=1.0) for name, power in powers.items()]
    return Found([battery for battery in batteries if attempt(battery.read, None) is not None])


SENSORS = {"battery": find}
