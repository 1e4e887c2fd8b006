"""The energy of a case's steps: the machine idle, then at work in windows of at least half a second, then idle again.

Sensors of one kind and scope, such as two packages, are added up. Sensors of different scopes contain each other, and
are not. The record's scope is the device's, else the next larger one; each further scope is a stage with its name.

A sensor that samples power may always sample the same part of a step. So steps pause now and then for a random time,
and the differences between windows show how little such a sensor sees.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mldyno import plugins
from mldyno.frameworks import Framework
from mldyno.hardware import Found, Scope, Sensor, Surroundings
from mldyno.hardware.system import cpu_of_others
from mldyno.messages import Measured
from mldyno.records import Case, Device, Series
from mldyno.stats.intervals import half_width, mean, rounded
from mldyno.timing.blocks import Blocks
from mldyno.timing.energy import StepLog, Ticks, Watch, Watched, Window, per_step

SETTLE_S = 0.5  # after which clocks and fans have followed
WINDOW_S, READINGS_A_WINDOW = 0.5, 5  # at least
STEPS_A_WINDOW, LONG_WINDOW_S = 4, 2.0  # steps of a window, where they take no longer than that; else one
LATEST = 3  # windows after the time is over, before a sensor without any is given up
WITH_INTERVAL, FEWEST_WINDOWS = 2, 10  # windows without which the error is unknown; and where the time allows
LONGEST_PAUSE_S = 0.1  # between two logs, for a sensor that samples power
ON_HOST: tuple[Scope, ...] = ("package", "system", "cores", "memory")
ON_DEVICE: tuple[Scope, ...] = ("board", "package", "system")
PLUG = "plug"
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Group:
    """Sensors of one kind and scope, which are added up."""

    kind: str
    scope: Scope
    sensors: Sequence[Sensor]

    @property
    def names(self) -> str:
        """Kind and names, as facts of a record have them."""
        return f"{self.kind}: {', '.join(sensor.name for sensor in self.sensors)}"


def groups(available: Mapping[str, Found], case: Case) -> list[Group]:
    """Return the sensors that see a case, the best scope for its device first; each scope once.

    A plug, which the user named, is preferred within its scope.
    """
    device = case.device.partition(":")[0]
    wanted = ON_HOST if device == "cpu" else ON_DEVICE
    grouped: dict[Scope, Group] = {}
    for kind in sorted(available, key=lambda kind: kind != PLUG):
        for scope in dict.fromkeys(sensor.scope for sensor in available[kind].sensors):
            sensors = [each for each in available[kind].sensors if each.scope == scope and _sees(each, case, device)]
            if sensors and scope in wanted:
                grouped.setdefault(scope, Group(kind, scope, sensors))
    return sorted(grouped.values(), key=lambda group: wanted.index(group.scope))


def unreadable(available: Mapping[str, Found], chosen: Sequence[Group]) -> list[str]:
    """Return why sensors can't be read; where some can be, only for the user's plug."""
    closed = [each for kind, part in available.items() for each in part.closed if not chosen or kind == PLUG]
    by_reason = {each.reason: [other.name for other in closed if other.reason == each.reason] for each in closed}
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _sees(sensor: Sensor, case: Case, device: str) -> bool:
    """Return whether a sensor sees the devices of a case; ranks have one each."""
    if sensor.device in ("", "cpu", case.device):
        return True
    return case.in_ranks and sensor.device.partition(":")[0] == device


class EnergyMeter:
    """All sensors that see a case; the period of each counter is measured once."""

    def __init__(self, framework: Framework, case: Case, devices: Sequence[Device], blocks: Blocks) -> None:
        self.blocks, self.clock, self.case = blocks, blocks.clock, case
        real = framework.clock is None and case.nodes == 1  # fake time uses no energy; other nodes are out of sight
        available = plugins.sensors(Surroundings(devices=devices)) if real else {}
        self.groups = groups(available, case)
        self.unreadable = unreadable(available, self.groups)
        self.ticks = [Ticks(sensor, self.clock, time.sleep) for group in self.groups for sensor in group.sensors]
        self.chance = random.Random(case.id)

    def measure(self, seconds: float, target: float, rest_s: float, tell: Tell) -> Measured:
        """Measure energy for that many s, or until it is known to the target; and `rest_s` idle before and after."""
        if not self.groups:
            return self._nothing()
        step = self.blocks.time(self.blocks.size) / self.blocks.size / 1e9
        shortest = max(WINDOW_S, step, min(STEPS_A_WINDOW * step, LONG_WINDOW_S))  # of a counter
        lengths = [max([shortest, *(READINGS_A_WINDOW * each.every_s for each in group.sensors
                                    if each.method != "counter")]) for group in self.groups]  # fmt: skip
        before = self._idle(rest_s, lengths[0])
        if all(ticks.hung for ticks in self.ticks):
            return self._nothing(before)
        before_work = cpu_of_others(beside_siblings=self.case.in_ranks)
        began, during, logs = self.clock(), *self._working(seconds, target, shortest, lengths[0], tell)
        after_work, elapsed = cpu_of_others(beside_siblings=self.case.in_ranks), (self.clock() - began) / 1e9
        other_cores = None
        if before_work is not None and after_work is not None:
            other_cores = max(0.0, after_work - before_work) / elapsed
        after = self._idle(rest_s, lengths[0])
        facts = self._nothing([*before, *during, *after]).facts
        series, place = list[Series](), 0
        for group, length in zip(self.groups, lengths, strict=True):
            own = slice(place, place := place + len(group.sensors))
            rows = _rows(during[own], logs, length)
            if not rows:
                continue
            main = not series
            idle = [*_idle_powers(before[own], length), *_idle_powers(after[own], length)]
            series += _series(rows, idle, "steady" if main else group.scope)
            if main:
                off = max(window.relative_error for windows in rows for window, _ in windows)
                facts = {**facts, "energy_scope": group.scope, "energy_by": group.names, "energy_error": off,
                         "energy_method": group.sensors[0].method, "energy_others": other_cores}  # fmt: skip
        return Measured(tuple(series), facts)

    def _nothing(self, watched: Sequence[Watched] = ()) -> Measured:
        """Return no energy, and what sensors did instead."""
        lost = dict.fromkeys([*self.unreadable, *(why for each in watched for why in each.lost)])
        return Measured((), {"energy_scope": None, "energy_lost": "; ".join(lost) or None})

    def _idle(self, rest_s: float, length: float) -> list[Watched]:
        if not rest_s:
            return [Watched(ticks.sensor) for ticks in self.ticks]
        time.sleep(SETTLE_S)
        with Watch(self.ticks, WINDOW_S) as watch:
            time.sleep(max(rest_s, 2 * length))
        return watch.results

    def _working(
        self, seconds: float, target: float, shortest: float, length: float, tell: Tell
    ) -> tuple[list[Watched], list[StepLog]]:
        """Run steps until enough is known; the first ones let clocks and caches recover, and do not count."""
        clock, blocks, main = self.clock, self.blocks, self.groups[0].sensors
        settled, pausing = clock() + round(SETTLE_S * 1e9), main[0].method == "sample"
        while clock() < settled:
            blocks.time(blocks.size)
        ends, done, logs = clock() + round(seconds * 1e9), 0, [StepLog()]
        with Watch(self.ticks, shortest) as watch:
            logs[0].note(clock(), 0)
            look = clock() + round(length * 1e9)
            while True:
                blocks.time(blocks.size)
                done, now = done + blocks.size, clock()
                logs[-1].note(now, done)
                if now < look:
                    continue
                rows = _rows(watch.results[: len(main)], logs, length)
                tell((logs[-1].times[-1] - logs[-1].times[0]) / 1e9 / (done - logs[-1].steps[0]))
                late = now >= ends + round(LATEST * length * 1e9)
                if late or (len(rows) >= WITH_INTERVAL and now >= ends) or _relative_error(rows) <= target:
                    return watch.results, logs
                if pausing:
                    time.sleep(self.chance.uniform(0.0, LONGEST_PAUSE_S))
                    logs.append(StepLog())
                    logs[-1].note(clock(), done)
                look = clock() + round(length * 1e9)


Row = list[tuple[Window, float]]  # a window of each sensor of a group, with its steps


def _rows(watched: Sequence[Watched], logs: Sequence[StepLog], length: float) -> list[Row]:
    """Return the windows of a group of sensors: a row has one of each sensor."""
    return [list(row) for row in zip(*(per_step(each, logs, length) for each in watched), strict=False)]


def _energies(rows: Sequence[Row]) -> list[float]:
    """Return the energy of a step in J, in each window."""
    return [sum(window.joules / steps for window, steps in row) for row in rows]


def _relative_error(rows: Sequence[Row]) -> float:
    """Return the relative half-width of the energy of a step."""
    values = _energies(rows)
    return half_width(values) / mean(values) if len(values) >= FEWEST_WINDOWS and mean(values) > 0 else float("inf")


def _idle_powers(watched: Sequence[Watched], length: float) -> list[float]:
    """Return the power in W, in each idle window."""
    windows = []
    for each in watched:
        edges = [edge for window in each.counted for edge in (window.began, window.ended)]
        times = [when for when, _ in each.readings] or edges
        windows.append(each.windows(min(times), max(times), length) if times else [])
    return [sum(window.watts for window in row) for row in zip(*windows, strict=False)]


def _series(rows: Sequence[Row], idle: Sequence[float], stage: str) -> Iterator[Series]:
    powers = [sum(window.watts for window, _ in row) for row in rows]
    yield Series("energy", "J", rounded(_energies(rows)), stage=stage)
    yield Series("power", "W", rounded(powers), stage=stage)
    if stage == "steady":
        yield Series("peak_power", "W", rounded([max(powers)]), stage="process")
    if idle:
        yield Series("idle_power", "W", rounded(idle), stage=stage)
