"""Records in and out of files: JSON lines, which lose nothing, also within a report, and CSV, which carries figures.

Rules: a file is read a line at a time and taken whole or not at all; a file is written beside its
place and moved there when it is complete, and what is no file is never replaced.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import BinaryIO, TextIO

from mldyno.errors import ImportFileError, MldynoError
from mldyno.files import check_regular
from mldyno.printable import printable, shortened
from mldyno.records import Record
from mldyno.store import embedded, figures
from mldyno.store.codec import BadRecord, decode, decode_stored

_SQLITE = b"SQLite format 3\0"  # how such a file begins
LONGEST_REFUSAL = 500  # characters
LONGEST_LINE_B = 32 << 20  # the longest series that a budget of minutes can make is far below
LONGEST_CSV_LINE = 2_000_000  # characters: as many fields as there are columns, each as long as it may be
MOST_EMPTY_LINES = 100  # one after the other: packed, millions of them take no room
CLOCK_SKEW = timedelta(days=1)  # by which the clocks of two machines may differ
MOST_FAULTS = 100  # of one file that are told
LONGEST_STEM = 40  # characters of a name that are in a file's


def _raised(error: BadRecord) -> None:
    raise error


Refuse = Callable[[BadRecord], None]  # hears what is wrong with a record; unless it raises, the others follow


def read(path: str, refuse: Refuse = _raised) -> Iterator[Record]:
    """Records of a file; `-` is standard input."""
    empty = True

    def refused(error: BadRecord) -> None:
        nonlocal empty
        empty = False
        refuse(error)

    try:
        with _source(path) as source:
            now = datetime.now(timezone.utc)
            for record in _records(source, refused):
                empty = False
                try:
                    check_foreign(record, now)
                except BadRecord as error:
                    refused(error)
                else:
                    yield record
            if empty:
                raise BadRecord("it holds no records")
    except BadRecord as error:
        raise ImportFileError(_refusal(path, error)) from None
    except OSError as error:
        raise ImportFileError(f"{path}: {error.strerror or error}") from None


def examined(path: str) -> tuple[list[Record], list[str]]:
    """The records of a file that can be taken, and what is wrong with it and with the others, a line each."""
    records: list[Record] = []
    faults: list[str] = []

    def refuse(error: BadRecord) -> None:
        if len(faults) == MOST_FAULTS:
            raise BadRecord(f"more than {MOST_FAULTS} faults; what follows was not looked at")
        faults.append(_refusal(path, error))

    try:
        records.extend(read(path, refuse))
    except ImportFileError as error:
        faults.append(str(error))
    return records, faults


def _refusal(path: str, error: BadRecord) -> str:
    return f"{path}: {_one_line(str(error))}"


def check_foreign(record: Record, now: datetime) -> None:
    """Raise where a record says of itself what only this mldyno, or the future, could know."""
    if record.provenance == "published":
        raise BadRecord(f"record {record.id[:10]} calls itself published, which only figures are that ship with mldyno")
    created = datetime.fromisoformat(record.created.replace("Z", "+00:00"))
    if (created if created.tzinfo else created.replace(tzinfo=timezone.utc)) > now + CLOCK_SKEW:
        raise BadRecord(
            f"record {record.id[:10]} was created at {record.created}, and here it is only "
            f"{now:%Y-%m-%dT%H:%MZ}; set this machine's clock, or leave the record out"
        )


def file_name(path: str) -> str:
    """A file as it is noted beside the records that came from it: its name, without its folder."""
    return "standard input" if path == "-" else _one_line(os.path.basename(path))


def file_stem(name: str, *parts: str) -> str:
    """A name for files: letters and digits of a name, and a hash of it and of what else tells things apart."""
    digest = hashlib.sha256("\0".join((name, *parts)).encode(errors="surrogatepass")).hexdigest()[:12]
    letters = re.sub("[^a-z0-9]+", "-", name.lower())[:LONGEST_STEM].strip("-")
    return f"{letters}-{digest}" if letters else digest


def _records(source: io.BufferedReader, refuse: Refuse) -> Iterator[Record]:
    """The records of a file of the kind that its first bytes show."""
    if source.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
        source.read(len(codecs.BOM_UTF8))
    start = source.peek(len(_SQLITE))
    if start.startswith(_SQLITE):
        raise BadRecord("this is an SQLite file; read a store with --store, or write its records with `mldyno export`")
    if start.startswith(b"<"):
        return _json_lines(embedded.unpacked(source), refuse)
    return _json_lines(source, refuse) if start[:1] in (b"{", b"", b"[", b" ", b"\n") else _csv(source)


def _one_line(text: str) -> str:
    """A message as one short line that a terminal can show, whatever a hostile file put into it."""
    return shortened(printable(" ".join(text.split())), LONGEST_REFUSAL)


@contextmanager
def _source(path: str) -> Iterator[io.BufferedReader]:
    if path == "-":
        stdin = sys.stdin.buffer
        yield stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(io.BytesIO(stdin.read()))
        return
    check_regular(path, or_stream=True)
    with open(path, "rb") as source:
        yield source


def _json_lines(source: BinaryIO, refuse: Refuse) -> Iterator[Record]:
    number = empty = 0
    while line := source.readline(LONGEST_LINE_B):
        number += 1
        if len(line) == LONGEST_LINE_B:
            raise BadRecord(f"line {number} is over {LONGEST_LINE_B >> 20} MiB long: not a record")
        if not line.strip():
            empty += 1
            if empty > MOST_EMPTY_LINES:
                raise BadRecord(f"line {number}: over {MOST_EMPTY_LINES} empty lines: not a file of records")
            continue
        empty = 0
        try:
            record = decode(line)
        except BadRecord as error:
            refuse(BadRecord(f"line {number}: {error}"))
        else:
            yield record


def _csv(source: BinaryIO) -> Iterator[Record]:
    text = io.TextIOWrapper(source, encoding="utf-8", newline="")
    try:
        yield from figures.read(_csv_lines(text), "imported")
    except UnicodeDecodeError:
        raise BadRecord("neither JSON lines nor a CSV of figures: it is not UTF-8 text") from None
    finally:
        text.detach()


def _csv_lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(LONGEST_CSV_LINE):
        if len(line) == LONGEST_CSV_LINE:
            raise BadRecord(f"it is over {LONGEST_CSV_LINE:,} characters long: not a figure")
        yield line


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


@contextmanager
def atomic_folder(path: str, mark: str, belongs: Callable[[str], object]) -> Iterator[str]:
    """A folder that takes its place when all of it is written; whatever goes wrong before, nothing is left.

    A folder that is there is replaced where it is empty, or has the file `mark` and nothing that does not belong.
    """
    import shutil

    try:
        place = os.path.realpath(path)
        there = os.listdir(place) if os.path.lexists(place) else []
        strange = [name for name in sorted(there) if mark not in there or not belongs(name)]
        if strange:
            raise MldynoError(f"{path} holds {strange[0]}, which mldyno did not put there; name another folder.")
        part = os.path.join(os.path.dirname(place), f".mldyno-{secrets.token_hex(8)}.part")
        old = f"{part}.old"
        os.mkdir(part)
        try:
            yield part
            if os.path.lexists(place):
                os.rename(place, old)
            os.rename(part, place)
        except BaseException:
            if os.path.lexists(old):
                os.rename(old, place)
            shutil.rmtree(part, ignore_errors=True)
            raise
        shutil.rmtree(old, ignore_errors=True)
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
