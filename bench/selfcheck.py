"""All measures of mldyno's own errors, on an idle machine and under load, into bench/SELFCHECK.md.

It takes over two hours, in parts. What a part came to is kept in bench/selfcheck.json, with when and where; a check
that was ended goes on where it was, and only what is not there, or is named, is measured.
What only real time can show, and a busy machine would spoil, is measured here too, idle, and in no test.
The measures on simulated series are the same under any load, and are taken once. Every target of
the method is held against the value itself; nothing is allowed for chance.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mldyno import api, machine
from mldyno.analysis import grouped
from mldyno.analysis.estimates import processes_of
from mldyno.records import Case
from mldyno.runner.events import Listener
from mldyno.selftest.measures import Measure, SeriesKind
from mldyno.selftest.on_processes import MANY, coverage, judged
from mldyno.selftest.table import FULL, Effort, run
from mldyno.stats.intervals import median
from mldyno.store import Query, Store
from mldyno.units import show_seconds
from mldyno.views.records import amount

TARGET = Path(__file__).parent / "SELFCHECK.md"
KEPT = Path(__file__).parent / "selfcheck.json"
FOLDER = Path(__file__).parent / ".selfcheck"  # of processes that were measured, until there are enough
Part = dict[str, Any]  # when, machine, seconds, measures
ON_SERIES = (5, 9, 10, 12)
ON_MACHINE = (1, 2, 3, 4, 6, 7, 8, 11)
LOAD = "while True: pass"
VERDICTS = {True: "met", False: "**missed**", None: "too few trials"}
SPELL_S = 30.0  # that a changing load lasts, and does not, on average
CASES: tuple[tuple[str, dict[str, Any]], ...] = (  # with one thread and two, of short steps and long ones
    ("mlp", {"mode": "infer", "threads": 1}), ("mlp", {"mode": "infer", "threads": 2}),
    ("mlp", {"mode": "infer", "threads": 1, "batch": 1}),
    ("bert-tiny", {"mode": "train", "threads": 1}), ("bert-tiny", {"mode": "train", "threads": 2}),
    ("mnist-cnn", {"mode": "train", "threads": 1}), ("mnist-cnn", {"mode": "train", "threads": 2}),
    ("resnet18-cifar", {"mode": "infer", "threads": 2}),
    ("attention", {"mode": "infer", "threads": 1}), ("resnet18", {"mode": "train", "threads": 2}),
    ("bert-base", {"mode": "infer", "batch": 16, "seq": 128, "threads": 2}),
)  # fmt: skip
FEW = 3  # processes of 20 s, which take the time of MANY of 2 s
PROCESS_S = 2.0  # that each process is measured for
PARENT_SHARE = 0.01  # of a core at most that the parent takes while it measures
PARENT_WATCHED_S = 2.0  # at least


@contextmanager
def loaded(processes: int) -> Iterator[None]:
    """So many processes that do nothing but run, each in a session of its own: then Linux gives none of them less."""
    burning = [subprocess.Popen([sys.executable, "-c", LOAD], start_new_session=True) for _ in range(processes)]
    try:
        time.sleep(1.0)
        yield
    finally:
        for one in burning:
            one.kill()
            one.wait()


@contextmanager
def changing_load(processes: int, seed: int = 1) -> Iterator[None]:
    """So many processes that do nothing but run, each for a while, and then not for a while."""
    over, chance = threading.Event(), random.Random(seed)

    def come_and_go(own: random.Random) -> None:
        while not over.wait(own.expovariate(1 / SPELL_S)):
            with subprocess.Popen([sys.executable, "-c", LOAD], start_new_session=True) as burning:
                over.wait(own.expovariate(1 / SPELL_S))
                burning.kill()

    threads = [threading.Thread(target=come_and_go, args=(random.Random(chance.random()),)) for _ in range(processes)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def of_processes(minutes: float, at: Path, seed: int = 1) -> list[Measure]:
    """Measures 13 and 14: fresh processes of all cases in random order for so long, each a run of its own."""
    store = Store(at)
    records = list(store.stream(Query(heads=False)))
    chance = random.Random(seed + len(records))
    while (left := 60 * minutes - sum(record.fact("wall_time") or 0.0 for record in records)) > 0:
        for workload, axes in chance.sample(CASES, len(CASES)):
            say("processes", left)
            records += api.run(workload, store=store, repeats=1, budget=PROCESS_S, **axes).records
    rows = list(judged([process for record in records for process in processes_of(record)]))
    return [coverage(13, rows), width(14, rows)]


def width(number: int, rows: Sequence[dict[str, Any]]) -> Measure:
    """Return the half-width from many short processes over that from a few long ones of the same total time."""
    ratios = [
        median([row["half_width"] for row in own if row["processes"] == MANY])
        / median([row["plain_half_width"] for row in own if row["processes"] == FEW])
        for own in grouped(rows, lambda row: row["case"]).values()
    ]
    value = median(ratios)
    return Measure(
        number, f"half-width from {MANY} short processes / by Student's t from {FEW}", value, None, "<= 0.33",
        value <= 1 / 3, len(ratios), note=f"between {min(ratios):.2f} and {max(ratios):.2f}",
    )  # fmt: skip


def measured(take: Callable[[], Iterable[Measure]]) -> Part:
    """A part as it is kept: its measures without what they were computed from, when and where, and the s it took."""
    began, here = time.monotonic(), machine.describe()
    measures = [{name: value for name, value in asdict(one).items() if name != "raw"} for one in take()]
    where = f"{here.name} ({'a virtual machine' if here.virtualised else 'real hardware'})"
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return {"when": day, "machine": where, "seconds": round(time.monotonic() - began), "measures": measures}


def measures_of(part: Part | None) -> list[Measure]:
    """The measures of a part that was kept; none where it was not measured."""
    entries = part["measures"] if part else []
    return [Measure(**{**entry, "cells": tuple(SeriesKind(**cell) for cell in entry["cells"])}) for entry in entries]


class Watch(Listener):
    """Notes the parent's CPU time and wall time while cases are measured."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """CPU time and wall time, in s."""
        self.times.append((time.process_time(), time.monotonic()))


