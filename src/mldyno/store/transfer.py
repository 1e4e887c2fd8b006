"""Records in and out of files: JSON lines, which lose nothing, also within a report, and CSV, which carries figures.

Rules: a file is read a line at a time and taken whole or not at all; a file is written beside its
place and moved there when it is complete.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import BinaryIO, TextIO

from mldyno.errors import ImportFileError, MldynoError
from mldyno.records import Record
from mldyno.store import embedded, figures
from mldyno.store.codec import BadRecord, decode, decode_stored

_SQLITE = b"SQLite format 3\0"  # how such a file begins
LONGEST_LINE_B = 32 << 20  # the longest series that a budget of minutes can make is far below
CLOCK_SKEW = timedelta(days=1)  # by which the clocks of two machines may differ


def read(path: str) -> Iterator[Record]:
    """Records of a file; `-` is standard input."""
    try:
        with _source(path) as source:
            empty = True
            latest = datetime.now(timezone.utc) + CLOCK_SKEW
            for record in _records(source, source.peek(1)[:1] if isinstance(source, io.BufferedReader) else b""):
                empty = False
                _check_foreign(record, latest)
                yield record
            if empty:
                raise BadRecord("it holds no records")
    except BadRecord as error:
        raise ImportFileError(f"{path}: {_one_line(str(error))}") from None
    except OSError as error:
        raise ImportFileError(f"{path}: {error.strerror or error}") from None


def _check_foreign(record: Record, latest: datetime) -> None:
    """Raise where a record says of itself what only this mldyno, or the future, could know."""
    if record.provenance == "published":
        raise BadRecord(f"record {record.id[:10]} calls itself published, which only figures are that ship with mldyno")
    created = datetime.fromisoformat(record.created.replace("Z", "+00:00"))
    if (created if created.tzinfo else created.replace(tzinfo=timezone.utc)) > latest:
        raise BadRecord(
            f"record {record.id[:10]} was created at {record.created}, and here it is only "
            f"{latest - CLOCK_SKEW:%Y-%m-%dT%H:%MZ}; set this machine's clock, or leave the record out"
        )


def file_name(path: str) -> str:
    """A file as it is noted beside the records that came from it: its name, without its folder."""
    return "standard input" if path == "-" else _one_line(os.path.basename(path))


def _records(source: BinaryIO, start: bytes) -> Iterator[Record]:
    """The records of a file of the kind that its first byte shows."""
    if start == b"S" and isinstance(source, io.BufferedReader) and source.peek(len(_SQLITE)).startswith(_SQLITE):
        raise BadRecord("this is an SQLite file; read a store with --store, or write its records with `mldyno export`")
    if start == b"<":
        return _json_lines(embedded.unpacked(source))
    return _json_lines(source) if start in (b"{", b"", b"[", b" ", b"\n") else _csv(source)


def _one_line(text: str) -> str:
    """A message as one short line that a terminal can show, whatever a hostile file put into it."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split())[:500])


@contextmanager
def _source(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    if Path(path).is_dir():
        raise BadRecord("this is a folder; name a file that `mldyno export` wrote")
    with open(path, "rb") as source:
        yield source


def _json_lines(source: BinaryIO) -> Iterator[Record]:
    number = 0
    while line := source.readline(LONGEST_LINE_B):
        number += 1
        if len(line) == LONGEST_LINE_B:
            raise BadRecord(f"line {number} is over {LONGEST_LINE_B >> 20} MiB long: not a record")
        if not line.strip():
            continue
        try:
            yield decode(line)
        except BadRecord as error:
            raise BadRecord(f"line {number}: {error}") from None


def _csv(source: BinaryIO) -> Iterator[Record]:
    text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
    try:
        yield from figures.read(text, "imported")
    except UnicodeDecodeError:
        raise BadRecord("neither JSON lines nor a CSV of figures: it is not UTF-8 text") from None
    finally:
        text.detach()


def write(texts: Iterable[str], path: str, form: str) -> int:
    """Write records, given as their texts, as `jsonl` or `csv`; `-` is standard output. Gives how many."""
    if path == "-":
        return _write(texts, sys.stdout, form)
    with atomic_file(path) as out, io.TextIOWrapper(out, encoding="utf-8", newline="\n") as text:
        return _write(texts, text, form)


@contextmanager
def atomic_file(path: str) -> Iterator[BinaryIO]:
    """A file that takes its place when all of it is written; whatever goes wrong before, nothing is left."""
    target = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as out:
                yield out
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise MldynoError(f"{path}: {error.strerror or error}; nothing was written.") from None


def folder(path: str) -> str:
    """A folder for files, made where it is missing."""
    try:
        Path(path).mkdir(exist_ok=True)
    except OSError as error:
        raise MldynoError(f"{path}: {error.strerror or error}; name a folder, or a place for one.") from None
    return path


def _write(texts: Iterable[str], out: TextIO, form: str) -> int:
    if form == "csv":
        return figures.write(map(decode_stored, texts), out)
    count = 0
    for text in texts:
        out.write(text + "\n")
        count += 1
    return count
