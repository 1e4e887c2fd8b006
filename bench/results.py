"""Figures against their targets, and the page that shows them."""

from __future__ import annotations

import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mldyno import machine
from mldyno.units import show_bytes

PACKAGES = ("mldyno", "torch", "click", "msgspec", "rich", "psutil")


@dataclass(frozen=True)
class Figure:
    """One number with its target: at most `limit`, or at least that."""

    name: str
    value: float
    unit: str
    limit: float | None
    how: str
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return f"{self.value:.3g} {self.unit}".strip()

    @property
    def target(self) -> str:
        """The target in words."""
        if self.limit is None:
            return ""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g} {self.unit}".strip()


@dataclass
class Chapter:
    """The figures of one question, and what a reader should know beside them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def page(chapters: Sequence[Chapter], command: str, load: float) -> str:
    """All chapters as Markdown, with the machine, its load when it began, the date and the versions."""
    lines = ["# mldyno's own speed", "", f"Made by `{command}`; do not edit.", ""]
    lines += [f"- {line}" for line in _circumstances(load)]
    every = [figure for chapter in chapters for figure in chapter.figures if figure.limit is not None]
    lines += ["", f"{sum(bool(figure.met) for figure in every)} of {len(every)} targets are met."]
    for chapter in chapters:
        lines += ["", f"## {chapter.title}", "", "| figure | value | target | met | how measured |"]
        lines += ["|---|---:|---:|---|---|", *(_row(figure) for figure in chapter.figures)]
        lines += ["", *(f"- {note}" for note in chapter.notes)] if chapter.notes else []
    return "\n".join(lines) + "\n"


def _row(figure: Figure) -> str:
    met = {True: "yes", False: "**no**", None: ""}[figure.met]
    return f"| {figure.name} | {figure.shown} | {figure.target} | {met} | {figure.how} |"


def _circumstances(load: float) -> list[str]:
    here = machine.describe()
    memory = show_bytes(here.memory) if here.memory else "unknown"
    kind = {True: "virtual", False: "physical", None: "perhaps virtual"}[here.virtualised]
    return [
        f"date: {datetime.now(timezone.utc).date().isoformat()}",
        f"machine: {here.cpu}, {here.cores} cores, {memory} of memory, {kind}, on {here.power} power",
        f"system: {here.system} {here.release}, {here.arch}",
        f"versions: Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        + ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        f"source: commit {_commit()}",
        f"load when it began: {load:.1f}, of {here.cores} cores",
    ]


def _commit() -> str:
    """The commit that was measured, `-dirty` where files were changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
