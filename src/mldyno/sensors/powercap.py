"""RAPL, the energy counters of Intel's and AMD's processors, as Linux shows them (powercap).

Domains nest: a package contains its cores and its graphics, psys contains the packages; memory is beside them. They are
never added up across levels. What `intel-rapl-mmio` shows is a package of `intel-rapl` once more, and is left out.
"""

from __future__ import annotations

import os
from pathlib import Path

from mldyno.sensors import Closed, FileSensor, Found, Scope, Surroundings, Unreadable, number_in, text_in

MICRO = 1e-6
CONTROL = "intel-rapl"  # of AMD's too
SCOPES: dict[str, Scope] = {"package": "package", "core": "cores", "dram": "memory", "psys": "system"}
RULE = (
    'SUBSYSTEM=="powercap", ACTION=="add", RUN+="/bin/chgrp power %S%p/energy_uj", RUN+="/bin/chmod g+r %S%p/energy_uj"'
)
CURE = (
    "as root: groupadd -f power; usermod -aG power YOU; "
    f"echo '{RULE}' > /etc/udev/rules.d/70-rapl.rules; "
    "udevadm trigger --action=add --subsystem-match=powercap; log in anew"
)
PRICE = "programs of that group can watch what the processor does: such counters have given away keys (CVE-2020-8694)"


def find(around: Surroundings) -> Found:
    """All domains that can be read, and those that root has closed."""
    sensors, closed = [], []
    for zone in _zones(around.sysfs / "class" / "powercap"):
        name = text_in(zone / "name")
        scope = SCOPES.get(name.partition("-")[0])
        if scope is None:  # uncore: graphics, within the package
            continue
        counter = zone / "energy_uj"
        if not counter.exists():
            continue
        if not os.access(counter, os.R_OK):
            closed.append(Closed(name, scope, "only root may read it", CURE, PRICE))
            continue
        try:
            largest: float | None = number_in(zone / "max_energy_range_uj") * MICRO
        except Unreadable:
            largest = None
        sensors.append(FileSensor(counter, MICRO, name, scope, "counter", "cpu", largest))
    return Found(sensors, closed)


def _zones(folder: Path) -> list[Path]:
    """The folders of domains, packages before what they contain."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(f"{CONTROL}:"))
    except OSError:
        return []
    return [folder / name for name in names]
