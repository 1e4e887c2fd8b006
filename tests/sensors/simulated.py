"""Counters in virtual time, whose truth is known; and trees of sysfs as the kernel's documentation has them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

from mldyno.sensors import Sensor, Unreadable

READ_NS = 2_000  # that a look takes


class Time:
    """A clock in ns that goes on when somebody sleeps or looks."""

    def __init__(self, start: int = 0) -> None:
        self.now = start

    def clock(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0, round(seconds * 1e9))


class Counter(Sensor):
    """Counts a known power, renewed every period, whose ticks come a little early or late."""

    name, scope, method, device = "simulated", "package", "counter", "cpu"

    def __init__(
        self,
        time: Time,
        power: float | Callable[[float], float] = 50.0,
        period_s: float = 1e-3,
        jitter: float = 0.0,
        largest: float | None = None,
        start_j: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.time, self.period, self.jitter, self.largest, self.start_j = time, period_s, jitter, largest, start_j
        self.power = power if callable(power) else lambda seconds: power
        self.chance = random.Random(seed)
        self.offset = self.chance.random() * period_s
        self.counted, self.energy, self.late = 0, 0.0, 0.0
        self.frozen_from = math.inf
        self.set_back_at = math.inf
        self.fails_at: set[int] = set()
        self.looks = 0

    def true_energy(self, seconds: float) -> float:
        """Of a constant power."""
        return self.power(0.0) * seconds

    def read(self) -> float:
        self.looks += 1
        self.time.now += READ_NS
        if self.looks in self.fails_at:
            raise Unreadable("the file is gone")
        seconds = min(self.time.now / 1e9, self.frozen_from)
        while (self.counted + 1) * self.period + self.offset + self.late <= seconds:
            begins = self.counted * self.period + self.offset
            self.energy += self.power(begins) * self.period
            self.counted += 1
            self.late = self.chance.gauss(0.0, self.jitter * self.period)
        value = self.start_j + self.energy
        if seconds >= self.set_back_at:
            value = self.energy * 1e-3
        return math.fmod(value, self.largest) if self.largest else value


def tree(root: Path, files: dict[str, str], closed: tuple[str, ...] = ()) -> Path:
    """Files of a sysfs; those that are closed may be read by nobody."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        path.chmod(0o000 if name in closed else 0o444)
    return root


RAPL = {
    "class/powercap/intel-rapl:0/name": "package-0",
    "class/powercap/intel-rapl:0/energy_uj": "123456789",
    "class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
    "class/powercap/intel-rapl:0:0/name": "core",
    "class/powercap/intel-rapl:0:0/energy_uj": "23456789",
    "class/powercap/intel-rapl:0:0/max_energy_range_uj": "262143328850",
    "class/powercap/intel-rapl:0:1/name": "uncore",
    "class/powercap/intel-rapl:0:1/energy_uj": "3456789",
    "class/powercap/intel-rapl:0:2/name": "dram",
    "class/powercap/intel-rapl:0:2/energy_uj": "456789",
    "class/powercap/intel-rapl:0:2/max_energy_range_uj": "65712999613",
    "class/powercap/intel-rapl:1/name": "psys",
    "class/powercap/intel-rapl:1/energy_uj": "987654321",
    "class/powercap/intel-rapl-mmio:0/name": "package-0",
    "class/powercap/intel-rapl-mmio:0/energy_uj": "123456790",
}
