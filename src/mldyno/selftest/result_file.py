"""The result of the self-test as a file to pass on: the measures, the machine, and what missed its target.

It holds no name of the host or the user, and nothing that identifies a card. Its shape has a version (`schema`), and is
in the reference. A file that is read comes from a stranger: its size is bounded, its texts are made printable, and it
starts nothing.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from mldyno import __version__
from mldyno.errors import MldynoError
from mldyno.files import regular
from mldyno.metrics import DEVICE_FACTS, flaw
from mldyno.printable import printable_content
from mldyno.records import Machine
from mldyno.selftest.measures import Measure, Process
from mldyno.store import transfer
from mldyno.units import show_bytes, show_percent

SCHEMA = 2
LONGEST_FILE, MOST_MEASURES, MOST_ROWS = 4 << 20, 500, 500  # B, and raw rows of a measure, that are read
STATUSES = ("failed: ", "oom: ", "unsupported: ", "timeout: ", "no answer for ")  # how a failure begins
KIND = "mldyno selftest"
IDENTIFYING_FACTS = ("uuid", "pci_bus")  # of one card


def check_place(path: str) -> None:
    """Raise if no file can be written there, before anything is measured."""
    target = Path(path)
    if target.is_dir():
        raise MldynoError(f"{path}: this is a folder; name a file in it.")
    if target.exists() and not target.is_file():  # a device or a pipe
        return
    try:
        descriptor, name = tempfile.mkstemp(dir=target.resolve().parent, suffix=".part")
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        reason = error.strerror or error
        raise MldynoError(
            f"{path}: {reason}; nothing was measured. Name a file in a folder that you can write to."
        ) from None


class Installed(TypedDict):
    """The version of Python; of each framework its versions, threads, environment, and why it can't be started."""

    python: str
    frameworks: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class SelftestResult:
    """A result of the self-test: what was tested and where, the measures, the processes."""

    device: str
    frameworks: tuple[str, ...]
    quick: bool
    seconds: float
    machine: Machine
    software: Installed
    measures: tuple[Measure, ...]
    processes: tuple[Process, ...] = ()
    created: str = ""
    mldyno: str = __version__
    complete: bool = True  # whether it was not interrupted


def document(tested: SelftestResult) -> dict[str, Any]:
    """Return the result as data, without what identifies the machine and its cards."""
    nameless = tuple(
        replace(each, facts={name: fact for name, fact in each.facts.items() if name not in IDENTIFYING_FACTS})
        for each in tested.machine.devices
    )
    return {
        "schema": SCHEMA, "kind": KIND, **asdict(replace(
            tested, machine=replace(tested.machine, devices=nameless, key=None), seconds=round(tested.seconds, 1),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )),
        "findings": findings(tested.measures),
    }  # fmt: skip


def findings(measures: Sequence[Measure]) -> list[dict[str, Any]]:
    """Return the measures that missed their target, in words."""
    missed = []
    for measure in measures:
        if measure.ok is False:
            value = show_percent(measure.value) if measure.unit == "share" else f"{measure.value:.4g}"
            result = f"{value}, the target is {measure.target}" if measure.n else "nothing was measured"
            finding = f"{measure.name}: {result}"
            missed.append(
                {"measure": measure.id, "framework": measure.framework, "finding": finding, "why": measure.note}
            )
    return missed


def write(path: str, content: Mapping[str, Any]) -> None:
    """Write the result, with null for infinite numbers; the file appears only when it is complete."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=1).decode()
    for home in {str(Path.home()), os.path.realpath(Path.home())}:
        if len(home) > 1:  # messages of a framework may name files
            text = text.replace(msgspec.json.encode(home).decode()[1:-1], "~")
    transfer.write([text], path, "jsonl")


def read(path: str) -> SelftestResult:
    """Read a result of this schema or an earlier one; raise if it is no such file."""
    try:
        with open(path, "rb", opener=regular) as source:
            data = source.read(LONGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise MldynoError(
            f"{path}: {getattr(error, 'strerror', None) or error}; name a result of the self-test."
        ) from None
    if len(data) > LONGEST_FILE:
        raise MldynoError(f"{path}: it is longer than {show_bytes(LONGEST_FILE)}; no result of the self-test is.")
    try:
        content = printable_content(msgspec.json.decode(data))
        schema = content["schema"] if content.get("kind") == KIND else None
        if schema not in (*range(1, SCHEMA + 1), None) and type(schema) is int and schema > SCHEMA:
            raise MldynoError(f"{path}: it was written by a newer mldyno ({content['mldyno']}); update this one.")
        if schema == 1:
            content = _from_schema_1(content)
        del content["measures"][MOST_MEASURES:]
        for measure in content["measures"]:
            measure["value"] = math.inf if measure["value"] is None else measure["value"]
            del measure["raw"][MOST_ROWS:]
        result = msgspec.convert(content, SelftestResult)
    except (msgspec.MsgspecError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise MldynoError(f"{path}: this is no result of `mldyno selftest --export`.") from None
    sound = tuple(
        replace(each, facts={name: fact for name, fact in each.facts.items() if not flaw(DEVICE_FACTS, name, fact)})
        for each in result.machine.devices
    )
    return replace(result, machine=replace(result.machine, devices=sound))


def _from_schema_1(content: dict[str, Any]) -> dict[str, Any]:
    """Return a content with the frameworks and failures that schema 2 has."""
    framework, software = content["framework"], content["software"]
    for measure in content["measures"]:
        failed = measure["ok"] is False and measure["note"].startswith(STATUSES)
        measure |= {"framework": framework, "failure": measure["note"] if failed else ""}
    versions = {"versions": software["versions"], "threads": software["threads"]}
    software = {"python": software["python"], "frameworks": {framework: versions}}
    return {**content, "frameworks": [framework], "software": software}
