"""The making of a record, from what was observed of a case: its steady part, its status, its warnings.

Rule: what is written passes the check of what is read. A fact or a series that would not is left out, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone

from mldyno import __version__
from mldyno.client.remote_case import Observed
from mldyno.facts import DEVICE_FACTS, FACTS, flaws
from mldyno.masking import masked
from mldyno.printable import LONGEST_NAME, LONGEST_TEXT, printable, shortened
from mldyno.records import SCHEMA, Fact, Machine, Record, Series, Software, Warning_, seal
from mldyno.runner.warnings import LEFT_OUT, Evidence, of_measurement
from mldyno.stats.intervals import median
from mldyno.stats.shapes import drift
from mldyno.store.codec import decode, flaw_of_series
from mldyno.timing.stopping import MIN_BLOCKS, settled_from

EARLY = 0.5  # share of the series, in which a slow start may end
OF_BLOCKS = ("step_time", "data_wait")  # metrics that have a value for each block
PAIRED_FACTS = ("block_steps", "fake_time", "steps", "wall_time", "target")


def now() -> str:
    """The time now, UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_of(
    observed: Observed, machine: Machine, wall_time: float, status: str, reason: str, warnings: Sequence[Warning_] = ()
) -> Record:
    """The record of what is known now; `machine` with the devices that the worker has seen, and what they are.

    `warnings` are those that the measurement itself does not show; each stands in the place of one of its kind.
    """
    target = observed.stopping.target if observed.stopping.steps is None else None
    facts = observed.facts | {"steps": observed.steps, "wall_time": wall_time, "target": target}
    series, facts, machine, left_out = _fitting(observed.series, facts, machine)
    noted = [*warnings, *left_out]
    series = [part for part in series if observed.alone == (part.stage != "paired")]  # of these times for ratios only
    if not observed.alone:
        facts = {name: facts[name] for name in PAIRED_FACTS if name in facts}
    elif status == "ok":
        facts |= ratio_to_reference(series)
        start = _steady_from(observed)
        if start is None:
            status, reason = "unsteady", f"{observed.unsteady}; there is a series, but no one number for it"
        else:
            series = _cut(series, start)
            threads, env = (observed.software.threads, observed.software.env) if observed.software else (None, {})
            shown = Evidence(observed.case, series, facts, machine, threads, env)
            known = {warning.code for warning in warnings}
            noted += [warning for warning in of_measurement(shown) if warning.code not in known]
    software = Software(mldyno=__version__, **(asdict(observed.software) if observed.software else {}))
    record = seal(
        Record(
            schema=SCHEMA,
            id="",
            created=now(),
            provenance="measured",
            run=observed.run,
            case=observed.case,
            status=status,  # type: ignore[arg-type]
            reason=shortened(masked(printable(reason)), LONGEST_TEXT),
            machine=machine,
            software=replace(software, env={name: masked(value) for name, value in software.env.items()}),
            series=tuple(series),
            facts=facts,
            checks=observed.checks,
            warnings=tuple(replace(warning, message=masked(warning.message)) for warning in noted),
        )
    )
    return decode(record.text)


def with_facts(record: Record, facts: Mapping[str, Fact]) -> Record:
    """The record with facts that came to be known when it was made."""
    return decode(seal(replace(record, facts={**record.facts, **facts})).text)


def _fitting(
    series: Sequence[Series], facts: Mapping[str, Fact], machine: Machine
) -> tuple[list[Series], dict[str, Fact], Machine, list[Warning_]]:
    """What of these may stand in a record, and a warning that names the rest."""
    judged = [(part, flaw_of_series(part)) for part in series]
    strange = [flaw for _, flaw in judged if flaw]
    devices = []
    for device in machine.devices:
        wrong = flaws(DEVICE_FACTS, device.facts)
        devices.append(replace(device, facts=_without(device.facts, wrong)))
        strange += [f"fact {name} of {device.name} {words}" for name, words in wrong.items()]
    wrong = flaws(FACTS, facts)
    strange += [f"fact {name} {words}" for name, words in wrong.items()]
    left_out = Warning_(LEFT_OUT, shortened("; ".join(strange), LONGEST_NAME), "report it where the framework is from")
    return (
        [part for part, flaw in judged if not flaw],
        _without(facts, wrong),
        replace(machine, devices=tuple(devices)),
        [left_out] if strange else [],
    )


def _without(facts: Mapping[str, Fact], names: Mapping[str, str]) -> dict[str, Fact]:
    return {name: value for name, value in facts.items() if name not in names}


def _steady_from(observed: Observed) -> int | None:
    """From which measured block on the case is steady; None where it never was.

    The warm-up has judged that; what it could not settle, or a slow start that outlasted it, is judged here. A case
    that only moved with its machine, as the reference kernel shows, is steady.
    """
    values = observed.values
    if not observed.unsteady:
        return (settled_from(values) or 0) if slow_start(values) else 0
    if len(values) < MIN_BLOCKS:
        return None
    start = settled_from(values)
    if start is not None:
        return start
    scaled = in_references(observed.series)
    return settled_from(scaled) if len(scaled) == len(values) else None


def slow_start(values: list[float]) -> bool:
    """Whether the first part was slower, up to one jump: a plateau that outlasted the looks of the warm-up."""
    change = drift(values)
    return change is not None and change.change < 0 and change.change_point is not None and change.change_point < EARLY


def ratio_to_reference(series: Sequence[Series]) -> dict[str, float]:
    """How many reference kernels a step takes: what slows both down falls out."""
    ratios = in_references(series)
    return {"step_per_reference": float(f"{median(ratios):.6g}")} if ratios else {}


def in_references(series: Sequence[Series]) -> list[float]:
    """The steady blocks, each over the reference kernel that ran next to it; without those of turns that had none."""
    kernels = {part.turn: part.values for part in series if (part.metric, part.stage) == ("reference_time", "steady")}
    ratios = []
    for part in series:
        if (part.metric, part.stage) == ("step_time", "steady") and kernels.get(part.turn):
            near, count = kernels[part.turn], len(part.values)
            ratios += [value / near[place * len(near) // count] for place, value in enumerate(part.values)]
    return ratios


def _cut(series: Sequence[Series], start: int) -> list[Series]:
    """The series with its first `start` steady blocks moved to the warm-up."""
    parts, left = [], dict.fromkeys(OF_BLOCKS, start)
    for part in series:
        if part.stage != "steady" or not left.get(part.metric):
            parts.append(part)
            continue
        early, late = part.values[: left[part.metric]], part.values[left[part.metric] :]
        left[part.metric] -= len(early)
        parts += [replace(part, values=early, stage="warmup")] + ([replace(part, values=late)] if late else [])
    return parts
