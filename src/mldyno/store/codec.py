"""Text to checked records. The dataclasses are the one definition of the format: the decoder and the
shipped JSON Schema are both made from them.

Rules: a text is upgraded by its schema's number, before it is decoded; a record keeps the text that it
came as, and is passed on as that text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec

from mldyno.axes import AXES, LARGEST_WHOLE
from mldyno.errors import MldynoError
from mldyno.metrics import METRICS
from mldyno.records import (
    BESIDE_THE_CONTENT,
    MACHINE_KEY,
    SCHEMA,
    Case,
    Checks,
    Device,
    Machine,
    Record,
    Run,
    Series,
    Software,
    Warning_,
    text_if_whole,
    upgrade,
)

_KEYS: dict[type, set[str]] = {kind: {field.name for field in fields(kind)} for kind in
         (Record, Run, Case, Series, Machine, Device, Software, Checks, Warning_)}  # fmt: skip
_KEYS[Record] -= set(BESIDE_THE_CONTENT)


TIMES = tuple(metric.name for metric in METRICS if metric.over_zero)
NUMBERS = ("version", *(axis.name for axis in AXES if axis.number))
SMALLEST, LARGEST = 1e-30, 1e30  # what a number in a record may be, so that ratios stay finite


class BadRecord(MldynoError):
    """A text that is not a record; the message says where and why."""


def _no_constant(word: str) -> float:
    raise BadRecord(f"{word} is not a number that JSON has; leave the value out instead")


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > LARGEST_WHOLE:
        raise BadRecord(f"{text[:20]}… is a whole number beyond 2^53, which not every reader keeps exact")
    return int(text)


_json = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer)


def parse(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a text: strict, finite, not nested without end."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        content = _json.decode(text)
    except RecursionError:
        raise BadRecord("nested too deeply") from None
    except UnicodeDecodeError:
        raise BadRecord("not UTF-8 text") from None
    except ValueError as error:
        raise BadRecord(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadRecord("a record is a JSON object, this is not")
    if "\\u" in text:
        _check_unicode(content)
    return content


def _check_unicode(content: dict[str, Any]) -> None:
    """Escapes can spell half a surrogate pair, which no file and no terminal takes."""
    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise BadRecord("text with half a surrogate pair, which is not Unicode") from None
    except RecursionError:
        raise BadRecord("nested too deeply") from None


def decode(text: str | bytes) -> Record:
    """A checked record from a text of any known schema; the id must be the hash of the text it was written as.

    A text of the same content in another spelling, with spaces or keys in another order, is that record too. It
    is kept as it was written at first, which the id proves.
    """
    content = parse(text)
    if "schema" not in content:
        raise BadRecord("this is JSON, but no record of mldyno; name a file that `mldyno export` wrote")
    try:
        upgraded = upgrade(content)
        written = text_if_whole(content)
        if written is None:
            raise BadRecord("its id is not the hash of its content: it was changed after it was recorded")
        return _written_as(written, to_record(upgraded))
    except BadRecord:
        raise
    except RecursionError:
        raise BadRecord("nested too deeply") from None
    except (MldynoError, ValueError, OverflowError) as error:
        raise BadRecord(str(error)) from None


def _written_as(text: str, record: Record) -> Record:
    """The record, just decoded, with its text; a copy would take as long as the half of decoding."""
    object.__setattr__(record, "text", text)
    return record


def came_from(record: Record, file: str) -> Record:
    """The record, just decoded, with the file by which it came in; empty where it was measured."""
    object.__setattr__(record, "imported_from", file)
    return record


def to_record(content: Mapping[str, Any]) -> Record:
    """Content of today's schema, checked by type, key and range."""
    try:
        record = msgspec.convert(content, Record, strict=True)
    except msgspec.ValidationError as error:
        raise BadRecord(str(error)) from None
    _check_keys(content)
    check(record)
    return record


