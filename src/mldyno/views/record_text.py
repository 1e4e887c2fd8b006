"""All that a record says, in plain words: samples, first step, memory, what limits it; and many of them in short."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from mldyno.analysis.bounds import bound, shares
from mldyno.analysis.estimates import step_time, uncontended
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Record
from mldyno.stats.intervals import mean, median, quantile
from mldyno.stats.shapes import modes
from mldyno.units import count, digits, show_bytes, show_percent, show_seconds
from mldyno.views.sentences import energy_summary, headline, phases, run_name, trust
from mldyno.views.titles import case_name
from mldyno.views.window import window_width

BOUNDS = {
    "compute": "compute-bound", "memory": "memory-bound", "host": "host-bound", "copy": "copy-bound",
    "unclear": "no one bound",
}  # fmt: skip
_COMPILED = (("graphs", "graph"), ("graph_breaks", "break"))


def record_text(record: Record) -> str:
    """All that a record says, for a reader."""
    run, came = record.run, f"imported from {record.imported_from}" if record.imported_from else record.provenance
    rows: list[tuple[str, str]] = [
        ("record", record.id),
        ("case", case_name(record.case)),
        ("outcome", headline(record)),
        ("machine", record.shown_machine),
        ("when", f"{record.created}, run {run.id}, repeat {run.repeat}, {came}"),
        *_samples(record),
        *_first_step(record),
        *_phases(record),
        *_peaks(record),
        *_rates(record),
        *_energy(record),
        *_software(record),
    ]
    if record.alone:
        rows.append(("trust", trust(Outcome((record,)))))
    rows += [("warning", f"{w.message}{f' ({w.hint})' if w.hint else ''}") for w in record.warnings]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


Rows = Iterator[tuple[str, str]]


def details(record: Record) -> list[str]:
    """What stands behind the headline of a case: its samples, first step, peaks, and how far it can be trusted."""
    rows = [*_samples(record), *_first_step(record), *_peaks(record), ("trust", trust(Outcome((record,))))]
    rows += [("warning", f"{warning.code}: {warning.message}") for warning in record.warnings]
    return [f"{name}: {text}" for name, text in rows]


def _samples(record: Record) -> Rows:
    steady = record.values("step_time") or record.values("step_time", "paired")
    ordered = sorted(steady)
    if not ordered:
        return
    fast = uncontended(ordered)
    shown = [(f"p{p}", quantile(ordered, p / 100)) for p, least in ((90, 64), (99, 662)) if len(ordered) >= least]
    parts = [("uncontended", fast), ("median", quantile(ordered, 0.5)), ("mean", mean(ordered)), *shown]
    spread = ", ".join(f"{name} {show_seconds(value)}" for name, value in parts if value is not None)
    block = next(series.block for series in record.series if series.stage in ("steady", "paired"))
    yield "samples", f"{count(len(ordered), 'block')} of {count(block, 'step')}: {spread}"
    if record.alone:
        yield from _shape(record, steady)


def _shape(record: Record, steady: list[float]) -> Rows:
    two = modes(steady)
    if two is not None:
        fast, slow = show_seconds(two.fast), show_seconds(two.slow)
        yield "modes", f"{fast}, and {slow} in {show_percent(two.slow_share)} of the blocks"
    ratio, reference = record.fact("step_per_reference"), record.values("reference_time")
    if ratio is not None and reference:
        times = f"{digits(ratio)} times the reference kernel ({show_seconds(median(reference))})"
        yield "reference", f"a step takes {times}"
    faults, steps = sum(record.values("page_faults", "window")), record.fact("steps")
    if faults and steps:
        yield "page faults", f"{digits(faults / steps)} a step"


def _first_step(record: Record) -> Rows:
    batch, first, compiling = (record.fact(name) for name in ("first_batch", "first_step", "compile_time"))
    if batch is not None:
        yield "first batch", show_seconds(batch)
    if first is not None:
        yield "first step", show_seconds(first)
    if compiling is not None:
        known = [(record.fact(name), word) for name, word in _COMPILED]
        parts = " and ".join(count(number, word) for number, word in known if number is not None)
        cached = ", from a cache" if record.fact("compile_cached") else ""
        yield "compiled", f"{parts and f'{parts} '}in {show_seconds(compiling)}{cached}"


def _phases(record: Record) -> Rows:
    """What was timed apart from the step."""
    if record.alone and record.status == "ok":
        yield from (("phase", text) for text in phases(Outcome((record,))))


def _peaks(record: Record) -> Rows:
    """Peaks of memory, against what is there."""
    on_device = next((device.memory for device in record.machine.devices if device.name == record.case.device), None)
    for metric, there in (("peak_memory", record.machine.memory), ("peak_device_memory", on_device)):
        for peak in record.values(metric, "process"):
            share = f" of {show_bytes(there)}, {show_percent(peak / there)}" if there else ""
            yield metric.replace("_", " "), f"{show_bytes(peak)}{share}"


def _rates(record: Record) -> Rows:
    """What was done in a second, as shares of what the device can do at all."""
    step = step_time([record]) if record.status == "ok" else None
    if step is None:
        return
    of_peaks = shares(record)
    flops, moved, items = (record.fact(f"{name}_per_step") for name in ("flops", "bytes", "items"))
    if flops:
        yield "rate", f"{digits(flops / step.value / 1e9)} GFLOP/s{_of_peak(of_peaks.compute if of_peaks else None)}"
    if moved:
        yield "traffic", f"{digits(moved / step.value / 1e9)} GB/s{_of_peak(of_peaks.memory if of_peaks else None)}"
    if items:
        yield "throughput", f"{digits(items / step.value)} {record.fact('item') or 'item'}s/s"
    limit = bound(record)
    if limit is not None:
        yield "bound", f"{BOUNDS[limit.kind]}: {limit.why}"


def _energy(record: Record) -> Rows:
    """What a step takes, and who tells it."""
    if record.alone and record.status == "ok" and (summary := energy_summary(Outcome((record,)))):
        yield "energy", summary


def _of_peak(share: float | None) -> str:
    return f", {show_percent(share)} of the peak" if share else ""


def _software(record: Record) -> Rows:
    software, checks = record.software, record.checks
    versions = ", ".join(f"{name} {version}" for name, version in software.versions.items())
    if versions:
        threads = f", {count(software.threads, 'thread')}" if software.threads else ""
        yield "software", f"{versions}, Python {software.python}{threads}"
    results = {"learned": checks.learned, "agrees with fp32 on the CPU": checks.agrees}
    texts = [f"{name}: {'yes' if passed else 'no'}" for name, passed in results.items() if passed is not None]
    if checks.error is not None:
        texts.append(f"{checks.error:.2g} off")
    if products := record.fact("products_in"):
        texts.append(f"matmuls in {products}")
    if unchecked := record.fact("not_checked"):
        texts.append(f"not checked: {unchecked}")
    if texts:
        yield "checks", ", ".join(texts)


def history_lines(records: Sequence[Record]) -> Iterator[str]:
    """Records run by run: when and which it was, and below it the id, case and outcome of each.

    Where the window is too narrow for that, the outcome stands below its case.
    """
    names = len({record.shown_machine for record in records}) > 1 or any(record.imported_from for record in records)
    for _, group in itertools.groupby(records, lambda record: (record.run.id, record.shown_machine)):
        run = list(group)
        yield f"{run_name(run[0])}{f', {run[0].shown_machine}' if names else ''}"
        longest = max(len(case_name(record.case)) for record in run)
        for record in run:
            line = f"  {record.id[:10]}  {case_name(record.case).ljust(longest)}  {headline(record)}"
            apart = f"  {record.id[:10]}  {case_name(record.case)}\n{' ' * 14}{headline(record)}"
            yield line if len(line) <= window_width() else apart
