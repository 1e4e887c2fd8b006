"""The store itself: one SQLite file with a rollback journal, so that it is one file at all times.

Rules: records are only ever added, each in one transaction; a reader never holds the file while
its caller works, so it can't keep a run from saving; a file that is newer than this mldyno, or not
ours, is left alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mldyno.axes import AXIS
from mldyno.errors import StoreError
from mldyno.records import Record
from mldyno.store import reference
from mldyno.store.codec import decode_stored
from mldyno.store.query import Query

APPLICATION = 0x6D6C6479  # "mldy"
LAYOUT = 1
PATIENCE = 60.0  # s to wait for another process that writes
PAGE = 500  # records read at once

_AXES = ("workload", "framework", "device", "mode", "precision", "batch", "seq", "placement", "workers", "compile",
         "threads")  # fmt: skip
_CALLED = {"ranks": "workers"}  # axes whose column has another name
_COLUMNS = ("id", "created", "provenance", "run", "round", "machine", "case_id", "version", *_AXES,
            "status", "interrupted")  # fmt: skip

_TABLES = f"""
CREATE TABLE records (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE, created TEXT NOT NULL, provenance TEXT NOT NULL,
  run TEXT NOT NULL, round INTEGER NOT NULL, machine TEXT NOT NULL, case_id TEXT NOT NULL,
  version INTEGER NOT NULL, {", ".join(_AXES)},
  status TEXT NOT NULL, interrupted INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX records_by_run ON records (run, case_id);
CREATE INDEX records_by_created ON records (created);
-- The newest run of each case on each machine, so that a table need not read a history.
CREATE TABLE heads (
  workload TEXT, machine TEXT, case_id TEXT, run TEXT NOT NULL, created TEXT NOT NULL,
  PRIMARY KEY (workload, machine, case_id)
) WITHOUT ROWID;
CREATE TRIGGER keep_heads AFTER INSERT ON records WHEN new.interrupted = 0 BEGIN
  INSERT INTO heads VALUES (new.workload, new.machine, new.case_id, new.run, new.created)
  ON CONFLICT DO UPDATE SET run = excluded.run, created = excluded.created
  WHERE excluded.created >= heads.created;
END;
CREATE TABLE runs (
  id TEXT PRIMARY KEY, plan_key TEXT NOT NULL, created TEXT NOT NULL, owner TEXT NOT NULL,
  finished INTEGER NOT NULL DEFAULT 0, plan TEXT NOT NULL
);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {LAYOUT};
"""
_INSERT = f"INSERT OR IGNORE INTO records ({', '.join(_COLUMNS)}, body) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"


def default_path() -> Path:
    """The user's store: MLDYNO_STORE, or a file in the user's data folder."""
    named = os.environ.get("MLDYNO_STORE")
    if named:
        return path_of(named)
    from platformdirs import user_data_dir

    return Path(user_data_dir("mldyno")) / "records.sqlite"


def path_of(url: str) -> Path:
    """The file behind a store's URL: a path, or sqlite:PATH."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "sqlite":
        raise StoreError(f"store '{url}': only SQLite files can be stores; give a path such as results.sqlite")
    return Path(rest if separator else url.removeprefix("sqlite:")).expanduser()


class Store:
    """The records of one file, with the published figures beside them."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = default_path() if path is None else path_of(str(path))
        self._connection: sqlite3.Connection | None = None

    # -- opening ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Every error of SQLite as one clear line."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"store {self.path}: {_explain(error)}") from error
        except OSError as error:
            raise StoreError(f"store {self.path}: {error.strerror or error}") from error

    def _connect(self, write: bool) -> sqlite3.Connection | None:
        """The connection; None where nothing is stored yet and only reading is asked for."""
        if self._connection is not None:
            return self._connection
        if not write and not self.path.exists():
            return None
        if self.path.is_dir():
            raise StoreError(f"store {self.path}: this is a folder; name a file in it, such as results.sqlite")
        with self._errors():
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "rwc" if write else "ro"
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
            try:
                empty = self._check(connection)
                if empty and write:
                    self._create(connection)
            except BaseException:
                connection.close()
                raise
        if empty and not write:
            connection.close()
            return None
        if write:
            self._connection = connection
        return connection

    def _check(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is still empty; raises unless it is that or a store that this mldyno can use."""
        connection.execute("BEGIN")  # one look at all three, while nobody else can write
        try:
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        finally:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        if tables and application != APPLICATION:
            raise StoreError(f"store {self.path}: this is an SQLite file of another program; name another file")
        if version > LAYOUT:
            raise StoreError(f"store {self.path}: written by a newer mldyno; update mldyno to read it")
        return not tables

    def _create(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in _statements(_TABLES):
                    connection.execute(statement)

    def prepare(self) -> None:
        """Open for writing and write, or raise now and not after an hour's run."""
        connection = self._connect(write=True)
        assert connection is not None
        with self._errors(), _transaction(connection):
            connection.execute(f"PRAGMA user_version = {LAYOUT}")

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- writing ---------------------------------------------------------------------------------

    def append(self, records: Iterable[Record]) -> int:
        """Add records, as the texts that they are, in one transaction, all or none; gives how many were new.

        The first one is asked for before the file is opened, so that a bad one makes no store.
        """
        records = iter(records)
        records = itertools.chain(list(itertools.islice(records, 1)), records)
        connection = self._connect(write=True)
        assert connection is not None
        with self._errors(), _transaction(connection):
            last = connection.execute("SELECT max(number) FROM records").fetchone()[0] or 0
            connection.executemany(_INSERT, map(_row, records))
            new = connection.execute("SELECT count(*) FROM records WHERE number > ?", (last,))
            return int(new.fetchone()[0])

    # -- runs ------------------------------------------------------------------------------------

    def begin_run(self, run: str, plan_key: str, created: str, owner: str, plan: str) -> None:
        """Note that a run has begun, so that it can be resumed; an old run gets its new owner."""
        connection = self._connect(write=True)
        assert connection is not None
        with self._errors(), _transaction(connection):
            connection.execute(
                "INSERT INTO runs (id, plan_key, created, owner, plan) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET owner = excluded.owner",
                (run, plan_key, created, owner, plan),
            )

    def finish_run(self, run: str) -> None:
        """Note that nothing of a run is missing."""
        connection = self._connect(write=True)
        assert connection is not None
        with self._errors(), _transaction(connection):
            connection.execute("UPDATE runs SET finished = 1 WHERE id = ?", (run,))

    def unfinished_runs(self, plan_key: str | None = None) -> list[tuple[str, str, str]]:
        """Id, owner and plan of runs that did not end, newest first."""
        rows = self._read(
            "SELECT id, owner, plan FROM runs WHERE finished = 0 AND (? IS NULL OR plan_key = ?)"
            " ORDER BY created DESC, rowid DESC",
            (plan_key, plan_key),
        )
        return [(str(run), str(owner), str(plan)) for run, owner, plan in rows]

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        connection = self._connect(write=False)
        if connection is None:
            return []
        with self._errors():
            try:
                return connection.execute(sql, tuple(values)).fetchall()
            finally:
                if connection is not self._connection:
                    connection.close()

    def select(self, query: Query) -> list[Record]:
        """The records that are meant, oldest first, published figures among them."""
        found = list(self.stream(query))
        if "published" in query.provenances:
            known = {record.id for record in found}
            shipped = reference.newest() if query.heads and not query.ids else reference.published()
            found += [record for record in shipped if record.id not in known and query.fits(record)]
        found.sort(key=lambda record: record.created)
        return found

    def stream(self, query: Query) -> Iterator[Record]:
        """The stored records that are meant, in the order they came in."""
        return map(self._decoded, self.texts(query))

    def texts(self, query: Query) -> Iterator[str]:
        """The same as the texts they are kept as, a page at a time."""
        where, values = _where(query)
        source = "records r"
        if query.heads and not query.ids and "run" not in query.equal:
            source = "heads h CROSS JOIN records r ON r.run = h.run AND r.case_id = h.case_id AND r.machine = h.machine"
            if "workload" in query.equal:
                where = ["h.workload = ?", *where]
                values = [query.equal["workload"], *values]
            if "machine" in query.equal:
                where = [*where, "h.machine = ?"]
                values = [*values, query.equal["machine"]]
            where.append("r.interrupted = 0")
            sql = f"SELECT r.body FROM {source} WHERE {' AND '.join(where)} ORDER BY r.number"
            for (body,) in self._read(sql, values):
                yield body
            return
        last = 0
        condition = " AND ".join(["r.number > ?", *where])
        while page := self._read(
            f"SELECT r.number, r.body FROM {source} WHERE {condition} ORDER BY r.number LIMIT {PAGE}", [last, *values]
        ):
            for number, body in page:
                last = number
                yield body

    def _decoded(self, body: str) -> Record:
        try:
            return decode_stored(body)
        except Exception as error:
            raise StoreError(f"store {self.path}: a record can't be read ({error}); the file is damaged") from error

    def history(self, query: Query, most: int) -> list[Record]:
        """The newest records that are meant, newest first, whatever came of them."""
        where, values = _where(query)
        sql = f"SELECT r.body FROM records r WHERE {' AND '.join(where)} ORDER BY r.created DESC, r.number DESC LIMIT ?"
        return [self._decoded(body) for (body,) in self._read(sql, [*values, most])]

    def workloads(self) -> list[str]:
        """Names of all workloads: those of the store, commands among them, and those of the published figures."""
        stored = [str(name) for (name,) in self._read("SELECT DISTINCT workload FROM heads ORDER BY workload")]
        return list(dict.fromkeys([*stored, *(record.case.workload for record in reference.published())]))

    def machines(self) -> list[str]:
        """Names of all machines: those of the store and those of the published figures."""
        stored = [str(name) for (name,) in self._read("SELECT DISTINCT machine FROM heads ORDER BY machine")]
        return list(dict.fromkeys([*stored, *(record.machine.name for record in reference.published())]))


def _where(query: Query) -> tuple[list[str], list[Any]]:
    """The conditions of a query on `records r`, and their values."""
    marks = ", ".join("?" * len(query.provenances))
    where, values = [f"r.provenance IN ({marks})"], list[Any](query.provenances)
    for name, value in query.equal.items():
        if name in AXIS and name not in (*_AXES, *_CALLED):  # an axis that came later has no column
            where.append(f"coalesce(json_extract(r.body, '$.case.{name}'), ?) IS ?")
            values.append(AXIS[name].default)
        else:
            where.append(f"r.{_CALLED.get(name, name)} IS ?")
        values.append(int(value) if isinstance(value, bool) else value)
    if query.ids:
        where.append("(" + " OR ".join(["r.id >= ? AND r.id < ?"] * len(query.ids)) + ")")
        values += [edge for prefix in query.ids for edge in (prefix, prefix + "g")]
    return where, values


def _row(record: Record) -> tuple[Any, ...]:
    case = record.case
    axes = [case.ranks if name == "workers" else getattr(case, name) for name in _AXES]
    return (record.id, record.created, record.provenance, record.run.id, record.run.repeat, record.machine.name,
            case.id, case.version, *axes, record.status, int(record.interrupted), record.text)  # fmt: skip


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Take the right to write at once, then keep all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one; a trigger's body stays whole."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _explain(error: sqlite3.Error) -> str:
    """What is wrong and what to do, for the errors of SQLite that a user can meet."""
    text = str(error)
    for words, advice in (
        ("readonly", "it can't be written to; make it writable or name another with --store"),
        ("disk is full", "the disk is full; make room, or name another with --store"),
        ("malformed", "it is damaged; move it away, then rescue it with: sqlite3 OLD .recover | sqlite3 NEW"),
        ("no such", "it is damaged; move it away: a part of it is missing"),
        ("not a database", "this is not an mldyno store; name another file with --store"),
        ("unable to open", "it can't be opened; check the path and its permissions, or name another with --store"),
        ("locked", f"another process has held it for over {PATIENCE:.0f} s; end that process or try again later"),
        ("disk I/O", "the disk refused to write or read; check its space and health, or name another with --store"),
    ):
        if words in text:
            return f"{advice} ({text})."
    return f"{text}."
