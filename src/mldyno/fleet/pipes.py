"""One local process for each host, and the lines that come out of it; nothing here waits for a single host."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from mldyno.fleet.wire import LONGEST_LINE_B

READ_B = 1 << 18  # at once
STDERR_B = 4096  # of what a process says last on standard error
LINGER_S = 5.0  # that a process may live on after its output has ended
FILES_PER_HOST, OWN_FILES = 4, 64


class Heard(NamedTuple):
    """A line of a host; or None at the end of its pipe, with the last lines of its standard error."""

    host: str
    line: bytes | None
    last: str = ""


@dataclass
class _Pipe:
    """A process, what is to be written to it, and what is not yet a line."""

    process: subprocess.Popen[bytes]
    out: bytearray = field(default_factory=bytearray)
    part: bytearray = field(default_factory=bytearray)
    said: bytes = b""
    closing: bool = False


class Pipes:
    """The pipes to all hosts. Each process has a session of its own, which Ctrl-C here does not reach."""

    def __init__(self, hosts: int) -> None:
        """Allow as many open files as that many hosts need."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = hosts * FILES_PER_HOST + OWN_FILES
        if soft < wanted:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
        self._selector = selectors.DefaultSelector()
        self._pipes: dict[str, _Pipe] = {}
        self._ending: list[tuple[float, subprocess.Popen[bytes]]] = []

    def now(self) -> float:
        return time.monotonic()

    def open(self, host: str, words: Sequence[str]) -> None:
        """Start the process of a host; raise OSError."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
        self._pipes[host] = _Pipe(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            if stream is not process.stdin:
                self._selector.register(stream, selectors.EVENT_READ, host)

    def send(self, host: str, line: bytes) -> None:
        """Write a line as soon as the host takes it; beats that it does not take are not piled up."""
        pipe = self._pipes.get(host)
        if pipe is None or pipe.closing or (pipe.out and line == b"\n"):
            return
        pipe.out += line
        self._write(host, pipe)

    def _write(self, host: str, pipe: _Pipe) -> None:
        stream = pipe.process.stdin
        assert stream is not None
        if stream.closed:
            return
        try:
            while pipe.out:
                del pipe.out[: os.write(stream.fileno(), pipe.out[:READ_B])]
        except BlockingIOError:
            with suppress(KeyError):
                self._selector.register(stream, selectors.EVENT_WRITE, host)
            return
        except OSError:
            pipe.out.clear()
        with suppress(KeyError, ValueError):
            self._selector.unregister(stream)
        if pipe.closing:
            stream.close()

    def close(self, host: str) -> None:
        """End the input of a host: it then ends tidily."""
        if pipe := self._pipes.get(host):
            pipe.closing = True
            pipe.out.clear()
            self._write(host, pipe)

    def kill(self, host: str) -> None:
        """End the process of a host, and forget what it says."""
        if pipe := self._pipes.pop(host, None):
            self._forget(pipe)
            _kill(pipe.process)
            self._ending.append((self.now(), pipe.process))

    def _forget(self, pipe: _Pipe) -> None:
        for stream in (pipe.process.stdin, pipe.process.stdout, pipe.process.stderr):
            if stream is not None and not stream.closed:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                stream.close()

    def wait(self, seconds: float) -> list[Heard]:
        """Return what is heard within that time."""
        self._reap()
        heard = []
        for key, events in self._selector.select(seconds):
            host = key.data
            pipe = self._pipes.get(host)
            if pipe is None:
                continue
            if events & selectors.EVENT_WRITE:
                self._write(host, pipe)
            elif key.fileobj is pipe.process.stderr:
                pipe.said = (pipe.said + (self._read(pipe.process.stderr) or b""))[-STDERR_B:]
            else:
                heard += self._lines(host, pipe)
        return heard

    def _read(self, stream: IO[bytes] | None) -> bytes | None:
        """Return what a stream has now; None at its end, from which on it is not looked at."""
        assert stream is not None
        try:
            content = os.read(stream.fileno(), READ_B)
        except BlockingIOError:
            return b""
        except OSError:
            content = b""
        if not content:
            with suppress(KeyError):
                self._selector.unregister(stream)
        return content or None

    def _lines(self, host: str, pipe: _Pipe) -> list[Heard]:
        content = self._read(pipe.process.stdout)
        if content is None:
            pipe.said = (pipe.said + (self._read(pipe.process.stderr) or b""))[-STDERR_B:]
            last = pipe.said.decode(errors="replace").strip()
            del self._pipes[host]
            self._forget(pipe)
            self._ending.append((self.now() + LINGER_S, pipe.process))
            return [Heard(host, None, last)]
        *lines, rest = content.split(b"\n")
        if lines:
            lines[0] = bytes(pipe.part) + lines[0]
            pipe.part.clear()
        pipe.part += rest
        if len(pipe.part) > LONGEST_LINE_B:
            lines.append(bytes(pipe.part))  # which is no message
            pipe.part.clear()
        return [Heard(host, line) for line in lines]

    def _reap(self) -> None:
        """Collect processes that have ended, and kill those that should have."""
        for ending in list(self._ending):
            until, process = ending
            if process.poll() is not None:
                self._ending.remove(ending)
            elif self.now() > until:
                _kill(process)

    def end(self) -> None:
        """Kill what is left, and wait for it."""
        for host in list(self._pipes):
            self.kill(host)
        for _, process in self._ending:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LINGER_S)
            _kill(process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LINGER_S)
        self._selector.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was not collected yet, with its group."""
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
