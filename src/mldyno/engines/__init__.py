"""Engines: ways to other hosts. One file each, found by its name; standard library only.

An engine says which hosts a user means, and gives the words of a local process whose standard input and output are
those of a process on a host. What runs there, what is said over the pipe and how it ends is the same for all engines.
Rules: no name becomes an option or a command of a shell; an exit code is never believed, since some engines return 0
for a host that failed; a host is ours alone while the process runs, as far as the engine can see to that.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from mldyno.errors import MldynoError, UsageError

NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?")  # of a host
ANSWER_TIMEOUT_S = 30.0
LONGEST_ANSWER_B = 8 << 20


@dataclass(frozen=True)
class Host:
    """A host to measure on: its name, how its engine addresses it, and what its user asks for there."""

    name: str
    engine: str
    address: str
    python: str | None = None  # an interpreter there
    price: str | None = None  # such as 0.80 EUR/h
    measure: bool = False  # even if it is a login node
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)  # of its engine


@dataclass(frozen=True)
class Engine:
    """A way to hosts, for one run; its core is `hosts` and `command`."""

    run: str = ""  # the id of the run
    seconds: float | None = None  # that a host is expected to take at most, if that is known
    reach: Callable[[Sequence[str]], list[str]] = list  # words to run here -> the same through a login node
    options: Mapping[str, str] = field(default_factory=dict)  # that the user gives for all hosts

    queues: ClassVar[bool] = False  # whether a process may have to wait for its host, for hours
    python: ClassVar[str] = "python3"  # on a host that names none

    def hosts(self, wanted: str) -> list[Host]:
        """Return the hosts that the text behind the engine's name means: names, a partition; all if it is empty."""
        raise NotImplementedError

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        """Return the words of a process that connects its standard input and output to `words` on a host."""
        raise NotImplementedError

    def clear(self, host: Host) -> None:
        """End what an earlier contact of the same run has left in the engine's queue; it never raises."""

    def why(self, lines: Sequence[str]) -> str:
        """Return the line of standard error that says best why a pipe has ended; empty without any."""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def ask(self, words: Sequence[str]) -> str:
        """Return what a tool of the engine prints; raise with its last line of error."""
        try:
            done = subprocess.run(self.reach(words), stdin=subprocess.DEVNULL, capture_output=True, check=False,
                                  timeout=ANSWER_TIMEOUT_S, start_new_session=True)  # fmt: skip
        except FileNotFoundError as error:
            raise MldynoError(f"there is no '{error.filename}' here; install it, or name a login node.") from None
        except subprocess.TimeoutExpired:
            raise MldynoError(f"{words[0]} has not answered within {ANSWER_TIMEOUT_S:.0f} s.") from None
        except OSError as error:
            raise MldynoError(f"{words[0]} can't be asked: {error}.") from None
        lines = done.stderr.decode(errors="replace").split("\n")
        if done.returncode:
            raise MldynoError(f"{words[0]}: {self.why(lines) or f'exit code {done.returncode}'}")
        return done.stdout[:LONGEST_ANSWER_B].decode(errors="replace")


def names_in(wanted: str, engine: str, pattern: re.Pattern[str] = NAME) -> list[str]:
    """Return the names of a comma list; raise for one that can't be a host's."""
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if not pattern.fullmatch(name):
            raise UsageError(f"'{name}' can't be a host of {engine}; write names, such as {engine}:node1,node2.")
    return names
