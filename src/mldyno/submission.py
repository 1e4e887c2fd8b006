"""What goes into a shared collection: records that can be what they say, judged anew from their raw samples.

Shape, id, time and provenance are judged as on import; no rate may lie above its peak, as where it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mldyno.analysis.estimates import step_time
from mldyno.analysis.grouping import grouped
from mldyno.analysis.scores import reference
from mldyno.records import Case, Record
from mldyno.stats.intervals import median
from mldyno.worker import peaks

UNKNOWN = "unknown"


def fake(record: Record) -> bool:
    """Whether no time in it is real."""
    return bool(record.fact("fake_time")) or record.case.framework == "fake"


def score_first(records: Sequence[Record]) -> list[Record]:
    """The records in their order, those of the cases that make the score before the others."""
    return sorted(records, key=lambda record: _anywhere(record.case) not in reference().rates)


def _anywhere(case: Case) -> Case:
    """The case as the set of the score names it, whatever device it ran on."""
    return replace(case, framework="torch", device="cpu")


def faults(records: Sequence[Record]) -> Iterator[str]:
    """What speaks against taking these records of one file, a line each."""
    plain = grouped((record for record in records if record.case.precision == "fp32"), _place)
    highest = {place: max(map(_peak, group)) for place, group in plain.items()}
    for record in records:
        for fault in _faults(record, highest.get(_place(record), 0.0)):
            yield f"record {record.id[:10]} ({record.case.id}): {fault}"


def _place(record: Record) -> tuple[object, ...]:
    return record.machine.name, record.machine.key, record.case.framework, record.case.device


def _peak(record: Record) -> float:
    return record.fact("peak_flops") or 0.0


def _faults(record: Record, plain_peak: float) -> Iterator[str]:
    """What speaks against one record; `plain_peak` is the highest in fp32 on its device, 0 where it is not known."""
    if record.provenance != "measured":
        yield f"it is {record.provenance}, not measured; submit what `mldyno submit` writes on the machine itself"
    if fake(record):
        yield "its times are fake: nothing was computed; leave it out"
    if not record.machine.name.strip() or (record.machine.cpu == UNKNOWN and not record.machine.devices):
        yield "it says nothing of its machine: neither processor nor devices; measure it again with this mldyno"
    if record.status != "ok" or not record.alone:
        return
    if step_time([record]) is None:
        yield "no time of a step can be worked out from its samples; leave it out"
        return
    flops, peak = record.fact("flops_per_step"), _peak(record)
    if record.case.precision != "fp32":  # what lacks a type can be faster than its own matmuls, not than those in fp32
        peak = max(peak, plain_peak) if plain_peak else 0.0
    rate = flops / median(record.values("step_time")) if flops and record.values("step_time") else 0.0
    if peaks.above(rate, peak):
        reached = f"{rate / 1e9:,.4g} GFLOP/s are more than the {peak / 1e9:,.4g}"
        yield f"{reached} that its device reaches in matmuls; measure it again"
