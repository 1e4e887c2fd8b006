"""Series, Run, Device, Machine and Record: what is written, stored and read; with Case, which is in `axes`.

Rules: everything here is frozen and standard library only (a worker in any interpreter uses it);
quantities are in SI base units; raw samples are kept and every statistic is derived on reading;
a record is never changed, and its id is the hash of the text it was written as.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mldyno.axes import Case as Case  # noqa: PLC0414  # a part of a record, as Series is
from mldyno.errors import MldynoError
from mldyno.metrics import FACTS, flaw
from mldyno.metrics import Unit as Unit  # noqa: PLC0414
from mldyno.printable import printable

Status = Literal["ok", "oom", "timeout", "failed", "unsupported", "wrong", "unsteady"]
Provenance = Literal["measured", "imported", "published"]
Pairing = Literal["alone", "interleaved", "live-processes", "alternating-processes"]
Proof = Literal["", "signed", "own"]

Fact = float | int | str | bool | None

MACHINE_KEY = re.compile(r"[0-9a-f]{32}")
IMPORTED = " (imported)"  # behind the name of a machine whose records came from a file


@dataclass(frozen=True)
class Series:
    """Values of one metric in order; each is the mean over `block` steps of turn `turn`."""

    metric: str
    unit: Unit
    values: tuple[float, ...]
    stage: str = "steady"
    block: int = 1
    turn: int | None = None


@dataclass(frozen=True)
class Warning_:
    """One entry of the closed list of warnings, with what to do about it."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Run:
    """The run that a record comes from.

    `repeat` counts the fresh processes of the case, `process` all of the run. `pairing` says how the case was measured:
    alone; interleaved with other cases in one process; taking turns with other live processes; or alternating with
    other processes. Cases of one `group` were measured against each other.
    """

    id: str
    suite: str | None = None
    repeat: int = 0
    process: int = 0
    group: int = 0
    pairing: Pairing = "alone"


@dataclass(frozen=True)
class Device:
    """A device that a framework can use: its vendor's name for it, its memory in B, and other facts."""

    name: str
    framework: str
    title: str = "unknown"
    memory: int | None = None
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """A machine; unknown words are 'unknown', unknown numbers None."""

    name: str
    system: str = "unknown"
    release: str = "unknown"
    arch: str = "unknown"
    cpu: str = "unknown"
    cores: int | None = None
    memory: int | None = None
    devices: tuple[Device, ...] = ()
    power: str = "unknown"
    virtualised: bool | None = None
    low_power: bool | None = None
    key: str | None = None
    """The fingerprint of its public key: machines of the same name differ in it. None if no key could be stored."""


@dataclass(frozen=True)
class Software:
    """The software of a measurement: interpreter, framework, versions, threads, and settings that affect speed."""

    mldyno: str = "unknown"
    python: str = "unknown"
    framework: str = "unknown"
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    env: dict[str, str] = field(default_factory=dict)


RECORDED_ENVIRONMENT = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "KMP_BLOCKTIME", "GOMP_SPINCOUNT",
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "LD_PRELOAD", "MALLOC_CONF",
    "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_ARENA_MAX",
    "GLIBC_TUNABLES", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "VECLIB_MAXIMUM_THREADS",
    "CUDA_DEVICE_ORDER", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR", "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_MPS_LOW_WATERMARK_RATIO",
    "PYTORCH_MPS_FAST_MATH", "PYTORCH_MPS_PREFER_METAL", "MLX_ENABLE_TF32",
)  # fmt: skip
"""Environment variables that affect the time of a step."""


def recorded_environment() -> dict[str, str]:
    """Return the environment variables of this process that a record keeps."""
    return {name: printable(os.environ[name]) for name in RECORDED_ENVIRONMENT if name in os.environ}


@dataclass(frozen=True)
class Checks:
    """Checks of the work: None where a check does not apply to the case."""

    learned: bool | None = None
    agrees: bool | None = None
    error: float | None = None


@dataclass(frozen=True)
class Record:
    """One case measured in one process, or one published figure: immutable, self-describing."""

    schema: int
    id: str
    created: str
    provenance: Provenance
    run: Run
    case: Case
    status: Status
    reason: str
    machine: Machine
    software: Software = field(default_factory=Software)
    series: tuple[Series, ...] = ()
    facts: dict[str, Fact] = field(default_factory=dict)
    checks: Checks = field(default_factory=Checks)
    warnings: tuple[Warning_, ...] = ()
    text: str = field(default="", compare=False, repr=False)
    """The JSON that it was written as, and is passed on as, whatever its schema; `id` is its hash without the id."""
    imported_from: str = field(default="", compare=False, repr=False)
    """The file that it came from; empty where it was measured into the store. Not a part of the text."""
    proof: Proof = field(default="", compare=False, repr=False)
    """The proof of its origin: the signature of its machine's key, or this machine's own secret. Not in the text."""

    @property
    def shown_machine(self) -> str:
        """The machine as tables name it: an imported record's machine is never confused with one that measured here."""
        return self.machine.name + (IMPORTED if self.imported_from else "")

    @property
    def alone(self) -> bool:
        """True if the case was alone in its process; otherwise its times count for ratios only."""
        return self.run.pairing == "alone"

    @property
    def interrupted(self) -> bool:
        """True if the run was ended by the user within this case, so that a resumed run repeats it."""
        return any(warning.code == "interrupted" for warning in self.warnings)

    @property
    def crowded_out(self) -> bool:
        """True if it failed because other programs had taken the machine's memory."""
        return self.status == "failed" and any(warning.code == "memory-taken" for warning in self.warnings)

    def fact(self, name: str) -> Any:
        """Return the value of a fact; None where it is unknown, or not what its entry says.

        A fact without an entry may be anything. Records that earlier versions imported were not checked for this.
        """
        value = self.facts.get(name)
        return None if flaw(FACTS, name, value) else value

    def values(self, metric: str, stage: str | None = "steady") -> list[float]:
        """Return all values of a metric in order; those of every stage if `stage` is None."""
        chosen = (each for each in self.series if each.metric == metric and stage in (None, each.stage))
        return [value for series in chosen for value in series.values]


