"""Hardware: one file per vendor or source, with facts of its devices, meters and sensors.

A file may hold functions that describe devices, `METERS` (classes) and `SENSORS` (functions that find them, by name).
Rules: standard library only, but for what an extra adds on a Mac. Nothing is estimated: what can't be read is omitted,
or named with what would open it.

A meter observes something besides time. It is started when a case is open and warm, and returns whether it applies.
It sees windows: spans of measuring of some 20 ms. It reads between blocks, never within one, and windows are long
enough that all readings take under 1 % of the time.

A sensor reports energy or power, with its scope (what it covers) and method: a counter adds up energy and misses
nothing; an average is the power over some time before; a sample is the power at one moment. A reading that fails raises
`Unreadable`. A file that fails or hangs while it looks for sensors costs only its own.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from mldyno.records import Case, Device, Fact, Series, Unit

# -- facts of devices ----------------------------------------------------------------------------

LONGEST_WORDS = 120  # characters
MILLI = 1e-3
Facts = dict[str, Fact]


@dataclass(frozen=True)
class Description:
    """A device by its source: its vendor's name for it, its memory in B, and facts; only what is known."""

    title: str | None = None
    memory: int | None = None
    facts: Facts = field(default_factory=dict)


def known(**facts: Fact) -> Facts:
    """Return the facts that are not None."""
    return {name: value for name, value in facts.items() if value is not None}


def words(value: object) -> str | None:
    """Return a short text in one line; None for anything else that a tool may print."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    fine = 0 < len(text) <= LONGEST_WORDS and text.isprintable() and "\ufffd" not in text  # what was not UTF-8
    return text if fine else None


def quantity(value: object, times: float = 1.0, over: float = 1.0) -> float | None:
    """Return a number over 0, times a factor and over a divisor that make it SI; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value) * times / over
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < 1e18 else None


def count(value: object) -> int | None:
    """Return a whole number over 0; None for anything else."""
    number = quantity(value)
    return int(number) if number is not None and number == int(number) and number < 1e6 else None


def agreed(devices: Sequence[Description]) -> Facts:
    """Return the facts in which all devices agree."""
    first = devices[0].facts if devices else {}
    return {name: value for name, value in first.items() if all(device.facts.get(name) == value for device in devices)}


# -- meters --------------------------------------------------------------------------------------

SHORTEST_WINDOW = 20_000_000  # ns
METERS_SHARE = 0.01  # of the time, at most, for reading the meters
How = Literal["gain of a window", "end of a window", "gain", "start", "end", "largest", "mean"]


class Meter(ABC):
    """Observe something while a case is measured."""

    @abstractmethod
    def start(self, case: Case, device: Device) -> bool:
        """Begin to observe; return False if this case on this device has nothing to observe."""

    def begin_window(self) -> None:  # noqa: B027 (most read at the end only)
        """Begin a span of measuring, after a pause."""

    def end_window(self) -> None:  # noqa: B027
        """End a window; the next one may begin at once."""

    @abstractmethod
    def stop(self) -> list[Series]:
        """Return what was observed, in SI base units."""


class Reading(NamedTuple):
    """A number to read, and how it becomes a series: one value for each window, or one for the process."""

    metric: str
    unit: Unit
    how: How
    read: Callable[[], float | None]  # in SI base units; None if the system does not count it


class ReadingMeter(Meter):
    """A meter made of readings; those that the system does not count are omitted."""

    @abstractmethod
    def readings(self, case: Case, device: Device) -> Iterable[Reading]:
        """Return what to read; nothing if this case on this device has nothing to observe."""

    def start(self, case: Case, device: Device) -> bool:
        self._readings: list[Reading] = []
        self._before: dict[str, float | None] = {}
        self._values: dict[str, list[float]] = {}
        for reading in self.readings(case, device):
            at_start = reading.read() if reading.how in ("gain of a window", "gain", "start") else 0.0
            if at_start is not None:
                self._readings.append(reading)
                self._before[reading.metric] = at_start
                self._values[reading.metric] = [float(at_start)] if reading.how == "start" else []
        return bool(self._readings)

    def begin_window(self) -> None:
        for metric, _, how, read in self._readings:
            if how == "gain of a window":
                self._before[metric] = read()

    def end_window(self) -> None:
        """Read all; a counter that went back, as /proc/stat may, has gained nothing."""
        for metric, _, how, read in self._readings:
            if how in ("gain", "start", "end"):
                continue
            now, before = read(), self._before[metric]
            if how == "gain of a window":
                self._before[metric] = now  # the next window may follow at once
                if now is not None and before is not None:
                    self._values[metric].append(float(f"{max(0.0, now - before):.6g}"))
            elif now is not None:
                self._values[metric].append(float(now))

    def stop(self) -> list[Series]:
        series = []
        for metric, unit, how, read in self._readings:
            values = self._values[metric]
            if how in ("gain", "end"):
                now, before = read(), self._before[metric] or 0.0
                values = [] if now is None else [float(max(0.0, now - before))]
            elif values and "window" not in how:
                values = [max(values) if how == "largest" else sum(values) / len(values)]
            stage = "window" if "window" in how else "process"
            series.append(Series(metric, unit, tuple(values), stage=stage))
        return [part for part in series if part.values]


