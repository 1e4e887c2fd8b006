"""Sensors: what tells energy or power, one file each, each with a function `find` that gives those of this machine.

A sensor says what it sees (its scope) and how: a counter adds energy up by itself, and misses nothing; an average is
the power over some time before; a sample is the power of a moment, and says nothing of the time between two of them.

Rules: standard library only, but for what an extra brings on a Mac. Nothing is estimated: what can't be read is
not there, or is named with what would open it. A reading that fails raises `Unreadable`, and never gives a number.
A file that fails or hangs when it is asked what there is costs its own sensors only.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mldyno.records import Device

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
