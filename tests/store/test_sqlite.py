"""The store: append only, one file, sound for several processes and after any fault."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mldyno import api
from mldyno.errors import MldynoError, StoreError
from mldyno.records import SCHEMA, Case, Machine, Record, Run, Series, Warning_, seal
from mldyno.store import Query, Store


def a_record(
    batch: int = 8,
    run: str = "r1",
    machine: str = "m",
    day: int = 1,
    number: int = 0,
    warnings: tuple[Warning_, ...] = (),
) -> Record:
    return seal(
        Record(SCHEMA, "", f"2026-01-{day:02}T00:00:00Z", "measured",
            Run(run, repeat=number), Case("mlp", batch=batch), "ok",
               "", Machine(machine), series=(Series("step_time", "s", (0.1, 0.2)),), warnings=warnings)
    )  # fmt: skip


MEASURED = ("measured",)


def test_records_come_back_as_they_went_in(store: Store) -> None:
    record = a_record()
    assert store.append([record]) == 1
    assert list(store.stream(Query())) == [record]


def test_appending_again_changes_nothing(store: Store) -> None:
    store.append([a_record()])
    assert store.append([a_record(), a_record(batch=9)]) == 1
    assert len(list(store.stream(Query(heads=False)))) == 2


def test_an_error_halfway_leaves_nothing_behind(store: Store) -> None:
    def records() -> Iterator[Record]:
        yield a_record()
        raise RuntimeError("halfway")

    store.prepare()
    with pytest.raises(RuntimeError):
        store.append(records())
    assert list(store.stream(Query())) == []


def test_heads_are_the_newest_run_of_each_case_on_each_machine(store: Store) -> None:
    old, new = a_record(run="old", day=1), a_record(run="new", day=2)
    twin = a_record(run="new", day=2, number=1)
    other = a_record(run="old", day=1, machine="n")
    store.append([new, twin, old, other])

    def ids(query: Query) -> set[str]:
        return {record.id for record in store.stream(query)}

    assert ids(Query()) == {new.id, twin.id, other.id}
    assert ids(Query({"machine": "m"})) == {new.id, twin.id}
    assert ids(Query(heads=False)) == {old.id, new.id, twin.id, other.id}


def test_an_interrupted_record_is_kept_but_is_no_head_and_no_outcome(store: Store) -> None:
    whole = a_record(run="r1", day=1)
    partial = a_record(run="r2", day=2, warnings=(Warning_("interrupted", ""),))
    store.append([whole, partial])
    assert list(store.stream(Query())) == [whole]
    assert [record.id for record in store.history(Query(heads=False), 5)] == [partial.id, whole.id]


def test_records_are_found_by_axis_and_by_the_beginning_of_an_id(store: Store) -> None:
    a, b = a_record(batch=8), a_record(batch=16)
    store.append([a, b])
    assert list(store.stream(Query({"batch": 16}))) == [b]
    assert list(store.stream(Query({"seq": None, "batch": 8}))) == [a]
    assert store.select(Query(ids=(a.id[:8],), heads=False)) == [a]


def test_records_are_found_by_when_they_were_made(store: Store) -> None:
    old, new = a_record(run="old", day=1), a_record(run="new", day=2)
    store.append([old, new])
    for since, records in (("2026-01-01T00:00:00", [old, new]), ("2026-01-02T00:00:00", [new]), ("2026-01-03", [])):
        assert list(store.stream(Query(heads=False, since=since))) == records
        assert store.history(Query(heads=False, since=since), 5) == records[::-1]
        assert store.select(Query(since=since, provenances=MEASURED)) == records[-1:]


def test_published_figures_stand_beside_the_stored_ones(store: Store) -> None:
    assert {record.provenance for record in store.select(Query({"workload": "bert-base"}))} == {"published"}
    assert store.select(Query({"workload": "bert-base"}, provenances=MEASURED)) == []
    assert "M1 Mac mini" in store.machines()


def test_reading_a_store_that_is_not_there_makes_no_file(store: Store) -> None:
    assert list(store.stream(Query())) == []
    assert not store.path.exists()


def write_many(path: str, machine: str) -> None:
    store = Store(path)
    for batch in range(1, 41):
        store.append([a_record(batch=batch, machine=machine)])


def test_several_processes_write_at_once_and_nothing_is_lost(store: Store) -> None:
    code = "import sys; from tests.store.test_sqlite import write_many; write_many(*sys.argv[1:])"
    root = Path(__file__).parents[2]
    writers = [subprocess.Popen([sys.executable, "-c", code, str(store.path), f"m{n}"], cwd=root) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(list(store.stream(Query(heads=False)))) == 120


def test_a_reader_who_pauses_does_not_keep_a_run_from_saving(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.store.layout.WRITER_TIMEOUT_S", 0.2)
    store.append([a_record(batch=n) for n in range(1, 4)])
    reader = Store(store.path).stream(Query(heads=False))
    next(reader)
    assert Store(store.path).append([a_record(batch=99)]) == 1
    assert len(list(reader)) == 3  # the two that were left, and the new one


def test_a_locked_store_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append([a_record()])
    store.close()
    monkeypatch.setattr("mldyno.store.layout.WRITER_TIMEOUT_S", 0.1)
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="another process has held it"):
        Store(store.path).append([a_record(batch=9)])
    holder.close()


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path).append([a_record()])
    assert path.read_bytes() == before


def test_a_store_of_a_newer_mldyno_is_left_alone(store: Store) -> None:
    store.append([a_record()])
    store.close()
    with closing(sqlite3.connect(store.path)) as newer, newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer mldyno"):
        list(Store(store.path).stream(Query()))


def test_only_sqlite_can_be_a_store_so_far() -> None:
    with pytest.raises(StoreError, match="only SQLite"):
        Store("postgresql://somewhere/db")
    assert Store("sqlite:///tmp/a.sqlite").path == Path("/tmp/a.sqlite")


def test_unfinished_runs_are_found_newest_first_until_they_end(store: Store) -> None:
    store.begin_run("a", "2026-01-01", "1 2", "{}")
    store.begin_run("b", "2026-01-02", "1 2", "{}")
    store.begin_run("c", "2026-01-03", "1 2", "{}")
    assert [run for run, *_ in store.unfinished_runs()] == ["c", "b", "a"]
    store.finish_run("b")
    assert [run for run, *_ in store.unfinished_runs()] == ["c", "a"]


READERS = (
    lambda store: list(store.stream(Query())), lambda store: list(store.stream(Query(heads=False))),
    lambda store: list(store.texts(Query(heads=False))), lambda store: store.history(Query(), 10),
    lambda store: store.counts(Query()), lambda store: store.workloads(), lambda store: store.machines(),
    lambda store: store.name_of(Machine("m")), lambda store: store.imported_files(),
    lambda store: store.unfinished_runs(),
    lambda store: api.submit(str(store.path.with_name("out.jsonl")), store=store),
    lambda store: api.export(str(store.path.with_name("out.csv")), "csv", store=store),
    lambda store: api.export(str(store.path.with_name("out.jsonl")), "jsonl", store=store, private=True),
    lambda store: api.table(store=store), lambda store: api.unfinished(store, None),
)  # fmt: skip
DAMAGE = ("NULL", "x'ff'", "CAST(x'ff41' AS TEXT)", "0.5", "'{'", "-1", "''")
PLACES = (
    "records.body", "records.case_number", "records.imported_from", "records.machine", "heads.machine", "heads.key",
    "heads.imported", "heads.case_number", "cases.schema", "cases.content", "runs.plan", "runs.owner",
)  # fmt: skip


def allow_nulls(path: Path) -> None:
    """Take the constraints out of a store's tables, so that any value can be written."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')")


@pytest.mark.parametrize("place", PLACES)
def test_whatever_is_damaged_every_reader_reads_it_or_says_so_in_one_line(store: Store, place: str) -> None:
    table, column = place.split(".")
    for value in DAMAGE:
        store.path.unlink(missing_ok=True)
        store.append([a_record(), a_record(batch=9, run="r2")])
        store.begin_run("r3", "2026", "someone", '{"cases": []}')
        store.close()
        allow_nulls(store.path)
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute(f"UPDATE OR REPLACE {table} SET {column} = {value}")
        for read in READERS:
            with suppress(MldynoError):  # and nothing else
                read(store)
            store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "CREATE TRIGGER theirs AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "DROP TRIGGER keep_heads; CREATE TRIGGER keep_heads AFTER INSERT ON records BEGIN DELETE FROM records; END",
    ],
)
def test_a_store_with_sql_of_others_is_left_alone(store: Store, sql: str) -> None:
    store.append([a_record()])
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.executescript(sql)
    for act in (lambda: list(store.stream(Query())), lambda: store.append([a_record(batch=9)])):
        with pytest.raises(StoreError, match="it holds SQL that mldyno did not put there"):
            act()
