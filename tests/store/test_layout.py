"""A store of an older layout is brought up to date: once, whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import obey_permissions

from mldyno.errors import StoreError
from mldyno.records import SCHEMA, Case, seal
from mldyno.store import Query, Store, layout
from mldyno.store.query import latest

OLD = Path(__file__).parent.parent / "history" / "0.1" / "store.sqlite"
ALL = Query(heads=False)
NEXT = layout.LAYOUT + 1


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of layout 1, with 144 records."""
    return Path(shutil.copy(OLD, tmp_path / "old.sqlite"))


def resized(store: Path, count: int) -> None:
    """Leave one small record of a store of layout 1, so many times over, each with a number and an id of its own."""
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM records WHERE id NOT IN (SELECT id FROM records ORDER BY length(body) LIMIT 1)")
        connection.execute("DELETE FROM heads")
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(records)")][2:]
        names = ", ".join(columns)
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            f" INSERT INTO records (id, {names}) SELECT printf('%032x', i), {names} FROM records, n",
            (count,),
        )
        connection.execute("DELETE FROM records WHERE number = (SELECT min(number) FROM records)")
        if count == 0:
            connection.execute("DELETE FROM records")


def asked(store: Path, sql: str) -> Any:
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute(sql).fetchall()


def layout_of(store: Path) -> int:
    return int(asked(store, "PRAGMA user_version")[0][0])


def test_a_new_store_has_todays_layout_and_no_column_is_an_axis(store: Store) -> None:
    store.prepare()
    assert layout_of(store.path) == layout.LAYOUT
    columns = {name for table in ("records", "heads", "cases", "runs") for _, name, *_ in
               asked(store.path, f"PRAGMA table_info({table})")}  # fmt: skip
    assert not columns & set(vars(Case("mlp")))


def test_every_older_layout_has_its_migration() -> None:
    assert sorted(layout.MIGRATIONS) == list(range(1, layout.LAYOUT))


