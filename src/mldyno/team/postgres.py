"""A database as a place: PostgreSQL 12 or newer, by psycopg 3. Tables are in the schema `mldyno`.

Rules: one writer at a time, by an advisory lock that its transaction holds, so that numbers are in the order of
commits. A role that may only INSERT and SELECT is enough once the tables are there. Every error is one line, without a
password.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mldyno.masking import MASK, masked
from mldyno.printable import printable
from mldyno.team import PlaceError, shown
from mldyno.team.table import Cursor, Table

if TYPE_CHECKING:
    import psycopg

LOCK = 0x6D6C64796E6F  # "mldyno": the advisory lock of who writes
MOST_CONNECTIONS = 8
STATEMENT_S = 120  # for one statement, and of a transaction in which nothing happens
CONNECT_S = 10
LONGEST_REASON = 300  # characters
SETTINGS = (
    f"SET statement_timeout = '{STATEMENT_S}s'; SET idle_in_transaction_session_timeout = '{STATEMENT_S}s';"
    " SET client_min_messages = error; SET standard_conforming_strings = on; SET search_path = pg_catalog"
)
NOW = """to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""
# to_regclass would answer from a cache, in which what another process has just made is missing.
EXIST = """SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'mldyno' AND c.relname = 'place'"""
LZ4 = "SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)"


class Database(Table):
    """The tables in a database; with `make`, they are made where they are missing."""

    def __init__(self, url: str, make: bool = False) -> None:
        self._url, self.make = url, make
        self.name = shown(url)
        self._secrets = [*_secrets_of(url), *filter(None, [os.environ.get("PGPASSWORD")])]
        self._idle: list[psycopg.Connection[Any]] = []
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.names = {
            **{name: f"mldyno.{name}" for name in ("place", "proofs", "records", "withdrawn", "judged")},
            "number": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "body": "text", "who": " DEFAULT current_user", "now": NOW,
        }  # fmt: skip
        try:
            self.prepare()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """Take a connection, and keep it for the next one where it is sound."""
        psycopg = _driver()
        with self._room:
            try:
                connection = self._sound() or self._connect()
                try:
                    yield connection
                except BaseException:
                    with suppress(Exception):
                        connection.close()
                    raise
                self._idle.append(connection)
            except psycopg.Error as error:
                raise PlaceError(f"{self.name}: {self._explained(error)}") from None

    def _sound(self) -> psycopg.Connection[Any] | None:
        """Return a connection that was used before, unless the database was started again since."""
        with suppress(IndexError):
            while connection := self._idle.pop():
                with suppress(_driver().Error):
                    connection.execute("SELECT 1")
                    return connection
                connection.close()
        return None

    def _connect(self) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = _driver().connect(
            self._url, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_S, application_name="mldyno",
            keepalives_idle=10, keepalives_interval=5, keepalives_count=3, tcp_user_timeout=30_000,
        )  # fmt: skip
        connection.execute(SETTINGS)
        return connection

    @contextmanager
    def _in(self, begin: str) -> Iterator[Cursor]:
        with self._connected() as connection, connection.transaction():
            cursor = _Cursor(connection.cursor())
            cursor.execute(begin)
            yield cursor

    def _writing(self) -> AbstractContextManager[Cursor]:
        return self._in(f"SELECT pg_advisory_xact_lock({LOCK})")

    def _reading(self) -> AbstractContextManager[Cursor]:
        return self._in("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _exist(self, cursor: Cursor) -> bool:
        return bool(self._rows(cursor, EXIST))

    def _before(self, cursor: Cursor) -> None:
        if self._rows(cursor, LZ4):
            self.names = {**self.names, "body": "text COMPRESSION lz4"}
        cursor.execute("CREATE SCHEMA IF NOT EXISTS mldyno")

    def withdraw(self, ids: Collection[str]) -> list[str]:
        with self._reading() as cursor:
            who, _ = self._rights(cursor)
        return self.withdraw_of(who, ids, admin=False, named=False)

    def withdraw_of(self, who: str, ids: Collection[str], admin: bool, named: bool = True) -> list[str]:
        with self._reading() as cursor:
            _, deletes = self._rights(cursor)
        return super().withdraw_of(who, ids, admin or (deletes and not named), named)

    def _forget(self, cursor: Cursor, ids: Sequence[str]) -> None:
        if self._rights(cursor)[1]:  # else the texts stay until the owner of the tables deletes them
            super()._forget(cursor, ids)

    def _rights(self, cursor: Cursor) -> tuple[str, bool]:
        """Return the name of our role, and whether it may delete records."""
        (row,) = self._rows(cursor, "SELECT current_user::text, has_table_privilege('mldyno.records', 'DELETE')")
        return str(row[0]), bool(row[1])

    def close(self) -> None:
        while self._idle:
            with suppress(Exception):
                self._idle.pop().close()

    def _explained(self, error: psycopg.Error) -> str:
        """Return what a database said as one line, with what to do."""
        errors = _driver().errors
        text = " ".join(str(error).split()) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        text = printable(masked(text))[:LONGEST_REASON]
        explained = {
            errors.InsufficientPrivilege: "this role may not do that; the owner of the tables can allow it",
            errors.DiskFull: "the disk is full there; nothing was added",
            errors.ReadOnlySqlTransaction: "it takes no records now",
            errors.UndefinedTable: "its tables are damaged, or of another program",
            errors.UndefinedColumn: "its tables are damaged, or of another program",
            errors.QueryCanceled: f"it took longer than {STATEMENT_S} s; repeat the command",
            errors.IdleInTransactionSessionTimeout: "this process was stopped for too long; repeat the command",
            _driver().OperationalError: "it can't be reached, or was ended; repeat the command",
        }
        known = next((words for kind, words in explained.items() if isinstance(error, kind)), "it refuses that")
        return f"{known} ({text})"


class _Cursor:
    """A cursor that takes question marks for values, as SQLite's does."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._cursor.execute(sql.replace("?", "%s").encode(), values)

    def executemany(self, sql: str, values: Iterable[Sequence[Any]]) -> Any:
        return self._cursor.executemany(sql.replace("?", "%s").encode(), values)

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({printable(str(error))[:LONGEST_REASON]})"
        how = "install it with: pip install 'mldyno[postgres]'"
        raise PlaceError(f"postgresql:// needs psycopg{reason}; {how}") from None
    return psycopg


def _secrets_of(url: str) -> list[str]:
    """Return what may be a password in a URL, as it is written and as it is meant."""
    rest = url.partition("://")[2]
    before, at, _ = rest.rpartition("@")
    written = [before.partition(":")[2]] if at else []
    written += re.findall(r"[?&](?:ssl)?password=([^&]*)", rest)
    return sorted({word for each in written if each for word in (each, unquote(each))}, key=len, reverse=True)


def hide_password(url: str) -> None:
    """Overwrite a password in this process's own command line, which other users can see; on Linux only."""
    written = [secret.encode() for secret in _secrets_of(url)]
    if not written:
        return
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
        if 0 < end - start < 1 << 20:
            line = ctypes.string_at(start, end - start)
            for secret in written:
                at = line.find(secret)
                while at >= 0:
                    ctypes.memset(start + at, ord("*"), len(secret))
                    at = line.find(secret, at + 1)
