"""One worker process: its commands and answers, and the watch over its time and memory."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mldyno import interpreters, machine, messages, plugins, sources
from mldyno.client import allocators
from mldyno.frameworks import Unsupported
from mldyno.messages import A, Answer, Command, Failed, Malformed, Progress, TaskRow
from mldyno.printable import printable
from mldyno.records import Case
from mldyno.rendezvous import JOB, LEADS, RANKED, failure_in
from mldyno.units import parse_bytes, show_bytes, show_seconds
from mldyno.worker import start as worker_start

if TYPE_CHECKING:
    import psutil

SCRIPT = worker_start.__file__
WATCH_EVERY_S = 0.2
TREE_SHARE = 0.001  # of a core, that looking for the worker's own processes may take
LONGEST_ANSWER = 64 << 20  # B
STDERR_TAIL = 64 << 10  # B of a worker's last words that are looked at
RESERVE_SHARE, SMALLEST_RESERVE = 0.05, 512 << 20  # memory that a worker must leave free
RANK_ENDS_S = 15.0  # within which a launcher has ended all ranks, and told which one failed
IDLE_LOOK_S, IDLE_CPU_S = 0.03, 0.01  # a process that used less than a tick of CPU time between two looks sleeps
LONGEST_SPIN_S = 1.0  # that is waited for: OpenBLAS's threads spin for 0.1 s
PIPE_CLOSES_S = 1.0  # that a thread may take to read the end of a dead worker's pipe
# What Metal says, on standard error only, when it drops work: status and reason for the case.
DROPPED = {
    b"kIOGPUCommandBufferCallbackErrorOutOfMemory": ("oom", "Metal dropped work for which it had no memory"),
    b"command buffer exited with error status": ("wrong", "Metal dropped work that it could not do"),
}
LONGEST_SIGN = max(map(len, DROPPED))
Hear = Callable[[Any], None]


class Ended(Exception):
    """The worker is gone, had to be ended, or has failed at a command: a status and a reason for the record."""

    def __init__(
        self, status: str, reason: str, crashed: bool = False, fit: bool = False, silence: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.crashed = crashed
        """Whether it died of a signal, without a word."""
        self.fit = fit
        """Whether it is still there, and may be asked for more."""
        self.silence = silence
        """Time in s since its last word."""


def settings_of(case: Case) -> dict[str, str]:
    """What the environment of a case's worker must hold when it starts: its allocator, its framework's own settings,
    and the threads of Accelerate.

    macOS's library for matmuls does not hear what a framework is told. Raises NotHere where the allocator is missing.
    """
    framework = plugins.framework(case.framework).environment(case)
    threads = {"VECLIB_MAXIMUM_THREADS": str(case.threads)} if case.threads and sys.platform == "darwin" else {}
    return {**allocators.settings_for(case.allocator), **threads, **framework}


class WorkerProcess:
    """A worker in a session of its own, so that all it starts can be ended with it."""

    def __init__(
        self,
        check_interrupt: Callable[[], None] = lambda: None,
        settings: Mapping[str, str | None] | None = None,
        python: str | None = None,
        case: Case | None = None,
    ) -> None:
        """`settings` are those of its environment that differ from ours; None stands for one that is not set.

        `case` is the one that it is for, where that has to be in its environment, or has an interpreter of its own.
        """
        self._python, self._check_interrupt, self._case = python, check_interrupt, case
        self._settings = settings or {}
        self._limit, self._kills_before = memory_limit(), _kernel_kills()
        self._process: subprocess.Popen[bytes] | None = None
        self._tree: ProcessTree | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()  # a SimpleQueue can wait for ever after a signal
        self._last_words = b""
        self._threads: list[threading.Thread] = []
        self._dropped: tuple[str, str] | None = None
        self._number, self._ranked = 0, False
        self._watched = self._heard = time.monotonic()
        self.spent = 0.0
        """Time in s that was spent waiting for this worker's answers."""

    def __enter__(self) -> WorkerProcess:
        """It is started now, and ended with all that it started behind the block."""
        try:
            self.start()
        except BaseException:  # a signal may come when the process is there already
            self.kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process and those that listen to it."""
        try:
            chosen = {} if self._case is None else settings_of(self._case)
            launcher = () if self._case is None else plugins.framework(self._case.framework).launcher(self._case)
        except (allocators.NotHere, Unsupported) as error:
            raise Ended("unsupported", str(error)) from None
        wanted: dict[str, str | None] = {**os.environ, **sources.environment(), **chosen, **self._settings}
        python = self._interpreter()
        self._ranked, job = bool(launcher), secrets.token_hex(8)
        if launcher and self._case is not None:
            wanted |= {RANKED: self._case.framework, LEADS: "1", JOB: job}
        try:
            self._process = subprocess.Popen(
                [python, *launcher, SCRIPT],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                env={name: value for name, value in wanted.items() if value is not None},
            )  # fmt: skip
        except OSError as error:
            raise Ended("failed", f"{python} can't be started: {error.strerror or error}") from None
        self._tree = ProcessTree(self._process.pid, job if self._ranked else None)
        for read in (self._read_answers, self._read_words):
            thread = threading.Thread(target=read, args=(self._process,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _interpreter(self) -> str:
        """The path of the one to start: the case's own, or ours."""
        if self._case is None or self._case.python is None:
            return self._python or sys.executable
        path = interpreters.path_of(self._case.python)
        if path is None:
            raise Ended("unsupported", f"where Python {self._case.python} is was not said; name its path with --python")
        return path

    def _read_answers(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # the pipe is closed when the worker is ended
            while line := process.stdout.readline(LONGEST_ANSWER):
                self._lines.put(line)
        self._lines.put(None)

    def _read_words(self, process: subprocess.Popen[bytes]) -> None:
        """Drain what the worker prints, and keep the end of it."""
        assert process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            tail = b""
            while words := os.read(process.stderr.fileno(), 65536):
                self._last_words = (self._last_words + words)[-STDERR_TAIL:]
                said, tail = tail + words, words[-LONGEST_SIGN:]
                self._dropped = self._dropped or next((end for sign, end in DROPPED.items() if sign in said), None)

    def ask(self, command: Command[A], timeout: float, hear: Hear = lambda word: None, anew: bool = False) -> A:
        """Send a command and wait for its answer, for at most `timeout` s; with `anew`, so long after each word.

        `hear` gets a step's time in s now and then, or the rows that a task finds. Raises Ended where the worker fails
        at it, dies, takes too long or too much memory, or says what is no answer to it.
        """
        if self._process is None or self._process.stdin is None:
            raise Ended("failed", "the worker is not there any more")
        self._number += 1
        began = self._heard = time.monotonic()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(messages.encode(command, self._number))
                self._process.stdin.flush()
            while True:
                answer = self._next_answer((lambda: self._heard if anew else began), timeout)
                if isinstance(answer, Progress):
                    hear(answer.step)
                elif isinstance(answer, TaskRow):
                    hear(answer.row)
                elif isinstance(answer, Failed):
                    other = self._failed_rank() if answer.status == "failed" else None
                    raise other or Ended(answer.status, answer.reason, fit=answer.fit)
                elif isinstance(answer, messages.answer_to(command)):
                    if self._dropped is not None:
                        raise Ended(*self._dropped)
                    return answer
                else:
                    raise self._nonsense(f"{messages.wire_name(type(answer))} is none to {type(command).__name__}")
        finally:
            self.spent += time.monotonic() - began

    def _next_answer(self, since: Callable[[], float], timeout: float) -> Answer:
        while True:
            self._check_interrupt()
            now = time.monotonic()
            if now - self._watched >= WATCH_EVERY_S:  # by the clock: a worker that talks is watched too
                self._watched = now
                self._watch_memory()
                self._watch_launcher()
                if now - since() > timeout:
                    silence = now - self._heard
                    self.kill()
                    raise Ended("timeout", f"no end after {show_seconds(timeout)}", silence=silence)
            try:
                line = self._lines.get(timeout=WATCH_EVERY_S)
            except queue.Empty:
                continue
            if line is None:
                raise self._explain_death()
            self._heard = time.monotonic()
            try:
                answer, number = messages.decode(line)
            except Malformed as error:
                raise self._nonsense(str(error)) from None
            if number != self._number:
                raise self._nonsense(f"it belongs to command {number}, not to {self._number}")
            return answer

    def _nonsense(self, what: str) -> Ended:
        """An answer that can't be used ends the worker: nothing that follows could be trusted."""
        self.kill()
        return Ended("failed", f"the worker's answer can't be read: {what}")

    def _watch_memory(self) -> None:
        """End the worker before the machine swaps or its own killer strikes."""
        resident = self._tree.resident() if self._tree else None
        if resident is None:
            return
        if self._limit is not None and resident > self._limit:
            self.kill()
            raise Ended("oom", f"it took {show_bytes(resident)}, over MLDYNO_MEMORY_LIMIT ({show_bytes(self._limit)})")
        left = machine.available_memory()
        if left is not None and left < reserve():
            self.kill()
            raise Ended(
                "oom",
                f"ended before the machine ran out of memory: it held {show_bytes(resident)}, {show_bytes(left)} left",
            )

    def _watch_launcher(self) -> None:
        """Ranks may live on when what started them has died: then nobody would end them."""
        if self._ranked and self._process is not None and self._process.poll() is not None and self._lines.empty():
            if self._tree is not None:
                self._tree.kill()
            raise self._explain_death()

    def _failed_rank(self) -> Ended | None:
        """Which rank failed, and why, where there are ranks: the first one only sees that another is gone."""
        until = time.monotonic() + RANK_ENDS_S
        while self._ranked and time.monotonic() < until:
            ended = self._process is None or self._process.poll() is not None
            if ended:
                self._threads[1].join(timeout=PIPE_CLOSES_S)
            end = self._end_of_rank()
            if ended or (end is not None and not end.crashed):  # a signal may have come from the launcher's own end
                return end
            time.sleep(WATCH_EVERY_S)
        return None

    def _end_of_rank(self) -> Ended | None:
        """The end of the rank that failed, in words; None where none is named."""
        failure = failure_in(self._said())
        if failure is None:
            return None
        if failure.signal is None:
            return Ended(failure.status, printable(f"rank {failure.rank}: {failure.reason}"))
        if failure.signal == signal.SIGKILL and _kernel_kills() > self._kills_before:
            return Ended("oom", f"rank {failure.rank} was killed by the system for want of memory")
        return Ended("failed", f"rank {failure.rank} was ended by {signal.Signals(failure.signal).name}", crashed=True)

    def _said(self) -> list[str]:
        """The last lines on its standard error."""
        return self._last_words.decode(errors="replace").strip().splitlines()

    def _explain_death(self) -> Ended:
        assert self._process is not None
        code = self._process.wait()
        self._threads[1].join(timeout=PIPE_CLOSES_S)
        lines = self._said()
        if self._ranked and (end := self._end_of_rank()) is not None:
            return end
        last = f": {lines[-1][:300]}" if lines else ""
        if code == -signal.SIGKILL and _kernel_kills() > self._kills_before:
            return Ended("oom", "killed by the system for want of memory")
        if code < 0:
            return Ended("failed", f"the worker was ended by {signal.Signals(-code).name}{last}", crashed=True)
        return Ended("failed", f"the worker ended early with exit code {code}{last}")

    def wait_until_idle(self) -> None:
        """Wait until its threads sleep: those of some libraries spin on after their work, and hold others up."""
        until, before = time.monotonic() + LONGEST_SPIN_S, self._tree.cpu_time() if self._tree else None
        while before is not None and time.monotonic() < until:
            time.sleep(IDLE_LOOK_S)
            after = self._tree.cpu_time() if self._tree else None
            if after is None or after - before < IDLE_CPU_S:
                return
            before = after

    def kill(self) -> None:
        """End the worker and all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._tree is not None:
            self._tree.kill()
        process.wait()
        for thread in self._threads:
            thread.join(timeout=PIPE_CLOSES_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]


class ProcessTree:
    """A worker and all that it has started: loaders' processes, a command and what that starts."""

    def __init__(self, root: int, job: str | None = None) -> None:
        """`job` is in the environment of all of them, where one that starts others may die before these are seen."""
        import psutil

        self._job = job
        self._root, self._worker = root, psutil.Process(root)  # which knows it from a later one of the same number
        self._started: dict[int, psutil.Process] = {}
        self._look_again = 0.0

    def resident(self) -> int | None:
        """Resident memory in B of all of them; None where the worker is not alive."""
        own = machine.resident_memory(self._root)
        if own is None:
            return None
        began = time.monotonic()
        if began >= self._look_again:
            self._look()
            ended = time.monotonic()
            self._look_again = ended + (ended - began) / TREE_SHARE
        return own + sum(machine.resident_memory(pid) or 0 for pid in self._started)

    def cpu_time(self) -> float | None:
        """CPU time in s of all of them that are known so far; None where the worker is not alive."""
        import psutil

        try:
            times = [process.cpu_times() for process in (self._worker, *self._started.values())]
        except psutil.Error:
            return None
        return math.fsum(each.user + each.system for each in times)

    def _look(self) -> None:
        """Note what there is now; what has lost its parent is still ours."""
        import psutil

        living = {pid: process for pid, process in self._started.items() if process.is_running()}
        with contextlib.suppress(psutil.Error):
            living |= {process.pid: process for process in self._worker.children(recursive=True)}
        self._started = living

    def has_children(self) -> bool:
        """Whether it has started any that still live."""
        self._look()
        return bool(self._started)

    def kill(self) -> None:
        """End all of them: the worker's group, and what has left it."""
        import psutil

        self._look()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._root, signal.SIGKILL)
        for process in [*self._started.values(), *self._of_job()]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _of_job(self) -> list[psutil.Process]:
        """All processes of the job, whoever their parent is now."""
        import psutil

        processes = []
        for process in psutil.process_iter() if self._job else ():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(JOB) == self._job:
                    processes.append(process)
        return processes


def memory_limit() -> int | None:
    """The most memory in B that a worker may take, as the user has set it."""
    text = os.environ.get("MLDYNO_MEMORY_LIMIT")
    return parse_bytes(text) if text else None


@functools.cache
def reserve() -> int:
    """Memory in B that is left to the rest of the machine."""
    total = machine.describe().memory or 0
    return max(round(RESERVE_SHARE * total), SMALLEST_RESERVE)


def _kernel_kills() -> int:
    """How often the kernel has killed for want of memory since it started (Linux)."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("oom_kill ")))
    return 0
