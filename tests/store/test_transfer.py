"""Records go out to files and come back the same."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import pytest
from tests.store.test_sqlite import a_record

from mldyno import api
from mldyno.cli import main
from mldyno.errors import ImportFileError, StoreError
from mldyno.records import SCHEMA, Case, Machine, Record, Run, Series, content_id, seal
from mldyno.results import Results
from mldyno.store import Query, Store, figures, transfer
from mldyno.store.codec import BadRecord, decode, json_schema
from mldyno.store.figures import PUBLISHED_FILE, newest, published

FakeRun = Callable[..., Results]
SHIPPED = PUBLISHED_FILE.parent / "record.schema.json"


def test_json_lines_lose_nothing_on_the_way_to_another_store(fake_run: FakeRun, store: Store, tmp_path: Path) -> None:
    fake_run(device=["cpu", "gpu"])
    target = tmp_path / "out.jsonl"
    assert api.export(str(target), "jsonl", store=store) == 8
    other = Store(tmp_path / "other.sqlite")
    assert api.import_([str(target)], other) == (8, 8)
    assert set(other.texts(Query(heads=False))) == set(store.texts(Query(heads=False)))
    assert api.import_([str(target)], other) == (0, 8)


def test_figures_as_csv_can_be_imported_as_figures(fake_run: FakeRun, store: Store, tmp_path: Path) -> None:
    fake_run(mode="infer")
    target = tmp_path / "out.csv"
    api.export(str(target), "csv", store=store)
    other = Store(tmp_path / "other.sqlite")
    new, _ = api.import_([str(target)], other)
    records = list(other.stream(Query(heads=False)))
    assert new == len(records) >= 1
    assert {record.provenance for record in records} == {"imported"}
    assert [r.values("step_time") for r in records if r.values("step_time")] == [[pytest.approx(1.28e-3, rel=0.01)]]


def test_one_bad_record_at_the_end_means_that_none_is_taken(fake_run: FakeRun, store: Store, tmp_path: Path) -> None:
    fake_run()
    target = tmp_path / "out.jsonl"
    api.export(str(target), "jsonl", store=store)
    with target.open("a") as out:
        out.write('{"schema": 1}\n')
    other = Store(tmp_path / "other.sqlite")
    with pytest.raises(ImportFileError, match=r"out\.jsonl: line 3"):
        api.import_([str(target)], other)
    assert list(other.stream(Query(heads=False))) == []


def test_a_changed_record_is_refused_since_its_id_no_longer_fits(
    fake_run: FakeRun, store: Store, tmp_path: Path
) -> None:
    fake_run(mode="infer")
    target = tmp_path / "out.jsonl"
    api.export(str(target), "jsonl", store=store)
    target.write_text(target.read_text().replace('"status":"ok"', '"status":"oom"'))
    with pytest.raises(ImportFileError, match="changed after it was recorded"):
        list(transfer.read(str(target)))


def test_an_unknown_key_is_named(fake_run: FakeRun, tmp_path: Path) -> None:
    content = json.loads(fake_run(mode="infer").records[0].text)
    content["case"]["colour"] = "red"
    content["id"] = content_id(content)
    target = tmp_path / "odd.jsonl"
    target.write_text(json.dumps(content))
    with pytest.raises(ImportFileError, match="unknown key in case: colour"):
        list(transfer.read(str(target)))


def test_the_shipped_schema_is_the_one_that_the_code_makes() -> None:
    assert json.loads(SHIPPED.read_text()) == json.loads(json.dumps(json_schema()))


def test_every_record_fits_the_shipped_schema(fake_run: FakeRun) -> None:
    schema = jsonschema.Draft202012Validator(json.loads(SHIPPED.read_text()))
    for record in [*fake_run(device=["cpu", "gpu"]).records, *published()]:
        schema.validate(json.loads(record.text))


def test_every_published_row_is_a_record_with_its_note() -> None:
    rows = PUBLISHED_FILE.read_text(encoding="utf-8").strip().count("\n")
    assert len(published()) == rows == 113
    assert len({record.id for record in published()}) == rows
    withdrawn = [record for record in published() if any(w.code == "superseded" for w in record.warnings)]
    assert len(withdrawn) == 12
    assert not {record.id for record in withdrawn} & {record.id for record in newest()}


OLD = Path(__file__).parent / "recorded" / "before-device-facts.jsonl"


def test_a_record_from_before_devices_had_facts_keeps_its_text_and_its_id(store: Store, tmp_path: Path) -> None:
    text = OLD.read_text()
    record = decode(text)
    assert [device.facts for device in record.machine.devices] == [{}, {}]
    assert record.id == "e3537e84d2bb2852404807a5b69992f1"
    assert api.import_([str(OLD)], store) == (1, 1)
    api.export(str(tmp_path / "out.jsonl"), "jsonl", store=store)
    assert (tmp_path / "out.jsonl").read_text() == text
    again = Store(tmp_path / "again.sqlite")
    again.append(store.stream(Query(heads=False)))
    assert list(again.texts(Query(heads=False))) == [text.strip()]


def test_facts_of_devices_travel_and_are_checked(store: Store, tmp_path: Path) -> None:
    old = decode(OLD.read_text())
    device = replace(old.machine.devices[1], facts={"driver": "535.104.05", "power_limit": 70.0, "multiprocessors": 40})
    record = seal(replace(old, machine=replace(old.machine, devices=(old.machine.devices[0], device))))
    assert record.id != old.id
    assert decode(record.text) == record
    jsonschema.Draft202012Validator(json.loads(SHIPPED.read_text())).validate(json.loads(record.text))
    wild = replace(device, facts={"clock": 1e300})
    with pytest.raises(BadRecord, match="a device's fact clock must be a number from 0 to 1e\\+30"):
        decode(seal(replace(record, machine=replace(record.machine, devices=(wild,)))).text)


def test_a_run_prints_each_record_as_the_text_that_it_stores(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "mlp", "--framework", "fake", "--repeats", "1", "--json", "--store", str(store.path)])
    assert capsys.readouterr().out.splitlines() == list(store.texts(Query(heads=False)))


def test_what_is_rescued_is_the_text_that_would_have_been_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def full(records: Iterable[Record]) -> int:
        texts.extend(record.text for record in records)
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "append", full)
    with pytest.raises(StoreError, match="bring it back with: mldyno import") as error:
        api.run("mlp", framework="fake", mode="infer", repeats=1, store=store)
    rescued = Path(str(error.value).rpartition(" ")[2])
    proof, *lines = rescued.read_text(encoding="utf-8").splitlines()
    assert lines == texts
    assert transfer.is_proof(proof.encode())
    assert [record.text for record in transfer.read(str(rescued))] == texts
    rescued.unlink()


NAMES = ["=1+1", "+1", "-1", "@SUM(A1)", "'quoted", "''twice", "'=both", "don't", "plain", "-", "'", " =1", "' =1"]


def test_text_that_a_spreadsheet_would_compute_is_inert_in_csv_and_comes_back(tmp_path: Path) -> None:
    old = decode(OLD.read_text())
    records = [
        seal(
            replace(
                old, machine=replace(old.machine, name=name), run=replace(old.run, suite=name), facts={"note": name}
            )
        )
        for name in NAMES
    ]
    path = tmp_path / "out.csv"
    transfer.write([record.text for record in records], str(path), "csv")
    with path.open(newline="", encoding="utf-8") as lines:
        cells = [cell for row in csv.reader(lines) for cell in row]
    assert not [cell for cell in cells if cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))]
    back = list(transfer.read(str(path)))
    assert {record.machine.name for record in back} == set(NAMES)
    assert {record.facts["note"] for record in back} == {record.run.suite for record in back} == set(NAMES)
    assert [record.values("step_time") for record in back] == [[0.00123]] * len(NAMES)


def test_a_record_that_calls_itself_published_is_refused(tmp_path: Path, store: Store) -> None:
    shipped = tmp_path / "shipped.jsonl"
    shipped.write_text(published()[0].text + "\n")
    with pytest.raises(ImportFileError, match=r"record \w{10} calls itself published, which only figures are"):
        api.import_([str(shipped)], store)
    assert not store.path.exists()


@pytest.mark.parametrize(("days", "taken"), [(0.9, True), (1.1, False), (-3000, True)])
def test_a_record_of_the_future_is_refused_but_clocks_may_differ_by_a_day(
    days: float, taken: bool, tmp_path: Path, store: Store
) -> None:
    created = (datetime.now(timezone.utc) + timedelta(days=days)).isoformat().replace("+00:00", "Z")
    (tmp_path / "theirs.jsonl").write_text(seal(replace(a_record(), created=created)).text + "\n")
    if taken:
        assert api.import_([str(tmp_path / "theirs.jsonl")], store) == (1, 1)
        return
    with pytest.raises(ImportFileError, match=r"was created at .*, and here it is only .*; set this machine's clock"):
        api.import_([str(tmp_path / "theirs.jsonl")], store)


def test_the_store_knows_the_file_that_a_record_came_from(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    (folder / "their\trecords.jsonl").write_text(a_record().text + "\n")
    api.import_([str(folder / "their\trecords.jsonl")], store)
    store.append([a_record(batch=9)])
    assert [record.imported_from for record in store.stream(Query(heads=False))] == ["their records.jsonl", ""]


def test_a_record_of_100_000_series_is_written_as_figures_in_one_pass() -> None:
    """A pass for each series would be ten thousand million steps."""
    series = tuple(Series(f"metric {number}", "s", (1.0, 2.0, 3.0)) for number in range(100_000))
    record = Record(SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run("r"), Case("mlp"), "ok", "", Machine("m"),
                    series=series)  # fmt: skip
    passes = 0

    class Counted(tuple[Series, ...]):
        def __iter__(self) -> Iterator[Series]:
            nonlocal passes
            passes += 1
            return super().__iter__()

    object.__setattr__(record, "series", Counted(series))
    out = io.StringIO()
    assert figures.write([record], out) == 1
    assert out.getvalue().count("\n") == 100_001
    assert "metric 99999,2.0,s" in out.getvalue()
    assert passes <= 3
