"""Which sensors of energy and power there are, and what each tells: at rest, and while all cores work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from mldyno import plugins
from mldyno.analysis.symptoms import SensorSeen
from mldyno.records import Device
from mldyno.sensors import Surroundings
from mldyno.stats.intervals import mean
from mldyno.timing import clock, spin
from mldyno.timing.energy import Ticks, Watch, Watched

REST_S, WORK_S = 2.0, 2.0  # that sensors are watched for; where there is none, nothing is
WINDOW_S = 0.5


def look(devices: Sequence[Device], cores: int | None, tell: Callable[[], None]) -> tuple[SensorSeen, ...]:
    """Every sensor: what it sees and how, its period, its power at rest and at work; or why it can't be read."""
    found = plugins.sensors(Surroundings(devices=devices))
    open_ones = [(kind, Ticks(each, clock.now, time.sleep)) for kind, part in found.items() for each in part.sensors]
    ticks = [each for _, each in open_ones]
    rest = work = [Watched(each.sensor) for each in ticks]
    if ticks:
        tell()
        with Watch(ticks, WINDOW_S) as watch:
            time.sleep(REST_S)
        rest = watch.results
        with Watch(ticks, WINDOW_S) as watch:
            spin.shares(cores or 1, WORK_S)
        work = watch.results
    seen = [
        SensorSeen(kind, each.sensor.name, each.sensor.scope, each.sensor.method, each.sensor.device, each.period,
                   _power(before), _power(after), error="; ".join(dict.fromkeys([*before.lost, *after.lost])))
        for (kind, each), before, after in zip(open_ones, rest, work, strict=True)
    ]  # fmt: skip
    closed = [SensorSeen(kind, each.name, each.scope, reason=each.reason, cure=each.cure, price=each.price)
              for kind, part in found.items() for each in part.closed]  # fmt: skip
    return (*seen, *closed)


def _power(seen: Watched) -> float | None:
    """Mean power in W."""
    powers = [window.watts for window in seen.counted] or [watts for _, watts in seen.readings if math.isfinite(watts)]
    return mean(powers) if powers else None
