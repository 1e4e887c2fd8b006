"""One worker process seen from the parent: commands, answers, and the watch over time and memory."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mldyno import machine
from mldyno.units import parse_bytes, show_bytes, show_seconds
from mldyno.worker import start as worker_start

LOOK = 0.2  # s between two looks of the watchdog
LONGEST_ANSWER = 64 << 20  # B
STDERR_TAIL = 8192  # B of a worker's last words that are kept
RESERVE_SHARE, RESERVE_LEAST = 0.05, 512 << 20  # memory that a worker must leave free


class Ended(Exception):
    """The worker is gone, or had to be ended: a status and a reason for the record."""

    def __init__(self, status: str, reason: str, crashed: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.crashed = crashed
        """Whether it died of a signal, without a word."""


class WorkerProcess:
    """A worker in a session of its own, so that all it starts can be ended with it."""

    def __init__(
        self, python: str, check_interrupt: Callable[[], None], settings: Mapping[str, str | None] | None = None
    ) -> None:
        """`settings` are those of its environment that differ from ours; None stands for one that is not set."""
        self._python, self._check_interrupt = python, check_interrupt
        self._settings = settings or {}
        self._limit, self._kills = memory_limit(), _kernel_kills()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last_words: collections.deque[bytes] = collections.deque(maxlen=8)
        self._threads: list[threading.Thread] = []
        self._looked = time.monotonic()
        self.spent = 0.0
        """Time in s that was spent waiting for this worker's answers."""

    def start(self) -> None:
        """Start the process and those that listen to it."""
        wanted: dict[str, str | None] = {**os.environ, **self._settings}
        try:
            self._process = subprocess.Popen(
                [self._python, worker_start.__file__],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                env={name: value for name, value in wanted.items() if value is not None},
            )  # fmt: skip
        except OSError as error:
            raise Ended("failed", f"{self._python} can't be started: {error.strerror or error}") from None
        for read in (self._read_answers, self._read_words):
            thread = threading.Thread(target=read, args=(self._process,), daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def resident(self) -> int | None:
        """Resident memory in B of the process; None where it is not alive."""
        return machine.resident_memory(self._process.pid) if self._process else None

    def _read_answers(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # the pipe is closed when the worker is ended
            while line := process.stdout.readline(LONGEST_ANSWER):
                self._answers.put(line)
        self._answers.put(None)

    def _read_words(self, process: subprocess.Popen[bytes]) -> None:
        """Drain what the worker prints, and keep the end of it."""
        assert process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while words := os.read(process.stderr.fileno(), 65536):
                self._last_words.append(words[-STDERR_TAIL:])

    def ask(self, command: dict[str, Any], timeout: float, heard: Callable[[float], None]) -> dict[str, Any]:
        """Send a command and wait for its answer; `heard` gets a step's time now and then.

        Raises Ended where the worker dies, hangs past `timeout` s in all, takes too much memory or
        talks nonsense.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        began = time.monotonic()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                self._process.stdin.flush()
            while True:
                answer = self._next_answer(began, timeout)
                if answer["is"] == "progress":
                    heard(float(answer["step"]))
                elif answer["is"] == "failed":
                    raise Ended(answer["status"], answer["reason"])
                else:
                    return answer
        finally:
            self.spent += time.monotonic() - began

    def _next_answer(self, began: float, timeout: float) -> dict[str, Any]:
        while True:
            self._check_interrupt()
            if time.monotonic() - self._looked >= LOOK:  # by the clock: a worker that talks is watched too
                self._looked = time.monotonic()
                self._watch_memory()
                if self.spent + time.monotonic() - began > timeout:
                    self.kill()
                    raise Ended("timeout", f"no end after {show_seconds(timeout)}; give it more with --timeout")
            try:
                line = self._answers.get(timeout=LOOK)
            except queue.Empty:
                continue
            if line is None:
                raise self._explain_death()
            try:
                answer = json.loads(line)
                if not isinstance(answer, dict) or not isinstance(answer.get("is"), str):
                    raise ValueError("not an answer")
            except (ValueError, RecursionError):
                self.kill()
                raise Ended("failed", f"the worker's answer can't be read: {line[:60]!r}") from None
            return answer

    def _watch_memory(self) -> None:
        """End the worker before the machine swaps or its own killer strikes."""
        resident = self.resident
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

    def _explain_death(self) -> Ended:
        assert self._process is not None
        code = self._process.wait()
        self._threads[1].join(timeout=1)
        words = b"".join(self._last_words).decode(errors="replace").strip().splitlines()
        last = f": {words[-1][:300]}" if words else ""
        if code == -signal.SIGKILL and _kernel_kills() > self._kills:
            return Ended("oom", "killed by the system for want of memory")
        if code < 0:
            return Ended("failed", f"the worker was ended by {signal.Signals(-code).name}{last}", crashed=True)
        return Ended("failed", f"the worker ended early with exit code {code}{last}")

    def kill(self) -> None:
        """End the worker and all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for thread in self._threads:
            thread.join(timeout=1)
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]


def memory_limit() -> int | None:
    """The most memory in B that a worker may take, as the user has set it."""
    text = os.environ.get("MLDYNO_MEMORY_LIMIT")
    return parse_bytes(text) if text else None


@functools.cache
def reserve() -> int:
    """Memory in B that is left to the rest of the machine."""
    total = machine.describe().memory or 0
    return max(round(RESERVE_SHARE * total), RESERVE_LEAST)


def _kernel_kills() -> int:
    """How often the kernel has killed for want of memory since it started (Linux)."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("oom_kill ")))
    return 0
