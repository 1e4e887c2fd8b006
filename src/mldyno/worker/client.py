"""One worker process: its commands and answers, and the watch over its time and memory."""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mldyno import interpreters, machine, messages, plugins
from mldyno.frameworks import Unsupported
from mldyno.messages import A, Answer, Command, Failed, Malformed, Progress, TaskRow
from mldyno.printable import LONGEST_NAME, printable, shortened
from mldyno.records import Case
from mldyno.rendezvous import JOB, RANKED, failure_in, from_environment
from mldyno.system_queries import shared_library
from mldyno.units import parse_bytes, show_bytes, show_seconds
from mldyno.worker import start as worker_start
from mldyno.worker.process_tree import ProcessTree, new_mark, out_of_memory_reason, reserve, taken_by_others

SCRIPT = worker_start.__file__
WATCH_EVERY_S = 0.2
LONGEST_ANSWER_LINE = 64 << 20  # B
LONGEST_STDERR_TAIL = 64 << 10  # B of a worker's standard error that are searched for a reason
LAST_WORDS = 40  # lines of it that are kept for who mends a fault from afar
RANK_ENDS_S = 15.0  # within which a launcher ends all ranks, and reports the one that failed
IDLE_LOOK_S, IDLE_CPU_S = 0.03, 0.01  # a process that used less than a tick of CPU time between two looks sleeps
LONGEST_SPIN_S = 1.0  # to wait for idle threads: those of OpenBLAS spin for 0.1 s
LONGEST_DEATH_S = 20.0  # to wait for a process that was killed
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what a system sends to all processes of a job
SIGNAL_ARRIVES_S = 1.0  # within which all of them have it
PIPE_CLOSES_S = 1.0  # within which a thread reads the end of a dead worker's pipe
# What Metal says, on standard error only, when it drops work: status and reason for the case.
DROPPED = {
    b"kIOGPUCommandBufferCallbackErrorOutOfMemory": ("oom", "Metal dropped work for which it had no memory"),
    b"command buffer exited with error status": ("wrong", "Metal dropped work that it could not do"),
}
LONGEST_PATTERN = max(map(len, DROPPED))
OnProgress = Callable[[Any], None]


