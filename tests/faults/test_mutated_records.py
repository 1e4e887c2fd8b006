"""Thousands of mutated records: each is refused in one line, or taken whole and sound for every reader."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mldyno import api
from mldyno.analysis.outcomes import VALUES
from mldyno.errors import ImportFileError, MldynoError
from mldyno.records import Record, content_id
from mldyno.store import Query, Store, transfer
from mldyno.store.codec import BadRecord, decode, json_schema
from mldyno.store.reference import FILE as PUBLISHED
from mldyno.views.as_json import comparison_json
from mldyno.views.record_text import record_text
from mldyno.views.sentences import sentence
from mldyno.views.tables import FORMATS, render

many_times = settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
Path_ = tuple[str | int, ...]


# -- the ground that mutations are tried on ------------------------------------------------------


@dataclass
class Ground:
    """A folder with a store that must stay as it is, an empty one to copy, and a count of what came of the files."""

    folder: Path
    line: str
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.store = Store(self.folder / "kept.sqlite")
        self.store.append([decode(self.line)])
        Store(self.folder / "empty.sqlite").prepare()
        self.numbers = itertools.count()

    def fresh(self) -> Store:
        """An empty store."""
        path = self.folder / f"{next(self.numbers)}.sqlite"
        shutil.copy(self.folder / "empty.sqlite", path)
        return Store(path)

    def put(self, data: bytes, ending: str) -> Path:
        """A file with that content."""
        path = self.folder / f"mutated.{ending}"
        path.write_bytes(data)
        return path


@pytest.fixture(scope="module")
def ground(a_line: str) -> Iterator[Ground]:
    """A ground in memory where the system has a folder for that."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Ground(Path(folder), a_line)


def refused_or_sound(ground: Ground, data: bytes, ending: str) -> None:
    """Import a file; it is refused and nothing changed, or all that is done with records works."""
    path = ground.put(data, ending)
    before = ground.store.path.read_bytes()
    try:
        expected = list(transfer.read(str(path)))
    except ImportFileError as error:
        ground.counts["refused"] += 1
        reason = str(error)
        assert reason.startswith(f"{path}: ")
        assert reason.isprintable(), "one line, without control characters"
        with pytest.raises(ImportFileError):
            ground.store.append(transfer.read(str(path)))
        assert [record.id for record in ground.store.stream(Query(heads=False))] == [json.loads(ground.line)["id"]]
        assert len(before) == ground.store.path.stat().st_size
        return
    ground.counts["taken"] += 1
    here, there = ground.fresh(), ground.fresh()
    try:
        assert here.append(transfer.read(str(path))) == len({record.id for record in expected})
        check_readers(ground, here, there, expected)
    finally:
        for store in (here, there):
            store.close()
            store.path.unlink()


def check_readers(ground: Ground, here: Store, there: Store, expected: list[Record]) -> None:
    """The records come back, pass the schema, travel to another store unchanged, and can be shown in every way."""
    records = list(here.stream(Query(heads=False)))
    assert records == list({record.id: record for record in expected}.values())
    exported = str(ground.folder / "exported.jsonl")
    assert api.export(exported, "jsonl", store=here) == len(records)
    assert api.import_([exported], there) == (len(records), len(records))
    assert list(there.stream(Query(heads=False))) == records
    for line in Path(exported).read_text().splitlines():
        VALIDATOR.validate(json.loads(line))
    assert api.export(str(ground.folder / "exported.csv"), "csv", store=here) == len(records)
    for record in records:
        record_text(record).encode()
    for record in api.history(store=here):
        assert record in records
    if all(record.interrupted for record in records):  # kept, but nothing to show in a table
        return
    metrics = {series.metric for record in records for series in record.series} - {"step_time"}
    for value in (*VALUES, *(name for name in metrics if not name.startswith("time:"))):
        lay_out(exported, value, FORMATS if value == "step" else ("csv", "json"))
    lay_out(None, "step", ("csv", "json"), here)
    original = str(ground.put(ground.line.encode(), "kept.jsonl"))
    with suppress(MldynoError):  # two that can't be compared
        for comparison in api.compare(original, exported, anyway=True):
            sentence(comparison).encode()
            json.dumps(comparison_json(comparison), allow_nan=False)


def lay_out(target: str | None, value: str, forms: tuple[str, ...], store: Store | None = None) -> None:
    """The table of a value, in several formats; as JSON it is JSON."""
    table = api.table(target, value=value, store=store)
    for form in forms:
        text = render(table, form)
        text.encode()
        if form == "json":
            json.dumps(json.loads(text), allow_nan=False)


# -- mutations -----------------------------------------------------------------------------------


def places(content: Any, path: Path_ = ()) -> Iterator[Path_]:
    """All paths in JSON content, but only a few of each list, and none far below what a record has."""
    if path:
        yield path
    if len(path) > 5:
        return
    if isinstance(content, dict):
        for key, value in content.items():
            yield from places(value, (*path, key))
    elif isinstance(content, list):
        for number, value in enumerate(content[:3]):
            yield from places(value, (*path, number))


