"""Records in and out of files: JSON lines, which lose nothing, also within a page, and CSV, which carries figures.

Rules: a file is read a line at a time and taken whole or not at all. What is read is a stranger's: lengths are limited,
packed and unpacked. A record is passed on as its text; where something is left out of it, the copy is another record,
with another id.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import gzip
import hashlib
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import BinaryIO, NamedTuple, TextIO

from mldyno import keys
from mldyno.errors import ImportFileError
from mldyno.files import check_regular
from mldyno.printable import printable, shortened
from mldyno.records import MACHINE_KEY, Proof, Record, canonical, seal
from mldyno.store import figures
from mldyno.store.codec import BadRecord, decode, decode_stored, parse, with_origin
from mldyno.store.query import CLOCK_SKEW
from mldyno.temporary import atomic_file

LONGEST_REFUSAL = 500  # characters
LONGEST_LINE_B = 32 << 20  # the longest series that a budget of minutes can make is far below
LONGEST_CSV_LINE = 2_000_000  # characters: as many fields as there are columns, each as long as it may be
MOST_EMPTY_LINES = 100  # one after the other: packed, millions of them take no room
MOST_FAULTS = 100  # of one file that are reported
TAG = '<script type="text/plain" id="records">'
END = "</script>"
LONGEST_PAGE_B = 64 << 20  # that is read; those that are written stay under 10 MB
LONGEST_RECORDS_B = 2 << 30  # in a page, unpacked
PACKED_B = 4_500_000  # that packed records may take of a page, as base64
PATH = "PATH"  # replaces each path in a private copy

_SQLITE = b"SQLite format 3\0"  # how such a file begins
_PROOF = b'{"proves":'  # how `canonical` begins both kinds
_QUOTED_PATH = re.compile(r"""(['"`])(?:~|\.{0,2}/|[A-Za-z]:\\)[^'"`]*\1""")
_BARE_PATH = re.compile(r"""(?<![\w/.~])(?:~[\w.-]*/|\.{0,2}/|[A-Za-z]:\\)[^\s'"`,;:()]+""")

Tell = Callable[[str], None]  # hears a line


def read(path: str, tell: Tell | None = None) -> Iterator[Record]:
    """Yield the records of a file, each with its proof; `-` is standard input. Raise at the first fault.

    With `tell`, a rescue file may end within a line: `tell` hears so, and the records before it count.
    """
    for item in _records_and_faults(path, tell):
        if isinstance(item, str):
            raise ImportFileError(item)
        yield item


def examined(path: str) -> tuple[list[Record], list[str]]:
    """Return the valid records of a file, and a line for each fault of the file and of the other records."""
    return _sorted(_records_and_faults(path), path)


def received(body: bytes, name: str) -> tuple[list[Record], list[str]]:
    """Return the same for the JSON lines that came over a network; `name` is what the lines of faults begin with."""
    return _sorted(_checked(_json_lines(io.BytesIO(body), name, None), name), name)


def signed_by(proof: str, record: Record) -> Proof:
    """Return `signed` where the line of a signature proves that the key's owner gave away a record; nothing else."""
    try:
        by = _read_proof(proof.encode()).proof_of(record) if proof else ""
    except BadRecord:
        return ""
    return by if by == "signed" else ""


def _sorted(items: Iterable[Record | str], path: str) -> tuple[list[Record], list[str]]:
    """Return the records among these, and the lines of faults, which are not endless."""
    records: list[Record] = []
    faults: list[str] = []
    for item in items:
        if isinstance(item, Record):
            records.append(item)
        elif len(faults) < MOST_FAULTS:
            faults.append(item)
        else:
            faults.append(f"{path}: more than {MOST_FAULTS} faults; what follows was not looked at")
            break
    return records, faults


def _records_and_faults(path: str, tell: Tell | None = None) -> Iterator[Record | str]:
    """Yield each record of a file, or a line on why it is refused; last, why the rest of the file is."""
    try:
        with _source(path) as source:
            yield from _checked(_items(source, path, tell), path)
    except BadRecord as error:
        yield _refusal(path, error)
    except OSError as error:
        yield f"{path}: {error.strerror or error}"


def _checked(items: Iterable[Record | BadRecord], path: str) -> Iterator[Record | str]:
    """Yield the same of what was read; records that claim what they can't know are faults too."""
    empty = True
    now = datetime.now(timezone.utc)
    try:
        for item in items:
            empty = False
            fault = item if isinstance(item, BadRecord) else foreign_fault(item, now)
            yield item if isinstance(item, Record) and fault is None else _refusal(path, fault)
        if empty:
            yield _refusal(path, "it holds no records")
    except BadRecord as error:
        yield _refusal(path, error)


def _refusal(path: str, fault: object) -> str:
    return f"{path}: {_one_line(str(fault))}"


def _one_line(text: str) -> str:
    """Return a text as one short line that a terminal can show, whatever a hostile file put into it."""
    return shortened(printable(" ".join(text.split())), LONGEST_REFUSAL)


def foreign_fault(record: Record, now: datetime) -> BadRecord | None:
    """Return the error if a record claims what only this mldyno, or the future, could know."""
    if record.provenance == "published":
        reason = "calls itself published, which only figures are that ship with mldyno"
        return BadRecord(f"record {record.id[:10]} {reason}")
    created = datetime.fromisoformat(record.created.replace("Z", "+00:00"))
    if (created if created.tzinfo else created.replace(tzinfo=timezone.utc)) <= now + CLOCK_SKEW:
        return None
    when = f"was created at {record.created}, and here it is only {now:%Y-%m-%dT%H:%MZ}"
    return BadRecord(f"record {record.id[:10]} {when}; set this machine's clock, or leave the record out")


def file_name(path: str) -> str:
    """Return the name under which a file is noted with the records that came from it: without its folder."""
    return "standard input" if path == "-" else _one_line(os.path.basename(path))


@contextmanager
def _source(path: str) -> Iterator[io.BufferedReader]:
    if path == "-":
        stdin = sys.stdin.buffer
        yield stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(io.BytesIO(stdin.read()))
        return
    check_regular(path, or_stream=True)
    with open(path, "rb") as source:
        yield source


def _items(source: io.BufferedReader, path: str, tell: Tell | None) -> Iterator[Record | BadRecord]:
    """Yield the records and faults of a file, whose first bytes show its kind."""
    if source.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
        source.read(len(codecs.BOM_UTF8))
    start = source.peek(len(_SQLITE))
    if start.startswith(_SQLITE):
        raise BadRecord("this is an SQLite file; read a store with --store, or write its records with `mldyno export`")
    if start.startswith(b"<"):
        return _json_lines(unpack_page(source), path, tell)
    return _json_lines(source, path, tell) if start[:1] in (b"{", b"", b"[", b" ", b"\n") else _csv(source)


def _json_lines(source: BinaryIO, path: str, tell: Tell | None) -> Iterator[Record | BadRecord]:
    number = empty = 0
    proven = _Proven()
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
            if is_proof(line):
                proven = _read_proof(line)
                continue
            record = decode(line)
        except BadRecord as error:
            if tell is not None and proven.of_rescue and not line.endswith(b"\n"):
                tell(f"{path}: line {number} is cut off, as on a full disk; the records before it were taken")
                return
            yield BadRecord(f"line {number}: {error}")
        else:
            yield with_origin(record, "", proven.proof_of(record))


def _csv(source: BinaryIO) -> Iterator[Record]:
    text = io.TextIOWrapper(source, encoding="utf-8", newline="")

    def lines() -> Iterator[str]:
        while line := text.readline(LONGEST_CSV_LINE):
            if len(line) == LONGEST_CSV_LINE:
                raise BadRecord(f"it is over {LONGEST_CSV_LINE:,} characters long: not a figure")
            yield line

    try:
        yield from figures.read(lines(), "imported")
    except UnicodeDecodeError:
        raise BadRecord("neither JSON lines nor a CSV of figures: it is not UTF-8 text") from None
    finally:
        text.detach()


def write(texts: Iterable[str], path: str, form: str) -> int:
    """Write records, given as their texts, as `jsonl` or `csv`; `-` is standard output. Return how many."""
    if path == "-":
        count = _write(texts, sys.stdout, form)
        sys.stdout.flush()  # so that a failure is known before anything is said
        return count
    with atomic_file(path) as out, io.TextIOWrapper(out, encoding="utf-8", newline="\n") as text:
        return _write(texts, text, form)


def _write(texts: Iterable[str], out: TextIO, form: str) -> int:
    if form == "csv":
        return figures.write(map(decode_stored, texts), out)
    count = 0
    for text in texts:
        out.write(text + "\n")
        count += 1
    return count


def private_copy(record: Record) -> Record:
    """Return a copy without command lines, names of loops and paths, if it has any; it has its own id and says so."""
    if record.fact("private"):
        return record
    case, facts, reason = record.case, dict(record.facts), record.reason
    if case.own_work:
        digest = hashlib.sha256(case.workload.encode()).hexdigest()[:12]
        case = replace(case, workload=f"private {'loop' if case.tracked else 'command'} {digest}")
        facts.pop("command", None)
        reason = reason.partition(": ")[0]  # what follows is the command's own last line
    env = {name: without_paths(value) for name, value in record.software.env.items()}
    facts = {name: without_paths(value) if isinstance(value, str) else value for name, value in facts.items()}
    warnings = [replace(each, message=without_paths(each.message), hint=without_paths(each.hint))
                for each in record.warnings]  # fmt: skip
    software = replace(record.software, env=env)
    copy = replace(
        record, case=case, reason=without_paths(reason), facts=facts, software=software, warnings=tuple(warnings)
    )
    return record if copy == record else seal(replace(copy, facts={**copy.facts, "private": True}))


def private_text(text: str) -> str:
    """Return the text of the private copy of a record that is given as its stored text."""
    return private_copy(decode_stored(text)).text


def without_paths(text: str) -> str:
    """Return a text with a word in place of each path."""
    return _BARE_PATH.sub(PATH, _QUOTED_PATH.sub(PATH, text))


class Packed(NamedTuple):
    """Records packed as gzip and base64, which has no character that could end an element of a page."""

    text: str
    records: int  # how many it holds, from the first on


def pack(texts: Iterable[str], room: int = PACKED_B) -> Packed:
    """Pack records, given as their texts, into about `room` B for a page, without the time of packing."""
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: with gzip's header
    chunks, size, count = [], 0, 0
    for text in texts:
        if size + len(text) / 2 > room * 3 / 4:  # numbers in words shrink to less than half
            break
        chunks.append(squeeze.compress(text.encode() + b"\n"))
        size += len(chunks[-1])
        count += 1
    return Packed(base64.b64encode(b"".join([*chunks, squeeze.flush()])).decode(), count)


def unpack_page(page: BinaryIO) -> BinaryIO:
    """Return the JSON lines in a page, to be read a line at a time."""
    content = page.read(LONGEST_PAGE_B + 1)
    if len(content) > LONGEST_PAGE_B:
        raise BadRecord(f"a page of over {LONGEST_PAGE_B >> 20} MiB is not a report of mldyno")
    _, tag, rest = content.partition(TAG.encode())
    packed, ended, _ = rest.partition(END.encode())
    if not tag:
        raise BadRecord("this page holds no records; name a report that `mldyno report` wrote")
    if not ended:
        raise BadRecord("the report is cut off within its records; get the whole file")
    try:
        return _LimitedLines(gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(packed.strip(), validate=True))))
    except binascii.Error:
        raise BadRecord("the records in the report are damaged: not base64") from None