SCHEMA = 3
# A change of shape raises SCHEMA and adds `UPGRADES[old]`, a function from the old dictionary to the next one. It gets
# a whole record, or only its schema and case, as the store and plans keep cases; it changes nothing in place.

_NAMES_OF_1 = {  # what schema 1 called metrics, stages, facts and pairings
    "metric": {"yardstick": "reference_time", "lap_time": "window_time"},
    "stage": {"lap": "window"},
    "fact": {
        "roof": "peak_flops", "memory_roof": "peak_bandwidth", "copy_roof": "peak_copy_bandwidth",
        "virtual_time": "fake_time", "whole_processes": "end_to_end", "step_per_yardstick": "step_per_reference",
        "pieces": "phases", "host_reads_per_step": "host_syncs_per_step",
    },
    "pairing": {"together": "interleaved", "turns": "live-processes", "alternating": "alternating-processes"},
    "suite": {"roof": "roofline"},
}  # fmt: skip


def _from_1(content: dict[str, Any]) -> dict[str, Any]:
    """Upgrade to schema 2: rename run.round and company, case.workers, a series' phase; and some metrics and facts."""

    def renamed(part: Any, **keys: str) -> Any:
        if not isinstance(part, dict):
            return part
        if any(old in part and new in part for old, new in keys.items()):
            raise MldynoError(f"a part of it has keys of two schemas: {', '.join(map(str, part))[:200]}")
        return {keys.get(key, key): value for key, value in part.items()}

    def new_value(part: Any, key: str, kind: str) -> None:
        if isinstance(part, dict) and isinstance(part.get(key), str):
            part[key] = _NAMES_OF_1[kind].get(part[key], part[key])

    upgraded = {**content, "schema": 2}
    if "case" in content:
        upgraded["case"] = renamed(content["case"], workers="ranks")
    if "run" in content:
        run = upgraded["run"] = renamed(content["run"], round="repeat", company="pairing")
        new_value(run, "pairing", "pairing")
        new_value(run, "suite", "suite")
    if isinstance(content.get("series"), list):
        upgraded["series"] = [renamed(series, phase="stage") for series in content["series"]]
        for series in upgraded["series"]:
            new_value(series, "metric", "metric")
            new_value(series, "stage", "stage")
    if "facts" in content:
        upgraded["facts"] = renamed(content["facts"], **_NAMES_OF_1["fact"])
    return upgraded


def _from_2(content: dict[str, Any]) -> dict[str, Any]:
    """Upgrade to schema 3, which adds machine.key."""
    machine = content.get("machine")
    if isinstance(machine, dict) and "key" in machine:
        raise MldynoError("its machine has a key, which came with schema 3")
    return {**content, "schema": 3}


UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1, 2: _from_2}
NOT_HASHED = ("text", "imported_from", "proof")  # fields of a record that its id does not depend on

_plain_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(content: Mapping[str, Any]) -> str:
    """Return the canonical text of a record's content: sorted keys, no spaces, ASCII, finite numbers only."""
    return _plain_json.encode(content)


def content_id(content: Mapping[str, Any]) -> str:
    """Return the id of a record's content: SHA-256 of its canonical text without the id, 32 hex digits."""
    return _hash(canonical({key: value for key, value in content.items() if key != "id"}))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def text_if_whole(content: Mapping[str, Any]) -> str | None:
    """Return the text that a record was written as; None where it was changed since, so that its id does not fit."""
    text, id_ = canonical(content), content.get("id")
    return text if _hash(text.replace(f'"id":"{id_}",', "", 1)) == id_ else None


def content_of(record: Record) -> dict[str, Any]:
    """Return a record as plain dictionaries and lists; its samples are not copied."""
    machine = record.machine
    return {
        **{name: value for name, value in vars(record).items() if name not in NOT_HASHED},
        "run": vars(record.run),
        "case": vars(record.case),
        "machine": {**vars(machine), "devices": [vars(device) for device in machine.devices]},
        "software": vars(record.software),
        "series": [vars(series) for series in record.series],
        "checks": vars(record.checks),
        "warnings": [vars(warning) for warning in record.warnings],
    }


def seal(record: Record) -> Record:
    """Return a record with the id of its content, and its text."""
    content = content_of(record)
    content["id"] = content_id(content)
    return replace(record, id=content["id"], text=canonical(content))


class NewerSchema(MldynoError):
    """A newer mldyno wrote this; it is not broken, but can't be read here."""


def upgrade(content: dict[str, Any]) -> dict[str, Any]:
    """Return a record's content in today's schema; raise NewerSchema if its schema is newer."""
    schema = content.get("schema")
    if type(schema) is not int:
        raise MldynoError("'schema' must be a whole number")
    if schema > SCHEMA:
        raise NewerSchema(f"schema {schema} is newer than this mldyno (schema {SCHEMA}); update mldyno")
    while schema < SCHEMA:
        if schema not in UPGRADES:
            raise MldynoError(f"schema {schema} is unknown; this mldyno reads up to schema {SCHEMA}")
        content = UPGRADES[schema](content)
        schema = content["schema"]
    return content


def upgraded_case(schema: int, content: Mapping[str, Any]) -> Case:
    """Return a case that was stored apart from its record, with the schema it was written in."""
    return Case(**upgrade({"schema": schema, "case": dict(content)})["case"])