class Ended(Exception):
    """The worker is gone, had to be ended, or has failed at a command: a status and a reason for the record."""

    def __init__(
        self, status: str, reason: str, crashed: bool = False, fit: bool = False, silence: float = 0.0,
        held: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.crashed = crashed  # whether a signal ended it, without a message
        self.fit = fit  # whether it is still there, and may be asked for more
        self.silence = silence  # time in s since its last message
        self.held = held  # memory in B that it held, where other programs had filled the machine's


def settings_of(case: Case) -> dict[str, str]:
    """Return what a case's worker needs in its environment: allocator, framework settings, threads of Accelerate.

    macOS's library for matmuls ignores the framework's number of threads. Raises Unsupported without the allocator.
    """
    framework = plugins.framework(case.framework).environment(case)
    threads = {"VECLIB_MAXIMUM_THREADS": str(case.threads)} if case.threads and sys.platform == "darwin" else {}
    return {**settings_for(case.allocator), **threads, **framework}


class WorkerProcess:
    """A worker in a session by itself, so that all processes it starts can be ended with it."""

    def __init__(
        self, check_interrupt: Callable[[], None] = lambda: None, settings: Mapping[str, str | None] | None = None,
        python: str | None = None, case: Case | None = None,
    ) -> None:  # fmt: skip
        """`settings` are the environment variables that differ from ours; None unsets one.

        `case` is the one that the worker is for, where its environment or its interpreter depends on that.
        """
        self._python, self._check_interrupt, self._case, self._settings = python, check_interrupt, case, settings or {}
        self._limit, self._kills_before = memory_limit(), _kernel_kills()
        self._process: subprocess.Popen[bytes] | None = None
        self._tree: ProcessTree | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()  # a SimpleQueue can wait for ever after a signal
        self._stderr_tail = b""
        self._threads: list[threading.Thread] = []
        self._dropped: tuple[str, str] | None = None
        self._number, self._ranked = 0, False
        self._last_watch = self._last_answer = time.monotonic()
        self._held = self._most_held = 0  # memory in B at the last look, and at most: one that ends gives it back first
        self._left_before: int | None = None
        self.spent = 0.0  # time in s that was spent waiting for this worker's answers

    def __enter__(self) -> WorkerProcess:
        try:
            self.start()
        except BaseException:  # a signal may come when the process is there already
            self.kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        """True if it was started, and not killed since."""
        return self._process is not None

    def start(self) -> None:
        """Start the process, and the threads that read from it; after `kill` it may be started anew."""
        self._lines, self._threads, self._stderr_tail, self._dropped = queue.Queue(), [], b"", None
        try:
            chosen = {} if self._case is None else settings_of(self._case)
            launched = () if self._case is None else self._launched(self._case)
        except Unsupported as error:
            raise Ended("unsupported", str(error)) from None
        wanted: dict[str, str | None] = {**os.environ, **chosen, **self._settings}
        python = self._interpreter()
        self._ranked, mark = bool(launched), new_mark()
        wanted |= {JOB: mark} | ({RANKED: self._case.framework} if launched and self._case else {})
        self._left_before = machine.available_memory()
        try:
            self._process = subprocess.Popen(
                [python, SCRIPT, *launched],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                env={name: value for name, value in wanted.items() if value is not None},
            )  # fmt: skip
        except OSError as error:
            raise Ended("failed", f"{python} can't be started: {error.strerror or error}") from None
        self._tree = ProcessTree(self._process.pid, mark)
        for read in (self._read_answers, self._read_stderr):
            thread = threading.Thread(target=read, args=(self._process,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _launched(self, case: Case) -> list[str]:
        """Return the arguments that start ranks; none where the case has none, or its framework can't."""
        if not (case.in_ranks and plugins.framework(case.framework).parallel):
            return []
        if case.nodes > 1 and from_environment() is None:
            raise Unsupported("several machines need an address to meet at; name one with --rendezvous HOST:PORT")
        return worker_start.launch_words(case.ranks or 1, case.nodes)

    def _interpreter(self) -> str:
        """Return the path of the interpreter: the case's, or ours."""
        if self._case is None or self._case.python is None:
            return self._python or sys.executable
        path = interpreters.path_of(self._case.python)
        if path is None:
            raise Ended("unsupported", f"Python {self._case.python} was not named here; name its path with --python")
        return path

    def _read_answers(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        lines = self._lines
        with contextlib.suppress(OSError, ValueError):  # the pipe is closed when the worker is ended
            while line := process.stdout.readline(LONGEST_ANSWER_LINE):
                lines.put(line)
        lines.put(None)

    def _read_stderr(self, process: subprocess.Popen[bytes]) -> None:
        """Drain what the worker prints, and keep the end of it."""
        assert process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            tail = b""
            while part := os.read(process.stderr.fileno(), 65536):
                self._stderr_tail = (self._stderr_tail + part)[-LONGEST_STDERR_TAIL:]
                searched, tail = tail + part, part[-LONGEST_PATTERN:]
                self._dropped = self._dropped or next((end for text, end in DROPPED.items() if text in searched), None)

    def request(
        self, command: Command[A], timeout: float, on_progress: OnProgress = lambda news: None,
        reset_timeout: bool = False,
    ) -> A:  # fmt: skip
        """Send a command and wait up to `timeout` s for its answer; with `reset_timeout`, since its last message.

        `on_progress` gets a step's time in s now and then, or the rows of a task. Raises Ended where the worker fails
        at the command, dies, takes too long or too much memory, or answers something else.
        """
        if self._process is None or self._process.stdin is None:
            raise Ended("failed", "the worker is not there any more")
        self._number += 1
        began = self._last_answer = time.monotonic()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(messages.encode(command, self._number))
                self._process.stdin.flush()
            while True:
                answer = self._next_answer((lambda: self._last_answer if reset_timeout else began), timeout)
                if isinstance(answer, Progress):
                    on_progress(answer.step)
                elif isinstance(answer, TaskRow):
                    on_progress(answer.row)
                elif isinstance(answer, Failed):
                    other = self._failed_rank() if answer.status == "failed" else self._refused_memory(answer.status)
                    raise other or Ended(answer.status, answer.reason, fit=answer.fit)
                elif isinstance(answer, messages.answer_to(command)):
                    if self._dropped is not None:
                        raise Ended(*self._dropped)
                    return answer
                else:
                    raise self._unusable(f"{messages.wire_name(type(answer))} is none to {type(command).__name__}")
        finally:
            self.spent += time.monotonic() - began

    def _next_answer(self, since: Callable[[], float], timeout: float) -> Answer:
        answer: Answer
        while True:
            self._check_interrupt()
            now = time.monotonic()
            if now - self._last_watch >= WATCH_EVERY_S:  # by the clock: a worker that talks is watched too
                self._last_watch = now
                self._watch_memory()
                self._watch_launcher()
                if now - since() > timeout:
                    silence = now - self._last_answer
                    self.kill()
                    raise Ended("timeout", f"no end after {show_seconds(timeout)}", silence=silence)
            try:
                line = self._lines.get(timeout=WATCH_EVERY_S)
            except queue.Empty:
                continue
            if line is None:
                raise self._explain_death()
            self._last_answer = time.monotonic()
            try:
                answer, number = messages.decode(line)
            except Malformed as error:
                raise self._unusable(str(error)) from None
            if number != self._number:
                raise self._unusable(f"it belongs to command {number}, not to {self._number}")
            return answer

    def _unusable(self, what: str) -> Ended:
        """End a worker whose answer can't be used: nothing that follows could be trusted."""
        self.kill()
        return Ended("failed", f"the worker's answer can't be read: {what}")

    def _watch_memory(self) -> None:
        """End the worker before the machine swaps, or the system kills something."""
        resident = self._tree.resident() if self._tree else None
        if resident is None:
            return
        self._held, self._most_held = resident, max(self._most_held, resident)
        if self._limit is not None and resident > self._limit:
            self.kill()
            raise Ended("oom", f"it took {show_bytes(resident)}, over MLDYNO_MEMORY_LIMIT ({show_bytes(self._limit)})")
        left = machine.available_memory()
        if left is not None and left < reserve():
            self.kill()
            own = f"ended before the machine ran out of memory: it held {show_bytes(resident)}, {show_bytes(left)} left"
            raise self._crowded_out(left) or Ended("oom", own)

    def _crowded_out(self, left: int) -> Ended | None:
        """Return the end of a worker on a machine that other programs have filled; None where the worker did."""
        grown = None if self._left_before is None else self._left_before - left - self._held
        if not taken_by_others(self._held, grown):
            return None
        return Ended("failed", out_of_memory_reason(self._held, left), held=self._held)

    def _refused_memory(self, status: str) -> Ended | None:
        """Return the end of a worker that was refused memory which other programs hold; None where they do not."""
        left = machine.available_memory() if status == "oom" else None
        return self._crowded_out(left) if left is not None and left < reserve() else None

    def _killed_for_memory(self, what: str, held: int) -> Ended:
        """Return the end of a process that the system killed for lack of memory."""
        left = machine.available_memory()
        if left is None or not taken_by_others(held):
            return Ended("oom", f"{what}killed by the system for want of memory")
        why = out_of_memory_reason(held, left)
        return Ended("failed", f"{what}killed by the system for want of memory: {why}", held=held)

    def _watch_launcher(self) -> None:
        """End ranks whose launcher has died: they may live on."""
        if self._ranked and self._process is not None and self._process.poll() is not None and self._lines.empty():
            if self._tree is not None:
                self._tree.kill()
            raise self._explain_death()

    def _failed_rank(self) -> Ended | None:
        """Return which rank failed, and why: the first rank only knows that another rank is gone."""
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
        """Return the end of the rank that failed; None where none is named."""
        failure = failure_in(self._stderr_lines())
        if failure is None:
            return None
        if failure.signal is None:
            return Ended(failure.status, printable(f"rank {failure.rank}: {failure.reason}"))
        if failure.signal == signal.SIGKILL and _kernel_kills() > self._kills_before:
            return self._killed_for_memory(f"rank {failure.rank} was ", self._most_held)
        return Ended("failed", f"rank {failure.rank} was ended by {signal.Signals(failure.signal).name}", crashed=True)

    def last_words(self) -> list[str]:
        """Return the last lines that the worker, or its libraries, printed on standard error."""
        return [shortened(printable(line), LONGEST_NAME) for line in self._stderr_lines()[-LAST_WORDS:]]

    def _stderr_lines(self) -> list[str]:
        return self._stderr_tail.decode(errors="replace").strip().splitlines()

    def _explain_death(self) -> Ended:
        assert self._process is not None
        code, peak = _wait(self._process)
        self._threads[1].join(timeout=PIPE_CLOSES_S)
        lines = self._stderr_lines()
        if self._ranked and (end := self._end_of_rank()) is not None:
            return end
        last = f": {lines[-1][:300]}" if lines else ""
        if code == -signal.SIGKILL and _kernel_kills() > self._kills_before:
            return self._killed_for_memory("", max(self._most_held, peak))
        if -code in ENDING:
            self._await_interrupt()
        if code < 0:
            return Ended("failed", f"the worker was ended by {signal.Signals(-code).name}{last}", crashed=True)
        return Ended("failed", f"the worker ended early with exit code {code}{last}")

    def _await_interrupt(self) -> None:
        """Give the signal that ended the worker the time to reach this process too: a scheduler ends all processes."""
        until = time.monotonic() + SIGNAL_ARRIVES_S
        while time.monotonic() < until:
            self._check_interrupt()
            time.sleep(WATCH_EVERY_S)

    def wait_until_idle(self) -> None:
        """Wait until its threads sleep: those of some libraries spin on after their work, and take cores."""
        until, before = time.monotonic() + LONGEST_SPIN_S, self._tree.cpu_time() if self._tree else None
        while before is not None and time.monotonic() < until:
            time.sleep(IDLE_LOOK_S)
            after = self._tree.cpu_time() if self._tree else None
            if after is None or after - before < IDLE_CPU_S:
                return
            before = after

    def kill(self) -> None:
        """Kill the worker and all processes that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._tree is not None:
            self._tree.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that is stuck in a driver can't be killed
            process.wait(LONGEST_DEATH_S)
        for thread in self._threads:
            thread.join(timeout=PIPE_CLOSES_S)
        read = [] if any(thread.is_alive() for thread in self._threads) else [process.stdout, process.stderr]
        for pipe in (process.stdin, *read):  # closing a pipe waits for the thread that reads from it
            with contextlib.suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Wait for a process; return its exit code and its peak memory in B, or 0 where that is unknown.

    Linux counts the memory of the process that forked as the child's own, up to its exec: a peak that is no
    larger than ours says nothing about the child.
    """
    if process.returncode is None and sys.platform == "linux":
        import resource  # not on Windows

        with contextlib.suppress(ChildProcessError):
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return process.returncode, usage.ru_maxrss << 10 if usage.ru_maxrss > inherited else 0
    return process.wait(), 0


def memory_limit() -> int | None:
    """Return the most memory in B that a worker may take, as the user has set it."""
    text = os.environ.get("MLDYNO_MEMORY_LIMIT")
    return parse_bytes(text) if text else None


def _kernel_kills() -> int:
    """Return how often the kernel has killed for lack of memory since it started (Linux)."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("oom_kill ")))
    return 0


# -- allocators of memory --------------------------------------------------------------------------


# glibc gives large blocks back to the system when they are freed, and the next step has to touch their pages again.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
ALLOCATOR_LIBRARIES = {  # each with its package
    "jemalloc": ("jemalloc", "libjemalloc2"), "tcmalloc": ("tcmalloc_minimal", "libtcmalloc-minimal4"),
}  # fmt: skip


def settings_for(allocator: str | None) -> dict[str, str]:
    """Return the settings with which a worker has this allocator; raise Unsupported where it can't."""
    if allocator is None or allocator == "system":
        return {}
    if not sys.platform.startswith("linux"):
        raise Unsupported(f"allocator {allocator} can be chosen on Linux only")
    if allocator == "steady":
        if platform.libc_ver()[0] != "glibc":
            raise Unsupported("allocator steady is glibc's, and this Python uses another C library")
        return dict(KEEP_FREED_MEMORY)
    name, package = ALLOCATOR_LIBRARIES[allocator]
    library = shared_library(name)
    if library is None:
        raise Unsupported(f"{allocator} is not installed; on Debian and Ubuntu: apt install {package}")
    return {"LD_PRELOAD": library}
