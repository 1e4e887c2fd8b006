"""Decode text into checked records. The dataclasses are the one definition of the format: the decoder and the shipped
JSON Schema are both made from them.

Rules: a text is upgraded by the number of its schema before it is decoded; a record keeps its text and is passed on as
that text, while its fields hold printable text only.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from mldyno import records
from mldyno.axes import AXES, INTERPRETER_NAME, LARGEST_WHOLE
from mldyno.errors import MldynoError
from mldyno.metrics import DEVICE_FACTS, FACTS, LARGEST, METRICS, SMALLEST, flaws
from mldyno.printable import LONGEST_NAME, LONGEST_TEXT, printable_content
from mldyno.records import MACHINE_KEY, NOT_HASHED, SCHEMA, Proof, Record, Series, text_if_whole, upgrade
from mldyno.sources import remember

TIMES = tuple(metric.name for metric in METRICS if metric.over_zero)
LEAST = {"version": 1, **{axis.name: axis.least for axis in AXES if axis.number}}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:$|T[0-9]{2}:[0-9]{2}[0-9:.Z+-]*$)")
_ESCAPES = re.compile(r"\\(?:u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4})*|.)")


class BadRecord(MldynoError):
    """A text that is not a record; the message says where and why."""


def _refuse_constant(word: str) -> float:
    raise BadRecord(f"{word} is not a number that JSON has; leave the value out instead")


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > LARGEST_WHOLE:
        raise BadRecord(f"{text[:20]}… is a whole number beyond 2^53, which not every reader keeps exact")
    return int(text)


_json = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_integer)


def parse(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text: strict, with finite numbers, not nested without end."""
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
    if "\\u" in text:  # which can spell half a surrogate pair; no file or terminal takes it
        try:
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise BadRecord("text with half a surrogate pair, which is not Unicode") from None
        except RecursionError:
            raise BadRecord("nested too deeply") from None
    return content


def decode(text: str | bytes) -> Record:
    """Return the checked record of a text of any known schema; the id must be the hash of the text it was written as.

    The same content in another spelling, with spaces or another order of keys, is that record too, and is stored as it
    was first written, which the id proves.
    """
    content = parse(text)
    if "schema" not in content:
        raise BadRecord("this is JSON, but no record of mldyno; name a file that `mldyno export` wrote")
    try:
        upgraded = upgrade(content)
        written = text_if_whole(content)
        if written is None:
            raise BadRecord("its id is not the hash of its content: it was changed after it was recorded")
        record = msgspec.convert(upgraded, Record, strict=True)
        _check_keys(upgraded)
        check(record)
        return _written_as(written, record)
    except BadRecord:
        raise
    except RecursionError:
        raise BadRecord("nested too deeply") from None
    except (MldynoError, ValueError, OverflowError) as error:
        raise BadRecord(str(error)) from None


def _written_as(text: str, record: Record) -> Record:
    """Give a decoded record its text; copy it only where it holds text that is not printable, since copying is slow."""
    # within JSON in ASCII, only an escape can spell what is not printable
    printable = text.isascii() and ("\\" not in text or all(map(_spells_printable, set(_ESCAPES.findall(text)))))
    if not printable:
        record = msgspec.convert(printable_content(msgspec.to_builtins(record)), type(record))
    object.__setattr__(record, "text", text)
    if record.case.own_command and (command := record.fact("command")):
        remember(record.case.workload, command)
    return record


@lru_cache(maxsize=1000)
def _spells_printable(escape: str) -> bool:
    return str(json.loads(f'"{escape}"')).isprintable()


def with_origin(record: Record, file: str, proof: Proof = "") -> Record:
    """Note on a record that was just decoded the file that it came from, empty if measured, and its proof."""
    object.__setattr__(record, "imported_from", file)
    object.__setattr__(record, "proof", proof)
    return record


def _check_keys(content: Mapping[str, Any]) -> None:
    machine = content["machine"]
    parts = {
        Record: [content], records.Run: [content["run"]], records.Case: [content["case"]], records.Machine: [machine],
        records.Software: [content.get("software", {})], records.Checks: [content.get("checks", {})],
        Series: content.get("series", ()), records.Device: machine.get("devices", ()),
        records.Warning_: content.get("warnings", ()),
    }  # fmt: skip
    for kind, contents in parts.items():
        known = {field.name for field in fields(kind)} - set(NOT_HASHED if kind is Record else ())
        for strange in (part.keys() - known for part in contents if not part.keys() <= known):
            names = ", ".join(sorted(map(str, strange)))
            raise BadRecord(f"unknown key in {kind.__name__.strip('_').lower()}: {names}")


