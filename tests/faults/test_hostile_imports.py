"""A file that is not what `mldyno import` takes is refused in one line, with its place; the store is not touched."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mldyno.records import content_id
from mldyno.store import Query, Store
from mldyno.store.figures import COLUMNS

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

REFUSED = 1


def edited(line: str, *path: str | int, value: Any) -> str:
    """The record with another value at a path, and the id that belongs to it."""
    content = json.loads(line)
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return sealed(content)


def sealed(content: dict[str, Any]) -> str:
    return json.dumps({**content, "id": content_id(content)})


def spelled(line: str) -> str:
    """The text with the hash of its own spelling for an id, not that of its content."""
    bare = re.sub(r'"id": ?"[0-9a-f]{32}",', "", line)
    return bare.replace("{", f'{{"id":"{hashlib.sha256(bare.encode()).hexdigest()[:32]}",', 1)


def without(line: str, key: str) -> str:
    content = json.loads(line)
    del content[key]
    return sealed(content)


def refused(dyno: Dyno, name: str, place: str, words: str) -> None:
    """The file is refused in one line that begins with its name and place and says why; nothing of it is stored."""
    line = dyno.refusal("import", name, code=REFUSED)
    assert line.startswith(f"mldyno: {name}: {place}")
    assert words in line
    assert len(line) < 700, "one line that can be read"
    assert not list(Store(dyno.store).stream(Query(heads=False)))


@pytest.fixture(autouse=True)
def commands_within(dyno: Dyno) -> None:
    """Commands run in this process."""
    dyno.within = True


@pytest.fixture
def stored(dyno: Dyno, a_line: str) -> bytes:
    """The bytes of a store with one record."""
    (dyno.folder / "good.jsonl").write_text(a_line + "\n")
    assert dyno("import", "good.jsonl").code == 0
    return dyno.store.read_bytes()


Edit = Callable[[str], str]

BAD_LINES: dict[str, tuple[Edit, str]] = {
    "a truncated record": (lambda line: line[: len(line) // 2], "not JSON"),
    "JSON of another program": (lambda line: '{"name": "x"}', "this is JSON, but no record of mldyno"),
    "no JSON": (lambda line: "{hello", "not JSON"),
    "a list": (lambda line: f"[{line}]", "a record is a JSON object"),
    "a list in a list": (lambda line: "[[1]]", "a record is a JSON object"),
    "two records in a line": (lambda line: line + line, "not JSON"),
    "a text for a number": (lambda line: edited(line, "case", "batch", value="8"), "Expected `int | null`, got `str`"),
    "a number for a text": (lambda line: edited(line, "reason", value=8), "Expected `str`, got `int`"),
    "a fraction for a whole number": (lambda line: edited(line, "case", "batch", value=8.5), "$.case.batch"),
    "an object for a list": (lambda line: edited(line, "series", value={}), "$.series"),
    "null for an object": (lambda line: edited(line, "machine", value=None), "$.machine"),
    "a list for facts": (lambda line: edited(line, "facts", value=[1]), "$.facts"),
    "an object in facts": (lambda line: edited(line, "facts", "x", value={"y": 1}), "$.facts"),
    "a missing key": (lambda line: without(line, "case"), "missing required field `case`"),
    "no id": (lambda line: line.replace('"id"', '"di"', 1), "its id is not the hash of its content"),
    "a changed content": (lambda line: line.replace('"status":"ok"', '"status":"oom"'), "its id is not the hash"),
    "a changed value": (lambda line: line.replace('"batch":128', '"batch":129'), "its id is not the hash"),
    "an unknown key": (lambda line: edited(line, "colour", value="red"), "unknown key in record: colour"),
    "an unknown key within": (lambda line: edited(line, "case", "colour", value="red"), "unknown key in case: colour"),
    "an unknown key in a series": (lambda line: edited(line, "series", 0, "x", value=1), "unknown key in series: x"),
    "an unknown status": (lambda line: edited(line, "status", value="fine"), "fine"),
    "an unknown unit": (lambda line: edited(line, "series", 0, "unit", value="ms"), "ms"),
    "NaN": (lambda line: edited(line, "series", 0, "values", value=[0.5]).replace("0.5", "NaN"), "NaN"),
    "Infinity": (lambda line: edited(line, "series", 0, "values", value=[0.5]).replace("0.5", "Infinity"), "Infinity"),
    "-Infinity": (lambda line: edited(line, "facts", "x", value=0.5).replace('"x": 0.5', '"x": -Infinity'), "Infinity"),
    "1e999": (lambda line: edited(line, "series", 0, "values", value=[0.5]).replace("0.5", "1e999"), "line 2: "),
    "1e999 in facts": (lambda line: edited(line, "facts", "x", value=0.5).replace('"x": 0.5', '"x": 1e999'), "line 2"),
    "a lone surrogate in a name": (lambda line: edited(line, "machine", "name", value="\ud800"), "line 2: "),
    "a lone surrogate in a reason": (lambda line: edited(line, "reason", value="\ud800"), "line 2: "),
    "a lone surrogate in a key": (lambda line: edited(line, "facts", "\ud800", value=1), "line 2: "),
    "a newer schema": (lambda line: edited(line, "schema", value=99), "schema 99 is newer than this mldyno"),
    "an unknown old schema": (lambda line: edited(line, "schema", value=0), "schema 0 is unknown"),
    "a schema that is none": (lambda line: edited(line, "schema", value="1"), "'schema' must be a whole number"),
    "a negative time": (lambda line: edited(line, "series", 0, "values", value=[-1.0]), "is out of range"),
    "a batch of 0": (lambda line: edited(line, "case", "batch", value=0), "batch must be a whole number from 1"),
    "a negative batch": (lambda line: edited(line, "case", "batch", value=-8), "batch must be a whole number from 1"),
    "a block of 0": (lambda line: edited(line, "series", 0, "block", value=0), "block must be a whole number over 0"),
    "a negative repeat": (lambda line: edited(line, "run", "repeat", value=-1), "must not be negative"),
    "a huge batch": (lambda line: edited(line, "case", "batch", value=2**64), "line 2: "),
    "a huge repeat": (lambda line: edited(line, "run", "repeat", value=2**63), "line 2: "),
    "a huge turn": (lambda line: edited(line, "series", 0, "turn", value=10**30), "line 2: "),
    "a huge memory": (lambda line: edited(line, "machine", "memory", value=10**30), "line 2: "),
    "a huge fact": (lambda line: edited(line, "facts", "steps", value=10**400), "line 2: "),
    "a number of 10,000 digits": (lambda line: f'{{"schema":{"9" * 10_000}}}', "line 2: "),
    "a name of two lines": (lambda line: edited(line, "machine", "name", value="a\nb"), "names must be printable"),
    "an endless name": (lambda line: edited(line, "machine", "name", value="x" * 1000), "1 to 300 characters"),
    "an empty name": (lambda line: edited(line, "machine", "name", value=""), "1 to 300 characters"),
    "a time that is none": (lambda line: edited(line, "created", value="yesterday"), "'yesterday' is not a time"),
    "a time of two lines": (lambda line: edited(line, "created", value="2026\n01"), "is not a time"),
    "a key of two lines": (lambda line: edited(line, "a\nb", value=1), "unknown key in record"),
    "100,000 brackets": (lambda line: '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    "100,000 objects": (lambda line: '{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
    "a key twice": (lambda line: line[:-1] + ',"status":"oom"}', "its id is not the hash"),
    "a key twice and the hash of that": (lambda line: spelled(line[:-1] + ',"reason":"x"}'), "its id is not"),
    "the hash of another spelling": (lambda line: spelled(line.replace(":", ": ")), "its id is not the hash"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_record_is_refused_with_its_line(dyno: Dyno, a_line: str, name: str) -> None:
    edit, words = BAD_LINES[name]
    (dyno.folder / "bad.jsonl").write_text("\n" + edit(a_line) + "\n", encoding="utf-8", errors="surrogatepass")
    refused(dyno, "bad.jsonl", "line 2: ", words)


def figure(**changed: str) -> str:
    """A CSV with one sound figure, but for what is changed."""
    values = {"source": "me", "published": "2026-01", "machine": "mine", "device": "cpu", "framework": "torch",
              "workload": "mlp", "mode": "train", "batch": "8", "precision": "fp32", "placement": "device",
              "ranks": "1", "steps": "100", "quantity": "loop_time", "value": "1.5", "unit": "s", "status": "ok",
              **changed}  # fmt: skip
    return ",".join(COLUMNS) + "\n" + ",".join(values.get(name, "") for name in COLUMNS) + "\n"


BAD_FIGURES: dict[str, tuple[str, str]] = {
    "a bad header": (figure().replace("machine,", "engine,"), "line 1: a CSV of figures needs the columns"),
    "plain text": ("hello\nworld\n", "line 1: a CSV of figures needs the columns"),
    "a column twice": (figure().replace("note", "value"), "line 1: it has the column value more than once"),
    "a column under two names": (figure().replace("note", "workers"), "line 1: it has the column ranks more than once"),
    "too few columns": (figure() + "a,b\n", "line 3: it must have 18 columns"),
    "too many columns": (figure().rstrip() + ",x,y\n", "line 2: it must have 18 columns"),
    "a bad unit": (figure(unit="ms"), "line 2: unit 'ms' is not one of s, B, J, W"),
    "a bad status": (figure(status="fine"), "line 2: status 'fine' is not one of ok, oom"),
    "a bad mode": (figure(mode="trian"), "line 2: unknown mode 'trian'. Did you mean 'train'?"),
    "a bad value": (figure(value="fast"), "line 2: value 'fast' is not a number"),
    "a value of NaN": (figure(value="nan"), "line 2: value 'nan' is not a number"),
    "a value of 1e999": (figure(value="1e999"), "line 2: value '1e999' is not a number"),
    "a negative value": (figure(value="-1"), "line 2: value '-1' is not a number of 0 or more"),
    "a batch of 0": (figure(batch="0"), "line 2: invalid batch '0'"),
    "a huge batch": (figure(batch="9" * 5000), "line 2: "),
    "negative steps": (figure(steps="-1"), "line 2: "),
    "no machine": (figure(machine=""), "line 2: machine, workload, framework and device must be given"),
    "a machine of two lines": (figure(machine='"a\nb"'), "names must be printable"),
    "an endless machine": (figure(machine="x" * 1000), "line 2: "),
    "a time that is none": (figure(published="soon"), "line 2: "),
    "a month that is none": (figure(published="2026-13"), "line 2: "),
    "no time": (figure(published=""), "line 2: "),
    "an open quote": (figure(note='"open'), "not CSV"),
    "an endless field": (figure(note="x" * 200_000), "line 2: not CSV"),
    "a NUL": (figure(machine="a\0b"), "line 2: "),
}


@pytest.mark.parametrize("name", BAD_FIGURES)
def test_a_bad_figure_is_refused_with_its_line(dyno: Dyno, name: str) -> None:
    text, words = BAD_FIGURES[name]
    (dyno.folder / "bad.csv").write_text(text, newline="")
    refused(dyno, "bad.csv", "line ", words)


def make_nothing(path: Path) -> None:
    """Leave it missing."""


def make_huge(path: Path) -> None:
    """100 MB in one line: a hole in the file."""
    path.write_bytes(b'{"a":"')
    os.truncate(path, 100_000_000)


def make_pipeless(path: Path) -> None:
    """A socket, which no one can open."""
    import socket

    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a missing file": (make_nothing, "No such file or directory"),
    "a folder": (Path.mkdir, "this is a folder; name a file"),
    "an empty file": (Path.touch, "it holds no records"),
    "only empty lines": (lambda path: path.write_text("\n\n \n"), "it holds no records"),
    "only a header": (lambda path: path.write_text(",".join(COLUMNS) + "\n"), "it holds no records"),
    "100 MB in one line": (make_huge, "line 1 is over 32 MiB long: not a record"),
    "a binary file": (lambda path: path.write_bytes(bytes(range(256)) * 64), "not UTF-8 text"),
    "a file of NULs": (lambda path: path.write_bytes(bytes(1000)), "line 1: a CSV of figures needs the columns"),
    "JSON that is not UTF-8": (lambda path: path.write_bytes(b'{"a":"\xff"}\n'), "line 1: not UTF-8 text"),
    "UTF-16": (lambda path: path.write_text("{}\n", encoding="utf-16"), "not UTF-8 text"),
    "an SQLite file": (
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(5000)),
        "this is an SQLite file; read a store with",
    ),
    "a socket": (make_pipeless, "this is a pipe or a device; name a regular file, or - for standard input"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_holds_no_records_is_refused(dyno: Dyno, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, words = BAD_FILES[name]
    monkeypatch.chdir(dyno.folder)
    make(dyno.folder / "bad.file")
    refused(dyno, "bad.file", "", words)


def test_a_refused_file_leaves_a_store_as_it_was(dyno: Dyno, a_line: str, stored: bytes) -> None:
    other = edited(a_line, "case", "batch", value=3)
    (dyno.folder / "bad.jsonl").write_text(other + "\n" + a_line[:-1] + "\n")
    assert "bad.jsonl: line 2: " in dyno.refusal("import", "bad.jsonl", code=REFUSED)
    assert dyno.store.read_bytes() == stored


def many(line: str, count: int) -> list[str]:
    return [edited(line, "run", "repeat", value=number) for number in range(count)]


def test_a_bad_record_at_the_end_of_a_thousand_lets_none_in(dyno: Dyno, a_line: str, stored: bytes) -> None:
    lines = [*many(a_line, 1001)[1:], edited(a_line, "case", "batch", value=0)]
    (dyno.folder / "bad.jsonl").write_text("\n".join(lines) + "\n")
    assert "bad.jsonl: line 1001: " in dyno.refusal("import", "bad.jsonl", code=REFUSED)
    assert [record.id for record in dyno.records()] == [json.loads(a_line)["id"]]


def test_a_bad_file_among_good_ones_lets_none_in(dyno: Dyno, a_line: str, stored: bytes) -> None:
    (dyno.folder / "new.jsonl").write_text(edited(a_line, "case", "batch", value=3) + "\n")
    assert "none.jsonl: No such file" in dyno.refusal("import", "new.jsonl", "none.jsonl", code=REFUSED)
    assert len(dyno.records()) == 1


def test_importing_twice_brings_nothing_new(dyno: Dyno, a_line: str) -> None:
    (dyno.folder / "some.jsonl").write_text("\n".join(many(a_line, 1000)) + "\n")
    first, second = dyno("import", "some.jsonl", "--json"), dyno("import", "some.jsonl", "some.jsonl", "--json")
    assert (first.code, json.loads(first.out)) == (0, {"new": 1000, "seen": 1000})
    assert (second.code, json.loads(second.out)) == (0, {"new": 0, "seen": 2000})
    assert len(dyno.records()) == 1000


def test_what_is_exported_can_be_imported_elsewhere(dyno: Dyno, a_line: str, stored: bytes) -> None:
    (dyno.folder / "figures.csv").write_text(figure())
    assert dyno("import", "figures.csv").code == 0
    assert dyno("export", "all.jsonl").code == 0
    there = str(dyno.folder / "there.sqlite")
    assert dyno("import", "all.jsonl", "--store", there).code == 0
    assert dyno("export", "--store", there).out == (dyno.folder / "all.jsonl").read_text()
