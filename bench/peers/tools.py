"""What a tool is to this bench: how it is started, and how its answer is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT = 1800.0  # s that a tool may take for one answer


@dataclass(frozen=True)
class Answer:
    """What one run of a tool said: the median time of a step in s, or None, and its warnings."""

    seconds: float | None
    warnings: tuple[str, ...] = ()
    wall: float = 0.0
    """Time in s from starting the command to its end."""
    uncontended: float | None = None
    """The time in s when little is in the way, where a tool gives that too."""


@dataclass(frozen=True)
class Call:
    """A command in the environment of a tool."""

    words: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)


class Tool(Protocol):
    """One tool: its file has one of these for each way of using it."""

    @property
    def name(self) -> str:
        """As the page calls it."""

    @property
    def environment(self) -> str:
        """The virtual environment that it runs in."""

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that it can time."""

    @property
    def reference(self) -> str:
        """The bare loop that it is held against."""

    @property
    def settings(self) -> str:
        """What was chosen, in words for the page."""

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """The command that times a step; the folder is empty and removed afterwards."""

    def read(self, output: str) -> Answer:
        """The answer in what the command printed."""


def module(name: str, *words: str) -> list[str]:
    """The command that runs the tool's side of a file of this package."""
    return ["python", "-m", f"bench.peers.{name}", *words]


def say_answer(seconds: float, warnings: Sequence[str] = ()) -> None:
    """The tool's side: print the answer as the last line."""
    print(json.dumps({"seconds": seconds, "warnings": list(warnings)}))


def read_answer(output: str) -> Answer:
    """The bench's side: the answer that `say_answer` printed."""
    found = json.loads(output.strip().splitlines()[-1])
    return Answer(found["seconds"], tuple(found["warnings"]))


def say(text: str) -> None:
    """A line of progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def ask(tool: Tool, binaries: Path, step: str, folder: Path, *, quick: bool = False) -> Answer:
    """Run a tool once, as a user would, and take the wall time until it has answered."""
    call = tool.call(step, folder, quick)
    command = [str(binaries / call.words[0]), *call.words[1:]]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    found_by = {} if tool.environment == "mldyno" else {"PYTHONPATH": paths}  # mldyno is installed where it runs
    environment = {**os.environ, **found_by, **call.settings}
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    wall = time.perf_counter() - began
    try:
        found = tool.read(done.stdout)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise RuntimeError(f"{tool.name} gave no answer that can be read ({error}):\n{done.stderr}") from error
    return replace(found, wall=wall)
