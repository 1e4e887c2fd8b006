"""Counters in virtual time, whose truth is known; sensors that see a part; and trees of sysfs as kernels show them."""

from __future__ import annotations

import math
import random
import threading
import time as real_time
from collections.abc import Callable
from pathlib import Path

from mldyno.hardware import Sensor, Unreadable
from mldyno.timing.energy import Ticks, Watched, watch

READ_NS = 2_000  # that a look takes
Power = Callable[[float], float]


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
        power: float | Power = 50.0,
        period_s: float = 1e-3,
        jitter: float = 0.0,
        largest: float | None = None,
        start_j: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.time, self.period, self.jitter, self.largest, self.start_j = time, period_s, jitter, largest, start_j
        self.power: Power = power if callable(power) else lambda seconds: power
        self.chance = random.Random(seed)
        self.offset = self.chance.random() * period_s
        self.counted, self.energy, self.late = 0, 0.0, 0.0
        self.frozen_from = self.set_back_at = math.inf
        self.fails_at: set[int] = set()
        self.looks = 0

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


class QuarterSensor(Sensor):
    """Looks for a quarter of each 100 ms, and tells that quarter's mean until the next."""

    name, scope, method, device, every_s = "quarter", "board", "sample", "cpu", 0.1
    PERIOD_S, SEEN_S, PARTS = 0.1, 0.025, 25

    def __init__(self, time: Time, power: Power) -> None:
        self.time, self.power = time, power

    def read(self) -> float:
        begins = math.floor(self.time.now / 1e9 / self.PERIOD_S) * self.PERIOD_S - self.PERIOD_S
        looks = [begins + self.SEEN_S * (part + 0.5) / self.PARTS for part in range(self.PARTS)]
        return sum(map(self.power, looks)) / self.PARTS


def watched(sensor: Sensor, time: Time, seconds: float = 5.0, length_s: float = 0.5) -> Watched:
    """What comes of watching a sensor for so many s of virtual time."""
    ends, seen = time.now + round(seconds * 1e9), Watched(sensor)
    watch(Ticks(sensor, time.clock, time.sleep), seen, length_s, lambda: time.now < ends)
    return seen


class CountingFile:
    """A thread that counts at a known power into a file, as the kernel does; tests set the power."""

    def __init__(self, path: Path, watts: float, period_s: float = 2e-3) -> None:
        self.path, self.watts, self.period, self.joules, self.going = path, watts, period_s, 0.0, True
        self.thread = threading.Thread(target=self._count, daemon=True)

    def _count(self) -> None:
        last = real_time.perf_counter()
        with self.path.open("r+b", buffering=0) as file:
            while self.going:
                real_time.sleep(self.period)
                now = real_time.perf_counter()
                self.joules += self.watts * (now - last)
                last = now
                file.seek(0)
                file.write(b"%020d\n" % round(self.joules * 1e6))

    def __enter__(self) -> CountingFile:
        self.path.chmod(0o644)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.going = False
        self.thread.join()


def tree(root: Path, files: dict[str, str], closed: tuple[str, ...] = ()) -> Path:
    """Files of a sysfs; those that are closed may be read by nobody."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        path.chmod(0o000 if name in closed else 0o444)
    return root


PACKAGE = "class/powercap/intel-rapl:0/energy_uj"
RAPL = {
    "class/powercap/intel-rapl:0/name": "package-0",
    PACKAGE: "123456789",
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
ONE_PACKAGE = {name: text for name, text in RAPL.items() if "intel-rapl:0/" in name}
