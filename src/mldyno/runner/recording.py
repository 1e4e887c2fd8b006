"""Collect what is observed of a case, and make its record: its steady part, its status, its warnings.

A record that the store does not take is written to a file, which can be imported.

Rule: what is written passes the check of what is read. A fact or a series that would not pass is left out, with a
warning.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from mldyno import __version__, keys
from mldyno import machine as machines
from mldyno import records as model
from mldyno.analysis.estimates import Process, processes_of, usual_for, varying_processes
from mldyno.errors import StoreError
from mldyno.files import regular
from mldyno.masking import masked
from mldyno.metrics import DEVICE_FACTS, FACTS, flaws
from mldyno.printable import LONGEST_NAME, LONGEST_TEXT, printable, shortened
from mldyno.records import SCHEMA, Case, Checks, Device, Fact, Machine, Record, Run, Series, Software, Warning_, seal
from mldyno.runner.warnings import LEFT_OUT_CODE, Evidence, of_measurement
from mldyno.stats.intervals import median
from mldyno.stats.shapes import drift
from mldyno.store import Query, Store, default_path
from mldyno.store.codec import decode, flaw_of_series
from mldyno.timing.stopping import MIN_BLOCKS, Stopping, relative_half_width, settled_from

EARLY = 0.5  # share of the series in which a slow start may end
PER_BLOCK = ("step_time", "data_wait")  # metrics with a value for each block
PAIRED_FACTS = ("block_steps", "fake_time", "steps", "wall_time", "target")
SHORTEST_STEP_S, LONGEST_STEP_S = 1e-12, 1e9  # a time beyond these is no time of a step
NEWEST_RECORDS = 300  # of a machine, that show what is usual there


def now() -> str:
    """Return the time now in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_run_id() -> str:
    """Return a new run's id: when it began, and random digits."""
    return f"{now()[:19].replace(':', '').replace('-', '')}-{uuid.uuid4().hex[:6]}"


def processes_before(store: Store, machine: Machine) -> list[Process]:
    """Return earlier processes on this machine, oldest first: they show its usual variation."""
    query = Query({"machine": store.name_of(machine)}, heads=False, provenances=("measured",))
    return varying_processes(reversed(store.history(query, NEWEST_RECORDS)))


class NoStepTime(Exception):
    """A step time is impossible."""


@dataclass
class Observed:
    """The observations of a case so far: all that its record is made of."""

    case: Case
    run: Run
    stopping: Stopping
    series: list[Series] = field(default_factory=list)
    facts: dict[str, Fact] = field(default_factory=dict)
    software: Software | None = None
    devices: tuple[Device, ...] = ()
    checks: Checks = field(default_factory=Checks)
    values: list[float] = field(default_factory=list)  # times of a step in s, one for each measured block
    half_width: float | None = None  # relative, of the mean's confidence interval; None while there are too few blocks
    elapsed: float = 0.0  # time in s of the measured steps
    steps: int = 0
    turns: int = 0
    longest_block: float = 0.0  # time in s of the longest measured block
    unsteady: str = ""  # why it was not steady after the warm-up; empty where it was, or that is unknown

    @property
    def alone(self) -> bool:
        """True if the case was measured without another one."""
        return self.run.pairing == "alone"

    @property
    def settled(self) -> bool:
        """True if the target is met, or the budget is spent."""
        return self.stopping.enough(self.half_width, self.elapsed, self.steps)

    def take_turn(self, turn: Sequence[Series]) -> None:
        for series in turn:
            if series.stage == "steady":
                self.take(replace(series, turn=self.turns, stage="steady" if self.alone else "paired"))
            else:  # the same blocks, as a rank timed them
                self.series.append(replace(series, turn=self.turns))
        self.turns += 1
        self.half_width = relative_half_width(self.values)

    def take(self, series: Series) -> None:
        """Add a series; step times count as measuring time. Raise NoStepTime for impossible ones."""
        if series.metric in ("step_time", "reference_time"):
            times = series.values
            if not (times and SHORTEST_STEP_S <= min(times) <= max(times) <= LONGEST_STEP_S and series.block >= 1):
                raise NoStepTime(f"{series.metric} is no time of a step")
        if series.metric == "step_time":
            self.values += series.values
            self.steps += series.block * len(series.values)
            self.elapsed += series.block * sum(series.values)
            self.longest_block = max(self.longest_block, series.block * max(series.values))
        self.series.append(series)


def record_of(
    observed: Observed, machine: Machine, wall_time: float, status: str, reason: str,
    warnings: Sequence[Warning_] = (), before: Sequence[Process] | None = None,
) -> Record:  # fmt: skip
    """Return the record of what is known now, as it will be read; raise BadRecord where it could not be.

    `machine` has the devices that the worker reported, with what vendors say about them. `warnings` are those that the
    measurement itself does not show; each replaces one with its code. `before` are earlier processes of the machine:
    the record then has as facts what is usual there.
    """
    target = observed.stopping.target if observed.stopping.steps is None else None
    facts = machines.allowances() | observed.facts
    facts |= {"steps": observed.steps, "wall_time": wall_time, "target": target}
    series, facts, machine, left_out = _valid_parts(observed.series, facts, machine)
    noted = [*warnings, *left_out]
    series = [part for part in series if observed.alone == (part.stage != "paired")]  # of these times for ratios only
    if not observed.alone:
        facts = {name: facts[name] for name in PAIRED_FACTS if name in facts}
    elif status == "ok":
        if ratios := over_reference_kernel(series):  # what slows step and kernel down cancels out
            facts["step_per_reference"] = float(f"{median(ratios):.6g}")
        start = _steady_from(observed)
        if start is None:
            status, reason = "unsteady", f"{observed.unsteady}; there is a series, but no one number for it"
        else:
            series = _cut(series, start)
            threads, env = (observed.software.threads, observed.software.env) if observed.software else (None, {})
            shown = Evidence(observed.case, series, facts, machine, threads, env)
            known = {warning.code for warning in warnings}
            noted += [warning for warning in of_measurement(shown) if warning.code not in known]
    software = observed.software or Software()
    env = {name: masked(value) for name, value in software.env.items()}
    record = Record(
        schema=SCHEMA, id="", created=now(), provenance="measured", run=observed.run, case=observed.case,
        status=status,  # type: ignore[arg-type]
        reason=shortened(masked(printable(reason)), LONGEST_TEXT),
        machine=machine, software=replace(software, mldyno=__version__, env=env),
        series=tuple(series), facts=facts, checks=observed.checks,
        warnings=tuple(replace(warning, message=masked(warning.message)) for warning in noted),
    )  # fmt: skip
    if before is not None and (processes := processes_of(record)):
        usual = usual_for(processes[-1], [*before, *processes[:-1]])
        record = replace(record, facts={**facts, **usual.facts})
    return decode(seal(record).text)


