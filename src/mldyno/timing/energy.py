"""Energy by counters and by readings of power, for runs of steps.

A counter is renewed now and then: every ms by RAPL, every 20 to 100 ms by a graphics card. Read at any time, a window
is off by up to a whole period at each end; the difference of two such errors has a standard deviation of 0.41 periods.
So a window begins and ends where the counter has just changed, and is off by the time between two reads and by the
jitter of the ticks.

A counter that does not change, runs backward, or starts over too early ends its window, which is reported and left out.
So does a read that fails. A read that never returns ends its sensor.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mldyno.hardware import Sensor, Unreadable
from mldyno.stats.intervals import median, spread
from mldyno.timing.clock import Clock

TICKS = 9  # from which a counter's period follows
LOOKS_A_PERIOD = 50  # while a tick is waited for
SHORTEST_TICK_LOOK_S, LONGEST_TICK_LOOK_S = 20e-6, 2e-3
FROZEN_S = 3.0  # without a tick; no counter is slower
LARGEST_POWER = 20_000.0  # W, more than any machine with one plug takes: a counter that gained more was reset
WRAPPED_FACTOR = 3.0  # times the power before: a smaller counter that gained more was set back, and did not wrap
NAP_S = 0.1  # while nothing is due, and after a lost window
HUNG_SENSOR_S = 2 * FROZEN_S  # after which a read that has not returned never will

Sleep = Callable[[float], None]


class Lost(Exception):
    """The energy of a window is unknown: the message says what the sensor did."""


# -- counters --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tick:
    """When a counter changed, in ns, to how many J; and how far off the time may be, in ns."""

    at: int
    joules: float
    off: int


@dataclass
class Ticks:
    """Wait for the ticks of one counter."""

    sensor: Sensor
    clock: Clock
    sleep: Sleep
    look_s: float = SHORTEST_TICK_LOOK_S
    power: float | None = None  # in W, of the last window: by it a wrap is judged
    period: float | None = None  # between two updates, in s; None while unknown
    jitter: int = 0  # by how many ns a tick comes early or late
    hung: bool = False  # whether a read never returned; it is not read again

    def next(self, longest_s: float = FROZEN_S) -> Tick:
        """Return the next tick; raise Lost where none comes."""
        before, joules = self.clock(), self._read()
        began = before
        while True:
            self.sleep(self.look_s)
            value, now = self._read(), self.clock()
            if value != joules:
                return Tick((before + now) // 2, value, (now - before) // 2 + self.jitter)
            if now - began > longest_s * 1e9:
                raise Lost(f"{self.sensor.name} does not change")
            before = now

    def _read(self) -> float:
        try:
            return self.sensor.read()
        except Unreadable as error:
            raise Lost(str(error)) from None

    def period_s(self, go_on: Callable[[], bool] = lambda: True) -> float:
        """Return the counter's period in s, measured once; from then on it is read as often as that needs."""
        if self.period is None:
            ticks = list[Tick]()
            while len(ticks) < TICKS:
                if not go_on():
                    raise Lost(f"{self.sensor.name} is renewed too rarely to find out how often")
                ticks.append(self.next())
            gaps = [(after.at - before.at) / 1e9 for before, after in pairwise(ticks)]
            self.period, self.jitter = median(gaps), round(1e9 * spread(gaps) / math.sqrt(2))
            self.look_s = min(LONGEST_TICK_LOOK_S, max(SHORTEST_TICK_LOOK_S, self.period / LOOKS_A_PERIOD))
        return self.period

    def between(self, first: Tick, last: Tick) -> float:
        """Return the energy in J from one tick to a later one; raise Lost where it is not known."""
        seconds = (last.at - first.at) / 1e9
        gained = last.joules - first.joules
        if gained < 0:
            if self.sensor.largest is None:
                raise Lost(f"{self.sensor.name} ran backward")
            gained += self.sensor.largest  # it has wrapped
            limit = LARGEST_POWER if self.power is None else WRAPPED_FACTOR * self.power
            if not 0 <= gained <= limit * seconds:
                raise Lost(f"{self.sensor.name} was set back")
        if gained > LARGEST_POWER * seconds:
            raise Lost(f"{self.sensor.name} gained {gained:,.0f} J in {seconds:.3g} s: it was reset")
        self.power = gained / seconds
        return gained


@dataclass(frozen=True)
class Window:
    """A span of time: its energy in J, its begin and end in ns, and by how much both together may be off, in ns."""

    joules: float
    began: int
    ended: int
    off: int = 0

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9

    @property
    def watts(self) -> float:
        return self.joules / self.seconds

    @property
    def relative_error(self) -> float:
        return self.off / (self.ended - self.began)


# -- watching --------------------------------------------------------------------------------------


