"""How energy goes wrong, on simulated counters whose truth is known, beside what mldyno tells of the same.

python -m bench.energy_faults wrap        a counter that begins anew
python -m bench.energy_faults failed      a look that fails, taken for a wrap
python -m bench.energy_faults constant    watts from a data sheet
python -m bench.energy_faults sampled     a sensor that looks for a quarter of the time
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

from tests.hardware.simulated import Counter, QuarterSensor, Time, watched

from mldyno.hardware import Unreadable
from mldyno.stats.intervals import half_width, mean

SECONDS = 60.0
LARGEST = 262_143.0  # J, as many a package's counter
TDP = 65.0


def wrap() -> None:
    """First and last reading subtracted, over the end of the counter."""
    time = Time()
    counter = Counter(time, 50.0, largest=LARGEST, start_j=LARGEST - 1000.0)
    first = counter.read()
    time.sleep(SECONDS)
    print(f"truth {50 * SECONDS:,.0f} J; last less first {counter.read() - first:,.0f} J; mldyno {_told(wraps=True)}")


def failed() -> None:
    """A look that fails gives 0; a counter that is smaller than before is taken for one that began anew."""
    time = Time()
    counter = Counter(time, 50.0, largest=LARGEST, start_j=100_000.0)
    counter.fails_at = {31}
    total, last = 0.0, counter.read()
    for _ in range(round(SECONDS)):
        time.sleep(1.0)
        try:
            now = counter.read()
        except Unreadable:
            now = 0.0
        total += now - last if now >= last else now - last + LARGEST
        last = now
    print(f"truth {50 * SECONDS:,.0f} J; a failed look as 0 {total:,.0f} J; mldyno {_told(fails=True)}")


def _told(wraps: bool = False, fails: bool = False) -> str:
    time = Time()
    counter = Counter(time, 50.0, largest=LARGEST, start_j=LARGEST - 1000.0 if wraps else 100_000.0)
    counter.fails_at = {700} if fails else set()
    seen = watched(counter, time, SECONDS)
    powers = [window.watts for window in seen.counted]
    lost = f"; lost: {', '.join(seen.lost)}" if seen.lost else ""
    off = max(window.relative_error for window in seen.counted)
    return f"{mean(powers) * SECONDS:,.0f} J, ±{100 * (half_width(powers) / mean(powers) + off):.2f} %{lost}"


def constant() -> None:
    """The power of a data sheet times the time, for a light and for a heavy load; and the time at rest counts too."""
    for name, watts in (("waits for data", 14.0), ("a small model", 31.0), ("matmuls in AVX-512", 88.0)):
        time = Time()
        powers = [window.watts for window in watched(Counter(time, watts), time, SECONDS).counted]
        print(f"{name}: truth {watts * SECONDS:,.0f} J; by a TDP of {TDP:.0f} W {TDP * SECONDS:,.0f} J; "
              f"mldyno {mean(powers) * SECONDS:,.0f} J")  # fmt: skip


def sampled() -> None:
    """A step of 100 ms that works hard in a quarter of it, and a sensor that sees a quarter of each 100 ms."""
    chance, truth = random.Random(7), 200.0 * 0.25 + 40.0 * 0.75
    in_step = _powers(lambda: 0.0)
    moved = _powers(lambda: chance.uniform(0.0, 0.1))
    print(f"truth {truth:.0f} W; in step with the sensor {mean(in_step):.0f} W ±{half_width(in_step):.1f}; "
          f"with pauses that chance sets, as mldyno {mean(moved):.0f} W ±{half_width(moved):.1f}")  # fmt: skip


def _powers(shift: Callable[[], float]) -> list[float]:
    """What the sensor tells of windows of half a second, each with a phase of its own."""
    told = []
    for _ in range(40):
        time, moved = Time(10**9), shift()
        sensor = QuarterSensor(time, lambda s, moved=moved: 200.0 if (s + moved) % 0.1 < 0.025 else 40.0)  # type: ignore[misc]
        told.append(mean([watts for _, watts in watched(sensor, time, 0.5).readings]))
    return told


FAULTS = {"wrap": wrap, "failed": failed, "constant": constant, "sampled": sampled}

if __name__ == "__main__":
    for fault in sys.argv[1:] or FAULTS:
        FAULTS[fault]()
