"""Figures 4 to 6: taking records in, reading them among many, and writing them out."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.processes import MLDYNO, spent
from bench.results import Chapter, Figure
from bench.work import Work, say

from bench import histories
from mldyno import api
from mldyno.stats.intervals import median
from mldyno.units import show_bytes

IMPORT_RATIO, READ_RATIO, PEAK_RATIO = 0.2, 3.0, 1.1
SHORTEST = 0.1  # s: what is timed is repeated until it takes this long
A, B = histories.MACHINES[2], histories.MACHINES[6]


# -- figure 4: import ----------------------------------------------------------------------------


def measure_import(work: Work) -> Chapter:
    """Records a second that are imported, over those of a loop that checks nothing."""
    chapter = Chapter("4. Importing")
    source = work.folder / "records.jsonl"
    say(f"  making a file of {work.imported:,} records")
    size = histories.make_file(work.template, work.imported, source)
    product, bare = [], []
    for number in range(2):
        say(f"  round {number + 1} of 2")
        bare.append(_timed(lambda: _bare_import(source, work.folder / "bare.sqlite")))
        product.append(_timed(lambda: _import(source, work.folder / "imported.sqlite", work.imported)))
    source.unlink()
    how = "`api.import_` over a loop of `json.loads` and one INSERT of (id, text), one transaction, same file, in turns"
    ratio = min(bare) / min(product)
    chapter.figures.append(Figure("records a second over a bare loop", ratio, "×", None, how, least=IMPORT_RATIO))
    chapter.notes.append(
        f"{work.imported:,} records of {sum(histories.MANY)} step times, {show_bytes(size)}:"
        f" {work.imported / min(product):,.0f} records/s; the bare loop {work.imported / min(bare):,.0f} records/s."
    )
    return chapter


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _bare_import(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    connection = sqlite3.connect(target, isolation_level=None)
    connection.execute("CREATE TABLE records (id TEXT PRIMARY KEY, body TEXT NOT NULL)")
    connection.execute("BEGIN")
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            connection.execute("INSERT INTO records VALUES (?, ?)", (json.loads(line)["id"], line))
    connection.execute("COMMIT")
    connection.close()


def _import(source: Path, target: Path, count: int) -> None:
    target.unlink(missing_ok=True)
    assert api.import_([str(source)], str(target)) == (count, count)


# -- figure 5: reading ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """Something to read: as a command, and as a call that gives how many things it found."""

    name: str
    words: list[str]
    call: Callable[[str], int]

    def command(self, store: Path) -> None:
        """Read it with a command."""
        spent([MLDYNO, *self.words, "--store", str(store)])

    def in_process(self, store: Path) -> None:
        """Read it in this process, with the store opened anew."""
        self.call(str(store))


def _reads(work: Work) -> list[Read]:
    early = [record.id for record in histories.make(work.template, histories.PER_RUN, histories.FEW)]
    first, second = early[0], early[2 * len(histories.BATCHES)]  # the same case on another device, in both stores
    return [
        Read("table", ["table"], lambda store: len(api.table(None, store=store).cells)),
        Read("table mlp", ["table", "mlp"], lambda store: len(api.table("mlp", store=store).cells)),
        Read(
            "compare mlp --by device",
            ["compare", "mlp", "--by", "device"],
            lambda store: len(api.compare("mlp", by="device", store=store)),
        ),
        Read("compare MACHINE MACHINE", ["compare", A, B], lambda store: len(api.compare(A, B, store=store))),
        Read("compare ID ID", ["compare", first, second], lambda store: len(api.compare(first, second, store=store))),
    ]


def measure_reading(work: Work) -> Chapter:
    """Time of `table` and `compare` on the large store over that on the small one."""
    small, large = (work.store(count) for count in work.stored)
    chapter = Chapter(f"5. Reading among {work.stored[1]:,} records, over {work.stored[0]:,}")
    chapter.notes.append(
        f"{len(histories.MACHINES)} machines, {histories.PER_RUN} cases each; the large store holds"
        f" {work.stored[1] // work.stored[0]:,} times as many runs, records of {sum(histories.FEW)} step times. The"
        f" stores take {show_bytes(small.stat().st_size)} and {show_bytes(large.stat().st_size)}."
    )
    for read in _reads(work):
        say(f"  {read.name}")
        counts = [read.call(str(store)) for store in (small, large)]
        assert counts[0] == counts[1] > 0, f"{read.name} found {counts}"
        ways = (("command", read.command, work.read_repeats), ("in process", read.in_process, 4 * work.read_repeats))
        for way, action, repeats in ways:
            times = _in_turns(action, (small, large), repeats)
            how = f"median wall time of {repeats}, the two stores in turns"
            chapter.figures.append(Figure(f"`{read.name}`, {way}", times[1] / times[0], "×", READ_RATIO, how))
            chapter.notes.append(
                f"`{read.name}`, {way}: {times[1]:.3f} s over {times[0]:.3f} s, {counts[0]:,} results each."
            )
    return chapter


def _in_turns(action: Callable[[Path], None], stores: tuple[Path, ...], repeats: int) -> list[float]:
    """The median time in s of an action on each store; a short one is repeated, so that no time slice matters."""
    count = math.ceil(SHORTEST / min(SHORTEST, _timed(lambda: action(stores[0]))))
    times: dict[Path, list[float]] = {store: [] for store in stores}
    for number in range(repeats):
        for store in stores if number % 2 else reversed(stores):
            began = time.perf_counter()
            for _ in range(count):
                action(store)
            times[store].append((time.perf_counter() - began) / count)
    return [median(found) for found in times.values()]


# -- figure 6: export ----------------------------------------------------------------------------


def measure_export(work: Work) -> Chapter:
    """Peak memory of `mldyno export`, from few records to many."""
    chapter = Chapter("6. Peak memory of exporting")
    target = work.folder / "exported.jsonl"
    peaks: dict[int, int] = {}
    for count in work.exported:
        store = work.store(count)
        say(f"  export of {count:,} records")
        took = spent([MLDYNO, "export", str(target), "--store", str(store)])
        peaks[count] = took.peak
        chapter.notes.append(
            f"{count:,} records: {took.peak / 2**20:.1f} MiB, {took.wall:.1f} s, {show_bytes(target.stat().st_size)}."
        )
        target.unlink()
    fewest = work.exported[0]
    for count in work.exported[1:]:
        name = f"{count:,} records over {fewest:,}"
        how = "`ru_maxrss` of `mldyno export FILE`, started by a small process"
        chapter.figures.append(Figure(name, peaks[count] / peaks[fewest], "×", PEAK_RATIO, how))
    return chapter