@dataclass
class Watched:
    """The windows or readings of one sensor."""

    sensor: Sensor
    counted: list[Window] = field(default_factory=list)  # of counters: windows that share their edges
    readings: list[tuple[int, float]] = field(default_factory=list)  # of power: when, in ns, and W; NaN if one failed
    lost: list[str] = field(default_factory=list)  # why the energy of some time is not known

    def windows(self, began: int, ended: int, length_s: float) -> list[Window]:
        """Return the windows within a time; readings are grouped to windows of about that many s."""
        if self.sensor.method == "counter":
            return [window for window in self.counted if began <= window.began and window.ended <= ended]
        count = max(1, round((ended - began) / 1e9 / length_s))
        edges = [began + (ended - began) * number // count for number in range(count + 1)]
        return [window for first, last in pairwise(edges) if (window := self._averaged(first, last)) is not None]

    def _averaged(self, began: int, ended: int) -> Window | None:
        """Return the mean of the readings times the window's length; None where there are too few, or one failed."""
        start, end = (bisect_left(self.readings, (edge, -math.inf)) for edge in (began, ended))
        powers = [watts for _, watts in self.readings[start:end]]
        if len(powers) < 2 or not all(map(math.isfinite, powers)):
            return None
        return Window(sum(powers) / len(powers) * (ended - began) / 1e9, began, ended)


def watch(ticks: Ticks, watched: Watched, length_s: float, go_on: Callable[[], bool]) -> None:
    """Take windows of about that many s, or readings, until `go_on` says no."""
    (_count if ticks.sensor.method == "counter" else _read)(ticks, watched, length_s, go_on)


def _count(ticks: Ticks, watched: Watched, length_s: float, go_on: Callable[[], bool]) -> None:
    clock, first = ticks.clock, None
    try:
        period = ticks.period_s(go_on)
    except Lost as end:
        watched.lost.append(str(end))
        return
    while go_on():
        try:
            if first is None:
                first = ticks.next()
            due = first.at + round((length_s - period / 2) * 1e9)
            while clock() < due and go_on():
                ticks.sleep(min(NAP_S, max(0.0, (due - clock()) / 1e9)))
            if not go_on():
                return
            last = ticks.next()
            joules = ticks.between(first, last)
        except Lost as end:
            watched.lost.append(str(end))
            first = None
            ticks.sleep(NAP_S)  # a file that is gone fails at once, each time
            continue
        watched.counted.append(Window(joules, first.at, last.at, first.off + last.off))
        first = last


def _read(ticks: Ticks, watched: Watched, length_s: float, go_on: Callable[[], bool]) -> None:
    while go_on():
        try:
            watts = ticks.sensor.read()
        except Unreadable as error:
            watts = math.nan
            watched.lost.append(str(error))
        watched.readings.append((ticks.clock(), watts))
        ticks.sleep(ticks.sensor.every_s)


class Watch:
    """Watch sensors while something else is done, each in a thread; `results` grow as they go.

    The thread of a sensor that hangs is left behind: it sleeps in the system, and ends with the process.
    """

    def __init__(self, sensors: Sequence[Ticks], length_s: float) -> None:
        self.going = True
        self.results = [Watched(ticks.sensor) for ticks in sensors]
        self.threads = [
            (ticks, watched, threading.Thread(target=self._watch, args=(ticks, watched, length_s), daemon=True))
            for ticks, watched in zip(sensors, self.results, strict=True)
            if not ticks.hung
        ]

    def _watch(self, ticks: Ticks, watched: Watched, length_s: float) -> None:
        try:
            watch(ticks, watched, length_s, lambda: self.going)
        except Exception as error:  # a sensor costs its own energy, and nothing else
            watched.lost.append(f"{ticks.sensor.name}: {type(error).__name__}: {error}")

    def __enter__(self) -> Watch:
        for _, _, thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.going, patience_s = False, HUNG_SENSOR_S
        for ticks, watched, thread in self.threads:
            thread.join(timeout=patience_s)
            if thread.is_alive():
                ticks.hung, patience_s = True, 0.0  # all sensors have had the same time
                watched.lost.append(f"{ticks.sensor.name} does not answer")


# -- steps -----------------------------------------------------------------------------------------


@dataclass
class StepLog:
    """Steps without a pause: how many were done at what time in ns."""

    times: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def note(self, time: int, steps: int) -> None:
        self.times.append(time)
        self.steps.append(steps)

    def at(self, time: int) -> float:
        """Return the steps that were done at a time between the first and the last, interpolated."""
        after = min(len(self.times) - 1, bisect_right(self.times, time))
        before = after - 1
        share = (time - self.times[before]) / max(1, self.times[after] - self.times[before])
        return self.steps[before] + share * (self.steps[after] - self.steps[before])


def per_step(watched: Watched, logs: Sequence[StepLog], length_s: float) -> list[tuple[Window, float]]:
    """Return the windows that steps filled from edge to edge, each with its number of steps."""
    filled = []
    for log in logs:
        if len(log.times) > 1:
            for window in watched.windows(log.times[0], log.times[-1], length_s):
                steps = log.at(window.ended) - log.at(window.began)
                if steps > 0:
                    filled.append((window, steps))
    return filled
