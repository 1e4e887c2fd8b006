"""Figures as CSV, one line each: the table of published results that mldyno ships, and users' own tables.

A figure has no raw samples; the format that loses nothing is JSON lines. Text that a spreadsheet would compute is
written as `inert`, and read back as it was.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO, get_args

from mldyno.axes import AXES, AXIS
from mldyno.errors import MldynoError
from mldyno.metrics import metric_named
from mldyno.printable import printable
from mldyno.records import SCHEMA, Case, Machine, Provenance, Record, Run, Series, Status, Unit, Warning_, seal
from mldyno.store.codec import BadRecord, check

PUBLISHED_FILE = Path(__file__).parent.parent / "data" / "published.csv"
STATED_AXES = ("device", "framework", "workload", "mode", "batch", "seq", "precision", "placement", "ranks")
"""The axes that every CSV of figures has; a file may lack those that came later, which then have their defaults."""
_LATER_AXES = tuple(axis.name for axis in AXES if axis.name not in STATED_AXES)
COLUMNS = ("source", "published", "machine", *STATED_AXES, "steps", "quantity", "value", "unit", "status", "note")
WRITTEN = (*COLUMNS, *_LATER_AXES)
_LONGEST_FIELD = 100_000  # characters
_GUARDED = ("=", "+", "-", "@", "'")  # with these a spreadsheet would begin to compute; with the last, to guard
_MARKS = {"withdrawn": "superseded", "suspect": "suspect", "odd": "suspect", "later revision; odd": "suspect"}


def read(lines: Iterable[str], provenance: Provenance) -> Iterator[Record]:
    """Yield records from the lines of a CSV of figures; an error names the line."""
    csv.field_size_limit(_LONGEST_FIELD)
    number = 0  # of the line that is being read, which the reader counts only when it is read

    def counted() -> Iterator[str]:
        nonlocal number
        for line in lines:
            number += 1
            yield line

    reader = csv.DictReader(counted(), strict=True)
    try:
        reader.fieldnames = [AXIS[name].name if name in AXIS else name for name in reader.fieldnames or ()]
        if twice := [name for name, times in Counter(reader.fieldnames).items() if times > 1 and name]:
            raise BadRecord(f"it has the column {twice[0][:40]} more than once")
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise BadRecord(f"a CSV of figures needs the columns {', '.join(COLUMNS)}; missing: {', '.join(missing)}")
        for row in reader:
            if None in row or None in row.values():
                raise BadRecord(f"it must have {len(reader.fieldnames or ())} columns")
            yield _record({name: _without_guard(text) for name, text in row.items()}, provenance)
    except csv.Error as error:
        raise BadRecord(f"line {number}: not CSV: {error}") from None
    except MldynoError as error:
        raise BadRecord(f"line {number or 1}: {error}") from None


def inert(text: str) -> str:
    """Return printable text that no spreadsheet takes for a formula: such a text gets an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.lstrip().startswith(_GUARDED) else shown


def _without_guard(text: str) -> str:
    """Remove the apostrophe of `inert`; any other apostrophe is part of the text."""
    return text[1:] if text.startswith("'") and text[1:].lstrip().startswith(_GUARDED) else text


def _record(row: dict[str, str], provenance: Provenance) -> Record:
    axes: dict[str, Any] = {}
    for axis in (axis for axis in AXES if axis.name in row):
        if row[axis.name]:
            axes[axis.name] = axis.parse(row[axis.name])
        elif axis.optional:
            axes[axis.name] = None
    if not (row["machine"] and row["workload"] and row["framework"] and row["device"]):
        raise BadRecord("machine, workload, framework and device must be given")
    if row["status"] not in get_args(Status):
        raise BadRecord(f"status '{row['status']}' is not one of {', '.join(get_args(Status))}")
    if row["unit"] not in get_args(Unit):
        raise BadRecord(f"unit '{row['unit']}' is not one of {', '.join(get_args(Unit))}")
    no_steps = row["steps"] == "" or (row["steps"] == "0" and not row["value"])  # as of a case that failed
    steps = None if no_steps else AXIS["batch"].parse(row["steps"])
    date, note = row["published"], printable(row["note"])
    created = f"{date}-01T00:00:00Z" if len(date) == 7 else date
    code = next((code for start, code in _MARKS.items() if note.startswith(start)), "note")
    record = Record(
        schema=SCHEMA, id="", created=created, provenance=provenance,
        run=Run(id=f"{row['source']} {date}", suite=row["source"]), case=Case(**axes),
        status=row["status"],  # type: ignore[arg-type]
        reason="" if row["status"] == "ok" else f"published as {row['status']}",
        machine=Machine(name=row["machine"]), series=_series(row),
        facts={key: value for key, value in (("steps", steps), ("note", note)) if value},
        warnings=(Warning_(code, note),) if note else (),
    )  # fmt: skip
    check(record)
    return seal(record)


