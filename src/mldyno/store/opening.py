"""The file of a store, opened; and mended first, where it can't be read as it is.

It can't where its layout is an older one, and where a process was killed while it wrote: then what that process left
must be undone. Whoever may write mends the file itself, anybody else a private copy of it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from mldyno.errors import StoreError, StoreLocked
from mldyno.leftovers import own_name
from mldyno.store import layout

WRITER_TIMEOUT_S = 60.0  # to wait for another process that writes
DAMAGED = "it is damaged; move it away, then rescue it with: sqlite3 OLD .recover | sqlite3 NEW"
_REFUSALS = ("readonly", "unable to open", "disk I/O")  # what SQLite says where it may not write, or not delete


@contextlib.contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn every error of SQLite, and text that is not UTF-8, into one clear line."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, layout.NotAStore) as error:
        reason = error if isinstance(error, layout.NotAStore) else _explanation(error)
        kind = StoreLocked if isinstance(error, sqlite3.Error) and "locked" in str(error) else StoreError
        raise kind(f"store {path}: {reason}") from error
    except OSError as error:
        raise StoreError(f"store {path}: {error.strerror or error}") from error


def to_write(path: Path, patience: float) -> sqlite3.Connection:
    """The file, made where there is none, in today's layout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = _connected(path, "rwc", patience)
    try:
        layout.bring_up_to_date(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def to_read(path: Path, patience: float) -> tuple[sqlite3.Connection | None, bool]:
    """The file, None where it is empty; and whether it is a private copy, which is gone when it is closed."""
    connection = _connected(path, "ro", patience)
    try:
        number = layout.of(connection)
    except BaseException as error:
        connection.close()
        if "readonly" in str(error):  # a process was killed within a write, which must be undone
            return _mended(path)
        raise
    if number == layout.LAYOUT:
        return connection, False
    connection.close()
    return (None, False) if number is None else _mended(path)


def as_it_is(path: Path) -> sqlite3.Connection:
    """The file, to look into it now; raises where it would have to be mended, or waited for."""
    connection = _connected(path, "ro", patience=0.0)
    try:
        if layout.of(connection) != layout.LAYOUT:
            raise layout.NotAStore("its layout is not today's; any command that reads it mends that")
    except BaseException:
        connection.close()
        raise
    return connection


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
        _fill(copy, path)
    except BaseException:
        copy.close()
        raise
    return _up_to_date(copy), True


def _fill(copy: sqlite3.Connection, path: Path) -> None:
    """Copy what the file holds, or held before a write that was not finished."""
    try:
        with contextlib.closing(_connected(path, "ro")) as old:
            old.backup(copy)
    except sqlite3.OperationalError as error:
        if "readonly" not in str(error):
            raise
        _copy_undone(path, copy)


def _up_to_date(connection: sqlite3.Connection) -> sqlite3.Connection | None:
    """The connection, to tables of today's layout; None, and closed, where there are none."""
    try:
        if layout.of(connection) is not None:
            layout.bring_up_to_date(connection)
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _copy_undone(path: Path, copy: sqlite3.Connection) -> None:
    """Copy the file as it was before the write within which a process was killed."""
    import shutil
    import tempfile

    real = os.path.realpath(path)
    files = (real, f"{real}-journal")

    def state() -> list[tuple[int, int, int]]:
        return [(known.st_ino, known.st_size, known.st_mtime_ns) for known in map(os.stat, files)]

    try:
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
    """What is wrong and what to do, for the errors of SQLite that a user can meet."""
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
