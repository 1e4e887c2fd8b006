"""The tables of a place, in PostgreSQL and in the SQLite file of a server alike.

Rules: rows are added and never changed. Numbers are in the order of commits, so that who has read up to a number has
read all before it. What was withdrawn is not taken again. Layouts are numbered; tables of a newer one are left alone.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from mldyno.errors import StoreError
from mldyno.files import check_regular
from mldyno.store import layout
from mldyno.store.codec import decode_stored
from mldyno.team import PAGE, Item, Page, Place, PlaceError, Pushed

APPLICATION = 0x6D6C7465  # "mlte"
IDS_AT_ONCE = 500
PAGE_B = 4 << 20  # after which a page ends
MIGRATIONS = (
    """
CREATE TABLE {place} (identity text NOT NULL, layout bigint NOT NULL);
-- Signatures, each of all records of a batch.
CREATE TABLE {proofs} (hash text PRIMARY KEY, line text NOT NULL);
CREATE TABLE {records} (
  number {number}, id text NOT NULL UNIQUE, who text NOT NULL{who}, pushed text NOT NULL DEFAULT ({now}),
  machine text NOT NULL, key text NOT NULL, case_id text NOT NULL, created text NOT NULL,
  proof text NOT NULL, body {body} NOT NULL
);
CREATE INDEX records_by_case ON {records} (case_id, machine);
CREATE INDEX records_by_key ON {records} (key);
-- What is shown no more, and not taken again: by whom, and why where it was refused after it had been compared.
CREATE TABLE {withdrawn} (
  id text NOT NULL PRIMARY KEY, who text NOT NULL{who}, pushed text NOT NULL DEFAULT ({now}),
  reason text NOT NULL DEFAULT ''
);
-- Up to which number all records have been compared with the others.
CREATE TABLE {judged} (number bigint NOT NULL);
""",
)  # each brings the tables of its number to the next one; never changed afterwards
LAYOUT = len(MIGRATIONS)
JUDGE = "(judge)"  # who withdraws what the others contradict


class Cursor(Protocol):
    """What both drivers have."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any: ...
    def executemany(self, sql: str, values: Iterable[Sequence[Any]]) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Table(Place):
    """The statements; a dialect has connections and names."""

    names: Mapping[str, str]
    make = True

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Cursor]:
        """Begin a transaction that no other one overtakes."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Cursor]:
        """Begin a transaction that sees one state of the tables."""

    @abstractmethod
    def _exist(self, cursor: Cursor) -> bool:
        """Return whether there are tables; raise where they are of another program."""

    @abstractmethod
    def _before(self, cursor: Cursor) -> None:
        """Make what the first tables need."""

    def _sql(self, text: str) -> str:
        return text.format(**self.names)

    def _rows(self, cursor: Cursor, sql: str, *values: Any) -> list[Any]:
        cursor.execute(self._sql(sql), values)
        return list(cursor.fetchall())

    def prepare(self) -> None:
        """Make the tables, or bring them to today's layout; raise where they are newer."""
        with self._reading() as cursor:
            if self._exist(cursor) and self._layout(cursor) == LAYOUT:
                return
        if not self.make:
            raise PlaceError(f"{self.name}: nothing was pushed there yet")
        with self._writing() as cursor:
            made = self._layout(cursor) if self._exist(cursor) else 0
            if made == 0:
                self._before(cursor)
            for migration in MIGRATIONS[made:]:
                for statement in self._sql(migration).split(";\n"):
                    if statement.strip():
                        cursor.execute(statement)
            if made == 0:
                cursor.execute(self._sql("INSERT INTO {place} VALUES (?, ?)"), (secrets.token_hex(16), LAYOUT))
            elif made < LAYOUT:
                cursor.execute(self._sql("UPDATE {place} SET layout = ?"), (LAYOUT,))

    def _layout(self, cursor: Cursor) -> int:
        rows = self._rows(cursor, "SELECT layout FROM {place}")
        if len(rows) != 1 or not isinstance(rows[0][0], int):
            raise PlaceError(f"{self.name}: its tables are damaged; they say nothing of their layout")
        number = int(rows[0][0])
        if number > LAYOUT:
            raise PlaceError(f"{self.name}: its tables are of a newer mldyno; update mldyno to use them")
        return number

    def identity(self) -> str:
        with self._reading() as cursor:
            return str(self._rows(cursor, "SELECT identity FROM {place}")[0][0])

    def missing(self, ids: Collection[str]) -> set[str]:
        left = set(ids)
        with self._reading() as cursor:
            for part in _parts(sorted(left)):
                marks = ", ".join("?" * len(part))
                for table in ("records", "withdrawn"):
                    rows = self._rows(cursor, f"SELECT id FROM {{{table}}} WHERE id IN ({marks})", *part)
                    left -= {id_ for (id_,) in rows}
        return left

    def add(self, items: Sequence[Item]) -> int:
        return self.add_of("", items)

    def add_of(self, who: str, items: Sequence[Item]) -> int:
        """Add records that somebody pushed; without a name, the database knows who."""
        rows, proofs = [], {}
        for item in items:
            record = decode_stored(item.text)
            hash_ = hashlib.sha256(item.proof.encode()).hexdigest() if item.proof else ""
            proofs[hash_] = item.proof
            rows.append((
                item.id, record.machine.name, record.machine.key or "", record.case.id, record.created, hash_,
                item.text, *([who] if who else []), item.id,
            ))  # fmt: skip
        proofs.pop("", None)
        columns = "id, machine, key, case_id, created, proof, body" + (", who" if who else "")
        given = ", ".join("?" * (len(rows[0]) - 1)) if rows else ""
        insert = self._sql(
            f"INSERT INTO {{records}} ({columns}) SELECT {given}"
            " WHERE NOT EXISTS (SELECT 1 FROM {withdrawn} WHERE id = ?) ON CONFLICT (id) DO NOTHING"
        )
        if not rows:
            return 0
        with self._writing() as cursor:
            for proof in proofs.items():
                cursor.execute(self._sql("INSERT INTO {proofs} VALUES (?, ?) ON CONFLICT (hash) DO NOTHING"), proof)
            cursor.executemany(insert, rows)
            return max(0, cursor.rowcount)

    def page(self, after: int) -> Page:
        return self.page_of(after, None)

    def page_of(self, after: int, judged: int | None) -> Page:
        """Return a page of what is not withdrawn; with `judged`, only of what has been judged."""
        until = (1 << 62) if judged is None else judged
        valid = "r.number > ? AND r.number <= ? AND NOT EXISTS (SELECT 1 FROM {withdrawn} w WHERE w.id = r.id)"
        with self._reading() as cursor:
            rows = self._rows(
                cursor,
                "SELECT r.number, r.id, r.body, coalesce(p.line, '') FROM {records} r"
                f" LEFT JOIN {{proofs}} p ON p.hash = r.proof WHERE {valid} ORDER BY r.number LIMIT {PAGE}",
                after, until,
            )  # fmt: skip
            items: list[Item] = []
            size = 0
            for number, id_, body, proof in rows:
                if items and size + len(body) > PAGE_B:
                    break
                items.append(Item(id_, body, proof, number))
                size += len(body)
            left = 0
            if items:
                counted = f"SELECT count(*) FROM {{records}} r WHERE {valid}"
                left = int(self._rows(cursor, counted, items[-1].number, until)[0][0])
        return Page(items, left)

    def pushed(self, who: str = "", most: int = PAGE) -> list[Pushed]:
        only, values = ("WHERE r.who = ?", [who]) if who else ("", [])
        gone, gone_values = ("AND w.who = ?", [who]) if who else ("", [])
        with self._reading() as cursor:
            rows = self._rows(
                cursor,
                "SELECT r.id, r.who, r.pushed, r.machine, r.case_id, r.number, w.who, w.reason FROM {records} r"
                f" LEFT JOIN {{withdrawn}} w ON w.id = r.id {only} ORDER BY r.number DESC LIMIT ?",
                *values, most,
            )  # fmt: skip
            removed = self._rows(
                cursor,
                "SELECT w.id, w.who, w.pushed FROM {withdrawn} w WHERE NOT EXISTS"
                f" (SELECT 1 FROM {{records}} r WHERE r.id = w.id) {gone} ORDER BY w.pushed DESC LIMIT ?",
                *gone_values, most,
            )  # fmt: skip
        judged = self.judged()
        known = [
            Pushed(id_, by, when, machine, case, self._state(number, judged, other), reason or "")
            for id_, by, when, machine, case, number, other, reason in rows
        ]
        return [*known, *(Pushed(id_, by, when, "", "", "withdrawn") for id_, by, when in removed)]

    def _state(self, number: int, judged: int, withdrawn_by: str | None) -> str:
        if withdrawn_by is None:
            return "shown" if number <= judged else "pending"
        return "refused" if withdrawn_by == JUDGE else "withdrawn"

    def withdraw(self, ids: Collection[str]) -> list[str]:
        return self.withdraw_of("", ids, admin=True)

    def withdraw_of(self, who: str, ids: Collection[str], admin: bool, named: bool = True) -> list[str]:
        """Withdraw records that somebody pushed, whose ids may be cut short; the admin withdraws anybody's.

        The name is stored if it is `named`, and else known by the database.
        """
        whole = []
        with self._writing() as cursor:
            for id_ in ids:
                rows = self._rows(cursor, "SELECT id, who FROM {records} WHERE id >= ? AND id < ?", id_, f"{id_}g")
                if len(rows) != 1:
                    raise PlaceError(f"{self.name}: {'no record' if not rows else 'more than one record'} '{id_}'")
                if not admin and rows[0][1] != who:
                    raise PlaceError(f"{self.name}: {rows[0][1]} pushed record {id_[:10]}, not you")
                whole.append(rows[0][0])
            self._note_withdrawn(cursor, [(id_, who if named else None, "") for id_ in whole])
            self._forget(cursor, whole)
        return whole

    def _forget(self, cursor: Cursor, ids: Sequence[str]) -> None:
        """Delete the texts of withdrawn records."""
        for part in _parts(ids):
            marks = ", ".join("?" * len(part))
            cursor.execute(self._sql(f"DELETE FROM {{records}} WHERE id IN ({marks})"), part)

    def _note_withdrawn(self, cursor: Cursor, rows: Iterable[tuple[str, str | None, str]]) -> None:
        for id_, who, reason in rows:
            columns, values = ("id, reason", [id_, reason]) if who is None else ("id, reason, who", [id_, reason, who])
            marks = ", ".join("?" * len(values))
            sql = f"INSERT INTO {{withdrawn}} ({columns}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"
            cursor.execute(self._sql(sql), values)

    # -- what a server asks ------------------------------------------------------------------------

    def tip(self) -> tuple[int, int]:
        """Return the highest number, and how many records are withdrawn: what a site depends on."""
        with self._reading() as cursor:
            (row,) = self._rows(cursor, "SELECT (SELECT coalesce(max(number), 0) FROM {records}),"
                                        " (SELECT count(*) FROM {withdrawn})")  # fmt: skip
        return int(row[0]), int(row[1])

    def judged(self) -> int:
        """Return the number up to which all records have been judged."""
        with self._reading() as cursor:
            return int(self._rows(cursor, "SELECT coalesce(max(number), 0) FROM {judged}")[0][0])

    def judge(self, number: int, refused: Iterable[tuple[str, str]]) -> None:
        """Note that all up to a number is judged; the refused ones, with the reason of each, are not shown."""
        with self._writing() as cursor:
            self._note_withdrawn(cursor, [(id_, JUDGE, reason) for id_, reason in refused])
            cursor.execute(self._sql("INSERT INTO {judged} VALUES (?)"), (number,))

    def alike(self, keys: Collection[str], cases: Collection[str], until: int, most: int) -> list[Item]:
        """Return the newest records up to a number of these machines' keys, or of these cases."""
        found: dict[str, Item] = {}
        with self._reading() as cursor:
            for column, values in (("key", keys), ("case_id", cases)):
                for part in _parts(sorted(filter(None, values))):
                    rows = self._rows(
                        cursor,
                        "SELECT r.number, r.id, r.body, coalesce(p.line, '') FROM {records} r"
                        " LEFT JOIN {proofs} p ON p.hash = r.proof"
                        f" WHERE r.{column} IN ({', '.join('?' * len(part))})"
                        " AND r.number <= ? AND NOT EXISTS (SELECT 1 FROM {withdrawn} w WHERE w.id = r.id)"
                        " ORDER BY r.number DESC LIMIT ?",
                        *part, until, most,
                    )  # fmt: skip
                    found |= {id_: Item(id_, body, proof, number) for number, id_, body, proof in rows}
        return sorted(found.values(), key=lambda item: item.number)

    def gone(self, ids: Collection[str]) -> list[str]:
        """Return those of the ids that are withdrawn or refused."""
        with self._reading() as cursor:
            return [id_ for part in _parts(sorted(ids)) for (id_,) in self._rows(
                cursor, f"SELECT id FROM {{withdrawn}} WHERE id IN ({', '.join('?' * len(part))})", *part)]  # fmt: skip


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[place : place + IDS_AT_ONCE] for place in range(0, len(values), IDS_AT_ONCE))


