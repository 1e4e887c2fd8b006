"""What a host is and can run, in words: what the table of a fleet shows."""

from __future__ import annotations

import os
import platform

from mldyno import __version__, machine, plugins
from mldyno.axes import COMMAND, FAKE
from mldyno.records import recorded_environment
from mldyno.runner.probing import probe_frameworks, with_vendors
from mldyno.units import count, show_bytes
from mldyno.views.records import device_line

PROBE_TIMEOUT_S = 40.0  # of each framework


def examined() -> dict[str, str]:
    """Return facts of this host, its frameworks and its devices, in the order to show."""
    here, vendors = machine.describe(), machine.Vendors()
    cores, of_all = here.cores or 0, os.cpu_count() or 0
    facts = {
        "mldyno": __version__,
        "Python": platform.python_version(),
        "system": f"{here.system} {here.release}",
        "processor": here.cpu,
        "cores": count(cores, "core") if cores == of_all else f"{cores} of {of_all} cores",
        "memory": show_bytes(here.memory) if here.memory else "unknown",
        "power": here.power,
        "niceness": str(os.nice(0)),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    facts |= {name: value for name, value in recorded_environment().items() if name.endswith("_THREADS")}
    names = [name for name in plugins.names("frameworks") if name not in (COMMAND, FAKE) and plugins.installed(name)]
    devices: dict[str, str] = {}
    for name, probed in with_vendors(probe_frameworks(names, timeout=PROBE_TIMEOUT_S), vendors).frameworks.items():
        facts[name] = probed.error or probed.versions.get(name, "installed")
        devices |= {device.name: device_line(device) for device in probed.devices}
    return facts | devices
