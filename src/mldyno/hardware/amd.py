"""In how many windows AMD's driver held the GPU's clock down, for heat, power or current (Linux).

The kernel shows what the card's firmware reports, as one block of bytes. Only the layout that cards since 2020 have is
known here; with several cards nobody says which one is meant, and nothing is read.
"""

from __future__ import annotations

from glob import glob
from pathlib import Path

from mldyno.hardware import Meter
from mldyno.records import Case, Device, Series

METRICS = "/sys/class/drm/card*/device/gpu_metrics"
LAYOUTS = ((1, 1), (1, 2), (1, 3))  # format and content, as the header of the block has them
THROTTLE_STATUS = slice(68, 72)  # in all of these: a bit for each reason


def held_back(block: bytes) -> bool | None:
    """Whether a reason to hold the clock down is named; None where the layout is not known."""
    if len(block) < THROTTLE_STATUS.stop or (block[2], block[3]) not in LAYOUTS:
        return None
    return any(block[THROTTLE_STATUS])


def read(path: Path) -> bytes:
    """The block; empty where it can't be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Amd(Meter):
    """Looks at the card's report at the end of each window."""

    def start(self, case: Case, device: Device) -> bool:
        """Find the one card, and see whether its report can be read."""
        found = glob(METRICS)
        if not device.name.startswith("cuda") or len(found) != 1:
            return False
        self._path, self._looks = Path(found[0]), list[bool]()
        return held_back(read(self._path)) is not None

    def end_window(self) -> None:
        """Look."""
        held = held_back(read(self._path))
        if held is not None:
            self._looks.append(held)

    def stop(self) -> list[Series]:
        """The share of the looks at which the clock was held down."""
        share = sum(self._looks) / len(self._looks) if self._looks else 0.0
        return [Series("gpu_held_back", "1", (share,), stage="process")]


METERS = (Amd,)