def check(record: Record) -> None:
    """Raise unless every number and name of a record is in its range."""
    case, run = record.case, record.run
    for name, least in LEAST.items():
        number = getattr(case, name)
        if number is not None and not least <= number < LARGEST_WHOLE:
            raise BadRecord(f"{name} must be a whole number from {least} on")
    if min(run.repeat, run.process, run.group) < 0:
        raise BadRecord("run.repeat, run.process and run.group must not be negative")
    for wrong in chain(
        filter(None, map(flaw_of_series, record.series)),
        (f"fact {name} {wrong}" for name, wrong in flaws(FACTS, record.facts).items()),
        (f"a device's fact {name} {wrong}" for device in record.machine.devices
         for name, wrong in flaws(DEVICE_FACTS, device.facts).items()),
    ):  # fmt: skip
        raise BadRecord(wrong)
    if case.python is not None and not INTERPRETER_NAME.fullmatch(case.python):
        raise BadRecord("python must be the name of an interpreter, such as 3.11.7+jax0.10.2")
    if record.machine.key is not None and not MACHINE_KEY.fullmatch(record.machine.key):
        raise BadRecord("a machine's key must be 32 hexadecimal digits, or be left out")
    words = [value for value in vars(case).values() if isinstance(value, str)]
    for text in (*words, record.machine.name, run.id):
        if not text or len(text) > LONGEST_NAME or not text.isprintable():
            raise BadRecord(f"names must be printable text of 1 to {LONGEST_NAME} characters")
    if max(map(len, _texts(record))) > LONGEST_TEXT:
        raise BadRecord(f"a text is longer than {LONGEST_TEXT:,} characters")
    try:
        if not _DATE.match(record.created):  # texts of one form, so that the later one is the greater one
            raise ValueError
        datetime.fromisoformat(record.created.replace("Z", "+00:00"))
    except ValueError:
        raise BadRecord(f"created '{record.created[:40]}' is not a time such as 2026-01-31T12:00:00Z") from None


def _texts(record: Record) -> Iterator[str]:
    """Yield texts that are neither names nor facts."""
    machine, software = record.machine, record.software
    yield from (record.reason, record.run.suite or "", machine.system, machine.release, machine.arch, machine.cpu,
                machine.power, software.mldyno, software.python, software.framework)  # fmt: skip
    for texts in (software.versions, software.env):
        yield from (*texts, *texts.values())
    for device in machine.devices:
        yield from (device.name, device.framework, device.title)
    for warning in record.warnings:
        yield from (warning.code, warning.message, warning.hint)


def flaw_of_series(series: Series) -> str:
    """Return what is wrong with a series; empty if nothing is."""
    if not 0 < series.block < LARGEST_WHOLE:
        return "a series' block must be a whole number over 0"
    if len(series.metric) > LONGEST_NAME or len(series.stage) > LONGEST_NAME:
        return f"the name of a metric is longer than {LONGEST_NAME} characters"
    lowest = SMALLEST if series.metric in TIMES else 0.0
    if series.values and not (min(series.values) >= lowest and max(series.values) <= LARGEST):
        return f"a value of {series.metric} is out of range: the time of a step is over 0, nothing is negative"
    return ""


class _Schema(msgspec.Struct):
    """The one key that says how to read the others."""

    schema: int


_schema_decoder = msgspec.json.Decoder(_Schema)
_decoder = msgspec.json.Decoder(Record, strict=True)


def decode_stored(text: str) -> Record:
    """Return a stored record: it was checked when it was stored, so only its shape is read."""
    if _schema_decoder.decode(text).schema == SCHEMA:
        return _written_as(text, _decoder.decode(text))
    return _written_as(text, msgspec.convert(upgrade(msgspec.json.decode(text)), Record, strict=True))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record, made from the dataclasses; it refuses unknown keys, as import does."""
    schema = msgspec.json.schema(Record)
    for name in NOT_HASHED:
        del schema["$defs"]["Record"]["properties"][name]
    for part in schema["$defs"].values():
        part["additionalProperties"] = False
        part["description"] = inspect.cleandoc(part["description"])  # which Python does itself from 3.13 on
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "mldyno record", **schema}
