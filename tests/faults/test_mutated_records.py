"""Damaged files: each is refused in one line, or what it holds can be shown. Strange records are in tests/fuzz."""

from __future__ import annotations

import copy
import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.hunt import as_a_test, at_fault

from mldyno.errors import ImportFileError
from mldyno.records import Record, content_id
from mldyno.store import transfer
from mldyno.store.codec import BadRecord, decode, json_schema
from mldyno.store.figures import PUBLISHED_FILE as PUBLISHED

many_times = settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
Path_ = tuple[str | int, ...]
MOST_SHOWN = 100  # records of those that were taken


# -- what becomes of a file ----------------------------------------------------------------------


def read_or_refused(path: Path, data: bytes, counts: Counter[str]) -> list[Record]:
    """The records of a file with that content; none where it is refused, which is one line that can be shown."""
    path.write_bytes(data)
    try:
        records = list(transfer.read(str(path)))
    except ImportFileError as error:
        counts["refused"] += 1
        reason = str(error)
        assert reason.startswith(f"{path}: ")
        assert reason.isprintable(), "one line, without control characters"
        return []
    counts["taken"] += 1
    return records


def can_be_shown(records: list[Record], folder: Path) -> None:
    """All that is done with records works with these."""
    texts = list(dict.fromkeys(record.text for record in records))
    with as_a_test():
        assert at_fault(texts[:MOST_SHOWN], folder) is None


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

numbers = st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
anything = st.one_of(numbers, texts, st.sampled_from(OTHERS).map(copy.deepcopy))


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
def damaged_records(draw: st.DrawFn, line: str) -> bytes:
    """A record with a value that is of any type, or with broken text."""
    content = json.loads(line)
    *way, last = draw(st.sampled_from(list(places(content))))
    part: Any = content
    for key in way:
        part = part[key]
    part[last] = draw(anything)
    text = json.dumps({**content, "id": content_id(content)}).encode()
    return (damage(draw, text) if draw(st.booleans()) else text) + b"\n"


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


# -- the properties ------------------------------------------------------------------------------


def test_a_damaged_record_is_refused_or_shown(a_line: str, tmp_path: Path) -> None:
    records, counts = list[Record](), Counter[str]()

    @settings(many_times, max_examples=350)
    @given(data=damaged_records(a_line))
    def each(data: bytes) -> None:
        records.extend(read_or_refused(tmp_path / "damaged.jsonl", data, counts))

    each()
    assert min(counts["refused"], counts["taken"]) >= 15, "both ways were tried"
    can_be_shown(records, tmp_path)


def test_a_mutated_figure_is_refused_or_shown(figures: list[list[str]], tmp_path: Path) -> None:
    records, counts = list[Record](), Counter[str]()

    @settings(many_times, max_examples=500)
    @given(data=mutated_figures(figures))
    def each(data: bytes) -> None:
        records.extend(read_or_refused(tmp_path / "mutated.csv", data, counts))

    each()
    assert min(counts["refused"], counts["taken"]) >= 50, "both ways were tried"
    can_be_shown(records, tmp_path)


def refusal_of(text: str) -> str:
    """Why the decoder refuses a text; empty where it takes it."""
    try:
        decode(text)
    except BadRecord as error:
        return str(error)
    return ""


def test_the_decoder_and_the_json_schema_agree_on_shape(a_line: str) -> None:
    whole = json.loads(a_line)
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
