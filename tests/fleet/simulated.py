"""Hosts that are scripts, with a clock that runs only where everybody waits.

A script is a generator for each contact: it yields a message or bytes to say, a number of s to wait, or `CUT`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mldyno.engines import Engine, Host
from mldyno.fleet import wire
from mldyno.fleet.conductor import Conductor, FleetListener, Member, Times
from mldyno.fleet.pipes import Heard
from mldyno.records import Record, Run, seal

RUN = "20260101T000000-abcdef"
HELLO = wire.Hello(wire.VERSION, __import__("mldyno").__version__, "3.11.2", 42)
FOREVER = 1e9


@dataclass
class Cut:
    """The end of a pipe, with the last line of standard error."""

    last: str = ""


CUT = Cut()
Step = wire.Said | bytes | float | Cut
Script = Callable[["Contact"], Iterator[Step]]


@dataclass
class Contact:
    """One process of a host: what it was sent, and whether its input has ended."""

    host: str
    number: int
    lines: list[bytes] = field(default_factory=list)
    closed: bool = False
    next_at: float = 0.0
    steps: Iterator[Step] = field(default_factory=lambda: iter(()))

    @property
    def request(self) -> wire.Request:
        """What was asked for, behind the line that starts mldyno there."""
        return wire.request(next(line for line in self.lines[1:] if line.startswith(b'{"do"')))


class Simulated:
    """The pipes to such hosts."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self.scripts, self.clock = scripts, 0.0
        self.contacts: list[Contact] = []
        self.open_ones: dict[str, Contact] = {}
        self.killed: list[str] = []
        self.beats = 0
        self.most_open = 0

    def now(self) -> float:
        return self.clock

    def open(self, host: str, words: Sequence[str]) -> None:
        contact = Contact(host, sum(each.host == host for each in self.contacts), next_at=self.clock)
        contact.steps = self.scripts[host](contact)
        self.contacts.append(contact)
        self.open_ones[host] = contact
        self.most_open = max(self.most_open, len(self.open_ones))

    def send(self, host: str, line: bytes) -> None:
        if contact := self.open_ones.get(host):
            self.beats += line == wire.BEAT
            contact.lines.append(line)

    def close(self, host: str) -> None:
        if contact := self.open_ones.get(host):
            contact.closed = True
            if contact.next_at < FOREVER:
                contact.next_at = self.clock  # it need not wait any more

    def kill(self, host: str) -> None:
        self.killed.append(host)
        self.open_ones.pop(host, None)

    def wait(self, seconds: float) -> list[Heard]:
        ends = self.clock + seconds
        due = min((each.next_at for each in self.open_ones.values()), default=FOREVER)
        self.clock = max(self.clock, min(ends, due))
        heard = []
        for host, contact in list(self.open_ones.items()):
            if contact.next_at <= self.clock:  # one step at once, so that what is said can be answered
                step = next(contact.steps, CUT)
                if isinstance(step, float | int):
                    contact.next_at = self.clock + step
                elif isinstance(step, Cut):
                    heard.append(Heard(host, None, step.last))
                    del self.open_ones[host]
                elif isinstance(step, bytes):
                    heard.append(Heard(host, step))
                else:
                    heard.append(Heard(host, wire.line_of(step).rstrip(b"\n")))
        return heard


class QueueEngine(Engine):
    """Hosts of a queue."""

    queues = True

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        return list(words)


@dataclass(frozen=True)
class PlainEngine(Engine):
    """Hosts without one; notes what it is asked to clear."""

    cleared: list[str] = field(default_factory=list)

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        return list(words)

    def clear(self, host: Host) -> None:
        self.cleared.append(host.name)


class Fleet(FleetListener):
    """A conductor of such hosts, and what it has kept."""

    def __init__(self, scripts: dict[str, Script], engine: Engine | None = None, **options: Any) -> None:
        self.pipes = Simulated(scripts)
        self.kept_records: dict[str, list[Record]] = {}
        self.notes: list[str] = []
        self.states: list[tuple[str, str]] = []
        self.engine = engine or PlainEngine()
        self.refusals: list[Exception] = []  # of the store, for its next writes
        known = options.pop("known", {})
        times = options.pop("times", Times())
        ended = options.pop("ended", lambda clock: False)
        members = [(Host(name, "ssh", name, **options.pop(name, {})), self.engine) for name in scripts]
        self.conductor = Conductor(
            members, wire.Request("measure", RUN, targets=("mlp",)), self.pipes,
            lambda host: {RUN: [], **known.get(host.name, {})}, self._keep, self, times,
            lambda: ended(self.pipes.clock),
        )  # fmt: skip

    def _keep(self, records: Sequence[tuple[Host, Record]]) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        for host, record in records:
            self.kept_records.setdefault(host.name, []).append(record)

    def note(self, member: Member, line: str) -> None:
        self.notes.append(line)

    def changed(self, member: Member) -> None:
        self.states.append((member.name, member.state))

    def run(self) -> dict[str, Member]:
        """Run to the end; return the hosts by their names."""
        return {member.name: member for member in self.conductor.run()}


def varied(record: Record, number: int, run: str = RUN, **changes: Any) -> Record:
    """A record like another one, of a run."""
    return seal(replace(record, run=Run(run, process=number), **changes))


def altered(record: Record) -> str:
    """The text of a record in which a number was changed."""
    content = json.loads(record.text)
    content["facts"]["steps"] = 123_456
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
