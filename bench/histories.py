"""Made-up histories of a realistic shape: 20 machines, 50 cases each, measured over and over.

Every record is that of the fake framework run with another machine, case, time, run and values. A million
of them must not take an hour, so each is its kind's canonical text with what varies put in its
place; its id is right, as every import proves.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from mldyno import api
from mldyno.records import Case, Record, Run, Series, canonical, content_of
from mldyno.store import Store

MACHINES = tuple(f"Bench machine {number:02}" for number in range(1, 21))
BATCHES = (1, 8, 32, 128, 512)
KINDS = (("mlp", "cpu", "device"), ("mlp", "mps", "device"), ("mlp", "cpu", "roundtrip"),
         ("resnet50", "cpu", "device"), ("resnet50", "mps", "device"))  # fmt: skip
PER_RUN = len(KINDS) * len(BATCHES) * 2
BEGAN = datetime(2025, 1, 1, tzinfo=timezone.utc)
PACE = 20.0  # s between two records
CHUNK = 50_000  # records in one transaction
MANY, FEW = (1, 20, 20, 20), (1, 1, 5, 5)  # values of the first step, the warm-up and each turn
_CREATED, _RUN, _ID = "@created@", "@run@", '"id":"",'


def template(folder: Path) -> Record:
    """The record of the fake framework run."""
    found = api.run("mlp", framework="fake", mode="infer", repeats=1, store=str(folder / "template.sqlite")).records
    assert found[0].status == "ok"
    return found[0]


def cases() -> list[Case]:
    """The fifty cases that every machine measures."""
    return [
        Case(workload, framework="torch", device=device, mode=mode, placement=placement, batch=batch)  # type: ignore[arg-type]
        for workload, device, placement in KINDS
        for batch in BATCHES
        for mode in ("train", "infer")
    ]


class Kind:
    """The records of one case on one machine."""

    def __init__(self, record: Record, machine: str, case: Case, sizes: tuple[int, ...]) -> None:
        self.random = random.Random(f"{machine} {case.id}")
        step = 1e-5 * (case.batch or 1) * self.random.uniform(0.5, 2.0)
        self.pool = [repr(float(f"{step * self.random.gauss(1, 0.02):.6g}")) for _ in range(64)]
        self.sizes = sizes
        self.record = replace(
            record, id="", created=_CREATED, run=Run(_RUN), case=case,
            machine=replace(record.machine, name=machine), series=_places(len(sizes)) + _others(record),
        )  # fmt: skip
        self.before, self.after = canonical(content_of(self.record)).split(_ID)

    def make(self, created: str, run: str) -> Record:
        """One record; its text alone has the values."""
        before = self.before.replace(_CREATED, created)
        after = self.after.replace(_RUN, run)
        for place, size in enumerate(self.sizes):
            start = self.random.randrange(len(self.pool) - size)
            after = after.replace(f"[{_place(place)}]", f"[{','.join(self.pool[start : start + size])}]")
        name = hashlib.sha256((before + after).encode()).hexdigest()[:32]
        return replace(self.record, id=name, created=created, run=Run(run), text=f'{before}"id":"{name}",{after}')


def _place(number: int) -> str:
    """The text that stands where the values of a series will be: no time of a step is negative."""
    return f"-{number + 1}.5"


def _places(count: int) -> tuple[Series, ...]:
    phases = ["first", "warmup", *["steady"] * (count - 2)]
    return tuple(
        Series("step_time", "s", (float(_place(place)),), stage, turn=place - 2 if place > 1 else None)
        for place, stage in enumerate(phases)
    )


def _others(record: Record) -> tuple[Series, ...]:
    return tuple(series for series in record.series if series.metric != "step_time")


def make(record: Record, count: int, sizes: tuple[int, ...]) -> Iterator[Record]:
    """So many records, oldest first: runs of all cases, machine after machine."""
    kinds = [Kind(record, machine, case, sizes) for machine in MACHINES for case in cases()]
    for number in range(count):
        created = (BEGAN + timedelta(seconds=PACE * number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        yield kinds[number % len(kinds)].make(created, f"run-{number // PER_RUN:06}")


def make_file(record: Record, count: int, path: Path) -> int:
    """A file of JSON lines with so many records of about 60 values each; gives its size in B."""
    with path.open("w", encoding="ascii") as out:
        for made in make(record, count, MANY):
            out.write(made.text + "\n")
    return path.stat().st_size


def make_store(record: Record, count: int, path: Path) -> Path:
    """A store with so many records of 12 values each; made once and used by several figures."""
    if path.exists():
        return path
    store = Store(path)
    rows = make(record, count, FEW)
    for first in range(0, count, CHUNK):
        chunk = list(itertools.islice(rows, min(CHUNK, count - first)))
        assert store.append(chunk) == len(chunk)
    store.close()
    return path
