"""The command line in real processes, each with a store of its own and a mark by which what it leaves is found.

Every command is checked for tracebacks; every test ends with a look at its store, which must be sound,
and at the machine, where nothing that the test started may still run.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from bench.networks import Node, two_nodes
from tests import forked_command
from tests.warm_workers import WarmWorkers, without_warm_workers

from mldyno import cli
from mldyno.records import Record
from mldyno.store import Query, Store
from mldyno.worker.client import WorkerProcess

MARK = "MLDYNO_TEST_MARK"
GONE_DEADLINE_S = 60.0  # until what should be gone must be gone, on however busy a machine
COMMAND_DEADLINE_S = 120.0  # that any command here may take
STANDSTILL_S, LOOKS = 0.4, 4  # without work, seen so many times: then a process is held to be waiting

real_workers = pytest.fixture(autouse=True, scope="module")(without_warm_workers)
Rule = dict[str, Any]
Process = subprocess.Popen[str]


@dataclass(frozen=True)
class Done:
    """A command that has ended: exit code, standard output, lines of standard error."""

    code: int
    out: str
    lines: list[str]


@dataclass
class Dyno:
    """Runs `mldyno` as a user does."""

    folder: Path
    store: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    damaged: bool = False
    """Set where the test itself has damaged the store."""
    bound: bool = False
    """Set where permissions must bind the commands, even those of root."""
    within: bool = False
    """Set where nothing depends on the process of a command: it then runs in this one. Its workers are processes."""
    fresh: bool = False
    """Set where commands are started as programs, interpreter and all; else they are forked from this process."""
    warm: WarmWorkers | None = None
    """What forks workers, where a test allows it."""
    started: list[Process] = field(default_factory=list)
    sessions: set[int] = field(default_factory=set)
    """Those of the workers of this test, by the number of the process that leads them."""
    earlier: set[int] = field(default_factory=lambda: set(psutil.pids()))
    """Processes that were there before the test."""

    def environment(self, rules: tuple[Rule, ...] = (), **more: str) -> dict[str, str]:
        """This process's environment with the mark, the store and the script of the fake framework."""
        own = {MARK: self.mark, "MLDYNO_STORE": str(self.store), "MLDYNO_FAKE": json.dumps(rules)}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        return {**inherited, "TMPDIR": str(self.folder), **own, **more}

    def start(
        self, *arguments: str, rules: tuple[Rule, ...] = (), before: Callable[[], object] | None = None,
        terminal: int | None = None, **more: str,
    ) -> Process:  # fmt: skip
        """Start a command; `before` is called in the new process, `more` are settings of its environment.

        Without a terminal it has pipes, as small as the system allows: who does not read holds the command up.
        """
        environment = self.environment(rules, **more)

        def prepare() -> None:
            if not self.fresh and not self.bound:  # permissions bind from the next program on
                forked_command.run(arguments, environment, before or (lambda: None))
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where the tests run in the background of a shell
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and this one under nohup
            if self.bound:
                obey_permissions()
            if before is not None:
                before()

        process = subprocess.Popen(
            [sys.executable, "-m", "mldyno", *arguments],
            env=environment, cwd=self.folder, start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 (no thread runs here)
            stdin=terminal or subprocess.DEVNULL, stdout=terminal or subprocess.PIPE,
            stderr=terminal or subprocess.PIPE, pipesize=4096, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def finish(self, process: Process) -> Done:
        """Wait for a command's end; whatever came of it, it showed no traceback."""
        out, err = process.communicate(timeout=COMMAND_DEADLINE_S)
        return self._ended(process.returncode, out, err)

    def _ended(self, code: int, out: str, err: str) -> Done:
        assert "Traceback" not in out + err, err
        assert "something went wrong inside" not in err, err
        return Done(code, out, err.splitlines())

    def __call__(self, *arguments: str, rules: tuple[Rule, ...] = (), **more: str) -> Done:
        """Run a command to its end."""
        if self.within:
            return self._within(*arguments, rules=rules, **more)
        return self.finish(self.start(*arguments, rules=rules, before=None, terminal=None, **more))

    def measure(self, *arguments: str, rules: tuple[Rule, ...] = (), **more: str) -> tuple[int, dict[str, Record]]:
        """Run `mldyno run` on the fake framework: exit code, and the new records by the id of their case.

        Each has its one line on standard error, with its status and reason where it is not ok.
        """
        known = {record.id for record in self.records()}
        done = self("run", *arguments, "--framework", "fake", "--repeats", "1", rules=rules, **more)
        new = [record for record in self.records() if record.id not in known]
        assert len(done.lines) == len(new), done.lines
        for record in new:
            line = next(line for line in done.lines if line.startswith(f"{record.case.id}: "))
            assert record.status == "ok" or f"{record.status}: {record.reason}" in line
            assert bool(record.reason) == (record.status != "ok")
        by_case = {record.case.id: record for record in new}
        assert len(by_case) == len(new), "a case has two records"
        return done.code, by_case

    def refusal(self, *arguments: str, code: int, rules: tuple[Rule, ...] = (), **more: str) -> str:
        """Run a command that must be refused with this exit code: the one line that it says.

        It starts no other process, so it is called in this one, which takes a tenth of the time; but where permissions
        bind it, it needs its own.
        """
        done = (self if self.bound else self._within)(*arguments, rules=rules, **more)
        assert done.code == code, done
        return only_line(done)

    def _within(self, *arguments: str, rules: tuple[Rule, ...] = (), **more: str) -> Done:
        """Run a command to its end in this process, with streams that encode as those of a process do."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            patch.setattr(tempfile, "tempdir", None)  # as TMPDIR says now
            for name, value in self.environment(rules, **more).items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                cli.main(arguments)
        said, complaint = (stream.buffer.getvalue().decode() for stream in (out, err))
        return self._ended(int(end.value.code or 0), said, complaint)

    def strike(self, process: Process, number: signal.Signals) -> None:
        """Send a signal as a user would: Ctrl-C reaches the whole group of the terminal, others the process."""
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)

    def quickly(self, *arguments: str, rules: tuple[Rule, ...] = (), **more: str) -> Done:
        """Run a command to its end in this process, with forked workers: where neither of them is what is tested."""
        assert self.warm is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.warm, "on", True)
            return self._within(*arguments, rules=rules, **more)

    def records(self) -> list[Record]:
        """All records of the store in the order they came."""
        return list(Store(self.store).stream(Query(heads=False)))

    def living(self) -> list[psutil.Process]:
        """All processes of this test: they carry its mark, or were forked for it, or are in the session of such."""
        self.earlier.intersection_update(pids := psutil.pids())
        sessions = self.sessions | {process.pid for process in self.started}
        living = []
        for pid in pids:
            with suppress(psutil.Error, OSError):
                if pid not in self.earlier and (os.getsid(pid) in sessions or self._has_mark(pid)):
                    process = psutil.Process(pid)
                    living += [process] if process.status() != psutil.STATUS_ZOMBIE else []
        return living

    def _has_mark(self, pid: int) -> bool:
        return bool(psutil.Process(pid).environ().get(MARK) == self.mark)

    def wait_until_stuck(self, process: Process, records: int, workers: int) -> None:
        """Wait until so many records are stored, so many workers live, and nothing works any more."""

        def stands() -> bool:
            living = [other for other in self.living() if other.pid != process.pid]
            return len(living) == workers and len(self.records()) == records and self._idle()

        wait_for(stands, COMMAND_DEADLINE_S, f"{records} records and {workers} workers at a standstill")
        assert process.poll() is None

    def _idle(self) -> bool:
        """Whether all processes wait; one that a busy machine gives no time to does no work either, but is running."""

        def work() -> list[tuple[int, float]]:
            done = []
            for process in self.living():
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    waits = process.status() == psutil.STATUS_SLEEPING
                    done.append((process.pid, round(times.user + times.system, 1) if waits else random.random()))
            return done

        before = work()
        for _ in range(LOOKS):
            time.sleep(STANDSTILL_S / LOOKS)
            if work() != before:
                return False
        return True

    def check(self) -> None:
        """Nothing is left running, and the store is sound."""
        try:
            wait_for(lambda: not self.living(), GONE_DEADLINE_S, "no process is left behind")
        finally:
            for process in self.living():
                process.kill()
            for ended in self.started:
                with ended:  # a test that failed has not read to the end
                    pass
            self.started.clear()
        if self.store.exists() and not self.damaged:
            assert integrity(self.store) == "ok"


def obey_permissions() -> None:
    """Let permissions bind this process from its next program on, as they do anyone but root."""
    if os.geteuid() == 0:
        drop, override = 24, 1  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
        if ctypes.CDLL(None, use_errno=True).prctl(drop, override, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "root can't give up its right to write anywhere")


def only_line(done: Done) -> str:
    """The one line of a command that did nothing but complain."""
    assert done.out == ""
    assert len(done.lines) == 1, done.lines
    assert done.lines[0].startswith("mldyno: ")
    return done.lines[0]


def wait_for(true: Callable[[], bool], longest: float, what: str) -> None:
    """Wait until something is true; fails after so many s."""
    ends = time.monotonic() + longest
    while not true():
        assert time.monotonic() < ends, f"not within {longest:.0f} s: {what}"
        time.sleep(0.05)


def integrity(store: Path) -> str:
    """What SQLite says of the file."""
    with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


@pytest.fixture
def dyno(tmp_path: Path, warm_workers: WarmWorkers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dyno]:
    """The command line, with an empty store."""
    command_line = Dyno(tmp_path, tmp_path / "records.sqlite", warm=warm_workers)
    start = WorkerProcess.start

    def noted(worker: WorkerProcess) -> None:
        start(worker)
        if worker._process is not None:
            command_line.sessions.add(worker._process.pid)

    monkeypatch.setattr(WorkerProcess, "start", noted)
    yield command_line
    command_line.check()


@pytest.fixture(scope="session")
def a_line(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One real record as `mldyno export` writes it."""
    folder = tmp_path_factory.mktemp("record")
    dyno = Dyno(folder, folder / "records.sqlite", within=True)
    code, _ = dyno.measure("mlp", "--mode", "train", "--device", "gpu", "--steps", "40")
    assert code == 0
    done = dyno("export")
    dyno.check()
    return done.out.strip()


@pytest.fixture(scope="session")
def nodes() -> Iterator[tuple[Node, Node]]:
    """Two nodes for all jobs of a process, one after the other."""
    with two_nodes() as both:
        yield both
