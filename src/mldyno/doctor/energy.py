"""Which sensors of energy and power there are, and what each tells: at rest, and while all cores work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from mldyno import plugins
from mldyno.analysis.symptoms import SensorSeen
from mldyno.client.remote_case import REST_S
from mldyno.hardware import Surroundings
from mldyno.records import Device
from mldyno.stats.intervals import mean
from mldyno.timing import clock
from mldyno.timing.energy import Ticks, Watch, Watched
from mldyno.worker.energy import WINDOW_S

WORK_S = 2.0  # that sensors are watched for at work; where there is none, nothing is


def look(devices: Sequence[Device], cores: int | None, tell: Callable[[], None]) -> tuple[SensorSeen, ...]:
    """Every sensor: what it sees and how, its period, its power at rest and at work; or why it can't be read."""
    available = plugins.sensors(Surroundings(devices=devices))
    readable = [(kind, each) for kind, part in available.items() for each in part.sensors]
    ticks = [Ticks(sensor, clock.now, time.sleep) for _, sensor in readable]
    rest = work = [Watched(sensor) for _, sensor in readable]
    if ticks:
        tell()
        with Watch(ticks, WINDOW_S) as watch:
            time.sleep(REST_S)
        rest = watch.results
        with Watch(ticks, WINDOW_S) as watch:
            clock.shares(cores or 1, WORK_S)
        work = watch.results
    watched = [
        SensorSeen(kind, sensor.name, sensor.scope, sensor.method, sensor.device, each.period, _power(before),
                   _power(after), error="; ".join(dict.fromkeys([*before.lost, *after.lost])))
        for (kind, sensor), each, before, after in zip(readable, ticks, rest, work, strict=True)
    ]  # fmt: skip
    closed = [SensorSeen(kind, each.name, each.scope or "", reason=each.reason, cure=each.cure, price=each.price)
              for kind, part in available.items() for each in part.closed]  # fmt: skip
    return (*watched, *closed)


def _power(watched: Watched) -> float | None:
    """Mean power in W."""
    powers = [window.watts for window in watched.counted] or [
        watts for _, watts in watched.readings if math.isfinite(watts)
    ]
    return mean(powers) if powers else None
