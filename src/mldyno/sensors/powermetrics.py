"""Apple's own tool for the power of a chip, which only root may run, and only where the user asks (macOS).

MLDYNO_POWERMETRICS=1 asks for it. The extra `apple` reads the same chip's counters without root, and better.
"""

from __future__ import annotations

import os
import re
import sys

from mldyno.sensors import Closed, Found, Sensor, Surroundings, Unreadable
from mldyno.system_queries import ask

SETTING = "MLDYNO_POWERMETRICS"
AVERAGED_MS = 200
MILLI = 1e-3
_POWER = re.compile(r"^Combined Power \(CPU \+ GPU \+ ANE\): (\d+) mW$", re.MULTILINE)


class Chip(Sensor):
    """Power of CPU, GPU and ANE together, over the last moments."""

    name, scope, method = "powermetrics", "package", "average"

    def read(self) -> float:
        """Power in W."""
        said = ask("powermetrics", "--samplers", "cpu_power,gpu_power", "-i", str(AVERAGED_MS), "-n", "1")
        power = _POWER.search(said or "")
        if power is None:
            raise Unreadable("powermetrics tells no power")
        return int(power.group(1)) * MILLI


def find(around: Surroundings) -> Found:
    """The chip, where the user asks for it."""
    if sys.platform != "darwin" or not os.environ.get(SETTING):
        return Found()
    if os.geteuid() != 0:
        return Found(closed=[Closed("powermetrics", "package", "only root may run it", "pip install 'mldyno[apple]'")])
    return Found([Chip()])
