"""The contract of a device, as the parent sees it: a process carries out the tasks, and may not survive one of them.

All tasks run in one process, in the order in which they are listed. Where it ends before its time, or says nothing for
minutes, the task that it was at gets that as its result, and a new process goes on with the next one. So it does where
a task has left the process with a device that computes no more.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from mldyno.axes import PRECISIONS

Tick = Callable[[], None]
CASES = tuple(f"case {precision}" for precision in PRECISIONS)
TASKS = ("device", "memory", "overflow", "work", "wait", *CASES, "identical", "placements")
SILENCE = 180.0  # s without a word, after which a device counts as hung
TAIL = 4096  # B of a process's last words that are looked at
COMMAND = (sys.executable, "-m", "mldyno.selftest.in_device_child")


@dataclass
class Heard:
    """What came of a task: its rows, and why there are no more where it failed."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    trouble: str = ""


class Contract:
    """The tasks on one device; a result is waited for when it is asked for."""

    def __init__(self, framework: str, device: str, comparisons: int, tasks: Sequence[str] = TASKS) -> None:
        self._wish = {"framework": framework, "device": device, "comparisons": comparisons}
        self._heard: dict[str, Heard] = {}
        self._done: set[str] = set()
        self._going = self._carry_out(list(tasks))

    def of(self, task: str, tick: Tick) -> Heard:
        """What came of a task; `tick` hears of every line on the way to it."""
        while task not in self._done:
            next(self._going)
            tick()
        return self._heard[task]

    def _carry_out(self, left: list[str]) -> Iterator[None]:
        """Start processes until all tasks have a result; yields at each line."""
        while left:
            before = len(left)
            ending = yield from self._listen(left)
            left = [task for task in left if task not in self._done]
            within = [task for task in left if task in self._heard]
            # The one that it was at; all of them, where it did not come as far as one. Between two it may end: then
            # its device was of no more use to it, and may be to another.
            for task in within or (left if len(left) == before else ()):
                self._heard.setdefault(task, Heard()).trouble = ending
                self._done.add(task)
            left = [task for task in left if task not in self._done]
        yield

    def _listen(self, tasks: list[str]) -> Generator[None, None, str]:
        """One process: what it says is kept; gives in words how it ended."""
        command = [*COMMAND, json.dumps({**self._wish, "tasks": tasks})]
        with tempfile.TemporaryFile() as words:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True, errors="replace")
            watch = Watch(process)
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    watch.hear()
                    self._take(line)
                    yield
                return watch.ending(process.wait(), words)
            finally:
                watch.stop()
                process.kill()
                process.communicate()

    def _take(self, line: str) -> None:
        try:
            told = json.loads(line)
            task, what, row = told["task"], told["is"], told["row"]
        except (ValueError, KeyError, TypeError):
            return  # a library that prints
        heard = self._heard.setdefault(task, Heard())
        if what == "found":
            heard.rows.append(row)
        elif what == "failed":
            heard.trouble = f"{row['status']}: {row['reason']}"
        elif what == "done":
            self._done.add(task)


class Watch:
    """Ends a process that has said nothing for too long, and knows how one ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._hung = process, False
        self._timer = self._started()

    def _started(self) -> threading.Timer:
        timer = threading.Timer(SILENCE, self._give_up)
        timer.daemon = True
        timer.start()
        return timer

    def hear(self) -> None:
        """The process has said something."""
        self._timer.cancel()
        self._timer = self._started()

    def stop(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _give_up(self) -> None:
        self._hung = True
        self._process.kill()

    def ending(self, code: int, words: BinaryIO) -> str:
        """How the process ended, with the last line of what it said on standard error."""
        if self._hung:
            return f"it said nothing for {SILENCE:.0f} s"
        words.seek(max(0, words.seek(0, 2) - TAIL))
        lines = words.read().decode(errors="replace").strip().splitlines()
        how = f"its process was ended by {signal.Signals(-code).name}" if code < 0 else "its process ended early"
        return f"{how}: {lines[-1][:300]}" if lines else how
