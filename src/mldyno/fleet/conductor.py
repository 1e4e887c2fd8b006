"""The conductor: asks all hosts at once for the same work, keeps what they send, and knows how each of them ended.

Rules: a host's end is its own last line, never an exit code; silence is a cut line; what happens to one host is no
affair of the others. A lost host is asked again, for what is missing of the same run: its own store has the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Literal, Protocol

from mldyno import __version__
from mldyno.engines import Engine, Host
from mldyno.errors import MldynoError, StoreError, StoreLocked
from mldyno.fleet import wire
from mldyno.fleet.pipes import Heard
from mldyno.fleet.wheel import LOADER, boot_line, wheel_line
from mldyno.printable import printable, shortened
from mldyno.records import Record
from mldyno.store.codec import BadRecord, decode
from mldyno.store.transfer import foreign_fault

State = Literal["waiting", "queued", "starting", "running", "done", "busy", "refused", "failed", "lost", "interrupted"]
STARTED = ("queued", "starting", "running")  # and not ended
LOOK_S = 0.5  # between two looks at the clock
MOST_STARTING = 100  # hosts at once, where no queue decides
NOISE_B = 1 << 20  # that a shell there may print before the first line
MOST_NOTES = 1000  # of a host
LONGEST_REASON = 300  # characters
FEWEST_TRIES = 2  # to reach a host that was lost; more, if each brings records


@dataclass(frozen=True)
class Times:
    """How long the conductor waits for what, in s."""

    beat: float = 5.0
    silent: float = 25.0  # without a line, after which it is taken for cut, on both sides
    start: float = 60.0  # until the first line
    again: float = 20.0  # until a lost host is asked again
    busy: float = 30.0  # until a busy one is
    tidy: float = 30.0  # until hosts that are asked to end have ended
    linger: float = 5.0  # until a pipe has ended, after the last line
    locked: float = 60.0  # that the store here may be locked


@dataclass
class Member:
    """A host in a run: its state, and what is known of its work."""

    host: Host
    engine: Engine
    state: State = "waiting"
    reason: str = ""
    records: int = 0  # that came in this run
    case: str = ""
    done: int = 0
    cases: int = 0
    left: float | None = None  # s
    left_out: int = 0  # cases, by the limit of the run
    facts: dict[str, str] = field(default_factory=dict)
    expected: list[wire.Expected] = field(default_factory=list)
    # of the present contact
    open: bool = False
    heard: float = 0.0
    noise: int = 0
    notes: int = 0
    at_first: int = 0  # records before it
    deadline: float | None = None  # by which its pipe must have ended
    tries: int = 0
    again: float | None = None  # when it is asked again
    ids: set[str] = field(default_factory=set)  # of records that are here
    runs: set[str] = field(default_factory=set)  # whose records it may send

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def over(self) -> bool:
        return not self.open and self.again is None and self.state != "waiting"


class Pipes(Protocol):
    """What carries lines to and from hosts."""

    def now(self) -> float: ...
    def open(self, host: str, words: Sequence[str]) -> None: ...
    def send(self, host: str, line: bytes) -> None: ...
    def close(self, host: str) -> None: ...
    def kill(self, host: str) -> None: ...
    def wait(self, seconds: float) -> list[Heard]: ...


class FleetListener:
    """Is notified of what happens on hosts; overriding any method is optional."""

    def begin(self, members: Sequence[Member]) -> None:
        """Note that a run begins."""

    def changed(self, member: Member) -> None:
        """Note a new state, or progress."""

    def note(self, member: Member, line: str) -> None:
        """Note what a host tells its user."""

    def kept(self, member: Member, record: Record) -> None:
        """Note that a record of a host is in the store."""

    def end(self) -> None:
        """Note that the run is over, however it ended."""


Known = Callable[[Host], Mapping[str, Sequence[str]]]
Keep = Callable[[Sequence[tuple[Host, Record]]], None]


class Conductor:
    """One run on many hosts."""

    def __init__(
        self, members: Sequence[tuple[Host, Engine]], request: wire.Request, pipes: Pipes, known: Known, keep: Keep,
        listener: FleetListener, times: Times | None = None, ended: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`known` returns ids of a host's records that are here, by runs; `keep` stores records."""
        self.members = {host.name: Member(host, engine) for host, engine in members}
        self.request, self.pipes, self.known, self.keep = request, pipes, known, keep
        self.listener, self.times, self.ended = listener, times or Times(), ended
        self.stopped = ""  # why all hosts were asked to end
        self.fault: StoreError | None = None
        self.unkept: list[tuple[Host, Record]] = []
        self.unkept_since = 0.0
        self._clearing: dict[str, threading.Thread] = {}

    def run(self) -> list[Member]:
        """Ask all hosts; return how each ended. Raise StoreError where records can't be stored here."""
        self.listener.begin([*self.members.values()])
        beat = self.pipes.now()
        while not all(member.over for member in self.members.values()):
            now = self.pipes.now()
            if self.ended() and not self.stopped:
                self.stop("ended here")
            if now - beat >= self.times.beat:
                beat = now
                for member in self.members.values():
                    if member.open:
                        self.pipes.send(member.name, wire.BEAT)
            self._open(now)
            for heard in self.pipes.wait(LOOK_S):
                self._hear(self.members[heard.host], heard)
            self._keep(self.pipes.now())
            for member in self.members.values():
                self._watch(member, self.pipes.now())
        while self.unkept and self.fault is None:
            self.pipes.wait(LOOK_S)
            self._keep(self.pipes.now())
        for thread in self._clearing.values():
            thread.join()
        if self.fault is not None:
            raise self.fault
        return [*self.members.values()]

    def stop(self, reason: str) -> None:
        """Ask all hosts to end tidily."""
        self.stopped, now = reason, self.pipes.now()
        for member in self.members.values():
            member.again = None
            if member.state == "queued":
                self._cut(member, "interrupted", reason)
            elif member.open:
                self.pipes.close(member.name)
                member.deadline = member.deadline or now + self.times.tidy
            elif member.state == "waiting":
                self._become(member, "interrupted", reason)

    # -- contacts ----------------------------------------------------------------------------------

    def _open(self, now: float) -> None:
        """Begin the contacts that are due."""
        others = any(not member.over and member.state != "busy" for member in self.members.values())
        starting = sum(member.open and member.state == "starting" for member in self.members.values())
        for member in self.members.values():
            if member.state == "busy" and not others:
                member.again = None  # what keeps it busy may last for ever
            due = member.state == "waiting" or (member.again is not None and now >= member.again)
            if not due or member.open or self.stopped or self._is_clearing(member):
                continue
            if not member.engine.queues:
                if starting >= MOST_STARTING:
                    continue
                starting += 1
            self._contact(member, now)

    def _contact(self, member: Member, now: float) -> None:
        host, engine = member.host, member.engine
        member.again, member.heard, member.noise, member.tries = None, now, 0, member.tries + 1
        member.at_first, member.deadline = member.records, None
        words = [host.python or engine.python, "-c", LOADER]
        try:
            self.pipes.open(host.name, engine.reach(engine.command(host, words)))
        except (OSError, MldynoError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            self._become(member, "refused", why)
            return
        member.open = True
        self._become(member, "queued" if engine.queues else "starting")
        self.pipes.send(host.name, boot_line())

    def _ask(self, member: Member, hello: wire.Hello) -> None:
        """Send the request to a host that said hello."""
        if (hello.wire, hello.mldyno) != (wire.VERSION, __version__):
            self._end(member, "refused", f"it has mldyno {hello.mldyno}, and here is {__version__}")
            return
        host = member.host
        try:
            known = {run: tuple(ids) for run, ids in self.known(host).items()}
        except StoreLocked:  # then it sends all records of this run, and none is stored twice
            known = {self.request.run: ()}
        member.runs = {*known}
        member.ids |= {id_ for ids in known.values() for id_ in ids}
        priced = {"price": host.price} if host.price else {}
        request = replace(
            self.request, options=self.request.options | priced, host=host.name, env=dict(host.env),
            named=host.engine != "local", login=host.engine != "ssh" or host.measure,
            silent=self.times.silent, known=known,
        )  # fmt: skip
        self.pipes.send(host.name, wire.line_of(request))
        self._become(member, "running")

    # -- what is heard -----------------------------------------------------------------------------

    def _hear(self, member: Member, heard: Heard) -> None:
        if not member.open:
            return
        member.heard = self.pipes.now()
        if heard.line is None:
            self._closed(member, member.engine.why(heard.last.splitlines()))
        elif member.deadline is None or self.stopped:  # else it has said its last line
            if member.state in ("queued", "starting") and not heard.line.startswith(wire.FIRST):
                member.noise += len(heard.line)
                if member.noise > NOISE_B:
                    self._cut(member, "refused", "it prints without end before mldyno begins")
                return
            try:
                self._said(member, wire.said(heard.line))
            except (wire.Malformed, BadRecord) as error:
                self._cut(member, "failed", f"what it sent is not of mldyno: {error}")

    def _said(self, member: Member, said: wire.Said) -> None:
        match said:
            case wire.Hello():
                self._ask(member, said)
            case wire.WantsWheel():
                self._become(member, "starting", "mldyno is brought there")
                self.pipes.send(member.name, wheel_line())
            case wire.Measured():
                self._take(member, said.record)
            case wire.Progress():
                member.case, member.left = said.case, max(0.0, said.left)
                member.done, member.cases = said.done, said.cases
                self.listener.changed(member)
            case wire.Note():
                member.notes += 1
                if member.notes <= MOST_NOTES:
                    self.listener.note(member, shortened(said.line, LONGEST_REASON))
            case wire.Expected():
                member.expected.append(said)
            case wire.Examined():
                member.facts = said.facts
            case wire.End():
                member.left_out = said.left_out
                if said.status == "interrupted" and not self.stopped:
                    self._lose(member, said.reason)  # by something else than us
                else:
                    self._end(member, said.status, said.reason)

    def _take(self, member: Member, text: str) -> None:
        """Check a record and note it; raise BadRecord for what can't be of this host and run."""
        record = decode(text)
        if record.text != text or record.provenance != "measured" or record.run.id not in member.runs:
            raise BadRecord(f"record {record.id[:10]} is not of this run")
        if fault := foreign_fault(record, datetime.now(timezone.utc)):
            raise fault
        if record.id not in member.ids:
            member.ids.add(record.id)
            member.records += 1
            self.unkept.append((member.host, record))

    def _keep(self, now: float) -> None:
        """Store what came; a store that is locked is tried again, since hosts can't wait for it."""
        if not self.unkept or self.fault is not None:
            return
        self.unkept_since = self.unkept_since or now
        try:
            self.keep(self.unkept)
        except StoreLocked as error:
            if now - self.unkept_since >= self.times.locked:
                self._give_up(error)
            return
        except StoreError as error:
            self._give_up(error)
            return
        for host, record in self.unkept:
            self.listener.kept(self.members[host.name], record)
        self.unkept, self.unkept_since = [], 0.0

    def _give_up(self, error: StoreError) -> None:
        self.fault = StoreError(f"{error} What was measured is in the stores of the hosts, and --resume fetches it.")
        self.stop("its records can't be stored here")

    # -- ends --------------------------------------------------------------------------------------

    def _watch(self, member: Member, now: float) -> None:
        """Act where a host has been silent for too long, or has not ended when it should have."""
        if not member.open:
            return
        if member.deadline is not None:
            if now >= member.deadline:
                if member.state in STARTED:
                    self._become(member, "interrupted", f"it did not end within {self.times.tidy:g} s")
                self._drop(member)
            return
        if member.state == "queued" and member.tries == 1:
            return
        limit = self.times.silent if member.state == "running" else self.times.start
        if now - member.heard >= limit:
            self._lose(member, f"nothing was heard for {limit:g} s")
            self._drop(member)

    def _closed(self, member: Member, last: str) -> None:
        """Note the end of a pipe: without a last line before it, the host is lost, or never was there."""
        member.open = False
        if member.state not in STARTED:
            return
        self._clear(member)  # a process there may outlive its pipe
        if self.stopped:
            self._become(member, "interrupted", last or self.stopped)
        elif member.state != "running" and member.tries == 1:
            self._become(member, "refused", last or "the connection ended before mldyno began")
        else:
            self._lose(member, last or "the connection ended")

    def _lose(self, member: Member, reason: str) -> None:
        """Note that a host is lost; ask it again, unless that brought nothing the last time."""
        self._become(member, "lost", reason)
        if member.open:
            member.deadline = self.pipes.now() + self.times.linger
            self.pipes.close(member.name)
        if not self.stopped and (member.tries < FEWEST_TRIES or member.records > member.at_first):
            member.again = self.pipes.now() + self.times.again

    def _end(self, member: Member, state: State, reason: str) -> None:
        """Note how a host has ended, and give its pipe the time to end too."""
        self._become(member, state, reason)
        member.deadline = self.pipes.now() + self.times.linger
        self.pipes.close(member.name)
        if state == "busy" and not self.stopped:
            member.again = self.pipes.now() + self.times.busy

    def _cut(self, member: Member, state: State, reason: str) -> None:
        self._become(member, state, reason)
        self._drop(member)

    def _drop(self, member: Member) -> None:
        """End the contact by force, and what it left in its engine's queue."""
        member.open = False
        self.pipes.kill(member.name)
        self._clear(member)

    def _clear(self, member: Member) -> None:
        """End what the last contact may have left in its engine's queue, which may take a while."""
        if not self._is_clearing(member):
            self._clearing[member.name] = threading.Thread(target=member.engine.clear, args=(member.host,))
            self._clearing[member.name].start()

    def _is_clearing(self, member: Member) -> bool:
        return member.name in self._clearing and self._clearing[member.name].is_alive()

    def _become(self, member: Member, state: State, reason: str = "") -> None:
        member.state, member.reason = state, shortened(printable(reason), LONGEST_REASON)
        if state not in STARTED:
            member.left = None
        self.listener.changed(member)