def _series(row: dict[str, str]) -> tuple[Series, ...]:
    if not row["value"]:
        return ()
    try:
        value = float(row["value"])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise BadRecord(f"value '{row['value'][:40]}' is not a number of 0 or more")
    return (Series(metric_named(printable(row["quantity"])).name, row["unit"], (value,)),)  # type: ignore[arg-type]


def marks(record: Record) -> list[tuple[str, str]]:
    """Return the doubts about a figure, superseded or suspect, each with its reason."""
    doubts = (warning for warning in record.warnings if warning.code in _MARKS.values())
    return [(warning.code, warning.message.removeprefix(f"{warning.code}: ")) for warning in doubts]


def write(records: Iterable[Record], out: TextIO) -> int:
    """Write records as figures, a line each: the steady state, and metrics by which machines are judged."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(WRITTEN)
    count = 0
    for record in records:
        writer.writerows(_rows(record))
        count += 1
    return count


def _rows(record: Record) -> Iterator[list[Any]]:
    case = record.case
    if not record.alone:  # times for ratios are no figures
        return

    def is_judged_by(series: Series) -> bool:
        metric = metric_named(series.metric)
        return metric.better is not None and series.stage in metric.stages

    values_of = {axis.name: getattr(case, axis.name) for axis in AXES}
    axes = {name: "" if value is None else AXIS[name].show(value) for name, value in values_of.items()}
    figures = [series for series in record.series if series.stage == "steady" or is_judged_by(series)]
    metrics = {(series.metric, series.unit): series.stage for series in figures}
    samples: dict[tuple[str, str], list[float]] = {}  # of all series at once: a stranger's record may have 100,000
    for series in record.series if record.status == "ok" else ():
        samples.setdefault((series.metric, series.stage), []).extend(series.values)
    steps, note = record.fact("steps"), record.fact("note") or record.reason
    for (metric, unit), stage in metrics.items() or {("step_time", "s"): "steady"}.items():
        values = samples.get((metric, stage))
        known = {"source": record.run.suite or "mldyno", "published": record.created, "machine": record.machine.name,
                 "quantity": metric, "value": metric_named(metric).number(values) if values else "", "unit": unit,
                 "status": record.status, "steps": steps, "note": note, **axes}  # fmt: skip
        cells = ("" if known[name] is None else known[name] for name in WRITTEN)
        yield [inert(cell) if isinstance(cell, str) else cell for cell in cells]


@lru_cache(maxsize=1)
def published() -> tuple[Record, ...]:
    """Return all published figures, superseded ones too."""
    with PUBLISHED_FILE.open(encoding="utf-8", newline="") as lines:
        return tuple(read(lines, "published"))


def newest() -> list[Record]:
    """Return the latest publication of each case on each machine, unless withdrawn."""
    standing = [record for record in published() if not any(code == "superseded" for code, _ in marks(record))]
    latest: dict[tuple[str, str], str] = {}
    for record in standing:
        key = (record.machine.name, record.case.id)
        latest[key] = max(latest.get(key, ""), record.created)
    return [r for r in standing if r.created == latest[r.machine.name, r.case.id]]


@dataclass
class Publication:
    """The published figures of a machine."""

    sources: list[str] = field(default_factory=list)
    figures: int = 0
    marked: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The cases of figures that are superseded or suspect, by that word and the reason."""


def machines() -> dict[str, Publication]:
    """Return the published machines, in the order of publication."""
    publications: dict[str, Publication] = {}
    for record in published():
        publication = publications.setdefault(record.machine.name, Publication())
        source = record.run.suite or record.run.id
        publication.sources += [] if source in publication.sources else [source]
        publication.figures += 1
        for mark in marks(record):
            publication.marked.setdefault(mark, []).append(record.case.id)
    return publications
