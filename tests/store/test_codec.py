"""A text is read by its schema's number, whatever schema it is of, and passed on as it was written."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mldyno import api, records
from mldyno.errors import ImportFileError, StoreError
from mldyno.records import SCHEMA, Device, Machine, Record, Run, Series, Software, Warning_, canonical, content_id, seal
from mldyno.results import Results
from mldyno.store import Query, Store, codec, transfer
from mldyno.store.codec import BadRecord, decode, decode_stored
from mldyno.store.query import latest

FakeRun = Callable[..., Results]
ALL = Query(heads=False)
OF_1 = (Path(__file__).parent.parent / "history" / "0.1" / "records.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("text", [OF_1[0], next(text for text in OF_1 if '"workers":2' in text)])
def test_a_record_of_schema_1_goes_all_ways_and_comes_out_byte_for_byte(
    text: str, store: Store, tmp_path: Path
) -> None:
    store.append([decode(text)])
    api.report(str(tmp_path / "report.html"), store=store)
    second = Store(tmp_path / "second.sqlite")
    assert api.import_([str(tmp_path / "report.html")], second) == (1, 1)
    assert api.export(str(tmp_path / "out.jsonl"), "jsonl", store=second) == 1
    assert (tmp_path / "out.jsonl").read_bytes() == text.encode() + b"\n"
    third = Store(tmp_path / "third.sqlite")
    third.append(transfer.read(str(tmp_path / "out.jsonl")))
    assert list(third.texts(ALL)) == [text]
    (shown,) = api.show(json.loads(text)["id"], third)
    assert shown.text == text


def test_every_text_that_is_passed_on_is_the_one_that_its_id_is_the_hash_of() -> None:
    for text in OF_1:
        record = decode(text)
        assert record.text == text
        assert record == decode_stored(text)
        bare = text.replace(f'"id":"{record.id}",', "", 1)
        assert records.content_id(json.loads(text)) == record.id == records._hash(bare)


SPELLINGS: dict[str, Callable[[dict[str, Any]], str]] = {
    "spaces": json.dumps,
    "other order": lambda content: json.dumps(dict(reversed(content.items())), separators=(",", ":")),
    "letters that are not ASCII": lambda content: json.dumps(content, ensure_ascii=False),
    "a key twice": lambda content: '{"reason":"another",' + canonical(content)[1:],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_another_spelling_of_a_record_is_kept_as_the_record_was_written(
    name: str, fake_run: FakeRun, tmp_path: Path
) -> None:
    (record, *_) = fake_run(mode="infer").records
    record = seal(replace(record, reason="µ, as it was written"))
    other = SPELLINGS[name](json.loads(record.text))
    assert other != record.text
    (tmp_path / "other.jsonl").write_text(f"  {other} \n", encoding="utf-8")
    store = Store(tmp_path / "new.sqlite")
    assert api.import_([str(tmp_path / "other.jsonl")], store) == (1, 1)
    assert list(store.texts(ALL)) == [record.text]
    assert list(store.stream(ALL)) == [record]


# -- texts -----------------------------------------------------------------------------------------

HOSTILE = "a\x1b[2J\x9b\0b\nc\u2028d\u202e\ue000\x7f"
SHOWN = "a�[2J��b c d���"


def with_text_everywhere(record: Record, text: str) -> Record:
    """A record that has a text wherever it may have any."""
    device = Device(text, text, text, facts={"driver": text, text: text})
    machine = Machine(record.machine.name, text, text, text, text, devices=(device,), power=text)
    return seal(replace(
        record, reason=text, machine=machine, run=replace(record.run, suite=text), facts={"note": text, text: text},
        software=Software(text, text, text, {text: text}, None, {text: text}), warnings=(Warning_(text, text, text),),
        series=(Series(text, "s", (1.0, 2.0), stage=text),),
    ))  # fmt: skip


@pytest.mark.parametrize("read", [decode, decode_stored])
def test_every_text_of_a_record_is_printable_and_it_stays_as_it_was_written(read: Callable[[str], Record]) -> None:
    hostile = with_text_everywhere(decode(OF_1[0]), HOSTILE)
    record = read(hostile.text)
    assert (record.id, record.text) == (hostile.id, hostile.text)
    assert record == replace(with_text_everywhere(decode(OF_1[0]), SHOWN), id=hostile.id)
    assert HOSTILE not in str(msgspec.to_builtins(replace(record, text="")))


@pytest.mark.parametrize("read", [decode, decode_stored])
@pytest.mark.parametrize("text", ["Intel® Core™ µ", "東京 🜏", 'quoted "a\\b"', "\\u001b"])
def test_a_text_that_can_be_shown_stays(text: str, read: Callable[[str], Record]) -> None:
    plain = with_text_everywhere(decode(OF_1[0]), text)
    assert read(plain.text) == plain


# -- a schema that is still to come --------------------------------------------------------------


@dataclass(frozen=True)
class NextRecord(Record):
    """A record with one more field, which was a fact before."""

    colour: str = "grey"


def to_next(content: dict[str, Any]) -> dict[str, Any]:
    facts = dict(content.get("facts", {}))
    return {**content, "schema": SCHEMA + 1, "colour": facts.pop("paint", "unpainted"), "facts": facts}


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product as it will be when a record has one field more."""
    for module in (records, codec):
        monkeypatch.setattr(module, "SCHEMA", SCHEMA + 1)
    monkeypatch.setattr("mldyno.store.sqlite.SCHEMA", SCHEMA + 1)
    monkeypatch.setitem(records.UPGRADES, SCHEMA, to_next)
    monkeypatch.setattr(codec, "Record", NextRecord)
    monkeypatch.setattr(codec, "_decoder", msgspec.json.Decoder(NextRecord, strict=True))