def nested(depth: int) -> Any:
    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    return nested


NUMBERS = (0, 1, -1, 2, 8, 2**31, 2**53, 2**63, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5, 1.0, -0.5, 1e-320, 1e300, 1e308)
TEXTS = ("", "x", "ok", "cpu", "s", "8", "NaN", "\ud800", "a\nb", "a\0b", "\x1b[31m", "é🜏", "x" * 400, "2026", "steady",
         "step_time", "loop_time", "mlp", "time:1steps", "interrupted", "a,b\"c", "train", "published")  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [1], {"x": 1}, [[]], nested(50), nested(900))
FACTS = ("steps", "items_per_step", "wall_time", "first_step", "flops_per_step", "item", "note", "new")

numbers = st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
anything = st.one_of(numbers, texts, st.sampled_from(OTHERS).map(copy.deepcopy))
facts = st.one_of(numbers, texts, st.sampled_from([None, True, False]))


def like(draw: st.DrawFn, old: Any) -> Any:
    """Another value of the same type."""
    if isinstance(old, bool) or old is None:
        return draw(st.sampled_from([True, False, None]))
    if isinstance(old, int | float):
        return draw(numbers)
    if isinstance(old, str):
        return draw(texts)
    if isinstance(old, list):
        return old * draw(st.integers(0, 3)) + draw(st.lists(numbers, max_size=2))
    return {**old, draw(texts): draw(anything)}


def mutate(draw: st.DrawFn, content: dict[str, Any]) -> None:
    """Change one thing at one place."""
    *way, last = draw(st.sampled_from(list(places(content))))
    part: Any = content
    for key in way:
        part = part[key]
    how = draw(st.sampled_from(["like", "like", "any", "delete"]))
    if how == "delete":
        del part[last]
    else:
        part[last] = like(draw, part[last]) if how == "like" else draw(anything)


def damage(draw: st.DrawFn, text: bytes) -> bytes:
    """Cut or change the bytes."""
    how = draw(st.sampled_from(["cut", "flip", "constant", "nest", "double"]))
    place = draw(st.integers(0, len(text) - 1))
    if how == "cut":
        return text[:place]
    if how == "flip":
        return text[:place] + bytes([text[place] ^ (1 << draw(st.integers(0, 7)))]) + text[place + 1 :]
    if how == "constant":
        word = draw(st.sampled_from([b"NaN", b"Infinity", b"-Infinity", b"1e999", b"[" * 100_000, b"9" * 5_000]))
        start = text.find(b":", place) + 1
        return text[:start] + word + text[start:].lstrip(b"-0123456789.e")
    return text + text if how == "double" else b"[" * 2_000 + text


@st.composite
def mutated_records(draw: st.DrawFn, line: str) -> bytes:
    """A record with some changes, most with the id that belongs to them, and some with broken text."""
    content = json.loads(line)
    if draw(st.booleans()):  # the other shapes that records have
        content |= {"status": "oom", "reason": "too large", "warnings": [{"code": "note", "message": "m", "hint": ""}]}
    for one in [one for one in content["series"][1:] if min(one["values"], default=0.0) > 0]:  # a time is never 0
        one["metric"] = draw(st.sampled_from([one["metric"], "step_time", "loop_time"]))
    if not draw(st.integers(0, 3)):
        values = draw(st.lists(numbers, min_size=1, max_size=3)) * draw(st.integers(1, 10))
        content["series"] = [{**one, "values": values} for one in content["series"]]
    for _ in range(draw(st.integers(0, 2))):
        content["facts"][draw(st.sampled_from(FACTS))] = draw(facts)
    for _ in range(draw(st.integers(0, 3))):
        mutate(draw, content)
    if draw(st.integers(0, 9)):
        content["id"] = content_id(content)
    text = json.dumps(content).encode()
    if not draw(st.integers(0, 4)):
        text = damage(draw, text)
    return text + b"\n"


@pytest.fixture(scope="module")
def figures() -> list[list[str]]:
    """The header and some figures of the table that ships with the product."""
    with PUBLISHED.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))
    return [rows[0], *rows[1::40]]


@st.composite
def mutated_figures(draw: st.DrawFn, rows: list[list[str]]) -> bytes:
    """A CSV of figures with some fields changed, or its text broken."""
    some = copy.deepcopy([rows[0], *draw(st.lists(st.sampled_from(rows[1:]), min_size=1, max_size=3))])
    for _ in range(draw(st.integers(1, 3))):
        row = draw(st.sampled_from(some[1:])) if draw(st.integers(0, 9)) else some[0]
        value = draw(anything)
        row[draw(st.integers(0, len(row) - 1))] = value if isinstance(value, str) else json.dumps(value)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(some)
    text = out.getvalue().encode(errors="surrogatepass")
    return text if draw(st.integers(0, 5)) else damage(draw, text)