class _LimitedLines(io.BufferedReader):
    """Lines of packed records; damage and lengths without end are errors of the file."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        super().__init__(packed)
        self._left = LONGEST_RECORDS_B

    def readline(self, size: int | None = -1) -> bytes:
        try:
            line = super().readline(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadRecord(f"the records in the report are damaged: {error}") from None
        self._left -= len(line)
        if self._left < 0:
            raise BadRecord(f"the records in the report are over {LONGEST_RECORDS_B >> 30} GiB long")
        return line


# -- whose records are in a file -------------------------------------------------------------------
# A submission begins with a signature of its machine's key, which anybody can verify; a rescue file with a code that
# only the machine that wrote it can make. Both name the ids of the records, which are hashes of their content, so that
# a file that was cut still proves what is left of it. Older versions refuse such a line as no record of theirs.


@dataclass(frozen=True)
class _Proven:
    """Ids of records, what proves whose they are, and the key of the machine whose owner signed them."""

    ids: Collection[str] = ()
    by: Proof = ""
    key: str | None = None
    of_rescue: bool = False

    def proof_of(self, record: Record) -> Proof:
        if record.id not in self.ids or (self.by == "signed" and record.machine.key != self.key):
            return ""
        return self.by


def signature(ids: Sequence[str]) -> str:
    """Return the first line of a submission."""
    public, signed = keys.sign(ids)
    return canonical({"proves": ids, "public": public, "signature": signed})


def is_proof(line: bytes) -> bool:
    """Return whether a line of a file is a proof."""
    return line.lstrip().startswith(_PROOF)


def proven_ids(line: str) -> Collection[str]:
    """Return the ids that a valid line of a signature names."""
    return _read_proof(line.encode()).ids


def _read_proof(line: bytes) -> _Proven:
    """Return what a line proves; raise where it is no proof, or a signature that is not valid."""
    content = parse(line)
    ids = content.pop("proves")
    if not isinstance(ids, list) or not all(isinstance(each, str) and MACHINE_KEY.fullmatch(each) for each in ids):
        raise BadRecord("a proof names the ids of records, and this does not")
    if not all(isinstance(value, str) and value.isascii() for value in content.values()):
        raise BadRecord("a proof has texts only, and this has not")
    if content.keys() == {"rescued"}:
        own = keys.is_authentic(content["rescued"], keys.RESCUE, *sorted(ids))
        return _Proven(frozenset(ids), "own" if own else "", of_rescue=True)
    if content.keys() != {"public", "signature"}:
        raise BadRecord("a proof of another version; update mldyno, or take the line out")
    key = keys.signer(ids, content["public"], content["signature"])
    if key is None:
        raise BadRecord("its signature is not valid: it was changed after it was signed")
    return _Proven(frozenset(ids), "signed", key)
