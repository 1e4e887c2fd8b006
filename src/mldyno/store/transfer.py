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
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO, TextIO

from mldyno.errors import ImportFileError, MldynoError
from mldyno.files import check_regular, regular
from mldyno.leftovers import own_name, remove_leftovers
from mldyno.printable import printable, shortened
from mldyno.records import Record
from mldyno.store import embedded, figures, proofs
from mldyno.store.codec import BadRecord, came_from, decode, decode_stored
from mldyno.store.query import CLOCK_SKEW

_SQLITE = b"SQLite format 3\0"  # how such a file begins
LONGEST_REFUSAL = 500  # characters
LONGEST_LINE_B = 32 << 20  # the longest series that a budget of minutes can make is far below
LONGEST_CSV_LINE = 2_000_000  # characters: as many fields as there are columns, each as long as it may be
MOST_EMPTY_LINES = 100  # one after the other: packed, millions of them take no room
MOST_FAULTS = 100  # of one file that are told
LONGEST_STEM = 40  # characters of a name that are in a file's


def _raised(error: Exception) -> None:
    raise error


Refuse = Callable[[BadRecord], None]  # hears what is wrong with a record; unless it raises, the others follow
Tell = Callable[[str], None]  # hears a line


def read(path: str, refuse: Refuse = _raised, tell: Tell | None = None) -> Iterator[Record]:
    """Records of a file, each with its proof; `-` is standard input.

    Of a rescue file that was cut within its last line, `tell` hears so, and the others follow; without it, it is
    refused as any other.
    """
    empty = True

    def refused(error: BadRecord) -> None:
        nonlocal empty
        empty = False
        refuse(error)

    try:
        with _source(path) as source:
            now = datetime.now(timezone.utc)
            for record in _records(source, refused, tell and (lambda words: tell(f"{path}: {words}"))):
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


def _records(source: io.BufferedReader, refuse: Refuse, tell: Tell | None) -> Iterator[Record]:
    """The records of a file of the kind that its first bytes show."""
    if source.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
        source.read(len(codecs.BOM_UTF8))
    start = source.peek(len(_SQLITE))
    if start.startswith(_SQLITE):
        raise BadRecord("this is an SQLite file; read a store with --store, or write its records with `mldyno export`")
    if start.startswith(b"<"):
        return _json_lines(embedded.unpacked(source), refuse, tell)
    return _json_lines(source, refuse, tell) if start[:1] in (b"{", b"", b"[", b" ", b"\n") else _csv(source)


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


def _json_lines(source: BinaryIO, refuse: Refuse, tell: Tell | None) -> Iterator[Record]:
    number = empty = 0
    proven = proofs.NOTHING
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
            if proofs.is_proof(line):
                proven = proofs.read(line)
                continue
            record = decode(line)
        except BadRecord as error:
            if tell is not None and proven.of_rescue and not line.endswith(b"\n"):
                tell(f"line {number} is cut off, as on a full disk; what stands before it was taken")
                return
            refuse(BadRecord(f"line {number}: {error}"))
        else:
            yield came_from(record, "", proven.of(record))


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
        part = _part_beside(place)
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
def atomic_folder(path: str, mark: str, title: str) -> Iterator[str]:
    """A folder that takes its place when all of it is written; whatever goes wrong before, nothing is left.

    The file `mark` gets the title and a list of all other files with their hashes. A folder that is there is replaced
    where it is empty, or holds just what its own list says.
    """
    import shutil

    try:
        place = os.path.realpath(path)
        _check_replaceable(path, place, mark)
        part = _part_beside(place)
        old = f"{part}.old"
        os.mkdir(part)
        try:
            yield part
            lines = [f"{_seal(os.path.join(part, name))}  {name}\n" for name in sorted(_within(part))]
            with open(os.path.join(part, mark), "w", encoding="utf-8", newline="\n") as out:
                out.writelines([title, "\n", *lines])
            _check_replaceable(path, place, mark)  # again: it may have taken a while
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


def _check_replaceable(path: str, place: str, mark: str) -> None:
    """Raise unless a folder is missing, empty, or holds just what the list in its file `mark` says."""
    listed: dict[str, str] = {}
    with suppress(OSError, ValueError), open(os.path.join(place, mark), encoding="utf-8", opener=regular) as lines:
        for line in lines:
            seal, _, name = line.rstrip("\n").partition("  ")
            listed[name] = seal
    for name in sorted(_within(place)) if os.path.lexists(place) else ():
        if os.path.basename(name) == ".DS_Store" or name == mark:
            continue
        if name not in listed:
            raise MldynoError(f"{path} holds {name}, which mldyno did not put there; name another folder.")
        if _seal(os.path.join(place, name)) != listed[name]:
            raise MldynoError(f"{path} holds {name}, which was changed since mldyno wrote it; name another folder.")


def _within(place: str) -> Iterator[str]:
    """Yield the path of each file and folder in a folder, at any depth, as seen from there."""
    for folder, folders, files in os.walk(place, onerror=_raised):
        yield from (os.path.relpath(os.path.join(folder, name), place) for name in (*folders, *files))


def _seal(path: str) -> str:
    """Return the hash of a file's bytes, or what else is there."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        return "folder" if stat.S_ISDIR(mode) else "neither file nor folder"
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _part_beside(place: str) -> str:
    """Where what will be at a place is written; what killed processes left there is removed."""
    folder = os.path.dirname(place)
    remove_leftovers(folder)
    return os.path.join(folder, f".mldyno-{own_name()}-{secrets.token_hex(8)}.part")


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
