"""The result of the self-test as a file to pass on: the measures, the machine, and what missed its target.

It holds no name of the host or the user, and nothing that identifies a card. Its shape has a version (`schema`), and is
in the reference.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from mldyno import __version__
from mldyno.errors import MldynoError
from mldyno.records import Machine
from mldyno.selftest.measures import Measure
from mldyno.store import transfer
from mldyno.units import show_percent

SCHEMA = 1
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


def document(
    measures: Sequence[Measure], device: str, framework: str, quick: bool, seconds: float, machine: Machine,
    software: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return the result as data, without what identifies the machine and its cards."""
    nameless = tuple(
        replace(each, facts={name: fact for name, fact in each.facts.items() if name not in IDENTIFYING_FACTS})
        for each in machine.devices
    )
    return {
        "schema": SCHEMA, "kind": KIND,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "mldyno": __version__, "device": device, "framework": framework, "quick": quick, "seconds": round(seconds, 1),
        "machine": asdict(replace(machine, devices=nameless, key=None)), "software": dict(software),
        "measures": [asdict(measure) for measure in measures], "findings": findings(measures),
    }  # fmt: skip


def findings(measures: Sequence[Measure]) -> list[dict[str, Any]]:
    """Return the measures that missed their target, in words."""
    missed = []
    for measure in measures:
        if measure.ok is False:
            value = show_percent(measure.value) if measure.unit == "share" else f"{measure.value:.4g}"
            result = f"{value}, the target is {measure.target}" if measure.n else "nothing was measured"
            missed.append({"measure": measure.id, "finding": f"{measure.name}: {result}", "why": measure.note})
    return missed


def write(path: str, content: Mapping[str, Any]) -> None:
    """Write the result, with null for infinite numbers; the file appears only when it is complete."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=1).decode()
    for home in {str(Path.home()), os.path.realpath(Path.home())}:
        if len(home) > 1:  # messages of a framework may name files
            text = text.replace(msgspec.json.encode(home).decode()[1:-1], "~")
    transfer.write([text], path, "jsonl")
