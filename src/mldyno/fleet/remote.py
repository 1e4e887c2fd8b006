"""The remote runner: runs on a host what a conductor asks for, with the ordinary runner and a store of its own.

Nothing here may disturb what is measured: a thread writes, a thread waits for beats, and both mostly sleep. A cut line,
an end of input, or silence, ends the run as Ctrl-C would; what was measured stays in the host's store, and is sent at
the next contact.
"""

from __future__ import annotations

import fcntl
import os
import platform
import queue
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mldyno import __version__, keys, machine_lock
from mldyno.errors import NOT_ALL_OK, OK, MldynoError, StoreError, UsageError
from mldyno.files import file_stem
from mldyno.fleet import wire
from mldyno.plan import Plan
from mldyno.records import Case, Pairing, Record
from mldyno.runner.events import Interrupted, Listener
from mldyno.runner.forecast import Forecast, TimeLeft
from mldyno.runner.run import Runner
from mldyno.store import Query, Store
from mldyno.temporary import has_ended, own_name

FIRST_WORD_S = 60.0  # that the conductor may take for its request
ALIVE_S, SIGNS = 5.0, 5  # between two signs of life, at most; how many there are before silence is a cut line
TIDY_END_S = 15.0  # that a run may take to end after the line is cut; then it is ended in any way
FLUSH_S = 10.0  # that the last lines may take
LOGIN_NODE = "this is a login node, which many people share; measure its nodes by slurm, or write measure = true"
Planned = Callable[[wire.Request, list[str], Store, Callable[[str], None]], Plan]
Forecasts = Callable[[Plan, Store], Iterable[Forecast]]


class Refused(MldynoError):
    """This host is not to be measured."""


