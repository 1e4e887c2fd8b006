"""Records are taken away whole: what was made of them goes too, and what they stood before comes back."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.store.test_sqlite import a_record

from mldyno.errors import StoreError
from mldyno.records import Record, Warning_
from mldyno.store import Query, Store


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
    assert [run for run, _, _ in store.unfinished_runs()] == ["elsewhere", "r1"]
    store.remove([second.id], nobody)
    assert [run for run, _, _ in store.unfinished_runs()] == ["elsewhere"]


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
