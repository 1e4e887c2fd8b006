"""The store itself: one SQLite file with a rollback journal, so that it is one file at all times.

Rules: records are never changed; they are added, and removed, in one transaction; a reader never holds the file
while its caller works, so it can't keep a run from saving; a file that is newer than this mldyno, or not ours, is
left alone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mldyno.errors import StoreError
from mldyno.files import check_regular, expanded
from mldyno.records import SCHEMA, Case, Machine, NewerSchema, Record, canonical, upgraded_case
from mldyno.sources import as_typed
from mldyno.store import layout
from mldyno.store.codec import decode_stored, with_origin
from mldyno.store.query import (
    COLUMNS,
    SIGNED,
    Identity,
    Query,
    distinct_names,
    latest,
    shown_name,
    stored_key,
    with_names,
)

PAGE_RECORDS = 500  # read at once
LARGE_FILE = 256 << 20  # B: a larger file is rewritten only if
LEAST_FREE = 0.1  # of its pages are free
SHRINK_TIMEOUT_MS = 5000  # to wait for other processes

NO_HEAD_YET = "r.machine = ? AND r.imported_from = ''"  # for a machine with interrupted records only
Names = dict[Identity, str]  # the names by which machines are distinguished

_COLUMNS = ("id", "created", "provenance", "run", "machine", "case_number", "status", "interrupted", "body", "key",
            "imported_from")  # fmt: skip
_INSERT = f"INSERT OR IGNORE INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_PROVEN = "UPDATE records SET key = ?1 WHERE id = ?2 AND imported_from <> '' AND key <> ?1"
_HEADS_OF_CASES = """
INSERT INTO heads (case_number, machine, key, imported, run, created)
SELECT case_number, machine, key, imported_from <> '', run, created FROM records
WHERE interrupted = 0 AND case_number IN ({}) ORDER BY number
ON CONFLICT DO UPDATE SET run = excluded.run, created = excluded.created WHERE excluded.created >= heads.created
"""  # as the trigger would have made them
_NEWEST = """
WITH newest AS (
  SELECT number, case_number, machine, key, imported, run, created FROM heads WHERE created <= '{limit}'
  UNION ALL
  SELECT h.number, h.case_number, h.machine, h.key, h.imported, r.run, max(r.created)
  FROM heads h CROSS JOIN records r ON r.case_number = h.case_number AND r.machine = h.machine AND r.key = h.key
    AND (r.imported_from <> '') = h.imported AND r.interrupted = 0 AND r.created <= '{limit}'
  WHERE h.created > '{limit}' GROUP BY h.number
)
"""  # the heads, as if nothing was measured in the future
Stored = tuple[str, str, int]  # a text, the file that it came from, and whether its machine's owner signed it
_STORED = f"r.body, r.imported_from, substr(r.key, -1) = '{SIGNED}'"
_STORED_TYPES = (str, str, int)


def default_path() -> Path:
    """Return the user's store: MLDYNO_STORE, or a file in the user's data folder."""
    named = os.environ.get("MLDYNO_STORE")
    if named:
        return path_of(named)
    from platformdirs import user_data_dir

    return Path(user_data_dir("mldyno")) / "records.sqlite"


def path_of(url: str) -> Path:
    """Return the file of a store's URL: a path, or sqlite:PATH."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "sqlite":
        raise StoreError(f"store '{url}': only SQLite files can be stores; give a path such as results.sqlite")
    return expanded(rest if separator else url.removeprefix("sqlite:"))


