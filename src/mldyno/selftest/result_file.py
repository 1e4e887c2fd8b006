"""The self-test's result as a file that can be sent on: what was measured, on what, and what it comes to.

It holds no name of the host or the user, and nothing that tells one card from another of its kind. Its shape has a
number of its own (`schema`), and is in the reference.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mldyno import __version__
from mldyno.errors import MldynoError
from mldyno.records import Machine
from mldyno.selftest.measures import Measure
from mldyno.store import transfer
from mldyno.units import show_percent

SCHEMA = 1
KIND = "mldyno selftest"
OF_ONE_CARD = ("uuid", "pci_bus")  # facts that say which card it is, not what it is


def check_place(path: str) -> None:
    """Raise where no file could be written there: it is told before anything is measured."""
    target = Path(path)
    if target.is_dir():
        raise MldynoError(f"{path}: this is a folder; name a file in it.")
    if target.exists() and not target.is_file():  # a device or a pipe is written into
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
    """The result as data."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "mldyno": __version__,
        "device": device,
        "framework": framework,
        "quick": quick,
        "seconds": round(seconds, 1),
        "machine": asdict(_nameless(machine)),
        "software": dict(software),
        "measures": [asdict(measure) for measure in measures],
        "findings": findings(measures),
    }


def _nameless(machine: Machine) -> Machine:
    """The machine without what tells it and its cards from others of their kind."""
    devices = []
    for device in machine.devices:
        facts = {name: fact for name, fact in device.facts.items() if name not in OF_ONE_CARD}
        devices.append(replace(device, facts=facts))
    return replace(machine, devices=tuple(devices), key=None)


def findings(measures: Sequence[Measure]) -> list[dict[str, Any]]:
    """What did not hold, in words."""
    return [
        {"measure": measure.id, "finding": _finding(measure), "why": measure.note}
        for measure in measures
        if measure.ok is False
    ]


def _finding(measure: Measure) -> str:
    if not measure.n:
        return f"{measure.name}: nothing was measured"
    value = show_percent(measure.value) if measure.unit == "share" else f"{measure.value:.4g}"
    return f"{measure.name}: {value}, the target is {measure.target}"


def write(path: str, content: Mapping[str, Any]) -> None:
    """Write the result; the file appears in its place only when it is complete."""
    text = json.dumps(_finite(content), indent=1, allow_nan=False)
    for home in {str(Path.home()), os.path.realpath(Path.home())}:
        if len(home) > 1:  # what a framework says may name files
            text = text.replace(json.dumps(home)[1:-1], "~")
    transfer.write([text], path, "jsonl")


def _finite(value: Any) -> Any:
    """Data with null for what JSON has no number for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
