"""Hardware: one file per vendor or source, with facts of its devices, meters and sensors.

A file may hold functions that describe devices, `METERS` (classes) and `SENSORS` (functions that find them, by name).
Rules: standard library only, but for what an extra adds on a Mac. Nothing is estimated: what can't be read is absent,
or is named with what would open it.

A meter observes something besides time. It is started when a case is open and warm, and says then whether it applies.
In between it sees windows: spans of measuring of some 20 ms. It reads between blocks, never within one, and windows are
long enough that all readings take under 1 % of the time.

A sensor reports energy or power. It says what it covers (its scope) and how: a counter adds up energy and misses
nothing; an average is the power over some time before; a sample is the power at one moment. A reading that fails raises
`Unreadable`. A file that fails or hangs while it looks for sensors costs only its own.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mldyno.records import Case, Device, Fact, Series

# -- facts of devices ----------------------------------------------------------------------------

LONGEST_NAME = 120  # characters of a name or a version
Facts = dict[str, Fact]


@dataclass(frozen=True)
class Description:
    """What a source reports of a device: what its vendor calls it, its memory in B, and facts; only what is known."""

    title: str | None = None
    memory: int | None = None
    facts: Facts = field(default_factory=dict)


def known(**facts: Fact) -> Facts:
    """The facts that are known."""
    return {name: value for name, value in facts.items() if value is not None}


def words(value: object) -> str | None:
    """A short text in one line; None for whatever else a tool may print."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    fine = 0 < len(text) <= LONGEST_NAME and text.isprintable() and "\ufffd" not in text  # what was not UTF-8
    return text if fine else None


def quantity(value: object, times: float = 1.0, over: float = 1.0) -> float | None:
    """A number over 0 in SI units, after a factor and a divisor that make it so; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value) * times / over
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < 1e18 else None


def count(value: object) -> int | None:
    """A whole number over 0; None for anything else."""
    number = quantity(value)
    return int(number) if number is not None and number == int(number) and number < 1e6 else None


def agreed(devices: Sequence[Description]) -> Facts:
    """The facts in which several devices agree: true of each of them, whichever is meant."""
    first = devices[0].facts if devices else {}
    return {name: value for name, value in first.items() if all(device.facts.get(name) == value for device in devices)}


# -- meters --------------------------------------------------------------------------------------

SHORTEST_WINDOW = 20_000_000  # ns
METERS_SHARE = 0.01  # of the time, that reading the meters may take


class Meter(ABC):
    """Observe one thing while a case is measured."""

    @abstractmethod
    def start(self, case: Case, device: Device) -> bool:
        """Begin to observe; return False where this case on this device has nothing to observe."""

    def begin_window(self) -> None:  # noqa: B027 (most read at the end only)
        """Begin a span of measuring, after a pause."""

    def end_window(self) -> None:  # noqa: B027
        """End a window; the next one may begin at once."""

    @abstractmethod
    def stop(self) -> list[Series]:
        """Return what was observed, in SI base units."""


class Windows:
    """Tells the meters when a window begins and ends; `ended` is called at each end."""

    def __init__(self, meters: Sequence[Meter], clock: Callable[[], int], ended: Callable[[], None]) -> None:
        self.meters, self.clock, self.ended = meters, clock, ended
        self.length = SHORTEST_WINDOW
        self.due = 0

    def begin(self) -> None:
        """A turn begins."""
        for meter in self.meters:
            meter.begin_window()
        self.due = self.clock() + self.length

    def look(self, now: int) -> None:
        """Between two blocks: end the window if it is time."""
        if now >= self.due:
            self.end()

    def end(self) -> None:
        """End the window, and begin the next; one that costs more than its share makes the next ones longer."""
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
SYSFS = "MLDYNO_SYSFS"  # the folder that stands for /sys, for tests
SEARCH_S = 10.0  # that one file may look for its sensors: drivers answer in ms, a plug within 3 s


class Unreadable(Exception):
    """A reading failed; the message says how."""


class Sensor(ABC):
    """One thing that tells energy or power."""

    name: str
    """As its maker calls it: package-0, psys, amdgpu."""
    scope: Scope
    """What it sees: cores of a processor, all of its package, memory, a card with all that is on it, or the machine."""
    method: Method
    device: str = ""
    """The device that it sees, by our name; empty where it is no one device's."""
    largest: float | None = None
    """Counters: the energy in J after which it begins anew; None where that is not known."""
    every_s: float = 0.1
    """Others: how often it is worth a look, in s."""

    @abstractmethod
    def read(self) -> float:
        """Counters: energy in J since some time; others: power in W. Raises Unreadable."""

    def __repr__(self) -> str:
        return f"<{self.name}: {self.scope}, {self.method}>"


@dataclass(frozen=True)
class Closed:
    """A sensor that is there and can't be read: why, what opens it, and what that gives away."""

    name: str
    scope: Scope | None
    """None where not even that is known."""
    reason: str
    cure: str
    price: str = ""


@dataclass(frozen=True)
class Found:
    """What there is."""

    sensors: Sequence[Sensor] = ()
    closed: Sequence[Closed] = ()


@dataclass
class Surroundings:
    """Where sensors are looked for."""

    sysfs: Path = field(default_factory=lambda: Path(os.environ.get(SYSFS) or "/sys"))
    devices: Sequence[Device] = ()
    """Those that the framework sees, with what is known of them."""


def search(kind: str, find: Callable[[Surroundings], Found], around: Surroundings) -> Found:
    """What a file's `find` gives; an error, or no answer in time, is a sensor that can't be read."""
    answers = list[Found]()

    def ask() -> None:
        try:
            answers.append(find(around))
        except Exception as error:  # a driver's or a library's own
            answers.append(_broken(kind, f"looking for it fails: {type(error).__name__}: {error}"))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SEARCH_S)
    return answers[0] if answers else _broken(kind, f"it does not answer within {SEARCH_S:.0f} s")


def _broken(kind: str, reason: str) -> Found:
    return Found(closed=[Closed(kind, None, reason, "see that its driver or library works; all else is measured")])


class FileSensor(Sensor):
    """A number in a file of the kernel's."""

    def __init__(
        self, path: Path, unit: float, name: str, scope: Scope, method: Method, device: str = "",
        largest: float | None = None,
    ) -> None:  # fmt: skip
        """`unit` is that of the number, in J or W."""
        self.path, self.unit, self.name, self.scope, self.method = path, unit, name, scope, method
        self.device, self.largest = device, largest

    def read(self) -> float:
        """The number, in J or W."""
        return number_in(self.path) * self.unit


def number_in(path: Path) -> int:
    """A whole number in a file of the kernel's; raises Unreadable."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path.name}: {error}") from None


def text_in(path: Path) -> str:
    """A file of the kernel's in a line; empty where it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