def _check_keys(content: Mapping[str, Any]) -> None:
    machine = content["machine"]
    parts = [(Record, content), (Run, content["run"]), (Case, content["case"]), (Machine, machine)]
    parts += [(Software, content.get("software", {})), (Checks, content.get("checks", {}))]
    parts += [(Series, part) for part in content.get("series", ())]
    parts += [(Device, part) for part in machine.get("devices", ())]
    parts += [(Warning_, part) for part in content.get("warnings", ())]
    for kind, part in parts:
        if not part.keys() <= _KEYS[kind]:
            strange = ", ".join(sorted(map(str, part.keys() - _KEYS[kind])))
            raise BadRecord(f"unknown key in {kind.__name__.strip('_').lower()}: {strange}")


def check(record: Record) -> None:
    """Raise unless every number and name of a record is in its range."""
    case, run = record.case, record.run
    numbers = [getattr(case, name) for name in NUMBERS]
    if any(n is not None and not 0 < n < LARGEST_WHOLE for n in numbers):
        raise BadRecord(f"{', '.join(NUMBERS[:-1])} and {NUMBERS[-1]} must be whole numbers over 0")
    if min(run.repeat, run.process, run.group) < 0:
        raise BadRecord("run.repeat, run.process and run.group must not be negative")
    for series in record.series:
        if not 0 < series.block < LARGEST_WHOLE:
            raise BadRecord("a series' block must be a whole number over 0")
        lowest = SMALLEST if series.metric in TIMES else 0.0
        if series.values and not (min(series.values) >= lowest and max(series.values) <= LARGEST):
            raise BadRecord(
                f"a value of {series.metric} is out of range: the time of a step is over 0, nothing is negative"
            )
    _check_facts(record.facts)
    for device in record.machine.devices:
        _check_range(device.facts, "a device's fact")
    if record.machine.key is not None and not MACHINE_KEY.fullmatch(record.machine.key):
        raise BadRecord("a machine's key must be 32 hexadecimal digits, or be left out")
    words = [value for value in vars(case).values() if isinstance(value, str)]
    for text in (*words, record.machine.name, run.id):
        if not text or len(text) > 300 or not text.isprintable():
            raise BadRecord("names must be printable text of 1 to 300 characters")
    try:
        if not record.created.isprintable():
            raise ValueError
        datetime.fromisoformat(record.created.replace("Z", "+00:00"))
    except ValueError:
        raise BadRecord(f"created '{record.created[:40]}' is not a time such as 2026-01-31T12:00:00Z") from None


def _check_facts(facts: Mapping[str, Any]) -> None:
    for fact, least in (("steps", 0), ("items_per_step", 1), ("block_steps", 1)):
        number = facts.get(fact, least)
        if type(number) is not int or number < least:
            raise BadRecord(f"fact {fact} must be a whole number of {least} or more")
    _check_range(facts, "fact")


def _check_range(facts: Mapping[str, Any], kind: str) -> None:
    for fact, number in facts.items():
        if isinstance(number, float) and number and not SMALLEST <= abs(number) <= LARGEST:
            raise BadRecord(f"{kind} {fact} is out of range")


class _Schema(msgspec.Struct):
    """The one key that says how to read the others."""

    schema: int


_schema_decoder = msgspec.json.Decoder(_Schema)
_decoder = msgspec.json.Decoder(Record, strict=True)


def decode_stored(text: str) -> Record:
    """A record from the store: checked when it went in, so only its shape is read here."""
    if _schema_decoder.decode(text).schema == SCHEMA:
        return _written_as(text, _decoder.decode(text))
    return _written_as(text, msgspec.convert(upgrade(msgspec.json.decode(text)), Record, strict=True))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a record, made from the dataclasses; unknown keys are refused, as on import."""
    schema = msgspec.json.schema(Record)
    for name in BESIDE_THE_CONTENT:
        del schema["$defs"]["Record"]["properties"][name]
    for part in schema["$defs"].values():
        part["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "mldyno record", **schema}