def _valid_parts(
    series: Sequence[Series], facts: Mapping[str, Fact], machine: Machine
) -> tuple[list[Series], dict[str, Fact], Machine, list[Warning_]]:
    """Return what is valid in a record, and a warning that names the rest."""
    judged = [(part, flaw_of_series(part)) for part in series]
    strange = [flaw for _, flaw in judged if flaw]
    devices = []
    for device in machine.devices:
        wrong = flaws(DEVICE_FACTS, device.facts)
        devices.append(replace(device, facts=_without(device.facts, wrong)))
        strange += [f"fact {name} of {device.name} {words}" for name, words in wrong.items()]
    wrong = flaws(FACTS, facts)
    strange += [f"fact {name} {words}" for name, words in wrong.items()]
    message, hint = shortened("; ".join(strange), LONGEST_NAME), "report it where the framework is from"
    left_out = [Warning_(LEFT_OUT_CODE, message, hint)] if strange else []
    valid = [part for part, flaw in judged if not flaw]
    return valid, _without(facts, wrong), replace(machine, devices=tuple(devices)), left_out


def _without(facts: Mapping[str, Fact], names: Mapping[str, str]) -> dict[str, Fact]:
    return {name: value for name, value in facts.items() if name not in names}


def _steady_from(observed: Observed) -> int | None:
    """Return the first steady block; None where the case never was steady.

    The warm-up has judged that; what it could not settle, or a slow start that outlasted it, is judged here. A case
    that only moved with its machine, as the reference kernel shows, is steady.
    """
    values = observed.values
    if not observed.unsteady:
        change = drift(values)
        place = change.change_point if change is not None and change.change < 0 else None
        # A slow plateau outlasted the warm-up: one jump, early, to faster steps.
        return (settled_from(values) or 0) if place is not None and place < EARLY else 0
    if len(values) < MIN_BLOCKS:
        return None
    start = settled_from(values)
    if start is not None:
        return start
    scaled = over_reference_kernel(observed.series)
    return settled_from(scaled) if len(scaled) == len(values) else None


def over_reference_kernel(series: Sequence[Series]) -> list[float]:
    """Return the times of steady blocks, each divided by that of the reference kernel next to it, if any."""
    kernels = {part.turn: part.values for part in series if (part.metric, part.stage) == ("reference_time", "steady")}
    ratios = []
    for part in series:
        if (part.metric, part.stage) == ("step_time", "steady") and kernels.get(part.turn):
            near, count = kernels[part.turn], len(part.values)
            ratios += [value / near[place * len(near) // count] for place, value in enumerate(part.values)]
    return ratios


def _cut(series: Sequence[Series], start: int) -> list[Series]:
    """Return the series with its first `start` steady blocks moved to the warm-up."""
    parts, left = [], dict.fromkeys(PER_BLOCK, start)
    for part in series:
        if part.stage != "steady" or not left.get(part.metric):
            parts.append(part)
            continue
        early, late = part.values[: left[part.metric]], part.values[left[part.metric] :]
        left[part.metric] -= len(early)
        parts += [replace(part, values=early, stage="warmup")] + ([replace(part, values=late)] if late else [])
    return parts


def rescue(records: Sequence[Record], store: Path | None) -> str:
    """Write records that the store would not take to a file; return words that say where it is and what to do."""
    if not records:
        return ""
    ids = [record.id for record in records]
    proof = model.canonical({"proves": ids, "rescued": keys.authenticate(keys.RESCUE, *sorted(ids))})
    text = "".join(f"{line}\n" for line in (proof, *(record.text for record in records)))
    option = "" if store is None else f" --store {shlex.quote(str(store))}"
    with suppress(StoreError):
        option = "" if store == default_path() else option
    bring_back = f"bring it back with: mldyno import{option}"
    for folder in (tempfile.gettempdir, os.getcwd, Path.home):
        try:
            target = Path(folder()) / f"mldyno-rescued-{records[0].run.id}.jsonl"
            _append(target, text)
        except (OSError, RuntimeError):  # a folder that is gone, a user without a home
            continue
        return f"What was measured last is in {target}; {bring_back} {shlex.quote(str(target))}"
    sys.stderr.write(text)
    return f"What was measured last is above; save it to a file and {bring_back} FILE"


def _append(target: Path, text: str) -> None:
    """Append a text to a file, all of it or nothing; never to a link or a pipe, which others may have put there."""
    with open(target, "ab", opener=regular) as out:
        before = out.tell()
        try:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(out.fileno(), before)
            raise
