"""Verdicts and records in plain words."""

from __future__ import annotations

from typing import Any

from mldyno.analysis.comparisons import DELTA, Comparison
from mldyno.analysis.estimates import step_time
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import column
from mldyno.intervals import quantile
from mldyno.records import AXES, Machine, Record
from mldyno.units import digits, show, show_bytes, show_error, show_percent, show_seconds


def factor(comparison: Comparison) -> str:
    """The ratio with its interval, turned so that it reads as 'so many times'."""
    ratio, low, high = comparison.ratio, comparison.low, comparison.high
    if ratio < 1:
        ratio, low, high = 1 / ratio, high and 1 / high, low and 1 / low
    if low is None or high is None:
        return f"{digits(ratio)}x"
    error = (high - low) / 2
    return f"{digits(ratio, error)}x ({digits(low, error)}-{digits(high, error)})"


def arms(comparison: Comparison) -> tuple[str, str]:
    """What the two sides differ in, in words: ('roundtrip', 'device')."""
    names = [*(axis.name for axis in AXES), "machine"]
    base, other = comparison.base, comparison.other
    different = [name for name in names if column(base, name) != column(other, name)]
    if not different:
        return other.records[0].run.id, base.records[0].run.id

    def side(outcome: Outcome) -> str:
        words = [str(column(outcome, name)) for name in different]
        return " ".join(words) + (" (published)" if outcome.published else "")

    return side(other), side(base)


def sentence(comparison: Comparison) -> str:
    """One comparison as a sentence."""
    other, base = arms(comparison)
    verdict = comparison.verdict
    case = comparison.other.case.id
    if comparison.base.machine == comparison.other.machine and comparison.other.published:
        case += f" on {comparison.other.machine}"
    told = {
        "faster": f"{other} is {factor(comparison)} faster than {base}",
        "slower": f"{other} is {factor(comparison)} slower than {base}",
        "equivalent": f"{other} and {base} are equivalent (within {show_percent(DELTA)})",
    }
    if verdict in told:
        return f"{case}: {told[verdict]} [{comparison.how}]"
    way = "faster" if comparison.ratio > 1 else "slower"
    known = "can't tell" if comparison.low is not None else "no interval"
    return (
        f"{case}: {other} looks {factor(comparison)} {way} than {base}; {known} [{comparison.how}; {comparison.advice}]"
    )


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as data."""
    other, base = arms(comparison)
    return {
        "case": comparison.other.case.id, "base": base, "other": other, "base_case": comparison.base.case.id,
        "base_machine": comparison.base.machine, "other_machine": comparison.other.machine,
        "ratio": comparison.ratio, "low": comparison.low, "high": comparison.high,
        "verdict": comparison.verdict, "how": comparison.how, "advice": comparison.advice,
    }  # fmt: skip


def machine_lines(machine: Machine) -> list[str]:
    """A machine in two lines."""
    memory = show_bytes(machine.memory) if machine.memory else "unknown memory"
    virtual = {True: "virtual machine", False: "real hardware", None: "virtual or not: unknown"}[machine.virtualised]
    return [
        f"{machine.name}",
        f"{machine.system} {machine.release}, {machine.arch}, {machine.cores or '?'} cores, {memory}, "
        f"{virtual}, power: {machine.power}",
    ]


def headline(record: Record) -> str:
    """One line for one record: its time and how well it is known, or what became of it."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}"
    estimate = step_time([record])
    if estimate is None:
        known = [f"{s.metric.replace('_', ' ')} {show(s.values[0], s.unit)}" for s in record.series if s.values]
        return ", ".join(known) or "ok, without a figure"
    width = estimate.half_width
    return f"{show_seconds(estimate.value, width)} a step{show_error(estimate.value, width)}"


def story(record: Record) -> str:
    """All that a record says, for a reader."""
    rows: list[tuple[str, str]] = [
        ("record", record.id),
        ("case", record.case.id),
        ("outcome", headline(record)),
        ("machine", record.machine.name),
        ("when", f"{record.created}, run {record.run.id}, round {record.run.round}, {record.provenance}"),
    ]
    values = record.values("step_time")
    if values:
        ordered = sorted(values)
        spread = ", ".join(
            f"p{p} {show_seconds(quantile(ordered, p / 100))}" for p in (5, 50, 90) if p < 90 or len(values) >= 64
        )
        block = next(s.block for s in record.series if s.phase == "steady")
        rows.append(("samples", f"{len(values):,} blocks of {block} steps in {len(_turns(record))} turns: {spread}"))
    facts = record.facts
    if isinstance(facts.get("first_step"), float):
        rows.append(("first step", show_seconds(float(facts["first_step"] or 0))))
    for metric in ("peak_memory", "peak_device_memory"):
        for peak in record.values(metric, "process"):
            rows.append((metric.replace("_", " "), show_bytes(peak)))
    flops, step = facts.get("flops_per_step"), step_time([record])
    if isinstance(flops, int | float) and step is not None and record.status == "ok":
        rows.append(("rate", f"{digits(flops / step.value / 1e9)} GFLOP/s"))
    items = facts.get("items_per_step")
    if isinstance(items, int) and step is not None and record.status == "ok":
        rows.append(("throughput", f"{digits(items / step.value)} {facts.get('item', 'item')}s/s"))
    versions = ", ".join(f"{name} {version}" for name, version in record.software.versions.items())
    if versions:
        rows.append(("software", f"{versions}, Python {record.software.python}, {record.software.threads} threads"))
    proofs = {"learned": record.checks.learned, "agrees with the CPU": record.checks.agrees}
    told = [f"{name}: {'yes' if proof else 'no'}" for name, proof in proofs.items() if proof is not None]
    if told:
        rows.append(("checks", ", ".join(told)))
    rows += [("warning", f"{w.message}{f' ({w.hint})' if w.hint else ''}") for w in record.warnings]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def _turns(record: Record) -> set[int | None]:
    return {series.turn for series in record.series if series.phase == "steady"}
