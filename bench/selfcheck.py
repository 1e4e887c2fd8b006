"""All measures of mldyno's own errors, on an idle machine and under load, into bench/SELFCHECK.md.

It takes over two hours, in parts; what was measured is kept, and a check that was ended goes on where it was.
What only real time can show, and a busy machine would spoil, is measured here too, idle, and in no test.
The measures on simulated series are the same under any load, and are taken once. Every target of
the method is held against the value itself; nothing is allowed for chance.
"""

from __future__ import annotations

import argparse
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mldyno import api, machine
from mldyno.analysis.processes import processes_of
from mldyno.records import Case
from mldyno.runner.events import Listener
from mldyno.selftest.measures import Measure, SeriesKind
from mldyno.selftest.on_processes import coverage, judged, width
from mldyno.selftest.table import FULL, Effort, run
from mldyno.store import Query, Store
from mldyno.units import show_seconds
from mldyno.views.measures import amount

TARGET = Path(__file__).parent / "SELFCHECK.md"
FOLDER = Path(__file__).parent / ".selfcheck"  # of what was measured, until all is
ON_SERIES = (5, 9, 10, 12)
ON_MACHINE = (1, 2, 3, 4, 6, 7, 8, 11)
LOAD = "while True: pass"
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


def kept(at: Path, take: Callable[[], Iterable[Measure]]) -> tuple[list[Measure], float]:
    """The measures of a part, and the time in s that they took: from its file, or measured now and kept there."""
    if not at.exists():
        began = time.monotonic()
        measures = list(take())
        at.write_bytes(pickle.dumps((measures, time.monotonic() - began)))
    measures, seconds = pickle.loads(at.read_bytes())
    return measures, seconds


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
    met = "met" if measure.ok else "**missed**"
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
        met = ("met" if one.ok else "**missed**") if one.counts else "only reported"
        value, bound = amount(one.value, "share"), amount(one.bound, "share")
        lines.append(f"| {one.name} | {value} | {bound} | {met} | {one.n:,} |")
    return lines


def main() -> int:
    """Measure and write; the exit code says whether every target was met."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--comparisons", type=int, default=200)
    options.add_argument("--series", type=int, default=2000, help="simulated series a cell")
    options.add_argument("--minutes", type=float, default=60.0, help="of fresh processes, idle and under load")
    options.add_argument("--out", type=Path, default=TARGET)
    options.add_argument("--folder", type=Path, default=FOLDER, help="of what was measured, until all is")
    chosen = options.parse_args()
    effort = Effort(chosen.comparisons, chosen.series, FULL.processes, FULL.seconds, FULL.pairs)
    here = machine.describe()
    cores = here.cores or 2
    chosen.folder.mkdir(exist_ok=True)

    def under_load() -> list[Measure]:
        with loaded(cores):
            return list(run(effort, "torch", ON_MACHINE, say))

    def beside_changing_load() -> list[Measure]:
        with changing_load(cores):
            return of_processes(chosen.minutes, chosen.folder / "changing.sqlite")

    parts: dict[str, Callable[[], Iterable[Measure]]] = {
        "idle": lambda: [*run(effort, "torch", ON_MACHINE, say), *real_time()],
        "processes": lambda: of_processes(chosen.minutes, chosen.folder / "processes.sqlite"),
        "busy": under_load,
        "changing": beside_changing_load,
        "simulated": lambda: run(effort, "torch", ON_SERIES, say),
    }
    found = {name: kept(chosen.folder / f"{name}.pickle", take) for name, take in parts.items()}
    (idle, _), (fresh, _), (busy, _), (changing, _), (simulated, _) = found.values()
    idle += fresh
    seconds = sum(spent for _, spent in found.values())
    everything = sorted([*idle, *simulated], key=lambda one: one.id)
    busy += changing
    met, busy_met = (sum(one.ok for one in found) for found in (everything, busy))
    lines = [
        "# mldyno's own errors", "",
        f"Made by `make selfcheck` on {here.name} ({'a virtual machine' if here.virtualised else 'real hardware'}), "
        f"in {show_seconds(seconds)}. Other machines give other figures; "
        "`mldyno selftest` measures most of them on yours.",
        "", f"**Idle: {met} of {len(everything)} targets met. Under load: {busy_met} of {len(busy)}.**",
        "", "## Idle", "", *table(everything), "",
        f"## With {cores} other processes that keep all cores busy", "",
        "The measures on simulated series (5, 9, 10, 12) do not depend on load. Fresh processes (13, 14) ran "
        f"beside a load that comes and goes, each process of it for {SPELL_S:.0f} s on average.", "", *table(busy), "",
        "## Every kind of simulated series",
        *(line for one in simulated for line in cells_table(f"{one.id}: {one.name}", one.cells)), "",
        "## Fresh processes",
        *(line for when, measures in (("idle", idle), ("changing load", changing)) for each in measures if each.id == 13
          for line in cells_table(f"{each.name}, {when}", each.cells)),
    ]  # fmt: skip
    chosen.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")
    shutil.rmtree(chosen.folder)
    return 0 if met == len(everything) else 3


if __name__ == "__main__":
    sys.exit(main())
