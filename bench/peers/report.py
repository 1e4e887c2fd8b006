"""The page: PEERS.md, with its conclusion made from the figures."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from bench.peers import environments, steps
from bench.peers.figures import NEAR, SHARE, Answers, Goal, Row, goals, rows
from bench.peers.rounds import OURS, REFERENCES, TOOLS, Turn
from bench.peers.tools import ROOT, Tool

from mldyno import machine
from mldyno.stats.intervals import median

_ORDER = {tool.name: place for place, tool in enumerate(TOOLS)}
_HEAD = (
    "| tool | median / bare | 95 % interval | max / min | CV | wall time | answers | warned | warned, noisy"
    " | noisy / quiet |",
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


@dataclass(frozen=True)
class Circumstances:
    """Where and when the rounds were run, as lines."""

    lines: tuple[str, ...]


def circumstances(load: float, versions: Mapping[str, Mapping[str, str]]) -> Circumstances:
    """The date, the machine, the commit, and the versions in each environment."""
    here = machine.describe()
    kind = {True: "virtual", False: "physical", None: "perhaps virtual"}[here.virtualised]
    lines = [
        f"date: {datetime.now(timezone.utc).date().isoformat()}",
        f"machine: {here.cpu}, {here.cores} cores, {kind}; {here.system} {here.release}, {here.arch}",
        f"Python {platform.python_version()} in every environment; source: commit {_commit()}",
        f"load when it began: {load:.1f}, of {here.cores} cores",
    ]
    for name, found in versions.items():
        lines.append(
            f"environment `{name}`: " + ", ".join(f"{package} {version}" for package, version in found.items())
        )
    return Circumstances(tuple(lines))


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def page(turns: Sequence[Turn], where: Circumstances, command: str) -> str:
    """Everything as Markdown."""
    found = sorted(rows(turns), key=lambda row: _ORDER.get(row.tool, len(_ORDER)))
    present = [step for step in steps.WORKLOADS if any(row.step == step for row in found)]
    count = len({turn.number for turn in turns if not turn.noisy})
    lines = ["# mldyno beside its peers", "", f"Made by `{command}`; do not edit.", ""]
    lines += [f"- {line}" for line in where.lines]
    lines += ["", "## Does it hold?", "", *_conclusion(found, present)]
    for step in present:
        lines += ["", f"## {steps.TITLES[step]}, inference, one thread", "", *_HEAD]
        mine = [row for row in found if row.step == step]
        lines += [*(_bare(turns, step, name) for name in REFERENCES if _beside(turns, step, name)), *map(_row, mine)]
        lines += _uncontended(turns, step)
        absent = [tool.name for tool in TOOLS if step not in tool.steps]
        lines += (
            ["", f"n/a: {', '.join(absent)}. These time models of transformers, diffusers and timm only."]
            if absent
            else []
        )
    lines += ["", "## What the columns are", "", *_columns(count)]
    lines += ["", "## Settings and commands", "", *_settings()]
    lines += ["", "## Warnings, as given", "", *_warnings(found)]
    lines += ["", "## All answers in ms, the bare loop beside each", "", *_raw(found)]
    return "\n".join(lines) + "\n"


def _conclusion(found: Sequence[Row], present: Sequence[str]) -> list[str]:
    every: list[Goal] = []
    for step in present:
        ours = [row for row in found if row.step == step and row.tool == OURS.name]
        peers = [row for row in found if row.step == step and row.tool != OURS.name]
        every += goals(ours[0], peers) if ours else []
    if not every:
        return ["This can't be said: it takes at least two answers of mldyno and of one peer on the same step."]
    met = sum(goal.met for goal in every)
    whole = (
        f"**{'Yes' if met == len(every) else 'No' if met == 0 else 'In part'}: {met} of {len(every)} goals are met.**"
    )
    aim = (
        f"The goals for mldyno: within {100 * NEAR:g} % of the bare loop; a spread of at most {SHARE:g} of that of the"
    )
    lines = [whole, "", f"{aim} peer whose answers lie closest together; and no more wall time than that peer.", ""]
    for goal in every:
        verdict = "met" if goal.met else "**missed**"
        lines.append(f"- {steps.TITLES[goal.step]}; {goal.name}: {verdict}: {goal.says}")
    return lines


def _uncontended(turns: Sequence[Turn], step: str) -> list[str]:
    """What the answers of the tools that give an uncontended time would be worth, had that been the answer."""
    lines = []
    for tool in TOOLS:
        mine = [turn.answer for turn in turns if (turn.tool, turn.step, turn.noisy) == (tool.name, step, False)]
        found = Answers(tuple(answer.uncontended for answer in mine if answer.uncontended is not None))
        if len(found.seconds) > 1:
            spread = f"max / min {_number(found.extent)}, CV {_percent(found.variation)}"
            lines.append(f"{tool.name}'s uncontended time, from the same runs: {spread}.")
    return ["", *lines] if lines else []


def _beside(turns: Sequence[Turn], step: str, reference: str) -> list[Turn]:
    """The first bare loop of each quiet round."""
    names = {tool.name for tool in TOOLS if tool.reference == reference}
    first: dict[int, Turn] = {}
    for turn in turns:
        if turn.step == step and turn.tool in names and not turn.noisy:
            first.setdefault(turn.number, turn)
    return list(first.values())


def _bare(turns: Sequence[Turn], step: str, reference: str) -> str:
    beside = _beside(turns, step, reference)
    answers = Answers(tuple(turn.bare.seconds for turn in beside if turn.bare.seconds is not None))
    wall = median([turn.bare.wall for turn in beside])
    cells = [
        "1",
        "",
        f"{answers.extent:.3f}",
        _percent(answers.variation),
        f"{wall:.1f} s",
        f"{len(beside)} of {len(beside)}",
    ]
    return f"| {REFERENCES[reference].name} | {' | '.join(cells)} | never | never | |"


def _row(row: Row) -> str:
    low, high = row.interval
    known = "n/a" if math.isnan(low) else f"{_number(low)} to {_number(high)}"
    loud = f"{sum(bool(turn.answer.warnings) for turn in row.noisy)} of {len(row.noisy)}" if row.noisy else ""
    name = f"**{row.tool}**" if row.tool == OURS.name else row.tool
    cells = [
        name, _number(row.ratio), known, _number(row.answers.extent),
        _percent(row.answers.variation), f"{row.wall:.1f} s", f"{len(row.answers.seconds)} of {len(row.turns)}",
        f"{row.warned} of {len(row.turns)}", loud, _number(row.missed),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    if math.isnan(value):
        return "n/a"
    return f"{value:.3f}" if value < 1000 else "∞"


def _percent(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{100 * value:.1f} %"


def _columns(count: int) -> list[str]:
    return [
        f"{count} round{'s' if count != 1 else ''}. In each, every tool is started once on each step, in random order."
        " Right before or after it, by chance, the bare loop of the same step is started too. The bench starts nothing"
        " else meanwhile.",
        "",
        "- median / bare: the tool's answer over that of the bare loop beside it; the median over the rounds.",
        "- 95 % interval: of the mean log-ratio, Student's t over the rounds.",
        "- max / min, CV: of the tool's answers over the rounds, each from fresh processes. They contain what the"
        " machine did meanwhile, for all tools alike.",
        "- uncontended time: the mean between the 5 % and the 10 % quantile. mldyno gives it beside its headline.",
        "- wall time: from starting the command to its end, the median.",
        "- answers: rounds in which it gave a number. mldyno gives none for a series that never settled.",
        "- warned: rounds in which the tool said that its answer may be doubtful. warned, noisy: the same in one more"
        " round, in which another program kept every core busy.",
        "- noisy / quiet: what it answered then, over the median of its quiet answers. It is no fault of a tool that"
        " this is large, but a reader should be told.",
    ]


def _settings() -> list[str]:
    lines = ["Each tool has a virtual environment of its own, with its own installed torch, made by:", "", "```console"]
    for name in environments.REQUIREMENTS:
        lines += [f"$ {' '.join(_quoted(word) for word in words)}" for words in environments.commands(name)]
    lines += [
        "```",
        "",
        "Each is then started so (`PYTHONPATH` is the source tree and its `src`), here on the BERT:",
        "",
    ]
    lines += ["```console"]
    every: list[Tool] = [*TOOLS, *REFERENCES.values()]
    for tool in every:
        call = tool.call("bert", Path("FOLDER"), False)
        folder = ".venv" if tool.environment == "mldyno" else f".peers/{tool.environment}"
        setting = "".join(f"{key}={value} " for key, value in call.settings.items()).replace(f"{ROOT}/", "")
        lines.append(f"$ {setting}{folder}/bin/{' '.join(_quoted(word) for word in call.words)}")
    lines += ["```", ""]
    return lines + [f"- {tool.name}: {tool.settings}" for tool in every]


def _quoted(word: str) -> str:
    return f"'{word}'" if any(sign in word for sign in "<>,*") else word


def _warnings(found: Sequence[Row]) -> list[str]:
    lines = []
    for row in found:
        texts = [text for turn in (*row.turns, *row.noisy) for text in turn.answer.warnings[:1]]
        if texts:
            lines.append(
                f"- {row.tool}, {row.step}: “{texts[0]}”" + (f" and {len(texts) - 1} more" if texts[1:] else "")
            )
    return lines or ["None."]


def _raw(found: Sequence[Row]) -> list[str]:
    numbers = sorted({turn.number for row in found for turn in row.turns})
    lines = [f"| tool | step | {' | '.join(str(number) for number in numbers)} | noisy |"]
    lines.append(f"|---|---|{'---:|' * (len(numbers) + 1)}")
    for row in found:
        by_number = {turn.number: turn for turn in row.turns}
        cells = [_both(by_number.get(number)) for number in numbers]
        lines.append(f"| {row.tool} | {row.step} | {' | '.join(cells)} | {_both(next(iter(row.noisy), None))} |")
    return lines


def _both(turn: Turn | None) -> str:
    if turn is None:
        return ""
    return " / ".join("–" if one.seconds is None else f"{one.seconds * 1e3:.3f}" for one in (turn.answer, turn.bare))


def load() -> float:
    """The load of the last minute."""
    return os.getloadavg()[0]
