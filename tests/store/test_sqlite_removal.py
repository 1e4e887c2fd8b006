"""Records are taken away whole: what was made of them goes too, and what they stood before comes back."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest
from tests.store.test_sqlite import a_record, allow_nulls

from mldyno import api
from mldyno.errors import StoreError
from mldyno.records import Record, Warning_
from mldyno.store import Query, Store, sqlite


def nobody(owner: str) -> bool:
    return False


def rows(store: Store, table: str) -> int:
    with closing(sqlite3.connect(store.path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def heads(store: Store) -> list[Record]:
    return list(store.stream(Query()))


def test_the_newest_that_is_left_stands_for_its_case_again(store: Store) -> None:
    old, new, broken = (
        a_record(run="old", day=1),
        a_record(run="new", day=3),
        a_record(run="broken", day=2, warnings=(Warning_("interrupted", ""),)),
    )
    other = a_record(batch=9, run="new", day=3)
    store.append([old, new, broken, other])
    assert store.remove([new.id], nobody) == 1
    assert heads(store) == [old, other]
    assert store.remove([old.id, other.id], nobody) == 2
    assert heads(store) == []
    assert (rows(store, "heads"), rows(store, "cases"), rows(store, "records")) == (0, 1, 1)


def test_a_run_without_records_goes_with_its_plan(store: Store) -> None:
    first, second = a_record(batch=1), a_record(batch=2)
    store.append([first, second])
    store.begin_run("r1", "2026-01-01", "1 2", "{}")
    store.begin_run("elsewhere", "2026-01-01", "1 2", "{}")
    store.remove([first.id], nobody)
    assert [run for run, *_ in store.unfinished_runs()] == ["elsewhere", "r1"]
    store.remove([second.id], nobody)
    assert [run for run, *_ in store.unfinished_runs()] == ["elsewhere"]


def test_nothing_of_a_run_that_lives_is_removed(store: Store) -> None:
    record = a_record()
    store.append([record])
    store.begin_run("r1", "2026-01-01", "its owner", "{}")
    with pytest.raises(StoreError, match=r"run r1 is going on in another process; end it first. Nothing was removed"):
        store.remove([record.id], lambda owner: owner == "its owner")
    assert heads(store) == [record]
    store.finish_run("r1")
    assert store.remove([record.id], lambda owner: True) == 1


def test_no_word_of_it_stays_in_the_file(store: Store) -> None:
    record = a_record(machine="a name that should be gone")
    store.append([record, a_record()])
    assert b"should be gone" in store.path.read_bytes()
    store.remove([record.id], nobody)
    assert b"should be gone" not in store.path.read_bytes()


def test_an_id_that_is_not_there_is_passed_over(store: Store) -> None:
    store.append([a_record()])
    assert store.remove(["f" * 32], nobody) == 0
    assert len(heads(store)) == 1


def test_it_takes_as_many_as_there_are(store: Store) -> None:
    records = [a_record(batch=batch) for batch in range(1, 2001)]
    store.append(records)
    assert store.remove([record.id for record in records], nobody) == 2000
    assert (rows(store, "heads"), rows(store, "cases"), rows(store, "records")) == (0, 0, 0)


# -- the file shrinks ------------------------------------------------------------------------------

LIMITED = """
import resource, signal, sys
from mldyno import api
from mldyno.store import Store

path, limit, fatal = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "killed"
whole = Store.shrink

def shrink(self, lives):
    if fatal:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    whole(self, lives)

Store.shrink = shrink
print(api.remove("machine=gone", store=Store(path), tell=print))
"""  # a disk that has room for so many bytes of a file when the records are removed


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with 900 records of a machine that is to be removed, and 300 of another."""
    store.append(a_record(batch=batch, machine="gone" if batch % 4 else "kept") for batch in range(1, 1201))
    store.close()
    return store


def test_the_file_shrinks_by_what_was_removed(filled: Store) -> None:
    before = filled.path.stat().st_size
    lines: list[str] = []
    assert api.remove("machine=gone", store=filled, tell=lines.append) == 900
    assert lines == []
    assert filled.path.stat().st_size < 0.4 * before
    assert len(heads(filled)) == 300
    assert api.remove("machine=kept", store=filled) == 300
    assert filled.path.stat().st_size < 0.1 * before
    filled.append([a_record()])
    assert heads(Store(filled.path)) == [a_record()], "it is a store as before"


@pytest.mark.parametrize("share", [0.01, 0.1, 0.2])
@pytest.mark.parametrize("end", ["full", "killed"])
def test_a_full_disk_or_a_kill_leaves_a_sound_file_without_the_records(filled: Store, end: str, share: float) -> None:
    before = filled.path.stat().st_size
    words = [sys.executable, "-c", LIMITED, str(filled.path), str(int(share * before)), end]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if end == "killed":
        assert done.returncode == -signal.SIGXFSZ, done.stderr
    else:
        line, removed = done.stdout.splitlines()
        assert removed == "900"
        assert line.startswith(f"the records are removed, but the file keeps its size: store {filled.path}: the disk")
    again = Store(filled.path)
    assert len(heads(again)) == 300
    assert b"gone" not in filled.path.read_bytes()
    assert api.remove("batch=4", store=again) == 1
    assert filled.path.stat().st_size < 0.4 * before


def test_a_reader_that_holds_the_file_keeps_its_size_but_not_the_records(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SHRINK_TIMEOUT_MS", 1)
    whole, lines = Store.shrink, list[str]()

    def beside_a_reader(self: Store, lives: Callable[[str], bool]) -> None:
        with closing(sqlite3.connect(filled.path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM records").fetchone()
            whole(self, lives)

    monkeypatch.setattr(Store, "shrink", beside_a_reader)
    assert api.remove("machine=gone", store=filled, tell=lines.append) == 900
    (line,) = lines
    assert "the records are removed, but the file keeps its size: " in line
    assert len(heads(filled)) == 300


def test_the_file_is_left_alone_while_a_run_is_going_on(filled: Store) -> None:
    before = filled.path.stat().st_size
    filled.begin_run("going", "2026-01-01", "its owner", "{}")
    filled.remove([a_record(batch=4, machine="kept").id], nobody)
    with pytest.raises(StoreError, match="run going is going on in another process"):
        filled.shrink(lambda owner: owner == "its owner")
    assert filled.path.stat().st_size >= before


def test_a_large_file_is_not_written_anew_for_a_few_records(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LARGE_FILE", 1)
    before = filled.path.stat().st_size
    api.remove("batch=4", store=filled)
    assert filled.path.stat().st_size == before
    api.remove("machine=gone", store=filled)
    assert filled.path.stat().st_size < 0.4 * before


@pytest.mark.parametrize("value", ["x''", "NULL"])
def test_of_a_store_that_is_damaged_nothing_is_removed_and_it_is_said(store: Store, value: str) -> None:
    records = [a_record(), a_record(batch=9, run="r2")]
    store.append(records)
    store.close()
    allow_nulls(store.path)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(f"UPDATE records SET run = {value} WHERE number = 1")
    with pytest.raises(StoreError, match="it is damaged"):
        store.remove([record.id for record in records], nobody)
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT count(*) FROM records").fetchone() == (2,)
