"""How long NVIDIA's driver held the case's own GPU below its clocks, for heat or for power, and the clock meanwhile.

The driver counts the time by itself, for each card: what the counters gain between start and end belongs to the case,
and a neighbour's card is never asked. Asked through NVIDIA's library by ctypes, since a worker has no packages.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

from mldyno.records import Case, Device, Series

LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
# Kinds of limits, as the library numbers them, by the series that has their time.
LIMITS = {"power_limit_time": (0, 3), "thermal_limit_time": (1, 5)}  # power, board; heat, reliability
SM_CLOCK = 1
DONE = 0


class Violation(ctypes.Structure):
    """How long a limit has held the clock down, in ns, at a time in µs."""

    _fields_ = (("reference", ctypes.c_ulonglong), ("violation", ctypes.c_ulonglong))


def load() -> Any:
    """NVIDIA's library, ready; None where there is none."""
    for name in LIBRARIES:
        with suppress(OSError):
            library = ctypes.CDLL(name)
            return library if library.nvmlInit_v2() == DONE else None
    return None


class Nvidia:
    """Reads the driver's counters of one card."""

    def start(self, case: Case, device: Device) -> bool:
        """Find the card by its UUID, and note where its counters stand."""
        uuid = str(device.facts.get("uuid") or "")
        if not device.name.startswith("cuda") or not uuid:
            return False
        self._library = load()
        if self._library is None:
            return False
        self._card = ctypes.c_void_p()
        full = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        if self._library.nvmlDeviceGetHandleByUUID(full.encode(), ctypes.byref(self._card)) != DONE:
            return False
        self._before = self._limited()
        self._clocks: list[float] = []
        return True

    def begin_window(self) -> None:
        """Nothing to note."""

    def end_window(self) -> None:
        """Note the clock."""
        clock = ctypes.c_uint()
        if self._library.nvmlDeviceGetClockInfo(self._card, SM_CLOCK, ctypes.byref(clock)) == DONE:
            self._clocks.append(clock.value * 1e6)  # from MHz

    def stop(self) -> list[Series]:
        """What the counters gained, in s, and the clock at the end of each window, in 1/s."""
        after = self._limited()
        series = [
            Series(name, "s", (max(0, after[name] - before) / 1e9,), stage="process")
            for name, before in self._before.items()
            if name in after
        ]
        return series + ([Series("gpu_clock", "1/s", tuple(self._clocks), stage="window")] if self._clocks else [])

    def _limited(self) -> dict[str, int]:
        """The longest time in ns that any limit of a kind has held, so far; a kind that is not counted is omitted."""
        times: dict[str, int] = {}
        for name, kinds in LIMITS.items():
            for kind in kinds:
                held = Violation()
                if self._library.nvmlDeviceGetViolationStatus(self._card, kind, ctypes.byref(held)) == DONE:
                    times[name] = max(times.get(name, 0), int(held.violation))
        return times


METER = Nvidia
