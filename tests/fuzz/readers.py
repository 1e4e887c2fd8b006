"""Every command that reads, on one store: what `import` took, each of them shows."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from mldyno import api, plugins
from mldyno.analysis.outcomes import DERIVED, VALUES, outcomes
from mldyno.axes import NAMES
from mldyno.cli import main
from mldyno.errors import MldynoError, StoreError
from mldyno.plan import Plan
from mldyno.records import Record
from mldyno.runner.forecast import forecast
from mldyno.runner.run import usual_timeouts
from mldyno.store import Query, Store, transfer
from mldyno.store.selection import select
from mldyno.views.records import details, record_text
from mldyno.views.tables import FORMATS

LONGEST_WAIT_S = 1e11  # that a timeout may be
MARKUP = ("<script>alert(1)", "<b>")  # of the texts that records are given


def read_everything(texts: Sequence[str], folder: Path) -> None:
    """Take these texts into a new store and show the records in every way; raises where one of them can't be."""
    source = folder / "source.jsonl"
    source.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    path = folder / "store.sqlite"
    path.unlink(missing_ok=True)
    said("import", str(source), store=path)
    read_store(path, folder)


def read_store(path: Path, folder: Path) -> None:
    """Show all records of a store in every way."""
    store = Store(path)
    try:
        records = list(store.stream(Query(heads=False)))
        _read_each(records)
        _read_tables(store, store.select(Query()))
        _read_by_other_commands(path, records)
        _read_back(folder, store, records)
        _read_forecasts(store, records)
        if outcomes([record for record in store.select(Query()) if record.provenance != "published"]):
            _read_report(folder, path)
    finally:
        store.close()


def said(*arguments: str, store: Path) -> str:
    """What a command prints; all of it can be shown, and no error but the user's own comes out of it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        main([*arguments, "--store", str(store)])
    shows(out.getvalue())
    return out.getvalue()


def shows(text: str) -> None:
    """A text that a terminal takes: lines of printable characters."""
    for line in text.split("\n"):
        assert line.isprintable(), f"not printable: {line[:200]!r}"


def is_json(text: str) -> None:
    json.dumps(json.loads(text), allow_nan=False)


def _read_each(records: Iterable[Record]) -> None:
    for record in records:
        shows(record_text(record))
        for line in details(record):
            shows(line)


def _read_tables(store: Store, records: Sequence[Record]) -> None:
    if not outcomes([record for record in records if record.provenance != "published"]):
        return
    for form in FORMATS:
        said("table", "--format", form, store=store.path)
    shown, _ = select(None, store)  # rehearsals are left out where there is anything else
    metrics = {series.metric for record in shown for series in record.series}
    values = [name for name in sorted({*VALUES, *DERIVED, *metrics} - {"score"}) if not name.startswith("time:")]
    tables = []
    for name in values:
        with refusals() if name not in VALUES else contextlib.nullcontext():  # such as energy, which no case may have
            tables.append(api.table(value=name, store=store))
    with refusals():  # there is none unless every case of the set is there
        tables.append(api.table(value="score", store=store))
    for name in NAMES:
        with refusals():  # along most axes there is nothing to compare
            tables.append(api.table(by=name, store=store))
    for number, table in enumerate(tables, len(records)):  # each in one form, and another time in another
        shows(table.to(FORMATS[number % len(FORMATS)]))
        is_json(table.to("json"))


def _read_by_other_commands(store: Path, records: Sequence[Record]) -> None:
    is_json(said("history", "--most", "1000", "--json", store=store))
    said("history", "--most", "1000", store=store)
    said("list", "machines", store=store)
    is_json(said("list", "machines", "--json", store=store))
    is_json(said("show", records[0].id, "--json", store=store))
    for target in sorted({record.case.workload for record in records} & {*plugins.names("workloads")}):
        for arguments in (("compare", target), ("compare", target, "--by", "precision", "--json"),
                          ("compare", target, "--by", "machine"), ("compare", target, "--by", "batch"),
                          ("compare", target, "--by", "run", "--json")):  # fmt: skip
            with refusals():
                said(*arguments, store=store)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What may be refused, such as a comparison of what can't be compared; but never since a store is damaged."""
    try:
        yield
    except StoreError:
        raise
    except MldynoError as error:
        shows(str(error))


def _read_back(folder: Path, store: Store, records: Sequence[Record]) -> None:
    lines, table = folder / "exported.jsonl", folder / "exported.csv"
    assert api.export(str(lines), "jsonl", store=store) == len(records)
    assert lines.read_text(encoding="utf-8").splitlines() == [record.text for record in records]
    assert api.export(str(table), "csv", store=store) == len(records)
    with refusals():  # a table of nothing but pairings holds no figures
        list(transfer.read(str(table)))
    half = len(records) // 2
    sides = [folder / "left.jsonl", folder / "right.jsonl"]
    for path, some in zip(sides, (records[: half + 1], records[half:]), strict=True):
        path.write_text("".join(f"{record.text}\n" for record in some), encoding="utf-8")
    for form in ([], ["--json"]):
        with refusals():
            said("compare", *map(str, sides), "--anyway", *form, store=store.path)


def _read_forecasts(store: Store, records: Sequence[Record]) -> None:
    cases = dict.fromkeys(record.case for record in records)
    plans = [Plan(tuple(case for case in cases if case.workload in plugins.names("workloads")))]
    plans += [Plan((case,), commands=(("true",),)) for case in cases if case.framework == "command"]
    for plan in plans:
        timeouts = usual_timeouts(plan, forecast(plan, store))
        assert max(timeouts.values(), default=0) < LONGEST_WAIT_S


def _read_report(folder: Path, store: Path) -> None:
    said("report", "--out", str(folder / "report.html"), store=store)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert not [markup for markup in MARKUP if markup in page], "a record's text is markup"
    list(transfer.read(str(folder / "report.html")))
    said("report", "--format", "svg", "--out", str(folder / "pictures"), store=store)
    for picture in (folder / "pictures").glob("*.svg"):
        ElementTree.fromstring(picture.read_bytes())
        picture.unlink()
    _read_site(folder, store)
    said("report", "--card", str(folder / "card.png"), store=store)
    assert (folder / "card.png").read_bytes().startswith(b"\x89PNG")


def _read_site(folder: Path, store: Path) -> None:
    said("report", "--site", str(folder / "site"), store=store)
    pages = [path.read_text(encoding="utf-8") for path in (folder / "site").rglob("*.html")]
    assert len(pages) > 3
    assert not [markup for page in pages for markup in MARKUP if markup in page], "a record's text is markup"
    shows("\n".join(api.check_submissions([str(folder / "exported.jsonl")])[1]))