class File(Table):
    """The SQLite file of a server: one connection, which its threads take one after the other."""

    names = {  # noqa: RUF012
        **{name: name for name in ("place", "proofs", "records", "withdrawn", "judged")},
        "number": "INTEGER PRIMARY KEY AUTOINCREMENT", "body": "text", "who": " DEFAULT 'local'",
        "now": "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')",
    }  # fmt: skip

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.name = f"store {self.path}"
        self._lock = threading.Lock()
        with self._errors():
            check_regular(self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=layout.WRITER_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            with self._reading() as cursor:
                self._exist(cursor)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")  # an acknowledged record outlives a power cut
            self._connection.execute("PRAGMA secure_delete = ON")
            self.prepare()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with layout.errors_of(self.path):
            yield

    @contextmanager
    def _in(self, begin: str) -> Iterator[Cursor]:
        with self._lock, self._errors():
            cursor = self._connection.cursor()
            cursor.execute(begin)
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    def _writing(self) -> AbstractContextManager[Cursor]:
        return self._in("BEGIN IMMEDIATE")

    def _reading(self) -> AbstractContextManager[Cursor]:
        return self._in("BEGIN")

    def _exist(self, cursor: Cursor) -> bool:
        tables = {name for (name,) in self._rows(cursor, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        (application,) = self._rows(cursor, "PRAGMA application_id")[0]
        if tables and application != APPLICATION:
            kind = "a store of measurements" if application == layout.APPLICATION else "a file of another program"
            raise StoreError(f"{self.name}: this is {kind}, not one of a team; name another file, and push to that")
        return bool(tables)

    def _before(self, cursor: Cursor) -> None:
        cursor.execute(f"PRAGMA application_id = {APPLICATION}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()
