"""Figures against their targets, kept as data by chapter, and the page that shows them."""

from __future__ import annotations

import json
import platform
import sqlite3
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mldyno import machine
from mldyno.units import show_bytes

PACKAGES = ("mldyno", "torch", "click", "msgspec", "rich", "psutil")
MADE = ("bench/RESULTS.md", "bench/results.json")  # what measuring itself changes
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Figure:
    """One number with its target: at most, at least, or between."""

    name: str
    value: float
    unit: str
    most: float | None
    how: str
    least: float | None = None
    half_width: float | None = None
    """Half of its 95 % interval, where it has one."""

    @property
    def met(self) -> bool | None:
        """Whether the value itself lies where it should; None where there is no target."""
        if self.most is None and self.least is None:
            return None
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    @property
    def shown(self) -> str:
        """The value with its interval and its unit."""
        known = "" if self.half_width is None else f" ± {self.half_width:.2g}"
        return f"{self.value:.4g}{known} {self.unit}".strip()

    @property
    def target(self) -> str:
        """The target in words."""
        if self.most is not None and self.least is not None:
            return f"{self.least:g} to {self.most:g} {self.unit}".strip()
        if self.most is not None:
            return f"at most {self.most:g} {self.unit}".strip()
        return "" if self.least is None else f"at least {self.least:g} {self.unit}".strip()


@dataclass
class Chapter:
    """The figures of one question, and what a reader should know beside them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Circumstances:
    """When a chapter was measured, on what, with what; `load` is that of the machine before it began."""

    date: str
    commit: str
    load: float
    machine: str
    system: str
    versions: str


@dataclass(frozen=True)
class Measured:
    """A chapter, and how it came about."""

    chapter: Chapter
    circumstances: Circumstances


# -- as data -------------------------------------------------------------------------------------


def read(path: Path) -> dict[int, Measured]:
    """The chapters that are kept, by number; none where there is no file yet."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        int(number): Measured(
            Chapter(one["title"], [Figure(**figure) for figure in one["figures"]], one["notes"]),
            Circumstances(**one["circumstances"]),
        )
        for number, one in content.items()
    }


def keep(number: int, measured: Measured, data: Path, shown: Path) -> None:
    """Put a chapter in the place of the one that was kept, and write the page anew."""
    chapters = {**read(data), number: measured}
    content = {
        str(one): {**asdict(chapters[one].chapter), "circumstances": asdict(chapters[one].circumstances)}
        for one in sorted(chapters)
    }
    data.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shown.write_text(page(chapters), encoding="utf-8")


# -- as a page -----------------------------------------------------------------------------------


def page(chapters: Mapping[int, Measured]) -> str:
    """All chapters as Markdown, each with its date, commit and load."""
    lines = [
        "# mldyno's own speed", "",
        "Made from `bench/results.json`; do not edit. `make bench-self` measures all of it anew,"
        " `python bench/bench_self.py --only N` one chapter.", "",
    ]  # fmt: skip
    for name in ("machine", "system", "versions"):
        lines += _by_value(name, {number: getattr(one.circumstances, name) for number, one in chapters.items()})
    every = [figure.met for one in chapters.values() for figure in one.chapter.figures if figure.met is not None]
    lines += ["", f"{sum(every)} of {len(every)} targets are met."]
    for _, one in sorted(chapters.items()):
        lines += ["", f"## {one.chapter.title}", "", _told(one.circumstances), ""]
        lines += ["| figure | value | target | met | how measured |", "|---|---:|---:|---|---|"]
        lines += [_row(figure) for figure in one.chapter.figures]
        lines += ["", *(f"- {note}" for note in one.chapter.notes)] if one.chapter.notes else []
    return "\n".join(lines) + "\n"


def _by_value(name: str, values: Mapping[int, str]) -> list[str]:
    """A line for each value, which says of which chapters it is where they differ."""
    distinct = list(dict.fromkeys(values[number] for number in sorted(values)))
    if len(distinct) == 1:
        return [f"- {name}: {distinct[0]}"]
    chapters = {value: [str(number) for number in sorted(values) if values[number] == value] for value in distinct}
    return [f"- {name} ({', '.join(chapters[value])}): {value}" for value in distinct]


def _told(one: Circumstances) -> str:
    return f"Measured on {one.date} at commit {one.commit}; load of the machine when it began: {one.load:.1f}."


def _row(figure: Figure) -> str:
    met = {True: "yes", False: "**no**", None: ""}[figure.met]
    return f"| {figure.name} | {figure.shown} | {figure.target} | {met} | {figure.how} |"


# -- circumstances -------------------------------------------------------------------------------


def circumstances(load: float) -> Circumstances:
    """Those of now, with the load given."""
    here = machine.describe()
    memory = show_bytes(here.memory) if here.memory else "unknown"
    kind = {True: "virtual", False: "physical", None: "perhaps virtual"}[here.virtualised]
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return Circumstances(
        date=datetime.now(timezone.utc).date().isoformat(),
        commit=_commit(),
        load=load,
        machine=f"{here.cpu}, {here.cores} cores, {memory} of memory, {kind}, on {here.power} power",
        system=f"{here.system} {here.release}, {here.arch}",
        versions=f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {packages}",
    )


def _commit() -> str:
    """The commit that is measured, `-dirty` where files were changed since, other than what measuring makes."""
    try:
        return _git("rev-parse", "--short=7", "HEAD") + ("-dirty" if _git("status", "--porcelain", *_OTHERS) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


_OTHERS = ("--untracked-files=no", "--", ".", *(f":(exclude){path}" for path in MADE))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