class Store:
    """The records of one file, and the published figures."""

    def __init__(self, path: Path | str | None = None, patience: float | None = None, repair: bool = True) -> None:
        """Wait up to `patience` s for another process that writes; with `repair`, mend a file that can't be read."""
        self.path = default_path() if path is None else path_of(str(path))
        self.patience = layout.WRITER_TIMEOUT_S if patience is None else patience
        self.repair = repair
        self._connection: sqlite3.Connection | None = None
        self._copy: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that writes; the first one opens the file, and keeps it open."""
        with layout.errors_of(self.path):
            if self._connection is None:
                check_regular(self.path)
                self._connection = layout.to_write(self.path, self.patience)
            with layout.transaction(self._connection):
                layout.of(self._connection)  # a newer mldyno may have come in between
                yield self._connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open a connection to read from, closed at once unless it writes too; None where nothing is stored yet."""
        with layout.errors_of(self.path):
            check_regular(self.path)
            if self._connection is None and not self.path.exists():
                yield None
                return
            connection = self._connection or self._copy
            if connection is None:
                connection, private = layout.to_read(self.path, self.patience, self.repair)
                self._copy = connection if private else None
            try:
                yield connection
            finally:
                if connection not in (None, self._connection, self._copy):
                    connection.close()

    def prepare(self) -> None:
        """Open for writing and write, to fail now rather than after an hour's run."""
        with self._writing() as connection:
            connection.execute(f"PRAGMA user_version = {layout.LAYOUT}")

    def close(self) -> None:
        for connection in (self._connection, self._copy):
            if connection is not None:
                connection.close()
        self._connection = self._copy = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # of a store that could not be made, or in another thread
            self.close()

    # -- writing ---------------------------------------------------------------------------------

    def append(self, records: Iterable[Record]) -> int:
        """Add records as their texts, all or none; return how many were new.

        The first one is asked for before the file is opened, so that a bad one makes no store. An imported record that
        is signed now, and was not before, belongs from now on to the machine that signed it.
        """
        records = iter(records)
        records = itertools.chain(list(itertools.islice(records, 1)), records)
        signed: list[tuple[str, str]] = []
        with self._writing() as connection:
            last = connection.execute("SELECT max(number) FROM records").fetchone()[0] or 0
            connection.executemany(_INSERT, _rows(connection, records, signed))
            if signed and connection.executemany(_PROVEN, signed).rowcount:
                connection.execute("DELETE FROM heads")
                connection.execute(_HEADS_OF_CASES.format("SELECT number FROM cases"))
            new = connection.execute("SELECT count(*) FROM records WHERE number > ?", (last,))
            return int(new.fetchone()[0])

    def remove(self, ids: Iterable[str], lives: Callable[[str], bool]) -> int:
        """Remove records, all or none, and cases and runs without any; raise if `lives` says that a run is going on."""
        with self._writing() as connection:
            connection.execute("PRAGMA secure_delete = ON")  # no text stays in what the file does not use any more
            find = "SELECT number, run, case_number FROM records WHERE id = ?"
            rows = self._checked([row for id_ in ids for row in connection.execute(find, (id_,))], int, str, int)
            runs, cases = sorted({run for _, run, _ in rows}), _listed({case_number for _, _, case_number in rows})
            for run in runs:
                owner = connection.execute("SELECT owner FROM runs WHERE id = ? AND finished = 0", (run,)).fetchone()
                if owner and lives(owner[0]):
                    raise StoreError(f"run {run} is going on in another process; end it first. Nothing was removed.")
            connection.executemany("DELETE FROM records WHERE number = ?", [row[:1] for row in rows])
            connection.execute(f"DELETE FROM heads WHERE case_number IN ({cases})")
            connection.execute(_HEADS_OF_CASES.format(cases))
            unused = "number NOT IN (SELECT case_number FROM records)"
            connection.execute(f"DELETE FROM cases WHERE number IN ({cases}) AND {unused}")
            empty = "NOT EXISTS (SELECT 1 FROM records WHERE run = runs.id)"
            connection.executemany(f"DELETE FROM runs WHERE id = ? AND {empty}", [(run,) for run in runs])
            return len(rows)

    def shrink(self, lives: Callable[[str], bool]) -> None:
        """Return the room of what was removed to the disk; raise StoreError where that can't be done now.

        The file is rewritten in one transaction: a process that is killed meanwhile leaves it unchanged. A large file
        must have enough free room to be worth that, and no run may be going on, since it would have to wait.
        """
        connection = self._connection
        if connection is None:  # and nothing was removed
            return
        with layout.errors_of(self.path):
            names = ("page_count", "freelist_count", "page_size")
            pages, free, page = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
            if pages * page > LARGE_FILE and free < LEAST_FREE * pages:
                return
            for run, owner, *_ in self.unfinished_runs():
                if lives(owner):
                    raise StoreError(f"run {run} is going on in another process.")
            connection.execute(f"PRAGMA busy_timeout = {SHRINK_TIMEOUT_MS}")
            try:
                connection.execute("VACUUM")
            finally:
                connection.execute(f"PRAGMA busy_timeout = {layout.WRITER_TIMEOUT_S * 1000:.0f}")

    # -- runs ------------------------------------------------------------------------------------

    def begin_run(self, run: str, created: str, owner: str, plan: str, proof: str = "") -> None:
        """Record that a run has begun, so that it can be resumed; an old run gets its new owner."""
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO runs (id, created, owner, plan, proof) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET owner = excluded.owner, plan = excluded.plan, proof = excluded.proof",
                (run, created, owner, plan, proof),
            )

    def finish_run(self, run: str) -> None:
        with self._writing() as connection:
            connection.execute("UPDATE runs SET finished = 1 WHERE id = ?", (run,))

    def unfinished_runs(self) -> list[tuple[str, str, str, str]]:
        """Return id, owner, plan and its proof of runs that did not end, newest first."""
        sql = "SELECT id, owner, plan, proof FROM runs WHERE finished = 0 ORDER BY created DESC, rowid DESC"
        return [(run, owner, plan, proof) for run, owner, plan, proof in self._read(sql, (), str, str, str, str)]

    def text_of_run(self, run: str) -> str:
        """Return what the store keeps of a run, its plan or what hosts were asked; empty for a run from elsewhere."""
        rows = self._read("SELECT plan FROM runs WHERE id = ?", [run], str)
        return str(rows[0][0]) if rows else ""

    def runs_of_machines(self, fewest: int) -> list[str]:
        """Return the runs with records of that many machines, the newest first."""
        sql = ("SELECT run FROM records WHERE interrupted = 0 AND provenance <> 'published' GROUP BY run"
               " HAVING count(DISTINCT machine || ' ' || key) >= ? ORDER BY max(created) DESC, run DESC")  # fmt: skip
        return [run for (run,) in self._read(sql, [fewest], str)]

    def pulled(self, place: str) -> int:
        """Return the number up to which the records of a place were pulled; 0 where none were."""
        return sum(number for (number,) in self._read("SELECT number FROM pulled WHERE place = ?", [place], int))

    def note_pulled(self, place: str, number: int) -> None:
        with self._writing() as connection:
            sql = "INSERT INTO pulled VALUES (?1, ?2) ON CONFLICT DO UPDATE SET number = ?2"
            connection.execute(sql, (place, number))

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, sql: str, values: Iterable[Any], *types: type) -> list[tuple[Any, ...]]:
        """Return the rows of a query, whose columns must have these types; damage shows as a column of another one."""
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute(sql, tuple(values)).fetchall()
        return self._checked(rows, *types)

    def _checked(self, rows: list[tuple[Any, ...]], *types: type) -> list[tuple[Any, ...]]:
        """Return the rows; raise where a column has another type than it should."""
        for row in rows:
            if tuple(map(type, row)) != types:
                raise StoreError(f"store {self.path}: {layout.DAMAGED}.")
        return rows

    def _select(
        self, columns: str, query: Query, *types: type, more: str = "", values: Iterable[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Return columns of the stored records that a query means; `more` follows the conditions."""
        where, bound = self._where(query)
        return self._read(f"SELECT {columns} FROM records r WHERE {where} {more}", [*bound, *values], *types)

    def select(self, query: Query) -> list[Record]:
        """Return the records that a query means, oldest first, published figures among them."""
        records = list(self.stream(query))
        if "published" in query.provenances:
            stored = {record.id for record in records}
            shipped = _published(newest=query.heads and not query.ids)
            records += [record for record in shipped if record.id not in stored and query.fits(record)]
        records.sort(key=lambda record: record.created)
        return records

    def stream(self, query: Query) -> Iterator[Record]:
        """Yield the stored records that a query means, in the order they came in."""
        return with_names(self.written(query), self._machine_names())

    def written(self, query: Query) -> Iterator[Record]:
        """Yield the same records with the names of machines that were written."""
        return (self._decoded(*stored) for stored in self._bodies(query))

    def texts(self, query: Query) -> Iterator[str]:
        """Yield the same records as their texts, a page at a time."""
        return (body for body, _, _ in self._bodies(query))

    def ids(self, query: Query) -> list[str]:
        """Return the ids of the same records, without reading them."""
        return [id_ for (id_,) in self._select("r.id", query, str, more="ORDER BY r.number")]

    def of_the_future(self, query: Query) -> list[tuple[str, str]]:
        """Return ids and dates of records that a wrong clock dated into the future: none counts as the newest."""
        more = "AND r.created > ? ORDER BY r.number"
        rows = self._select("r.id, r.created", query, str, str, more=more, values=[latest()])
        return [(id_, date) for id_, date in rows]

    def _bodies(self, query: Query) -> Iterator[Stored]:
        if query.heads and not query.ids and "run" not in query.equal:
            yield from self._bodies_of_heads(query)
            return
        where, values = self._where(query)
        last = 0
        page_of = f"AND r.number > ? ORDER BY r.number LIMIT {PAGE_RECORDS}"
        sql = f"SELECT r.number, {_STORED} FROM records r WHERE {where} {page_of}"
        while page := self._read(sql, [*values, last], int, *_STORED_TYPES):
            yield from (stored[1:] for stored in page)
            last = page[-1][0]

    def _bodies_of_heads(self, query: Query) -> list[Stored]:
        """Return those of the newest run of each case on each machine, where cases with one id today are one."""
        cases, limit, names = self._cases(query), latest(), self._machine_names()
        heads = _NEWEST.format(limit=limit)
        newest: dict[tuple[str, str], tuple[str, int]] = {}
        wanted = query.equal.get("machine")
        meant = [] if wanted is None else [machine.name for machine in names if shown_name(machine, names) == wanted]
        only = "" if wanted is None else f" AND machine IN ({', '.join('?' * len(meant))})"
        columns = "number, case_number, created, machine, key, imported"
        sql = f"{heads} SELECT {columns} FROM newest WHERE case_number IN ({_listed(cases)}){only}"
        for number, case_number, created, name, key, imported in self._read(sql, meant, int, int, str, str, str, int):
            machine = shown_name(Identity(name, key, bool(imported)), names)
            if wanted in (None, machine):
                head = (machine, cases[case_number].id)
                newest[head] = max(newest.get(head, ("", 0)), (created, number))
        where, values = self._where_columns(query)
        sql = (
            f"{heads} SELECT {_STORED} FROM newest h CROSS JOIN records r ON r.run = h.run"
            " AND r.case_number = h.case_number AND r.machine = h.machine AND r.key = h.key"
            f" AND (r.imported_from <> '') = h.imported WHERE h.number IN"
            f" ({_listed(number for _, number in newest.values())}) AND {where} AND r.interrupted = 0"
            f" AND r.created <= '{limit}' ORDER BY r.number"
        )
        return [(body, file, signed) for body, file, signed in self._read(sql, values, *_STORED_TYPES)]

    def _where(self, query: Query) -> tuple[str, list[Any]]:
        """Return the conditions of a query on `records r`, and their values."""
        where, values = self._where_columns(query)
        if not query.simulated or any(name not in COLUMNS for name in query.equal):
            where += f" AND r.case_number IN ({_listed(self._cases(query))})"
        return where, values

    def _where_columns(self, query: Query) -> tuple[str, list[Any]]:
        """Return the conditions that are not on axes."""
        where, values = [f"r.provenance IN ({', '.join('?' * len(query.provenances))})"], list[Any](query.provenances)
        for column in COLUMNS[1:]:
            if column in query.equal:
                where.append(f"r.{column} IS ?")
                values.append(query.equal[column])
        if "machine" in query.equal:
            wanted, names = query.equal["machine"], self._machine_names()
            meant = [machine for machine in names if shown_name(machine, names) == wanted]
            for_each = ["r.machine = ? AND r.key = ? AND (r.imported_from <> '') = ?"] * len(meant)
            where.append(f"({' OR '.join(for_each or [NO_HEAD_YET])})")
            values += [part for machine in meant for part in machine] or [wanted]
        for sign, moment in ((">=", query.since), ("<=", query.until)):
            if moment:
                where.append(f"r.created {sign} ?")
                values.append(moment)
        if query.ids:
            where.append("(" + " OR ".join(["r.id >= ? AND r.id < ?"] * len(query.ids)) + ")")
            values += [edge for prefix in query.ids for edge in (prefix, prefix + "g")]
        return " AND ".join(where), values

    def _cases(self, query: Query) -> dict[int, Case]:
        """Return the cases that have the axes of a query, by their number."""
        with self._as_damage():
            rows = self._read("SELECT number, schema, content FROM cases", (), int, int, str)
            cases = {number: _case(schema, content) for number, schema, content in rows}
        return {number: case for number, case in cases.items() if query.fits_case(case)}

    @contextlib.contextmanager
    def _as_damage(self) -> Iterator[None]:
        """Explain what was valid when stored and can't be read now: a newer mldyno wrote it, or it is damaged."""
        try:
            yield
        except StoreError:
            raise
        except NewerSchema as error:
            raise StoreError(f"store {self.path}: a newer mldyno has written into it: {error}") from error
        except Exception as error:
            raise StoreError(f"store {self.path}: a record can't be read ({error}); the file is damaged") from error

    def _decoded(self, body: str, file: str, signed: int) -> Record:
        with self._as_damage():
            return with_origin(decode_stored(body), file, "signed" if signed else "")

    def history(self, query: Query, most: int) -> list[Record]:
        """Return the newest records that a query means, newest first, whatever their status."""
        rows = self._select(_STORED, query, *_STORED_TYPES, more="ORDER BY r.created DESC, r.number DESC LIMIT ?",
                            values=[most])  # fmt: skip
        return list(with_names([self._decoded(*row) for row in rows], self._machine_names()))

    def counts(self, query: Query) -> dict[tuple[Case, str], int]:
        """Count the stored records that a query means, by case and machine, without reading them."""
        cases, names = self._cases(query), self._machine_names()
        columns = "r.case_number, r.machine, r.key, r.imported_from <> '', count(*)"
        counted: Counter[tuple[Case, str]] = Counter()
        for number, name, key, imported, count in self._select(columns, query, int, str, str, int, int,
                                                               more="GROUP BY 1, 2, 3, 4"):  # fmt: skip
            if number not in cases:
                raise StoreError(f"store {self.path}: {layout.DAMAGED}.")
            counted[cases[number], shown_name(Identity(name, key, bool(imported)), names)] += count
        return counted

    def cases(self) -> list[Case]:
        return list(self._cases(Query()).values())

    def workloads(self) -> list[str]:
        """Return the names of all workloads, stored (commands among them) and published."""
        stored = sorted({case.workload for case in self.cases()})
        return list(dict.fromkeys([*stored, *(record.case.workload for record in _published())]))

    def workloads_as_typed(self) -> list[str]:
        """Return the same names as users typed them, which a record of each command knows."""
        commands = [number for number, case in self._cases(Query()).items() if case.own_command]
        sql = ("SELECT r.body FROM heads h CROSS JOIN records r ON r.run = h.run AND r.case_number = h.case_number"
               f" WHERE h.case_number IN ({_listed(commands)}) GROUP BY h.case_number")  # fmt: skip
        for (body,) in self._read(sql, (), str):
            self._decoded(body, "", 0)
        return list(map(as_typed, self.workloads()))

    def machines(self) -> list[str]:
        """Return the names of all machines, stored and published."""
        names = self._machine_names()
        stored = sorted({shown_name(machine, names) for machine in names})
        return list(dict.fromkeys([*stored, *(record.machine.name for record in _published())]))

    def _machine_names(self) -> Names:
        rows = self._read("SELECT DISTINCT machine, key, imported FROM heads", (), str, str, int)
        return distinct_names([Identity(name, key, bool(imported)) for name, key, imported in rows])

    def name_of(self, machine: Machine) -> str:
        """Return the name in this store of a machine that measures into it."""
        own = Identity(machine.name, machine.key or "", False)
        return distinct_names([*self._machine_names(), own])[own]

    def holds(self, column: str, value: str) -> bool:
        """Return whether any record has this value in one of COLUMNS."""
        return bool(self._read(f"SELECT 1 FROM records WHERE {column} = ? LIMIT 1", [value], int))

    def imported_files(self) -> dict[str, list[str]]:
        """Return the files by which records of each machine were imported, by its name here."""
        names, files = self._machine_names(), dict[str, list[str]]()
        columns, more = "DISTINCT r.imported_from, r.machine, r.key", "AND r.imported_from <> '' ORDER BY 1"
        for file, name, key in self._select(columns, Query(), str, str, str, more=more):
            files.setdefault(shown_name(Identity(name, key, True), names), []).append(file)
        return files


def _published(newest: bool = False) -> Sequence[Record]:
    """Return all published figures, or the newest of each case and machine."""
    from mldyno.store import figures  # imported late: a tracked loop needs none

    return figures.newest() if newest else figures.published()


def _listed(numbers: Iterable[int]) -> str:
    """Return numbers of rows for SQL, which takes more of them in its text than as values."""
    return ",".join(map(str, numbers))


@lru_cache(maxsize=10_000)
def _case(schema: int, content: str) -> Case:
    return upgraded_case(schema, json.loads(content))


def _rows(
    connection: sqlite3.Connection, records: Iterable[Record], signed: list[tuple[str, str]]
) -> Iterator[tuple[Any, ...]]:
    """Yield records as rows of the table; store new cases, and add key and id of each signed record to `signed`."""
    numbers: dict[Case, int] = {}
    for record in records:
        case, key = record.case, stored_key(record)
        if case not in numbers:
            row = (SCHEMA, canonical(vars(case)))
            connection.execute("INSERT OR IGNORE INTO cases (schema, content) VALUES (?, ?)", row)
            stored = connection.execute("SELECT number FROM cases WHERE schema = ? AND content = ?", row)
            numbers[case] = int(stored.fetchone()[0])
        if key.endswith(SIGNED):
            signed.append((key, record.id))
        yield (record.id, record.created, record.provenance, record.run.id, record.machine.name, numbers[case],
               record.status, int(record.interrupted), record.text, key, record.imported_from)  # fmt: skip
