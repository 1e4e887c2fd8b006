"""Files as strangers could send them, of every kind that a command reads; what comes of a seed is the same every time.

`HOSTILE` are files that name programs, code and places, each by what it tries. `strange` makes others: some keep the
shape of their kind, so that they get past the first check, and some are damaged anywhere.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import KEPT, Content, mutated, seeds, text

from mldyno.axes import AXES, NAMES
from mldyno.records import canonical, content_id
from mldyno.store import figures, transfer
from mldyno.suites.reader import KEYS

UNTOUCHED = "named-by-a-file"  # a folder that files name, and from which nothing may be read
RAN = "ran"  # what appears where a program or code of a stranger ran
TOOL = f"#!/bin/sh\ntouch {{folder}}/{RAN}\necho '[[3, 12, 1], {{{{}}}}]'\n"
CODE = "open({path!r}, 'w').close()\ndef build(): raise SystemExit\n"
WORDS = ("./tool", "tool", "{folder}/tool", "python3", "/bin/sh", "evil.py", "evil.py:build", "evil:build", "./evil.py",
         f"hf:{UNTOUCHED}", f"hf:./{UNTOUCHED}", f"{UNTOUCHED}/model.onnx", f"{UNTOUCHED}/x.jsonl",
         f"{{folder}}/{UNTOUCHED}/x.jsonl", f"sqlite:{UNTOUCHED}/x.sqlite", f"file://{{folder}}/{UNTOUCHED}/x",
         "http://127.0.0.1:9/x", "git+ssh://127.0.0.1/x", "$(./tool)", "`./tool`", "; ./tool", "| ./tool", "-h",
         "--yes", "~root/x", "3.11.7+torch2.13.0", "3.12.1", "../evil.py", "command", "fake", "all", "gpu", "mlp", "",
         " ", "0", "-1", "1e999", "9007199254740993", "yes", "quick", "other.toml")  # fmt: skip
NAMED = ("{folder}/tool", "./tool", "evil.py:build")  # a program, and code
KINDS = {"records": 34, "figures": 16, "page": 10, "suite": 16, "store": 20, "site": 4}  # shares in percent


@dataclass(frozen=True)
class Surroundings:
    """A folder with what strange files name, and sound files of each kind that are changed."""

    folder: Path
    records: list[Content]
    figures: list[list[str]]
    page: bytes
    store: Path
    site: Path


def prepare(folder: Path, write: Callable[[tuple[str, ...]], object]) -> Surroundings:
    """Fill a folder with a program, code and data that nobody may touch, and with sound files; `write` runs mldyno."""
    (folder / UNTOUCHED).mkdir()
    (folder / "tool").write_text(TOOL.format(folder=folder))
    (folder / "tool").chmod(0o755)
    code = CODE.format(path=str(folder / RAN))
    for place in (folder / "evil.py", folder / UNTOUCHED / "evil.py", folder / "sitecustomize.py"):
        place.write_text(code)
    (folder / UNTOUCHED / "config.json").write_text('{"auto_map": {"AutoConfig": "evil.C"}, "model_type": "evil"}')
    records = seeds()
    sound = "".join(f"{canonical(content)}\n" for content in records[-12:])
    for place in (folder / "sound.jsonl", folder / UNTOUCHED / "x.jsonl"):
        place.write_text(sound, encoding="utf-8")
    shutil.copy(folder / "sound.jsonl", folder / "older.jsonl")
    store, site, page = folder / "sound.sqlite", folder / "sound-site", folder / "sound.html"
    write(("import", "sound.jsonl", "--store", str(store)))
    write(("report", "sound.jsonl", "--out", str(page)))
    write(("report", "--site", str(site), "--store", str(store)))
    rows = list(csv.reader((KEPT.parent / "figures.csv").read_text(encoding="utf-8").splitlines()))
    return Surroundings(folder, records, rows[:20], page.read_bytes(), store, site)


# -- files that are known to be hostile ------------------------------------------------------------


def _figures(**cells: str) -> str:
    row = {"source": "x", "published": "2026-01-31", "machine": "m", "device": "cpu", "framework": "torch",
           "workload": "mlp", "mode": "infer", "precision": "fp32", "placement": "device", "ranks": "1",
           "quantity": "step_time", "value": "0.1", "unit": "s", "status": "ok", **cells}  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, dict.fromkeys((*figures.COLUMNS, *cells)), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    return out.getvalue()


def _suite(**entries: str) -> str:
    axes = {"workload": "mlp", "mode": "infer", "framework": "fake", **entries}
    return "[[cases]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in axes.items())


def _record(change: Callable[[Content], None]) -> str:
    content: Content = json.loads(json.dumps(seeds()[-1]))
    change(content)
    content["id"] = content_id(content)
    return canonical(content) + "\n"


def hostile(folder: Path) -> dict[str, str]:
    """Texts of files that name a program, code or a place wherever a file can, by the names of the files."""
    files: dict[str, str] = {}
    for number, word in enumerate(word.format(folder=folder) for word in NAMED):
        files[f"python-{number}.csv"] = _figures(python=word)
        files[f"python-{number}.jsonl"] = _figures(python=word)
        files[f"machine-{number}.csv"] = _figures(machine=word, source=word, note=word, workload=word, quantity=word)
        files[f"cases-{number}.toml"] = _suite(python=word)
        files[f"excluded-{number}.toml"] = _suite() + f"[[exclude]]\npython = {json.dumps(word)}\n"
        rate = f'workload = "mlp", rate = 1.0, python = {json.dumps(word)}'
        files[f"score-{number}.toml"] = _suite() + f'[score]\nversion = 1\nmachine = "m"\nrates = [{{{rate}}}]\n'
        files[f"workload-{number}.toml"] = _suite(workload=word)
        files[f"framework-{number}.toml"] = _suite(framework=word)
        files[f"include-{number}.toml"] = f"include = [{json.dumps(word)}]\n" + _suite()

        def everywhere(content: Content, word: str = word) -> None:
            content["case"] |= {"workload": word, "framework": word}
            content["machine"]["name"] = content["run"]["id"] = content["run"]["suite"] = word
            content["facts"] |= {"command": word, "note": word, "source": word}
            content["software"] |= {"framework": word, "python": word}

        def interpreter(content: Content, word: str = word) -> None:
            content["case"]["python"] = word

        files[f"record-{number}.jsonl"] = _record(everywhere)
        files[f"interpreter-{number}.jsonl"] = _record(interpreter)
    files["mlp"] = files["python-0.csv"]
    for allocator in ("jemalloc", "tcmalloc", "steady"):
        files[f"allocator-{allocator}.toml"] = _suite(allocator=allocator)
    files["included.toml"] = 'include = ["cases-0.toml"]\n' + _suite()
    files["listed.toml"] = '[[cases]]\nworkload = ["mlp"]\nframework = "fake"\npython = ["3.11.7", "./tool"]\n'
    return files


# -- files by chance -------------------------------------------------------------------------------


def strange(seed: int, around: Surroundings, place: Path) -> str:
    """Write a strange file or folder of a seed beside a place, which has no ending yet; return its kind."""
    source = random.Random(seed)
    kind = source.choices(list(KINDS), list(KINDS.values()))[0]
    _WRITERS[kind](source, seed, around, place)
    return kind


def damaged(source: random.Random, data: bytes) -> bytes:
    """Bytes with some of them changed, lost, repeated or added."""
    for _ in range(source.choice((1, 1, 2, 5, 20))):
        at = source.randrange(len(data) + 1)
        size = min(len(data) - at, source.choice((1, 1, 4, 50, 1000)))
        piece = data[at : at + size]
        new = source.choice((
            bytes(byte ^ (1 << source.randrange(8)) for byte in piece), source.randbytes(size), b"", piece * 3,
            piece + text(source).encode("utf-8", "surrogatepass"), b"\0" * size, piece[::-1],
        ))  # fmt: skip
        data = data[:at] + new + data[at + size :]
    return data[: source.randrange(len(data) + 1)] if source.random() < 0.1 else data


def _word(source: random.Random, around: Surroundings) -> str:
    return source.choice(WORDS).format(folder=around.folder) if source.random() < 0.6 else text(source)


def _lines(source: random.Random, seed: int, around: Surroundings) -> list[str]:
    lines = [mutated(seed * 7 + number, around.records) for number in range(source.choice((1, 1, 2, 4)))]
    if source.random() < 0.5:
        content = json.loads(source.choice(lines))
        part: Any = source.choice([content, *(value for value in content.values() if isinstance(value, dict))])
        for key, value in list(part.items()):
            if isinstance(value, str) and source.random() < 0.4:
                part[key] = _word(source, around)
        content["id"] = content_id(content)
        lines.append(canonical(content))
    return lines


def _records(source: random.Random, seed: int, around: Surroundings, place: Path) -> None:
    data = "".join(f"{line}\n" for line in _lines(source, seed, around)).encode("utf-8", "surrogatepass")
    place.write_bytes(damaged(source, data) if source.random() < 0.3 else data)


def _some_figures(source: random.Random, seed: int, around: Surroundings, place: Path) -> None:
    header, *rows = (list(row) for row in around.figures)
    rows = source.sample(rows, source.randint(1, 5))
    for name in source.sample(NAMES, source.randint(0, 3)):
        if name not in header:
            header.append(name)
            for row in rows:
                row.append(_word(source, around) if source.random() < 0.5 else "")
    for _ in range(source.choice((0, 1, 2, 6))):
        row = source.choice((header, *rows, *rows, *rows))
        row[source.randrange(len(row))] = _word(source, around)
    out = io.StringIO()
    csv.writer(out, lineterminator=source.choice(("\n", "\r\n"))).writerows([header, *rows])
    data = out.getvalue().encode("utf-8", "surrogatepass")
    place.write_bytes(damaged(source, data) if source.random() < 0.2 else data)


def _page(source: random.Random, seed: int, around: Surroundings, place: Path) -> None:
    page = around.page
    if source.random() < 0.7:
        before, _, rest = page.partition(transfer.TAG.encode())
        packed = transfer.pack(_lines(source, seed, around)).text.encode()
        packed = damaged(source, packed) if source.random() < 0.3 else packed
        page = before + transfer.TAG.encode() + packed + rest[rest.index(transfer.END.encode()) :]
    place.write_bytes(damaged(source, page) if source.random() < 0.4 else page)


def _value(source: random.Random, around: Surroundings, axis: str = "") -> Any:
    entry = next((entry for entry in AXES if entry.name == axis), None)
    if entry is not None and source.random() < 0.7:
        sensible = {"workload": ("mlp", "matmul"), "framework": ("fake", "torch"), "device": ("cpu", "gpu", "all")}
        return source.choice(entry.values or sensible.get(axis, (1, 2, 16, 10**6)))
    return source.choice((
        _word(source, around), source.randint(-2, 100), 10**15, 2**60, 0.5, True, [], [1, "x"], {}, {"x": 1},
        [_word(source, around), 2], "mlp", float("inf"), float("nan"), [[1]], [{}],
    ))  # fmt: skip


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value).lower() if isinstance(value, float | bool) else json.dumps(value)


def _a_suite(source: random.Random, seed: int, around: Surroundings, place: Path) -> None:
    lines = [f"{source.choice(KEYS)} = {_toml(_value(source, around))}" for _ in range(source.choice((0, 0, 1, 2)))]
    for _ in range(source.randint(1, 3)):
        lines.append(
            source.choice(("[[cases]]", "[[cases]]", "[[cases]]", "[[exclude]]", "[score]", "[[score.rates]]"))
        )
        lines.append(f"workload = {_toml(_value(source, around, 'workload'))}")
        for axis in source.sample(NAMES[1:], source.randint(0, 4)):
            lines.append(f"{axis} = {_toml(_value(source, around, axis))}")
        if "score" in lines[-1]:
            lines += ["version = 1", 'machine = "m"', "rate = 1.0", f"rates = {_toml(_value(source, around))}"]
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    place.write_bytes(damaged(source, data) if source.random() < 0.2 else data)


def _a_store(source: random.Random, seed: int, around: Surroundings, place: Path) -> None:
    shutil.copy(KEPT.parent / "store.sqlite" if source.random() < 0.1 else around.store, place)
    if source.random() < 0.5:
        with contextlib.closing(sqlite3.connect(place)) as store, contextlib.suppress(sqlite3.Error), store:
            for _ in range(source.choice((1, 1, 3))):
                _spoil(source, store, around)
        if source.random() < 0.8:
            return
    data = bytearray(place.read_bytes())
    for _ in range(source.choice((1, 5, 20, 200))):
        data[source.randrange(len(data))] = source.randrange(256)
    place.write_bytes(bytes(data[: source.randrange(len(data))]) if source.random() < 0.1 else bytes(data))


def _spoil(source: random.Random, store: sqlite3.Connection, around: Surroundings) -> None:
    tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = source.choice(tables)
    column = source.choice([name for _, name, *_ in store.execute(f"PRAGMA table_info({table})")])
    value = source.choice(
        (None, b"\xff\xfe", b"", -1, 2**62, 0.5, _word(source, around), text(source), "{}", "[]", "\0")
    )
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS number, i AS id FROM n"
    store.execute(*source.choice((
        (f"UPDATE {table} SET {column} = ?", (value,)),
        (f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid % 3 = 0", (value,)),
        (f"UPDATE {table} SET {column} = CAST(x'ff41' AS TEXT) WHERE rowid % 2", ()),
        (f"DELETE FROM {table} WHERE rowid % 2", ()), (f"DELETE FROM {table}", ()), (f"DROP TABLE {table}", ()),
        (f"ALTER TABLE {table} RENAME COLUMN {column} TO x", ()), (f"ALTER TABLE {table} ADD COLUMN y", ()),
        (f"PRAGMA user_version = {source.randint(-2, 9)}", ()), ("PRAGMA application_id = 7", ()),
        (f"ALTER TABLE {table} RENAME TO z", ()), ("DROP TRIGGER keep_heads", ()),
        (f"CREATE VIEW v AS {endless}", ()),
        (f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END", ()),
        ("INSERT INTO runs VALUES ('r', '2026', 'x', 0, ?)", (source.choice(("{}", "[]", "x", '{"cases": 1}')),)),
    )))  # fmt: skip


def _a_site(source: random.Random, seed: int, around: Surroundings, place: Path) -> None:
    shutil.copytree(around.site, place)
    files = [path for path in place.rglob("*") if path.is_file()]
    for _ in range(source.choice((1, 2, 4))):
        path = source.choice(files)
        if source.random() < 0.4:
            path.with_name(source.choice(("mine.txt", "index-mine.html", "machine.html", ".hidden"))).write_text("mine")
        elif source.random() < 0.3:
            path.unlink(missing_ok=True)
        elif path.exists():
            path.write_bytes(damaged(source, path.read_bytes()))


_WRITERS: dict[str, Callable[[random.Random, int, Surroundings, Path], None]] = {
    "records": _records, "figures": _some_figures, "page": _page, "suite": _a_suite, "store": _a_store, "site": _a_site,
}  # fmt: skip
