"""Energy by counters and by readings of power: windows that open and close on a counter's ticks.

A counter is renewed now and then: every ms by RAPL, every 20 to 100 ms by a graphics card. Read at any time, a window is
off by up to a whole period at each end; the difference of two such errors has a standard deviation of 0.41 periods.
So a window begins and ends where the counter has just changed, and is off by the time between two looks.

What a counter can't have done is no energy: one that stands still, runs backward, or begins anew too early ends its
window, which is told and left out.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mldyno.sensors import Sensor, Unreadable
from mldyno.stats.intervals import median
from mldyno.timing.clock import Clock

TICKS = 9  # by which a counter's period is known
LOOKS_A_PERIOD = 50  # while a tick is waited for
SHORTEST_LOOK_S, LONGEST_LOOK_S = 20e-6, 2e-3
FROZEN_S = 3.0  # without a tick: no counter is slower
LARGEST_POWER = 20_000.0  # W that no machine with one plug takes: a counter that gained more was set back
WRAPPED_SHARE = 3.0  # times the power before, at which a counter that is smaller than before was set back, not full
SAMPLE_EVERY_S = 0.1  # of a sensor that tells power

Sleep = Callable[[float], None]


class Lost(Exception):
    """A window that can't be told: the message says what the sensor did."""


@dataclass(frozen=True)
class Tick:
    """When a counter changed, in ns, to how many J; and how far off the time may be, in ns."""

    at: int
    joules: float
    off: int