class Windows:
    """Begin and end the windows of meters; call `ended` at each end."""

    def __init__(self, meters: Sequence[Meter], clock: Callable[[], int], ended: Callable[[], None]) -> None:
        self.meters, self.clock, self.ended = meters, clock, ended
        self.length = SHORTEST_WINDOW
        self.due = 0

    def begin(self) -> None:
        for meter in self.meters:
            meter.begin_window()
        self.due = self.clock() + self.length

    def look(self, now: int) -> None:
        """End the window if it is due; called between two blocks."""
        if now >= self.due:
            self.end()

    def end(self) -> None:
        """End the window, and begin the next; if reading costs more than its share, later windows are longer."""
        began = self.clock()
        for meter in self.meters:
            meter.end_window()
        self.ended()
        now = self.clock()
        self.length = max(SHORTEST_WINDOW, round((now - began) / METERS_SHARE))
        self.due = now + self.length


# -- sensors -------------------------------------------------------------------------------------

Scope = Literal["cores", "package", "memory", "board", "system"]
Method = Literal["counter", "average", "sample"]
SYSFS = "MLDYNO_SYSFS"  # a folder to read instead of /sys, for tests
SEARCH_TIMEOUT_S = 10.0  # for one source: drivers answer in ms, a plug within 3 s


class Unreadable(Exception):
    """A reading failed; the message says how."""


@dataclass(eq=False)
class Sensor:
    """A source of energy or power."""

    name: str  # its maker's name for it: package-0, psys, amdgpu
    scope: Scope  # what it covers: cores of a processor, its package, memory, a whole card, or the machine
    method: Method
    read: Callable[[], float]  # return energy in J since some time (counters) or power in W; raise Unreadable
    device: str = ""  # name of the device that it covers; empty if it is not one device
    largest: float | None = None  # counters: the energy in J after which it restarts at 0; None if unknown
    every_s: float = 0.1  # averages and samples: time between two readings in s


@dataclass(frozen=True)
class Closed:
    """A sensor that can't be read: why, what opens it, and what that reveals."""

    name: str
    scope: Scope | None  # None if unknown
    reason: str
    cure: str
    price: str = ""


@dataclass(frozen=True)
class Found:
    """The sensors of a source."""

    sensors: Sequence[Sensor] = ()
    closed: Sequence[Closed] = ()


@dataclass
class Surroundings:
    """Where to look for sensors."""

    sysfs: Path = field(default_factory=lambda: Path(os.environ.get(SYSFS) or "/sys"))
    devices: Sequence[Device] = ()  # the devices that the framework sees


def search(kind: str, find: Callable[[Surroundings], Found], around: Surroundings) -> Found:
    """Return the sensors that `find` returns; after an error or a timeout, one that can't be read."""
    answers: list[Found | str] = []

    def ask() -> None:
        try:
            answers.append(find(around))
        except Exception as error:  # a driver's or a library's own
            answers.append(f"looking for it fails: {type(error).__name__}: {error}")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SEARCH_TIMEOUT_S)
    answer = answers[0] if answers else f"it does not answer within {SEARCH_TIMEOUT_S:.0f} s"
    if isinstance(answer, Found):
        return answer
    return Found(closed=[Closed(kind, None, answer, "see that its driver or library works; all else is measured")])


def number_in(path: Path) -> int:
    """Return a whole number from a file of the kernel's; raise Unreadable."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path.name}: {error}") from None


def subfolders(folder: Path) -> list[Path]:
    """Return what is in a folder, sorted by name; nothing if it can't be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
