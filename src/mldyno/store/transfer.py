"""Records in and out of files: JSON lines, which lose nothing, also within a report, and CSV, which carries figures.

Rules: a file is read a line at a time and taken whole or not at all; a file is written beside its
place and moved there when it is complete, and what is no file is never replaced.
"""

from __future__ import annotations

import io
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from mldyno.errors import ImportFileError, MldynoError
from mldyno.records import Record
from mldyno.store import embedded, figures
from mldyno.store.codec import BadRecord, decode, decode_stored

_SQLITE = b"SQLite format 3\0"  # how such a file begins
LONGEST_LINE_B = 32 << 20  # the longest series that a budget of minutes can make is far below


def read(path: str) -> Iterator[Record]:
    """Records of a file; `-` is standard input."""
    try:
        with _source(path) as source:
            empty = True
            for record in _records(source, source.peek(1)[:1] if isinstance(source, io.BufferedReader) else b""):
                empty = False
                yield record
            if empty:
                raise BadRecord("it holds no records")
    except BadRecord as error:
        raise ImportFileError(f"{path}: {_one_line(str(error))}") from None
    except OSError as error:
        raise ImportFileError(f"{path}: {error.strerror or error}") from None


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
        count = _write(texts, sys.stdout, form)
        sys.stdout.flush()  # whoever says that it is written knows
        return count
    with atomic_file(path) as out, io.TextIOWrapper(out, encoding="utf-8", newline="\n") as text:
        return _write(texts, text, form)


@contextmanager
def atomic_file(path: str) -> Iterator[BinaryIO]:
    """A file that takes its place when all of it is written; whatever goes wrong before, nothing is left.

    A link stays, and the file it leads to is replaced. What is no file, such as a device or a pipe, is written into.
    """
    try:
        there = None
        with suppress(FileNotFoundError):
            there = os.stat(path)
        target = _written_into(path, there) if there is not None else None
        if target is not None:
            with os.fdopen(target, "wb") as out:
                yield out
            return
        place = os.path.realpath(path)
        part = os.path.join(os.path.dirname(place), f".mldyno-{secrets.token_hex(8)}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as out:
                if there is not None:
                    os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
                yield out
            os.replace(part, place)
        except BaseException:
            os.unlink(part)
            raise
    except OSError as error:
        raise MldynoError(f"{path}: {error.strerror or error}; nothing was written.") from None


def _written_into(path: str, there: os.stat_result) -> int | None:
    """A descriptor of what must not be replaced: a device, a pipe, or the file behind our own standard output."""
    for stream in (1, 2):
        with suppress(OSError):
            if os.path.samestat(there, os.fstat(stream)):
                return os.dup(stream)
    return None if stat.S_ISREG(there.st_mode) else os.open(path, os.O_WRONLY)


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
