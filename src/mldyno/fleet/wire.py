"""What the conductor asks a remote runner, and what that says: one type each, one line of JSON each.

A request is the first line that goes to a host; every other one is a beat, an empty line. A host says hello, then
anything else, and last its end: without that line its pipe was cut, whatever an exit code claims. Both sides take
silence for a cut line. Records cross as the texts that they were written as.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from mldyno.messages import Malformed, decode, wire_name

VERSION = 1  # of these messages
BEAT = b"\n"
LONGEST_LINE_B = 32 << 20  # as in files of records
FIRST = b'{"is":"'  # begins a line of ours; before the first one, a shell may print anything

Purpose = Literal["measure", "dry-run", "doctor"]
EndStatus = Literal["done", "busy", "refused", "interrupted", "failed"]


@dataclass(frozen=True)
class Request:
    """What the user asked for, as given: what `gpu` and `all` mean is known on the host only."""

    purpose: Purpose
    run: str = ""
    host: str = ""  # the name of the host
    targets: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)  # axes and settings, by their keywords
    command: tuple[str, ...] | None = None  # to time instead of targets
    files: dict[str, str] = field(default_factory=dict)  # text of files that targets name, by their names
    env: dict[str, str] = field(default_factory=dict)
    named: bool = True  # whether records call the machine by the host's name
    login: bool = False  # whether a login node may be measured too
    silent: float = 25.0  # s without a beat, after which the line is taken for cut
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)  # ids of records that are here, by runs

    @property
    def text(self) -> str:
        """The request as one line, without what differs from host to host or from contact to contact."""
        own = ("run", "host", "env", "named", "login", "silent", "known")
        content = {name: value for name, value in asdict(self).items() if name not in own}
        return json.dumps(content, sort_keys=True)

    def of_run(self, run: str) -> Request:
        return replace(self, run=run)


class Said:
    """A message of a host."""


@dataclass(frozen=True)
class Hello(Said):
    """The first line: which mldyno and which Python answer, in which process."""

    wire: int
    mldyno: str
    python: str
    pid: int


@dataclass(frozen=True)
class WantsWheel(Said):
    """There is no mldyno of this version; send it."""


@dataclass(frozen=True)
class Alive(Said):
    """Nothing new."""


@dataclass(frozen=True)
class Note(Said):
    """A line for the user."""

    line: str


@dataclass(frozen=True)
class Progress(Said):
    """What is measured now: cases that are done, and time left in s."""

    case: str
    done: int
    cases: int
    left: float
    step: float | None = None


@dataclass(frozen=True)
class Measured(Said):
    """A record, as its text."""

    record: str


@dataclass(frozen=True)
class Expected(Said):
    """What a case is expected to take: s and B, and whether it fits."""

    case: str
    seconds: float
    memory: int | None
    fits: bool | None
    note: str


@dataclass(frozen=True)
class Examined(Said):
    """What the host is and can run, in words, in the order to show."""

    facts: dict[str, str]


@dataclass(frozen=True)
class End(Said):
    """The last line: how it ended, and how many cases the limit of the run left out."""

    status: EndStatus
    reason: str = ""
    left_out: int = 0


SAID: Mapping[str, type[Said]] = {wire_name(kind): kind for kind in Said.__subclasses__()}
REQUESTS: Mapping[str, type[Request]] = {"request": Request}


def line_of(message: Said | Request) -> bytes:
    """Return a message as a line."""
    word = "do" if isinstance(message, Request) else "is"
    content = {word: wire_name(type(message)), **vars(message)}
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def said(line: bytes) -> Said:
    """Return what a host says; raise Malformed."""
    message: Said = decode(line, "is", SAID)[0]
    return message


def request(line: bytes) -> Request:
    """Return the request in a line; raise Malformed."""
    content: Request = decode(line, "do", REQUESTS)[0]
    return content


__all__ = ["Malformed", "line_of", "request", "said"]
