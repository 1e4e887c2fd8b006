"""The noise test: one core does the same work over and over, and what gets in its way is counted.

The work is hashing, of the standard library: it needs no framework, and always takes the same time
where nothing disturbs it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from mldyno.analysis.noise import judge
from mldyno.analysis.symptoms import Noise
from mldyno.axes import unstated
from mldyno.hardware import Windows
from mldyno.hardware.contention import Contention
from mldyno.records import Device
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, Steps, time_blocks

CHUNK = bytes(range(256)) * 256  # 64 KiB: less than 1 ms on any machine, and it stays in the core's own cache
LOOK_EVERY_NS = 20_000_000  # at anything but the work
FEWEST_BLOCKS = 40


class Hashing:
    """The work: the hash of a fixed chunk."""

    def run(self, steps: int) -> None:
        """Compute it so many times."""
        for _ in range(steps):
            hashlib.sha256(CHUNK)

    def synchronize(self) -> None:
        """Nothing to wait for."""


def listen(
    seconds: float, look: Callable[[], None], work: Steps | None = None, take_time: clock.Clock = clock.now
) -> Noise:
    """Work for so many s, and the verdict; `look` is called some 50 times a second, between two blocks."""
    blocks = Blocks(work or Hashing(), take_time)
    blocks.time(3)
    blocks.fit(min(blocks.time(1) for _ in range(9)))
    meter = Contention()
    meter.start(unstated("noise", "none"), Device("cpu", "none"))
    windows = Windows((meter,), take_time, lambda: None)

    def between(values: list[float], now: int) -> int:
        windows.look(now)
        look()
        return take_time() + LOOK_EVERY_NS

    windows.begin()
    values, _ = time_blocks(blocks, seconds, None, between)
    if len(values) < FEWEST_BLOCKS:
        values += time_blocks(blocks, 0.0, FEWEST_BLOCKS * blocks.size, between)[0]
    windows.end()
    gained = {series.metric: sum(series.values) for series in meter.stop()}
    return judge(values, seconds, _waiting(gained), _stolen(gained))


def _waiting(gained: dict[str, float]) -> float | None:
    """Share of the time that the work had no core: as the system counts it, else what it did not run."""
    if not gained.get("window_time"):
        return None
    if "run_delay" in gained:
        return gained["run_delay"] / max(1e-9, gained["run_delay"] + gained["cpu_time"])
    return max(0.0, 1 - gained["cpu_time"] / gained["window_time"])


def _stolen(gained: dict[str, float]) -> float | None:
    """Share of all cores' time that the host of a virtual machine took."""
    whole = gained.get("window_time", 0.0) * (os.cpu_count() or 1)
    return gained["stolen_time"] / whole if whole and "stolen_time" in gained else None