class Line:
    """The pipe to the conductor: what is said is written by a thread, so that a full pipe stops nothing."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        self.cut = ""  # why it counts as cut
        self.over = False  # whether all is done, so that its end matters no more

    def say(self, message: wire.Said) -> None:
        self._queue.put(wire.line_of(message))

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            with suppress(OSError):  # nobody hears it; that its input ends too is what counts
                while line:
                    line = line[os.write(self._target, line) :]

    def close(self) -> None:
        """Wait until all is written, for a while."""
        self._queue.put(None)
        self._writer.join(FLUSH_S)

    def request(self) -> wire.Request:
        """Return the first line that is no beat; raise where there is none."""
        text = b""
        while b"\n" not in text:
            came = os.read(self._source, 1 << 20) if select.select([self._source], [], [], FIRST_WORD_S)[0] else b""
            if not came:
                raise EOFError
            text = (text + came).lstrip(wire.BEAT)
            if len(text) > wire.LONGEST_LINE_B:
                raise wire.Malformed("its request is too long")
        return wire.request(text.partition(b"\n")[0])

    def watch(self, silent: float) -> None:
        """From now on, end this process tidily when the line is cut, and say in between that it is alive."""
        threading.Thread(target=self._watch, args=(silent,), daemon=True).start()
        threading.Thread(target=self._live, args=(min(ALIVE_S, silent / SIGNS),), daemon=True).start()

    def _watch(self, silent: float) -> None:
        while select.select([self._source], [], [], silent)[0]:
            if not os.read(self._source, 1 << 16):
                self.cut = "the connection ended"
                break
        self.cut = self.cut or f"nothing was heard for {silent:g} s"
        if self.over:
            return
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(TIDY_END_S)
        os._exit(1)

    def _live(self, period: float) -> None:
        while True:
            time.sleep(period)
            self.say(wire.Alive())


class Telling(Listener):
    """Says what a run does."""

    def __init__(self, line: Line, sent: set[str]) -> None:
        self.line, self.sent = line, sent
        self.todo: set[str] = set()
        self.cases, self.spoken = 0, 0.0
        self.left: TimeLeft | None = None

    def say(self, line: str) -> None:
        self.line.say(wire.Note(line))

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]], forecasts: Sequence[Forecast]) -> None:
        self.todo = {case.id for case, _ in todo}
        self.cases, self.left = len(plan.cases), TimeLeft(plan, forecasts)
        self.left.begin(todo)

    def case_started(self, case: Case, repeat: int) -> None:
        self._advance(case, repeat, False)

    def pairing_started(self, cases: Sequence[Case], repeat: int, pairing: Pairing) -> None:
        self._advance(cases[0], repeat, True)

    def _advance(self, case: Case, repeat: int, pairing: bool) -> None:
        if self.left is not None:
            self.left.advance_to(case, repeat, pairing)
            self._tell(case, None)

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        if self.left is not None:
            self.left.note_step(case, step)
            if time.monotonic() - self.spoken >= ALIVE_S:
                self._tell(case, step)

    def _tell(self, case: Case, step: float | None) -> None:
        self.spoken = time.monotonic()
        left = 0.0 if self.left is None else self.left.seconds
        self.line.say(wire.Progress(case.id, self.cases - len(self.todo), self.cases, left, step))

    def waiting(self, case: Case, reason: str) -> None:
        self.say(f"{case.id}: {reason}")

    def case_settled(self, case: Case) -> None:
        self.todo.discard(case.id)
        if self.left is not None:
            self.left.settled(case)

    def case_ended(self, record: Record) -> None:
        self.send([record])

    def send(self, records: Iterable[Record]) -> None:
        """Send records that the conductor does not have."""
        for record in records:
            if record.id not in self.sent:
                self.sent.add(record.id)
                self.line.say(wire.Measured(record.text))


def serve(planned: Planned, forecasts: Forecasts, examined: Callable[[], dict[str, str]]) -> int:
    """Answer one request on the pipe that this process was started with.

    `planned` returns the plan of a request, whose targets may be other paths here; `examined` what this host is.
    """
    line = Line(*_own_pipe())
    line.say(wire.Hello(wire.VERSION, __version__, platform.python_version(), os.getpid()))
    with suppress(KeyboardInterrupt):
        try:
            request = line.request()
        except EOFError:
            line.close()
            return NOT_ALL_OK
        except wire.Malformed as error:
            end = wire.End("refused", f"the request makes no sense: {error}")
        else:
            line.watch(request.silent)
            end = _answered(request, line, planned, forecasts, examined)
        line.over = True
        line.say(end)
        line.close()
    return OK


def _own_pipe() -> tuple[int, int]:
    """Take standard input and output away from all that prints, and allow signals that an engine has blocked."""
    source, target, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return source, target


def _answered(
    request: wire.Request, line: Line, planned: Planned, forecasts: Forecasts, examined: Callable[[], dict[str, str]]
) -> wire.End:
    """Do what is asked for; return how it ended."""
    try:
        os.environ.update(request.env)
        if request.named:
            os.environ["MLDYNO_MACHINE"] = request.host
        if request.purpose == "doctor":
            line.say(wire.Examined(examined()))
            return wire.End("done")
        if not request.login and shutil.which("sinfo") and "SLURM_JOB_ID" not in os.environ:
            raise Refused(LOGIN_NODE)
        with _files(request) as targets:
            store = Store(_folder() / f"{file_stem(socket.gethostname())}.sqlite")
            if request.purpose == "measure":
                _note_contact(request, store.path.with_suffix(".contact"))
            return _run(request, targets, store, line, planned, forecasts)
    except (Interrupted, KeyboardInterrupt) as error:
        return wire.End("interrupted", line.cut or str(error) or "ended by Ctrl-C")
    except MldynoError as error:
        if isinstance(error, machine_lock.Busy):
            return wire.End("busy", error.who)
        return wire.End("refused" if isinstance(error, Refused) else "failed", str(error))
    except Exception as error:
        return wire.End("failed", f"something went wrong inside mldyno ({type(error).__name__}: {error})")


def _run(
    request: wire.Request, targets: list[str], store: Store, line: Line, planned: Planned, forecasts: Forecasts
) -> wire.End:
    """Send what the conductor lacks, and measure what is missing of its run."""
    telling = Telling(line, {id_ for ids in request.known.values() for id_ in ids})
    for run in request.known:
        telling.send(store.written(Query({"run": run}, heads=False)))
    plan = planned(request, targets, store, telling.say)
    if request.purpose == "dry-run":
        for each in forecasts(plan, store):
            line.say(wire.Expected(each.case.id, each.seconds, each.memory, each.fits, each.note))
        return wire.End("done")
    runner = Runner(plan, store, request.run)
    try:
        with machine_lock.held(telling.say, wait=False, needed=plan.real):
            runner.execute(telling)
    finally:  # what was measured when it was interrupted; and what the store did not take
        telling.send(runner.unsaved)
        with suppress(StoreError):
            telling.send(store.written(Query({"run": request.run}, heads=False)))
    return wire.End("done", left_out=len(runner.left_out))


def _folder() -> Path:
    """Return where the stores of remote runners are, one for each host: hosts may share a home."""
    folder = keys.data_folder() / "fleet"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _files(request: wire.Request) -> Iterator[list[str]]:
    """Write the user's files to a temporary folder; yield the targets with their paths there."""
    if not request.files:
        yield list(request.targets)
        return
    with tempfile.TemporaryDirectory(prefix=f"mldyno-{own_name()}-") as folder:
        for name, text in request.files.items():
            if name != os.path.basename(name):
                raise UsageError(f"'{name}' is not the name of a file.")
            (Path(folder) / name).write_text(text, encoding="utf-8")
        names = tuple(request.files)
        yield [os.path.join(folder, word) if word.partition(":")[0] in names else word for word in request.targets]


def _note_contact(request: wire.Request, file: Path) -> None:
    """Note this contact, and end an earlier one of the same host and run, such as one whose line was cut.

    Raise Refused where this machine is being measured in the same run under another name.
    """
    with open(file, "a+", encoding="ascii") as noted:
        fcntl.flock(noted, fcntl.LOCK_EX)
        noted.seek(0)
        with suppress(OSError, ValueError):
            run, host, name = noted.read().splitlines()
            here, pid, _ = name.split("-")
            if run == request.run and own_name().startswith(f"{here}-") and not has_ended(name):
                if host != request.host:
                    raise Refused(f"it is the same machine as {host}; name it once")
                _end(int(pid), name)
        noted.truncate(0)
        noted.write(f"{request.run}\n{request.host}\n{own_name()}\n")


def _end(pid: int, name: str) -> None:
    """End a process, tidily if it can."""
    for number, patience in ((signal.SIGCONT, 0.0), (signal.SIGINT, TIDY_END_S), (signal.SIGKILL, 5.0)):
        if has_ended(name):
            return
        os.kill(pid, number)
        until = time.monotonic() + patience
        while time.monotonic() < until and not has_ended(name):
            time.sleep(0.1)
