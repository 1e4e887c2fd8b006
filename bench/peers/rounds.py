"""Rounds: every tool once on every step it can time, in random order, each with a bare loop beside it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.peers import bare, environments, optimum, ours, pyperf_runner, torch_timer
from bench.peers.tools import Answer, Tool, ask, say

REFERENCES: dict[str, Tool] = {"bare": bare.Bare(), "transformers": optimum.BareTransformers()}
OURS = ours.Ours()
TOOLS: tuple[Tool, ...] = (
    OURS,
    *(torch_timer.TorchTimer(way) for way in torch_timer.WAYS),
    pyperf_runner.Pyperf(),
    *(optimum.Optimum(launcher) for launcher in ("inline", "process")),
)
_BURN = "while True: pass"


@dataclass(frozen=True)
class Turn:
    """One run of a tool on a step, and the bare loop of the same step right before or after it."""

    number: int
    tool: str
    step: str
    answer: Answer
    bare: Answer
    noisy: bool = False
    """Whether another program kept every core busy."""

    @property
    def ratio(self) -> float | None:
        """The tool's answer over that of the bare loop beside it."""
        if self.answer.seconds is None or self.bare.seconds is None:
            return None
        return self.answer.seconds / self.bare.seconds


def turns(number: int, tools: Sequence[Tool], *, quick: bool = False, noisy: bool = False) -> Iterator[Turn]:
    """One round, in an order that only its number decides."""
    chance = random.Random(f"round {number} {noisy}")
    pairs = [(tool, step) for tool in tools for step in tool.steps]
    chance.shuffle(pairs)
    for tool, step in pairs:
        both: list[Tool] = [tool, REFERENCES[tool.reference]]
        chance.shuffle(both)
        answers = {one.name: _asked(one, step, quick) for one in both}
        answer, beside = answers[tool.name], answers[REFERENCES[tool.reference].name]
        turn = Turn(number, tool.name, step, answer, beside, noisy)
        say(f"  {tool.name}, {step}: {_shown(answer)} in {answer.wall:.1f} s; bare {_shown(beside)}")
        yield turn


def _asked(tool: Tool, step: str, quick: bool) -> Answer:
    with tempfile.TemporaryDirectory(prefix="mldyno-peers-") as folder:
        return ask(tool, environments.binaries(tool.environment), step, Path(folder), quick=quick)


def _shown(answer: Answer) -> str:
    return "no answer" if answer.seconds is None else f"{answer.seconds * 1e3:.3f} ms"


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many programs beside, each of which keeps a core busy."""
    started = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def write(turn: Turn, path: Path) -> None:
    """Append a turn to a file of JSON lines, so that an interrupted run is not lost."""
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(turn)) + "\n")


def read(path: Path) -> list[Turn]:
    """The turns of such a file."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        turn = Turn(**json.loads(line))
        found.append(replace(turn, answer=_answer(turn.answer), bare=_answer(turn.bare)))
    return found


def _answer(content: object) -> Answer:
    assert isinstance(content, dict)
    return Answer(content["seconds"], tuple(content["warnings"]), content["wall"], content.get("uncontended"))
