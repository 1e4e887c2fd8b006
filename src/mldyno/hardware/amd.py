"""In how many windows AMD's driver held the GPU's clock down, for heat, power or current (Linux).

The kernel shows a report of the card's firmware as one block of bytes. Only the layouts of cards since 2020 are known.
With several cards it is unknown which one the case uses, and nothing is read.
"""

from __future__ import annotations

from glob import glob
from pathlib import Path

from mldyno.hardware import Reading, ReadingMeter
from mldyno.records import Case, Device

METRICS = "/sys/class/drm/card*/device/gpu_metrics"
LAYOUTS = ((1, 1), (1, 2), (1, 3))  # format and content, as in the header of the block
THROTTLE_STATUS = slice(68, 72)  # in all of these: a bit for each reason


def held_back(block: bytes) -> bool | None:
    """Return whether any reason to hold the clock down is set; None if the layout is unknown."""
    if len(block) < THROTTLE_STATUS.stop or (block[2], block[3]) not in LAYOUTS:
        return None
    return any(block[THROTTLE_STATUS])


def _look(path: Path) -> float | None:
    try:
        return held_back(path.read_bytes())
    except OSError:
        return None


class Amd(ReadingMeter):
    """Read the card's report at the end of each window."""

    def readings(self, case: Case, device: Device) -> list[Reading]:
        paths = [Path(path) for path in glob(METRICS)] if device.name.startswith("cuda") else []
        if len(paths) != 1 or _look(paths[0]) is None:
            return []
        return [Reading("gpu_held_back", "1", "mean", lambda: _look(paths[0]))]


METERS = (Amd,)