def real_time() -> Iterator[Measure]:
    """The parent's share of a core while a worker measures one case, and two."""
    for number, places in ((15, ["device"]), (16, ["device", "roundtrip"])):
        watch = Watch()
        with tempfile.TemporaryDirectory() as folder:
            api.run(
                "mlp", store=Store(Path(folder) / "records.sqlite"), listener=watch, budget=4.0, target=1e-5,
                placement=places, mode="infer", threads=1, repeats=1,
            )  # fmt: skip
        (cpu, wall), (cpu_end, wall_end) = watch.times[0], watch.times[-1]
        share, ok = (cpu_end - cpu) / (wall_end - wall), wall_end - wall > PARENT_WATCHED_S
        name = f"share of a core that the parent takes while it measures {len(places)} of 2 cases"
        yield Measure(number, name, share, None, "<= 1 %", ok and share < PARENT_SHARE, len(watch.times), "share")


def say(part: str, left: float) -> None:
    """Progress, where it can be seen."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{part}: about {show_seconds(max(1.0, left))} left    ")
        sys.stderr.flush()


def row(measure: Measure) -> str:
    """A measure as a row of Markdown."""
    value, bound = amount(measure.value, measure.unit), amount(measure.bound, measure.unit)
    met = VERDICTS[measure.ok]
    parts = (str(measure.id), measure.name, value, bound, measure.target, met, f"{measure.n:,}", measure.peers)
    return f"| {' | '.join(parts)} | {measure.note} |"


def table(measures: Sequence[Measure]) -> list[str]:
    """Measures as a table of Markdown."""
    head = "| # | measure | here | at worst (95 %) | target | | n | peers | note |"
    return [head, "|---:|---|---:|---:|---|---|---:|---|---|", *(row(one) for one in measures)]


def cells_table(title: str, cells: Sequence[SeriesKind]) -> list[str]:
    """The cells of one measure as a table of Markdown."""
    lines = ["", f"### {title}", "", "| series | value | at worst (95 %) | | n |", "|---|---:|---:|---|---:|"]
    for one in cells:
        met = VERDICTS[one.ok] if one.counts else "only reported"
        value, bound = amount(one.value, "share"), amount(one.bound, "share")
        lines.append(f"| {one.name} | {value} | {bound} | {met} | {one.n:,} |")
    return lines


def page(parts: dict[str, Part], cores: int, names: Iterable[str]) -> list[str]:
    """All measures that there are, as Markdown."""
    idle, fresh, busy, changing, simulated = (
        measures_of(parts.get(name)) for name in ("idle", "processes", "busy", "changing", "simulated")
    )
    everything, loaded = sorted([*idle, *fresh, *simulated], key=lambda one: one.id), [*busy, *changing]
    met, loaded_met = (sum(one.ok is True for one in measures) for measures in (everything, loaded))
    missing = [name for name in names if name not in parts]
    return [
        "# mldyno's own errors", "",
        "Made by `make selfcheck`. Other machines give other figures; `mldyno selftest` measures most on yours.",
        "", f"**Idle: {met} of {len(everything)} targets met. Under load: {loaded_met} of {len(loaded)}.**", "",
        *(f"- {name}: {part['when']}, {part['machine']}, in {show_seconds(part['seconds'])}"
          for name, part in parts.items()),
        *([f"- not measured yet: {', '.join(missing)}"] if missing else []),
        "", "## Idle", "", *table(everything), "",
        f"## With {cores} other processes that keep all cores busy", "",
        "The measures on simulated series (5, 9, 10, 12) do not depend on load. Fresh processes (13, 14) ran "
        f"beside a load that comes and goes, each process of it for {SPELL_S:.0f} s on average.", "",
        *table(loaded), "",
        "## Every kind of simulated series",
        *(line for one in simulated for line in cells_table(f"{one.id}: {one.name}", one.cells)), "",
        "## Fresh processes",
        *(line for when, measures in (("idle", fresh), ("changing load", changing)) for each in measures
          if each.id == 13 for line in cells_table(f"{each.name}, {when}", each.cells)),
    ]  # fmt: skip


def main() -> int:
    """Measure what is missing, or named, and write; the exit code says whether every target was met."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--comparisons", type=int, default=200)
    options.add_argument("--series", type=int, default=2000, help="simulated series a cell")
    options.add_argument("--minutes", type=float, default=60.0, help="of fresh processes, idle and under load")
    options.add_argument("--part", action="append", default=[], help="measure this part anew, and no other")
    options.add_argument("--out", type=Path, default=TARGET)
    options.add_argument("--kept", type=Path, default=KEPT, help="what the parts came to")
    options.add_argument("--folder", type=Path, default=FOLDER, help="of processes, until there are enough")
    chosen = options.parse_args()
    effort = Effort(chosen.comparisons, chosen.series, FULL.processes, FULL.seconds, FULL.pairs)
    cores = machine.describe().cores or 2

    def under_load() -> list[Measure]:
        with loaded(cores):
            return list(run(effort, "torch", ON_MACHINE, say))

    def fresh_processes(name: str) -> list[Measure]:
        chosen.folder.mkdir(exist_ok=True)
        measures = of_processes(chosen.minutes, chosen.folder / f"{name}.sqlite")
        shutil.rmtree(chosen.folder)
        return measures

    def beside_changing_load() -> list[Measure]:
        with changing_load(cores):
            return fresh_processes("changing")

    takes: dict[str, Callable[[], Iterable[Measure]]] = {
        "idle": lambda: [*run(effort, "torch", ON_MACHINE, say), *real_time()],
        "processes": lambda: fresh_processes("processes"),
        "busy": under_load,
        "changing": beside_changing_load,
        "simulated": lambda: run(effort, "torch", ON_SERIES, say),
    }
    parts: dict[str, Part] = json.loads(chosen.kept.read_text(encoding="utf-8")) if chosen.kept.exists() else {}
    for name, take in takes.items():
        if name in (chosen.part or takes.keys() - parts.keys()):
            parts[name] = measured(take)
            chosen.kept.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
            lines = page({name: parts[name] for name in takes if name in parts}, cores, takes)
            chosen.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(chosen.out.read_text(encoding="utf-8"))
    return 3 if any(one.ok is False for part in parts.values() for one in measures_of(part)) else 0


if __name__ == "__main__":
    sys.exit(main())