@pytest.fixture
def written_today(fake_run: FakeRun) -> list[Record]:
    plain, *_ = fake_run(mode="infer").records
    return [plain, seal(replace(plain, facts={**plain.facts, "paint": "red"}))]


def colours(read: list[Record]) -> list[str]:
    return [record.colour for record in read if isinstance(record, NextRecord)]


def test_a_next_schema_reads_all_before_it_and_changes_no_text_and_no_id(
    written_today: list[Record], store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store.append(written_today)
    store.append([decode(OF_1[0])])
    before = list(store.texts(ALL))
    store.close()
    request.getfixturevalue("next_schema")
    read = list(Store(store.path).stream(ALL))
    assert colours(read) == ["unpainted", "red", "unpainted"]
    assert [record.schema for record in read] == [SCHEMA + 1] * 3
    assert [record.text for record in read] == before
    assert "paint" not in read[1].facts
    api.export(str(tmp_path / "all.jsonl"), "jsonl", store=store)
    api.report(str(tmp_path / "report.html"), store=store)
    for name in ("all.jsonl", "report.html"):
        other = Store(tmp_path / f"{name}.sqlite")
        api.import_([str(tmp_path / name)], other)
        assert set(other.texts(ALL)) <= set(before)
        assert {record.id for record in other.stream(ALL)} <= {json.loads(text)["id"] for text in before}
    assert (tmp_path / "all.jsonl").read_text().splitlines() == before
    assert len({record.case.id for record in Store(store.path).stream(Query())}) == 2


def test_a_case_of_before_and_one_of_the_next_schema_are_the_same_case(
    written_today: list[Record], store: Store, request: pytest.FixtureRequest
) -> None:
    store.append(written_today)
    request.getfixturevalue("next_schema")
    then = {**vars(written_today[0]), "schema": SCHEMA + 1, "created": latest(), "colour": "blue"}
    later = seal(NextRecord(**{**then, "run": Run("later")}))
    store.append([later])
    assert colours(list(store.stream(Query()))) == ["blue"]
    assert store.history(Query({"mode": "infer"}, heads=False), 1)[0].id == later.id


def newer(record: Record) -> str:
    content = {**json.loads(record.text), "schema": SCHEMA + 1, "colour": "red"}
    return canonical({**content, "id": content_id(content)})


def test_a_file_of_a_newer_schema_is_told_apart_from_a_broken_and_from_a_foreign_one(
    written_today: list[Record], tmp_path: Path
) -> None:
    plain, good = written_today[0], written_today[0].text
    for text, reason in (
        (newer(plain), f"schema {SCHEMA + 1} is newer than this mldyno .schema {SCHEMA}.; update mldyno"),
        (newer(plain).replace('"id":"', '"id":"sha3-'), "is newer than this mldyno"),  # ids may be made otherwise
        (good[:-20], "not JSON"),
        (good.replace('"reason":""', '"reason":"x"'), "it was changed after it was recorded"),
        ('{"name":"some-package","version":"1.0"}', "this is JSON, but no record of mldyno; name a file that"),
    ):
        path = tmp_path / "some.jsonl"
        path.write_text(f"{good}\n{text}\n")
        with pytest.raises(ImportFileError, match=reason) as error:
            api.import_([str(path)], str(tmp_path / "new.sqlite"))
        assert str(error.value).startswith(f"{path}: line 2: ")
        assert "\n" not in str(error.value)


def test_a_report_of_a_newer_schema_is_told_apart(written_today: list[Record], store: Store, tmp_path: Path) -> None:
    packed = transfer.pack([newer(written_today[0])]).text
    (tmp_path / "report.html").write_text(f"<!doctype html>{transfer.TAG}{packed}{transfer.END}")
    with pytest.raises(ImportFileError, match=f"line 1: schema {SCHEMA + 1} is newer than this mldyno"):
        api.import_([str(tmp_path / "report.html")], store)


def test_a_store_that_a_newer_mldyno_has_written_into_is_told_apart_from_a_damaged_one(
    written_today: list[Record], store: Store
) -> None:
    plain = written_today[0]
    store.append([replace(plain, id="f" * 32, text=newer(plain))])
    with pytest.raises(StoreError, match=f"has written into it: schema {SCHEMA + 1} is newer .*; update mldyno"):
        list(store.stream(ALL))
    store.append([replace(plain, id="e" * 32, text=plain.text[:-20])])
    with pytest.raises(StoreError, match="the file is damaged"):
        store.select(Query(ids=("e" * 32,), heads=False))


def test_keys_of_two_schemas_at_once_are_refused() -> None:
    content = json.loads(OF_1[0])
    content["case"]["ranks"] = 4
    with pytest.raises(BadRecord, match="keys of two schemas"):
        decode(canonical({**content, "id": content_id(content)}))


ODD: tuple[Any, ...] = (None, 0, -1, 1.5, "", "x", [], {}, [1], {"a": 1}, True, [[]], [{}], {"round": 1, "repeat": 2})


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values within a record, of long lists to the first three."""
    if path:
        yield path
    keys = part if isinstance(part, dict) else range(min(3, len(part))) if isinstance(part, list) else ()
    for key in keys:
        yield from places(part[key], (*path, key))


def test_a_mutated_record_of_schema_1_is_refused_in_words_or_sound() -> None:
    chance = random.Random(1)
    refused = taken = 0
    for text in [*OF_1] * 5:
        content = json.loads(text)
        *way, last = chance.choice(list(places(content)))
        part = content
        for key in way:
            part = part[key]
        if isinstance(part, dict) and chance.random() < 0.3:
            last = chance.choice(["ranks", "stage", "repeat", "pairing", "peak_flops", "colour"])
        part[last] = chance.choice(ODD)
        try:
            record = decode(canonical({**content, "id": content_id(content)}))
        except BadRecord:
            refused += 1
        else:
            taken += 1
            assert decode_stored(record.text) == record
            assert record.case.id
    assert min(refused, taken) > 50, "both ways were tried"


@pytest.mark.parametrize("key", ["", "my laptop", "A" * 32, "0" * 31, "0" * 33, "0" * 31 + "\n"])
def test_a_machines_key_is_32_digits_or_not_there(key: str) -> None:
    record = decode(OF_1[0])
    content = json.loads(seal(replace(record, schema=SCHEMA, machine=replace(record.machine, key=key))).text)
    with pytest.raises(BadRecord, match="a machine's key must be 32 hexadecimal digits"):
        decode(json.dumps(content))


def test_a_record_of_schema_2_has_no_key() -> None:
    record = decode(OF_1[0])
    content = json.loads(seal(replace(record, schema=2, machine=replace(record.machine, key="0" * 32))).text)
    with pytest.raises(BadRecord, match="its machine has a key, which came with schema 3"):
        decode(json.dumps(content))
    del content["machine"]["key"]
    assert decode(json.dumps({**content, "id": content_id(content)})).machine.key is None
