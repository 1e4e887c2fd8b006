"""What both dialects of the tables promise."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.team.conftest import items_of, records_of

from mldyno.errors import StoreError
from mldyno.store import Store
from mldyno.team import PlaceError, table
from mldyno.team.table import JUDGE, File, Table


def test_a_record_comes_back_byte_for_byte_with_its_signature(table: Table) -> None:
    items = items_of(records_of(3))
    assert table.add_of("ada", items) == 3
    page = table.page(0)
    assert [(item.id, item.text, item.proof) for item in page.items] == [(i.id, i.text, i.proof) for i in items]
    assert page.left == 0


def test_adding_twice_adds_once(table: Table) -> None:
    items = items_of(records_of(3))
    assert (table.add_of("ada", items[:2]), table.add_of("bob", items)) == (2, 1)
    assert sorted(row.who for row in table.pushed()) == ["ada", "ada", "bob"]


def test_what_is_missing_is_what_it_never_had(table: Table) -> None:
    items = items_of(records_of(3))
    table.add_of("ada", items[:2])
    table.withdraw_of("ada", [items[0].id], admin=False)
    assert table.missing([item.id for item in items]) == {items[2].id}


def test_what_was_withdrawn_is_gone_and_is_not_taken_again(table: Table) -> None:
    items = items_of(records_of(2))
    table.add_of("ada", items)
    assert table.withdraw_of("ada", [items[0].id[:10]], admin=False) == [items[0].id]
    assert table.add_of("ada", items) == 0
    assert [item.id for item in table.page(0).items] == [items[1].id]
    assert [(row.id, row.state) for row in table.pushed()] == [(items[1].id, "pending"), (items[0].id, "withdrawn")]


def test_only_who_pushed_it_or_an_admin_withdraws(table: Table) -> None:
    items = items_of(records_of(2))
    table.add_of("ada", items)
    for ids, words in (([items[1].id], "ada pushed record"), (["0" * 32], "no record")):
        with pytest.raises(PlaceError, match=words):
            table.withdraw_of("bob", ids, admin=False)
    assert len(table.page(0).items) == 2
    assert table.withdraw_of("bob", [items[0].id], admin=True) == [items[0].id]


def test_of_several_withdrawals_one_that_fails_undoes_all(table: Table) -> None:
    items = items_of(records_of(1))
    table.add_of("ada", items)
    with pytest.raises(PlaceError, match="no record"):
        table.withdraw_of("ada", [items[0].id, "0" * 32], admin=False)
    assert len(table.page(0).items) == 1


def test_numbers_are_not_given_again(table: Table) -> None:
    """A puller that has read number 2 would else never see the next record."""
    items = items_of(records_of(3))
    table.add_of("ada", items[:2])
    last = table.page(0).items[-1].number
    table.withdraw_of("ada", [items[1].id], admin=False)
    table.add_of("ada", items[2:])
    assert [item.id for item in table.page(last).items] == [items[2].id]


def test_a_page_ends_by_number_and_by_size(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(records_of(5))
    table.add_of("ada", items)
    monkeypatch.setattr("mldyno.team.table.PAGE_B", len(items[0].text) * 2 + 100)
    page = table.page(0)
    assert (len(page.items), page.left) == (2, 3)
    assert [item.id for item in table.page(page.items[-1].number).items] == [item.id for item in items[2:4]]


def test_what_is_judged_is_shown_and_what_was_refused_has_its_reason(table: Table) -> None:
    items = items_of(records_of(3))
    table.add_of("ada", items)
    first, second, third = table.page(0).items
    table.judge(second.number, [(first.id, "a copy")])
    assert {row.id: (row.state, row.reason) for row in table.pushed()} == {
        first.id: ("refused", "a copy"), second.id: ("shown", ""), third.id: ("pending", ""),
    }  # fmt: skip
    assert [item.id for item in table.page_of(0, table.judged()).items] == [second.id]
    assert table.gone([item.id for item in items]) == [first.id]
    assert JUDGE not in [row.who for row in table.pushed()]


def test_records_of_a_machine_or_a_case_are_found(table: Table) -> None:
    records = [*records_of(2), *records_of(1, "another")]
    table.add_of("ada", items_of(records))
    until = table.page(0).items[-1].number
    assert len(table.alike({records[0].machine.key or ""}, set(), until, 10)) == 3
    assert len(table.alike(set(), {records[0].case.id}, until, 2)) == 2
    assert table.alike(set(), {"none"}, until, 10) == table.alike({""}, set(), until, 10) == []


def test_tables_of_a_newer_layout_are_left_alone(table: Table, tmp_path: Path) -> None:
    with table._writing() as cursor:
        cursor.execute(table._sql("UPDATE {place} SET layout = ?"), (99,))
    with pytest.raises(PlaceError, match="of a newer mldyno; update mldyno"):
        table.prepare()


def test_an_older_layout_is_brought_up_to_date(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(records_of(2))
    table.add_of("ada", items)
    more = (*_module().MIGRATIONS, "CREATE TABLE {place}_more (number bigint);\n")
    monkeypatch.setattr(_module(), "MIGRATIONS", more)
    monkeypatch.setattr(_module(), "LAYOUT", len(more))
    table.prepare()
    with table._reading() as cursor:
        assert table._layout(cursor) == len(more)
        assert table._rows(cursor, "SELECT count(*) FROM {place}_more")[0][0] == 0
    assert [item.text for item in table.page(0).items] == [item.text for item in items]


def _module() -> Any:
    return table


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, store: Store) -> None:
    store.prepare()
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match="a store of measurements, not one of a team"):
        File(store.path)
    assert store.path.read_bytes() == before
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="a file of another program"):
        File(other)
    (tmp_path / "text").write_text("text " * 100)
    with pytest.raises(StoreError, match="not an mldyno store"):
        File(tmp_path / "text")


def test_a_withdrawn_record_leaves_no_text_in_the_file(tmp_path: Path) -> None:
    (record,) = records_of(1, "a secret name")
    with File(tmp_path / "team.sqlite") as file:
        file.add_of("ada", items_of([record]))
        file.withdraw_of("ada", [record.id], admin=False)
    assert all(b"a secret name" not in path.read_bytes() for path in tmp_path.iterdir())
