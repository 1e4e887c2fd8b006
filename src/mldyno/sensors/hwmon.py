"""Graphics cards' own sensors, as Linux shows them (hwmon): counters of energy first, average power else.

amdgpu has `power1_average`; i915 and xe have `energy1_input`. Which card it is follows from its address on the bus.
"""

from __future__ import annotations

import os
from pathlib import Path

from mldyno.sensors import Closed, FileSensor, Found, Method, Surroundings, text_in

MICRO = 1e-6
DRIVERS = ("amdgpu", "i915", "xe")
PRICE = "programs of that group can watch what the card does"
FILES: tuple[tuple[str, Method], ...] = (
    ("energy1_input", "counter"), ("power1_average", "average"), ("power1_input", "sample"),
)  # fmt: skip


def cure(driver: str, name: str) -> str:
    """What opens a card's file to a group, now and after each boot."""
    opened = f'RUN+="/bin/chgrp power %S%p/{name}", RUN+="/bin/chmod g+r %S%p/{name}"'
    rule = f'SUBSYSTEM=="hwmon", ACTION=="add", ATTR{{name}}=="{driver}", {opened}'
    return (
        "as root: groupadd -f power; usermod -aG power YOU; "
        f"echo '{rule}' > /etc/udev/rules.d/70-{driver}-energy.rules; "
        "udevadm trigger --action=add --subsystem-match=hwmon; log in anew"
    )


def find(around: Surroundings) -> Found:
    """One sensor for each card: the best that it has."""
    sensors, closed = [], []
    for folder in _folders(around.sysfs / "class" / "hwmon"):
        driver = text_in(folder / "name")
        if driver not in DRIVERS:
            continue
        bus = os.path.basename(os.path.realpath(folder / "device"))
        device = next((each.name for each in around.devices if str(each.facts.get("pci_bus") or "-") in bus), "")
        for name, method in FILES:
            path = folder / name
            if path.exists():
                if os.access(path, os.R_OK):
                    sensors.append(FileSensor(path, MICRO, driver, "board", method, device))
                else:
                    closed.append(Closed(driver, "board", "only root may read it", cure(driver, name), PRICE))
                break
    return Found(sensors, closed)


def _folders(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except OSError:
        return []