HAZARDS: dict[str, dict[str, Any]] = {
    "steps in words": {"facts": {"steps": "many"}},
    "steps as a fraction": {"facts": {"steps": 0.5}},
    "a loop of no steps": {"facts": {"steps": 0}, "series": [{"metric": "loop_time", "unit": "s", "values": [1.0]}]},
    "a loop of yes steps": {
        "facts": {"steps": True},
        "series": [{"metric": "loop_time", "unit": "s", "values": [1.0]}],
    },
    "a step that takes no time": {"series": [{"metric": "step_time", "unit": "s", "values": [0.0] * 20}]},
    "steps that take for ever": {"series": [{"metric": "step_time", "unit": "s", "values": [1e308, 1e307] * 20}]},
    "steps that take nothing": {"series": [{"metric": "step_time", "unit": "s", "values": [5e-324] * 20}]},
    "a step time in bytes": {"series": [{"metric": "step_time", "unit": "B", "values": [1.0] * 20}]},
    "items in words": {"facts": {"items_per_step": "all", "flops_per_step": "many", "first_step": "slow"}},
    "no items": {"facts": {"items_per_step": 0, "flops_per_step": 0, "first_step": 0}},
    "negative facts": {"facts": {"items_per_step": -1, "flops_per_step": -1.0, "first_step": -1.0, "wall_time": -1}},
    "huge facts": {"facts": {"flops_per_step": 1e308, "first_step": 1e308, "wall_time": 1e308}},
    "whole numbers for samples": {"series": [{"metric": "step_time", "unit": "s", "values": [1, 2]}]},
    "no samples": {"series": [{"metric": "step_time", "unit": "s", "values": []}]},
    "nothing but what must be": {"series": [], "facts": {}, "software": {}, "checks": {}, "warnings": []},
    "a metric called as a value is": {"series": [{"metric": "throughput", "unit": "s", "values": [1.0]}]},
    "a metric of no name": {"series": [{"metric": "", "unit": "s", "values": [1.0]}]},
    "a metric of two lines": {"series": [{"metric": "a\nb", "unit": "s", "values": [1.0]}]},
    "markup": {"facts": {"note": "[red]x[/red]"}, "warnings": [{"code": "[b]", "message": "[/b]|\x1b[31m"}]},
    "a time without a zone": {"created": "2026-01-31"},
    "a far zone": {"created": "2026-01-31T12:00:00+23:59"},
    "an interrupted run": {"warnings": [{"code": "interrupted", "message": ""}]},
}


# -- the properties ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HAZARDS)
def test_an_odd_record_is_refused_or_sound(ground: Ground, name: str) -> None:
    content = {**json.loads(ground.line), **HAZARDS[name]}
    refused_or_sound(ground, json.dumps({**content, "id": content_id(content)}).encode() + b"\n", "jsonl")


def test_a_mutated_record_is_refused_or_sound(ground: Ground) -> None:
    @many_times
    @given(data=mutated_records(ground.line))
    def each(data: bytes) -> None:
        refused_or_sound(ground, data, "jsonl")

    ground.counts.clear()
    each()
    assert min(ground.counts["refused"], ground.counts["taken"]) >= 100, "both ways were tried"


def test_a_mutated_figure_is_refused_or_sound(ground: Ground, figures: list[list[str]]) -> None:
    @settings(many_times, max_examples=500)
    @given(data=mutated_figures(figures))
    def each(data: bytes) -> None:
        refused_or_sound(ground, data, "csv")

    ground.counts.clear()
    each()
    assert min(ground.counts["refused"], ground.counts["taken"]) >= 50, "both ways were tried"


def refusal_of(text: str) -> str:
    """Why the decoder refuses a text; empty where it takes it."""
    try:
        decode(text)
    except BadRecord as error:
        return str(error)
    return ""


def test_the_decoder_and_the_json_schema_agree_on_shape(ground: Ground) -> None:
    whole = json.loads(ground.line)
    VALIDATOR.validate(whole)
    verdicts: Counter[str] = Counter()
    old = list(places(whole))
    new = [(*place[:-1], "strange") for place in old if isinstance(place[-1], str)]

    @many_times
    @given(place=st.sampled_from([*old, *dict.fromkeys(new)]), value=anything)
    def each(place: Path_, value: Any) -> None:
        content = copy.deepcopy(whole)
        part: Any = content
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value
        content["id"] = content_id(content)
        fits = VALIDATOR.is_valid(content)
        refusal = refusal_of(json.dumps(content))
        verdicts["refused" if refusal else "taken"] += 1
        by_shape = any(words in refusal for words in ("Expected `", "Invalid enum", "Object missing", "unknown key"))
        whole_float = isinstance(value, float) and value.is_integer()  # an integer to the schema, not to us
        assert fits or refusal, "what the schema refuses, the decoder refuses"
        assert not (fits and by_shape) or whole_float, refusal

    each()
    assert min(verdicts["refused"], verdicts["taken"]) >= 100, "both ways were tried"