@dataclass
class Ticks:
    """Waits for the ticks of one counter."""

    sensor: Sensor
    clock: Clock
    sleep: Sleep
    look_s: float = SHORTEST_LOOK_S
    power: float | None = None
    """In W, as it was last seen: what a wrap is judged by."""

    def next(self, longest_s: float = FROZEN_S) -> Tick:
        """The next tick; raises Lost where none comes."""
        before, seen = self.clock(), self._read()
        began = before
        while True:
            self.sleep(self.look_s)
            value, now = self._read(), self.clock()
            if value != seen:
                return Tick((before + now) // 2, value, (now - before) // 2)
            if now - began > longest_s * 1e9:
                raise Lost(f"{self.sensor.name} stands still")
            before = now

    def _read(self) -> float:
        try:
            return self.sensor.read()
        except Unreadable as error:
            raise Lost(str(error)) from None

    def period_s(self) -> float:
        """How often it is renewed, in s; from then on it is looked at as often as that needs."""
        ticks = [self.next() for _ in range(TICKS)]
        gaps = [(after.at - before.at) / 1e9 for before, after in zip(ticks, ticks[1:], strict=False)]
        period = median(gaps)
        self.look_s = min(LONGEST_LOOK_S, max(SHORTEST_LOOK_S, period / LOOKS_A_PERIOD))
        return period

    def between(self, first: Tick, last: Tick) -> float:
        """Energy in J from one tick to a later one; raises Lost where that can't be told."""
        seconds = (last.at - first.at) / 1e9
        gained = last.joules - first.joules
        if gained < 0:
            gained = self._around(gained, seconds)
        if gained > LARGEST_POWER * seconds:
            raise Lost(f"{self.sensor.name} gained {gained:,.0f} J in {seconds:.3g} s: it was set anew")
        self.power = gained / seconds
        return gained

    def _around(self, gained: float, seconds: float) -> float:
        """What a counter gained that is smaller than before: it was full and began anew, or it was set back."""
        if self.sensor.largest is None:
            raise Lost(f"{self.sensor.name} ran backward")
        around = gained + self.sensor.largest
        limit = LARGEST_POWER if self.power is None else WRAPPED_SHARE * self.power
        if not 0 <= around <= limit * seconds:
            raise Lost(f"{self.sensor.name} was set back")
        return around


@dataclass
class Window:
    """A stretch between two ticks: energy in J, its begin and end in ns, and how far off both together may be in ns."""

    joules: float
    began: int
    ended: int
    off: int

    @property
    def seconds(self) -> float:
        """How long it was."""
        return (self.ended - self.began) / 1e9

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds

    @property
    def relative_error(self) -> float:
        """By which its edges may be off."""
        return self.off / (self.ended - self.began)


@dataclass
class Watched:
    """What came of watching one sensor: windows, and why others were lost."""

    sensor: Sensor
    windows: list[Window] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    powers: list[float] = field(default_factory=list)
    """Of sensors that tell power: each reading in W."""


def watch(sensor: Sensor, clock: Clock, sleep: Sleep, edge_s: float, go_on: Callable[[], bool]) -> Watched:
    """Windows of about `edge_s` s, one after the other, for as long as is wanted; they share their edges."""
    return (_count if sensor.method == "counter" else _sample)(Watched(sensor), clock, sleep, edge_s, go_on)


def _count(seen: Watched, clock: Clock, sleep: Sleep, edge_s: float, go_on: Callable[[], bool]) -> Watched:
    ticks, first = Ticks(seen.sensor, clock, sleep), None
    try:
        period = ticks.period_s()
    except Lost as end:
        seen.lost.append(str(end))
        return seen
    while go_on():
        try:
            if first is None:
                first = ticks.next()
            due = first.at + round(edge_s * 1e9)
            while clock() < due - period * 1e9 and go_on():
                sleep(min(SAMPLE_EVERY_S, max(0.0, (due - clock()) / 1e9 - period)))
            if not go_on():
                break
            last = ticks.next()
            joules = ticks.between(first, last)
        except Lost as end:
            seen.lost.append(str(end))
            first = None
            continue
        seen.windows.append(Window(joules, first.at, last.at, first.off + last.off))
        first = last
    return seen


def _sample(seen: Watched, clock: Clock, sleep: Sleep, edge_s: float, go_on: Callable[[], bool]) -> Watched:
    """The mean of readings at equal distances: how far off it may be is shown by how windows differ."""
    while go_on():
        began, powers = clock(), list[float]()
        while go_on() and clock() - began < edge_s * 1e9:
            try:
                powers.append(seen.sensor.read())
            except Unreadable as error:
                seen.lost.append(str(error))
                powers = []
                break
            sleep(SAMPLE_EVERY_S)
        ended = clock()
        if len(powers) > 1 and ended - began >= edge_s * 1e9:
            seen.powers += powers
            joules = sum(powers) / len(powers) * (ended - began) / 1e9
            seen.windows.append(Window(joules, began, ended, 0))
    return seen


class Watch:
    """Watches sensors while something else is done, each in a thread of its own."""

    def __init__(self, sensors: Sequence[Sensor], clock: Clock, sleep: Sleep, edge_s: float) -> None:
        self.going = True
        self.results: list[Watched] = [Watched(sensor) for sensor in sensors]
        self.threads = [threading.Thread(target=self._one, args=(place, clock, sleep, edge_s), daemon=True)
                        for place in range(len(sensors))]  # fmt: skip

    def _one(self, place: int, clock: Clock, sleep: Sleep, edge_s: float) -> None:
        self.results[place] = watch(self.results[place].sensor, clock, sleep, edge_s, lambda: self.going)

    def __enter__(self) -> Watch:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.going = False
        for thread in self.threads:
            thread.join(timeout=2 * FROZEN_S)


@dataclass(frozen=True)
class Progress:
    """How many steps were done at what time in ns: between two of these, evenly."""

    times: Sequence[int]
    steps: Sequence[int]

    def at(self, time: int) -> float | None:
        """Steps that were done then; None before the first or after the last."""
        from bisect import bisect_right

        if not self.times or not self.times[0] <= time <= self.times[-1]:
            return None
        after = min(len(self.times) - 1, bisect_right(self.times, time))
        before = after - 1
        share = (time - self.times[before]) / max(1, self.times[after] - self.times[before])
        return self.steps[before] + share * (self.steps[after] - self.steps[before])


def per_step(windows: Sequence[Window], progress: Progress) -> list[tuple[float, float, float]]:
    """For each window that steps filled from edge to edge: energy in J, time in s, and steps."""
    told = []
    for window in windows:
        first, last = progress.at(window.began), progress.at(window.ended)
        if first is not None and last is not None and last > first and math.isfinite(window.joules):
            told.append((window.joules, window.seconds, last - first))
    return told