def test_a_migrated_store_has_the_tables_of_a_new_one(old: Path, store: Store) -> None:
    Store(old).prepare()
    store.prepare()
    shape = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    assert asked(old, shape) == asked(store.path, shape)
    assert asked(old, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("open_", [lambda store: list(store.stream(ALL)), Store.prepare], ids=["reader", "writer"])
def test_readers_and_writers_bring_it_up_to_date_and_lose_nothing(old: Path, open_: Callable[[Store], object]) -> None:
    texts, runs = "SELECT number, id, body FROM records ORDER BY number", "SELECT id, owner, finished, plan FROM runs"
    before = asked(old, texts), asked(old, runs)
    open_(Store(old))
    assert layout_of(old) == layout.LAYOUT
    assert (asked(old, texts), asked(old, runs)) == before


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_it_takes_any_number_of_records(old: Path, count: int) -> None:
    resized(old, count)
    size = old.stat().st_size
    store = Store(old)
    store.prepare()
    assert asked(old, "SELECT count(*), count(DISTINCT id) FROM records") == [(count, count)]
    assert asked(old, "SELECT count(*) FROM heads") == asked(old, "SELECT count(*) FROM cases") == [(min(count, 1),)]
    assert old.stat().st_size < 1.2 * size, "the file does not grow by a copy of its records"
    assert len(store.history(ALL, 5)) == min(count, 5)


def test_each_case_is_found_by_every_axis_as_its_record_says(old: Path) -> None:
    store = Store(old)
    records = list(store.stream(ALL))
    for case in {record.case for record in records}:
        axes = {name: value for name, value in vars(case).items() if name != "version"}
        meant = {record.id for record in records if record.case == case}
        assert {record.id for record in store.stream(Query(axes, heads=False))} == meant


def test_a_case_that_an_older_version_called_otherwise_has_one_head(old: Path) -> None:
    """Schema 1 had `workers`, and the id of a case was …/w2."""
    store = Store(old)
    (before, *_) = [r for r in store.stream(Query()) if r.case.ranks == 2 and r.case.mode == "train"]
    again = seal(replace(before, schema=SCHEMA, created=latest(), run=replace(before.run, id="later")))
    store.append([again])
    rows = asked(old, """SELECT schema FROM cases WHERE content LIKE '%"workers":2%' OR content LIKE '%"ranks":2%'""")
    assert sorted(rows) == [(1,), (1,), (SCHEMA,)], "training and inference, and training again"
    heads = [r.run.id for r in store.stream(Query({"machine": before.machine.name})) if r.case == before.case]
    assert heads == ["later"]


DYING = """
import os, signal, sys
from mldyno.store import Store, layout

whole = layout.MIGRATIONS[1]

def dying(connection):
    connection.execute("PRAGMA cache_size = 10")  # so that much of it is in the file already
    steps = int(sys.argv[2])
    if steps:
        connection.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), steps)
    whole(connection)
    os.kill(os.getpid(), signal.SIGKILL)

layout.MIGRATIONS[1] = dying
Store(sys.argv[1]).prepare()
"""


@pytest.mark.parametrize("steps", [100, 10_000, 100_000, 0], ids=lambda n: f"after {n} steps" if n else "at the end")
def test_a_process_that_is_killed_in_the_middle_leaves_it_to_the_next(old: Path, steps: int) -> None:
    resized(old, 5_000)
    done = subprocess.run([sys.executable, "-c", DYING, str(old), str(steps)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert Path(f"{old}-journal").exists(), "it was killed within its transaction"
    assert len(Store(old).history(ALL, 10_000)) == 5_000  # a reader, which has to undo and do it again
    assert layout_of(old) == layout.LAYOUT
    assert asked(old, "PRAGMA integrity_check") == [("ok",)]


COUNTING = """
import sys
from mldyno.store import Query, Store, layout

whole = layout.MIGRATIONS[1]

def counting(connection):
    print("migrating")
    whole(connection)

layout.MIGRATIONS[1] = counting
print(len(Store(sys.argv[1]).history(Query(heads=False), 10_000)))
"""


def test_of_several_processes_at_once_one_migrates_and_all_read(old: Path) -> None:
    resized(old, 5_000)
    readers = [subprocess.Popen([sys.executable, "-c", COUNTING, str(old)], stdout=subprocess.PIPE, text=True)
               for _ in range(3)]  # fmt: skip
    said = [line for reader in readers for line in reader.communicate(timeout=120)[0].split()]
    assert [reader.returncode for reader in readers] == [0, 0, 0]
    assert sorted(said) == ["5000", "5000", "5000", "migrating"]


READING = """
import sys
from mldyno.errors import StoreError
from mldyno.store import Query, Store

store = Store(sys.argv[1])
print(len(store.history(Query(heads=False), 10_000)), len(list(store.stream(Query({"workload": "mlp"})))) > 0)
try:
    store.prepare()
except StoreError as error:
    print(error)
"""


def test_a_store_that_can_only_be_read_is_read_and_stays_as_it_is(old: Path) -> None:
    folder = old.parent / "shelf"
    folder.mkdir()
    shelved = Path(shutil.move(old, folder / "old.sqlite"))
    shelved.chmod(0o444)
    folder.chmod(0o555)
    before = shelved.read_bytes()
    try:
        done = subprocess.run(
            [sys.executable, "-c", READING, str(shelved)], capture_output=True, text=True, check=True,
            preexec_fn=obey_permissions,
        )  # fmt: skip
    finally:
        folder.chmod(0o755)
    first, second = done.stdout.splitlines()
    assert first == "144 True"
    assert second.startswith(f"store {shelved}: it can't be written to; make it writable")
    assert shelved.read_bytes() == before
    assert os.listdir(folder) == ["old.sqlite"]


def test_a_store_of_an_older_layout_that_is_damaged_says_so_and_stays_as_it_is(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("DROP TABLE runs")
    before = old.read_bytes()
    with pytest.raises(StoreError, match="it is damaged; move it away: a part of it is missing"):
        list(Store(old).stream(ALL))
    assert old.read_bytes() == before


def test_a_layout_that_no_version_had_is_damage(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA user_version = 0")
    with pytest.raises(StoreError, match="it is damaged; move it away: no mldyno writes layout 0"):
        list(Store(old).stream(ALL))


def test_figures_of_a_csv_that_were_taken_for_measured_ones_are_marked(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        mine = "SELECT machine FROM records WHERE provenance = 'measured'"
        first = "SELECT min(number) FROM records WHERE provenance = 'imported'"
        connection.execute(f"UPDATE records SET machine = ({mine}) WHERE number = ({first})")
    Store(old).prepare()
    marked = asked(old, "SELECT provenance, imported_from, count(*) FROM records GROUP BY 1, 2 ORDER BY 1, 2")
    assert marked == [("imported", "", 1), ("imported", "a CSV of figures", 1), ("measured", "", 142)]
    assert asked(old, "SELECT count(*) FROM heads WHERE imported") == [(1,)]


def test_a_newer_mldyno_that_comes_in_the_middle_of_a_run_is_named(store: Store) -> None:
    store.prepare()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(f"PRAGMA user_version = {layout.LAYOUT + 1}")
    with pytest.raises(StoreError, match="written by a newer mldyno; update mldyno"):
        store.begin_run("a", "2026-01-01", "1 2", "{}")


def test_a_chain_of_migrations_is_gone_through_step_by_step(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_notes(connection: sqlite3.Connection) -> None:
        assert connection.in_transaction
        connection.execute("CREATE TABLE notes (text)")

    monkeypatch.setattr(layout, "LAYOUT", NEXT)
    monkeypatch.setitem(layout.MIGRATIONS, NEXT - 1, add_notes)
    assert len(list(Store(old).stream(ALL))) == 144
    assert layout_of(old) == NEXT
    assert asked(old, "SELECT count(*) FROM notes") == [(0,)]


def test_a_migration_that_fails_leaves_the_layout_before_it(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM records")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(layout, "LAYOUT", NEXT)
    monkeypatch.setitem(layout.MIGRATIONS, NEXT - 1, fail)
    with pytest.raises(StoreError, match="the disk is full; make room"):
        Store(old).prepare()
    assert layout_of(old) == NEXT - 1
    assert asked(old, "SELECT count(*) FROM records") == [(144,)]
