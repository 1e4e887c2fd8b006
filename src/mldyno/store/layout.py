"""The tables of a store, how older tables are migrated, and how the file is opened.

Rules: the record's text is the truth, the other columns exist to be searched; no column is an axis, since axes come
and go. `LAYOUT` numbers the shape of the tables, and a store has it as its `user_version`. A change of shape raises it
and adds `MIGRATIONS[old]`, which runs in one transaction and is never changed afterwards: it uses no code that may
change.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from mldyno.errors import StoreError, StoreLocked

APPLICATION = 0x6D6C6479  # "mldy"
LAYOUT = 5
WRITER_TIMEOUT_S = 60.0  # to wait for another process that writes
DAMAGED = "it is damaged; move it away, then rescue it with: sqlite3 OLD .recover | sqlite3 NEW"
_REFUSALS = ("readonly", "unable to open", "disk I/O")  # what SQLite says where it may not write, or not delete

_LAYOUT_2 = """
-- Each case that was ever recorded, once: as JSON, in the shape of that schema of a record.
CREATE TABLE cases (
  number INTEGER PRIMARY KEY, schema INTEGER NOT NULL, content TEXT NOT NULL, UNIQUE (schema, content)
);
CREATE TABLE records (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE, created TEXT NOT NULL, provenance TEXT NOT NULL, run TEXT NOT NULL, machine TEXT NOT NULL,
  case_number INTEGER NOT NULL, status TEXT NOT NULL, interrupted INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX records_by_run ON records (run, case_number);
CREATE INDEX records_by_created ON records (created);
-- The newest run of each case on each machine, so that a table need not read a history.
CREATE TABLE heads (
  number INTEGER PRIMARY KEY, case_number INTEGER NOT NULL, machine TEXT NOT NULL, run TEXT NOT NULL,
  created TEXT NOT NULL, UNIQUE (case_number, machine)
);
CREATE TRIGGER keep_heads AFTER INSERT ON records WHEN new.interrupted = 0 BEGIN
  INSERT INTO heads (case_number, machine, run, created) VALUES (new.case_number, new.machine, new.run, new.created)
  ON CONFLICT DO UPDATE SET run = excluded.run, created = excluded.created
  WHERE excluded.created >= heads.created;
END;
CREATE TABLE runs (
  id TEXT PRIMARY KEY, created TEXT NOT NULL, owner TEXT NOT NULL, finished INTEGER NOT NULL DEFAULT 0,
  plan TEXT NOT NULL
);
"""
_CASE_OF_1 = ("version", "workload", "framework", "device", "mode", "precision", "batch", "seq", "placement",
              "workers", "compile", "threads")  # fmt: skip
_COPIED_ROWS = 1000  # at once


def _from_1(connection: sqlite3.Connection) -> None:
    """Migrate from layout 1, where every axis was a column of `records`, and a run was found by a hash of its plan."""
    _execute_all(connection, """
        DROP INDEX records_by_run;
        DROP INDEX records_by_created;
        DROP TRIGGER keep_heads;
        DROP TABLE heads;
        ALTER TABLE records RENAME TO records_of_1;
        ALTER TABLE runs RENAME TO runs_of_1;
    """)  # fmt: skip
    _execute_all(connection, _LAYOUT_2)
    columns = ", ".join(_CASE_OF_1)
    numbers = {}
    for values in connection.execute(f"SELECT DISTINCT {columns} FROM records_of_1").fetchall():
        case = dict(zip(_CASE_OF_1, values, strict=True))
        content = json.dumps({**case, "compile": bool(case["compile"])}, sort_keys=True, separators=(",", ":"))
        added = connection.execute("INSERT INTO cases (schema, content) VALUES (1, ?)", (content,))
        numbers[values] = added.lastrowid
    connection.create_function("case_number", len(_CASE_OF_1), lambda *values: numbers[values])
    last = connection.execute("SELECT max(number) FROM records_of_1").fetchone()[0] or 0
    # What is copied is deleted at once and its room taken by what comes next, so that the file does not double.
    for number in range(0, last + 1, _COPIED_ROWS):
        upto = number + _COPIED_ROWS
        connection.execute(
            f"INSERT INTO records SELECT number, id, created, provenance, run, machine, case_number({columns}),"
            " status, interrupted, body FROM records_of_1 WHERE number < ? ORDER BY number", (upto,)
        )  # fmt: skip
        connection.execute("DELETE FROM records_of_1 WHERE number < ?", (upto,))
    _execute_all(connection, """
        INSERT INTO runs SELECT id, created, owner, finished, plan FROM runs_of_1 ORDER BY rowid;
        DROP TABLE records_of_1;
        DROP TABLE runs_of_1;
    """)  # fmt: skip


_LAYOUT_3 = """
-- The key of the machine, empty where it has none; and the file by which a record came in, empty where it was measured.
ALTER TABLE records ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE records ADD COLUMN imported_from TEXT NOT NULL DEFAULT '';
-- Of older records only figures of a CSV are known to be imported: marked where they could be taken for measured.
UPDATE records SET imported_from = 'a CSV of figures' WHERE provenance = 'imported'
AND machine IN (SELECT machine FROM records WHERE provenance = 'measured');
DROP TRIGGER keep_heads;
DROP TABLE heads;
CREATE TABLE heads (
  number INTEGER PRIMARY KEY, case_number INTEGER NOT NULL, machine TEXT NOT NULL, key TEXT NOT NULL,
  imported INTEGER NOT NULL, run TEXT NOT NULL, created TEXT NOT NULL, UNIQUE (case_number, machine, key, imported)
);
INSERT INTO heads (case_number, machine, key, imported, run, created)
SELECT case_number, machine, key, imported_from <> '', run, created FROM records WHERE interrupted = 0 ORDER BY number
ON CONFLICT DO UPDATE SET run = excluded.run, created = excluded.created WHERE excluded.created >= heads.created;
CREATE TRIGGER keep_heads AFTER INSERT ON records WHEN new.interrupted = 0 BEGIN
  INSERT INTO heads (case_number, machine, key, imported, run, created)
  VALUES (new.case_number, new.machine, new.key, new.imported_from <> '', new.run, new.created)
  ON CONFLICT DO UPDATE SET run = excluded.run, created = excluded.created
  WHERE excluded.created >= heads.created;
END;
"""
_LAYOUT_4 = """
-- What proves that this machine made the plan; and a key has a * behind it where its owner signed what was imported.
ALTER TABLE runs ADD COLUMN proof TEXT NOT NULL DEFAULT '';
"""
_LAYOUT_5 = """
-- Up to which number the records of each place of a team were pulled.
CREATE TABLE pulled (place TEXT PRIMARY KEY, number INTEGER NOT NULL);
"""


_TRIGGER = _LAYOUT_3[_LAYOUT_3.index("CREATE TRIGGER") :].strip().removesuffix(";")
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {
    1: _from_1,
    2: lambda connection: _execute_all(connection, _LAYOUT_3),  # only figures of a CSV were known to be imported
    3: lambda connection: _execute_all(connection, _LAYOUT_4),  # no proof of who had made a plan
    4: lambda connection: _execute_all(connection, _LAYOUT_5),  # nothing was pulled
}


class NotAStore(Exception):
    """Why a file can't be used as a store, and what to do."""


def of(connection: sqlite3.Connection) -> int | None:
    """Return the layout of a file, None where it is empty; raise where it is no store that can be used here."""
    snapshot = not connection.in_transaction  # so that nothing changes in between
    if snapshot:
        connection.execute("BEGIN")
    try:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        made = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')"))
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        if snapshot:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
    if tables and application != APPLICATION:
        raise NotAStore("this is an SQLite file of another program; name another file")
    if layout > LAYOUT:
        raise NotAStore("written by a newer mldyno; update mldyno to read it")
    if tables and layout not in (LAYOUT, *MIGRATIONS):
        raise NotAStore(f"it is damaged; move it away: no mldyno writes layout {layout}")
    if made.keys() - {"keep_heads"} or (layout == LAYOUT and made.get("keep_heads", _TRIGGER) != _TRIGGER):
        raise NotAStore("it holds SQL that mldyno did not put there; export its records where it was made")
    return layout if tables else None


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file, or migrate older ones to today's, each layout in one transaction."""
    while (layout := of(connection)) != LAYOUT:
        with transaction(connection):
            if of(connection) != layout:
                continue  # another process was first
            if layout is None:
                _execute_all(connection, _LAYOUT_2 + _LAYOUT_3 + _LAYOUT_4 + _LAYOUT_5)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {LAYOUT}")
                continue
            try:
                MIGRATIONS[layout](connection)
            except (TypeError, ValueError, KeyError) as error:  # only damage gives a column another type
                raise NotAStore(f"it is damaged; move it away: it can't be brought up to date ({error})") from error
            connection.execute(f"PRAGMA user_version = {layout + 1}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Begin a transaction that writes; commit all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def _execute_all(connection: sqlite3.Connection, script: str) -> None:
    """Execute the statements of a script one by one, within a transaction; a trigger's body stays whole."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


# -- opening ---------------------------------------------------------------------------------------
# A file can't be read as it is if its layout is older, or if a process was killed while it wrote: what that process
# left must be undone first. With write permission the file itself is repaired, otherwise a private copy of it.


@contextlib.contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn every error of SQLite, and text that is not UTF-8, into one line."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, NotAStore) as error:
        reason = error if isinstance(error, NotAStore) else _explanation(error)
        kind = StoreLocked if isinstance(error, sqlite3.Error) and "locked" in str(error) else StoreError
        raise kind(f"store {path}: {reason}") from error
    except OSError as error:
        raise StoreError(f"store {path}: {error.strerror or error}") from error


def to_write(path: Path, patience: float) -> sqlite3.Connection:
    """Open the file in today's layout; make it where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = _connected(path, "rwc", patience)
    try:
        bring_up_to_date(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def to_read(path: Path, patience: float, repair: bool = True) -> tuple[sqlite3.Connection | None, bool]:
    """Open the file, None where it is empty, and return whether it is a private copy; mend it only with `repair`."""
    connection = _connected(path, "ro", patience)
    try:
        number = of(connection)
    except BaseException as error:
        connection.close()
        if "readonly" in str(error) and repair:  # a process was killed within a write, which must be undone
            return _mended(path)
        raise
    if number == LAYOUT:
        return connection, False
    connection.close()
    if number is not None and not repair:
        raise NotAStore("older store layout; any command that reads it migrates it")
    return (None, False) if number is None else _mended(path)


def _connected(path: Path, mode: str, patience: float | None = None) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    timeout = WRITER_TIMEOUT_S if patience is None else patience
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)


def _mended(path: Path) -> tuple[sqlite3.Connection | None, bool]:
    try:
        return _up_to_date(_connected(path, "rw")), False
    except sqlite3.OperationalError as error:
        if not any(words in str(error) for words in _REFUSALS):
            raise
    copy = sqlite3.connect("", isolation_level=None)  # a file without a name
    try:
        try:
            with contextlib.closing(_connected(path, "ro")) as old:
                old.backup(copy)
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise
            _copy_undone(path, copy)
    except BaseException:
        copy.close()
        raise
    return _up_to_date(copy), True


def _up_to_date(connection: sqlite3.Connection) -> sqlite3.Connection | None:
    """Migrate the tables to today's layout; close the connection and return None where there are none."""
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        if of(connection) is None:
            return None
        bring_up_to_date(connection)
        stack.pop_all()  # it stays open
    return connection


def _copy_undone(path: Path, copy: sqlite3.Connection) -> None:
    """Copy the file as it was before the write within which a process was killed."""
    import shutil
    import tempfile

    real = os.path.realpath(path)
    files = (real, f"{real}-journal")

    def state() -> list[tuple[int, int, int]]:
        return [(known.st_ino, known.st_size, known.st_mtime_ns) for known in map(os.stat, files)]

    try:
        from mldyno.temporary import own_name  # few stores need it

        with tempfile.TemporaryDirectory(prefix=f"mldyno-{own_name()}-") as folder:
            before = state()
            place, _ = (shutil.copyfile(file, os.path.join(folder, os.path.basename(file))) for file in files)
            if state() != before:
                raise OSError("it was written to just now")
            with contextlib.closing(sqlite3.connect(place)) as undone:
                undone.backup(copy)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(
            f"store {path}: a process was killed while it wrote, and that can't be undone here ({reason}); "
            "open it once as its owner, with: mldyno history"
        ) from None


def _explanation(error: sqlite3.Error | UnicodeDecodeError) -> str:
    """Say what is wrong and what to do, for the errors of SQLite that a user can meet."""
    text = str(error)
    for part, advice in (
        ("readonly", "it can't be written to; make it writable or name another with --store"),
        ("disk is full", "the disk is full; make room, or name another with --store"),
        ("malformed", DAMAGED),
        ("decode", DAMAGED),
        ("no such", "it is damaged; move it away: a part of it is missing"),
        ("not a database", "this is not an mldyno store; name another file with --store"),
        ("unable to open", "it can't be opened; check the path and its permissions, or name another with --store"),
        ("locked", "another process has held it for too long; end that process or try again later"),
        ("disk I/O", "the disk refused to write or read; check its space and health, or name another with --store"),
    ):
        if part in text:
            return f"{advice} ({text})."
    return f"{text}."
