"""Records, machines, devices and the self-test's measures in words: one line each, or everything in a record."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mldyno.analysis.breakdown import bound, shares
from mldyno.analysis.estimates import step_time, uncontended
from mldyno.analysis.outcomes import Outcome
from mldyno.metrics import DEVICE_FACTS, in_words
from mldyno.records import Case, Device, Machine, Pairing, Record
from mldyno.stats.intervals import mean, median, quantile
from mldyno.stats.shapes import modes
from mldyno.units import count, digits, show, show_bytes, show_error, show_percent, show_seconds
from mldyno.views.claims import run_name
from mldyno.views.outcomes import energy_summary, phases, price_summary, trust
from mldyno.views.titles import case_name
from mldyno.views.window import window_width

if TYPE_CHECKING:  # only one command needs it
    from mldyno.selftest.measures import Measure
    from mldyno.selftest.result_file import SelftestResult

PAIRING = {"interleaved": "in one process", "live-processes": "live processes taking turns",
           "alternating-processes": "whole processes in alternation"}  # fmt: skip
BOUNDS = {
    "compute": "compute-bound", "memory": "memory-bound", "host": "host-bound", "copy": "copy-bound",
    "unclear": "no clear bottleneck",
}  # fmt: skip
FAKE_FRAMEWORK = "This was the fake framework: nothing was computed, and no time is real"
Rows = Iterator[tuple[str, str]]
MEASURES_TITLE = "how often mldyno is wrong here, at 95 % confidence"
MEASURE_FIELDS = ("id", "name", "value", "bound", "target", "ok", "n", "unit", "peers", "note", "framework")  # in JSON
OWN_MODEL = (
    ("inference_without", "inference is measured without {}, which only the loss needs"),
    ("loss_in_inference", "inference computes the loss too"),
    ("same_batch", "every step has the same batch, since {} can't be rolled"),
    ("draws_random", "it draws random numbers, so its results were not compared"),
    ("restored_settings", "settings that it changed were restored: {}"),
)  # facts of the user's own models
_COMPILED = (("graphs", "graph"), ("graph_breaks", "break"))


def machine_lines(machine: Machine) -> list[str]:
    """Describe a machine in two lines."""
    memory = show_bytes(machine.memory) if machine.memory else "unknown memory"
    cores = count(machine.cores, "core") if machine.cores else "? cores"
    virtual = {True: "virtual machine", False: "real hardware", None: "virtual or not: unknown"}[machine.virtualised]
    system = f"{machine.system} {machine.release}, {machine.arch}"
    return [machine.name, f"{system}, {cores}, {memory}, {virtual}, power: {machine.power}"]


def device_line(device: Device) -> str:
    """Describe a device in a line: its vendor's name, memory and other facts."""
    memory = show_bytes(device.memory) if device.memory else ""
    facts = (in_words(DEVICE_FACTS, name, value) for name, value in device.facts.items())
    return ", ".join(filter(None, [device.title, memory, *facts]))


def sharing(counts: Mapping[tuple[Case, str], int], private: bool) -> str:
    """Say what is shared with these numbers of records for each case and machine."""
    machines = {machine for _, machine in counts}
    lines = {case.workload for case, _ in counts if case.own_command}
    commands = f", {count(len(lines), 'command line')}" if lines and not private else ""
    left_out = "command lines and paths are left out" if private else "--private leaves command lines and paths out"
    whose = "its name, processor, versions" if len(machines) == 1 else "their names, processors, versions"
    records = count(sum(counts.values()), "record")
    return f"shares {records} of {count(len(machines), 'machine')}: {whose}{commands}; {left_out}"


def how_paired(case: Case, pairing: Pairing) -> str:
    """Say how a case was paired; each run of a command is a process."""
    return "run by run" if (case.framework, pairing) == ("command", "interleaved") else PAIRING[pairing]


def headline(*records: Record) -> str:
    """Return the time of a step over the processes of a case, or why the last one has none."""
    record = records[-1]
    if record.status != "ok":
        return f"{record.status}: {record.reason}"
    if not record.alone:
        return f"measured head-to-head, {how_paired(record.case, record.run.pairing)}"
    estimate = step_time([each for each in records if each.status == "ok"])
    if estimate is None:
        figures = [f"{s.metric.replace('_', ' ')} {show(s.values[0], s.unit)}" for s in record.series if s.values]
        return ", ".join(figures) or "ok, without a figure"
    width = estimate.half_width
    step = "run" if record.fact("end_to_end") else "step"
    return f"{show_seconds(estimate.value, width)} a {step}{show_error(estimate.value, width)}"


def record_text(record: Record) -> str:
    """Return everything in a record, one row each."""
    run, came = record.run, f"imported from {record.imported_from}" if record.imported_from else record.provenance
    outcome, measured = Outcome((record,)), record.alone and record.status == "ok"
    energy = energy_summary(outcome) if measured else ""
    rows: list[tuple[str, str]] = [
        ("record", record.id), ("case", case_name(record.case)),
        ("outcome", headline(record)), ("machine", record.shown_machine),
        ("when", f"{record.created}, run {run.id}, repeat {run.repeat}, {came}"),
        *_samples(record), *_first_step(record),
        *(("phase", text) for text in (phases(outcome) if measured else ())),
        *_peaks(record), *_rates(record), *_own_model(record),
        *([("energy", energy)] if energy else []),
        *([("price", price)] if (price := price_summary(outcome) if measured else "") else []),
        *_software(record),
        *([("trust", trust(outcome))] if record.alone else []),
        *(("warning", f"{w.message}{f' ({w.hint})' if w.hint else ''}") for w in record.warnings),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def details(record: Record) -> list[str]:
    """Return the evidence behind the headline of a case: samples, first step, peaks, trust, warnings."""
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
    whole = record.fact("end_to_end") and block == 1
    shape = count(len(ordered), "run") if whole else f"{count(len(ordered), 'block')} of {count(block, 'step')}"
    yield "samples", f"{shape}: {spread}"
    if not record.alone:
        return
    if (two := modes(steady)) is not None:
        slow = f"{show_seconds(two.slow)} in {show_percent(two.slow_share)} of the {'runs' if whole else 'blocks'}"
        yield "modes", f"{show_seconds(two.fast)}, and {slow}"
    ratio, reference = record.fact("step_per_reference"), record.values("reference_time")
    if ratio is not None and reference:
        kernel = show_seconds(median(reference))
        yield "reference", f"a step takes {digits(ratio)} times the reference kernel ({kernel})"
    faults, steps = sum(record.values("page_faults", "window")), record.fact("steps")
    if faults and steps:
        yield "page faults", f"{digits(faults / steps)} a {'run' if whole else 'step'}"


def _first_step(record: Record) -> Rows:
    batch, first, compiling = (record.fact(name) for name in ("first_batch", "first_step", "compile_time"))
    if batch is not None:
        yield "first batch", show_seconds(batch)
    if first is not None:
        yield f"first {'run' if record.fact('end_to_end') else 'step'}", show_seconds(first)
    if compiling is not None:
        known = [(record.fact(name), word) for name, word in _COMPILED]
        parts = " and ".join(count(number, word) for number, word in known if number is not None)
        cached = ", from a cache" if record.fact("compile_cached") else ""
        yield "compiled", f"{parts and f'{parts} '}in {show_seconds(compiling)}{cached}"


def _peaks(record: Record) -> Rows:
    on_device = next((device.memory for device in record.machine.devices if device.name == record.case.device), None)
    for metric, there in (("peak_memory", record.machine.memory), ("peak_device_memory", on_device)):
        for peak in record.values(metric, "process"):
            share = f" of {show_bytes(there)}, {show_percent(peak / there)}" if there else ""
            by_driver = metric == "peak_device_memory" and record.fact("device_peak_by") == "driver"
            counted = ", all that its driver has allocated" if by_driver else ""
            yield metric.replace("_", " "), f"{show_bytes(peak)}{share}{counted}"


def _rates(record: Record) -> Rows:
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


def _own_model(record: Record) -> Rows:
    said = [words.format(value) for name, words in OWN_MODEL if (value := record.fact(name))]
    if said:
        yield "model", "; ".join(said)


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
    """List records run by run: id, case and outcome of each; in two lines where the window is narrow."""
    names = len({record.shown_machine for record in records}) > 1 or any(record.imported_from for record in records)
    for _, group in itertools.groupby(records, lambda record: (record.run.id, record.shown_machine)):
        run = list(group)
        yield f"{run_name(run[0])}{f', {run[0].shown_machine}' if names else ''}"
        longest = max(len(case_name(record.case)) for record in run)
        for record in run:
            line = f"  {record.id[:10]}  {case_name(record.case).ljust(longest)}  {headline(record)}"
            apart = f"  {record.id[:10]}  {case_name(record.case)}\n{' ' * 14}{headline(record)}"
            yield line if len(line) <= window_width() else apart


def measure_json(measure: Measure) -> dict[str, Any]:
    """Return a measure as data; shares are fractions of 1."""
    return {name: getattr(measure, name) for name in MEASURE_FIELDS}


def amount(value: float | None, unit: str) -> str:
    """Show a value or a bound."""
    if value is None:
        return "-"
    if unit == "share":
        return show_percent(value)
    return show_seconds(value) if unit == "s" else digits(value, most=4)


def verdict_counts(measures: Sequence[Measure]) -> str:
    """Count the targets that are met, missed, can't be judged, or were not tried."""
    met, missed, open_ = (sum(measure.ok is ok for measure in measures) for ok in (True, False, None))
    untried = sum(measure.ok is None and not measure.n for measure in measures)
    parts = [f"{met} of {len(measures)} targets met", f"{missed} missed" if missed else "",
             f"{open_ - untried} with too few trials to judge" if open_ > untried else "",
             f"{untried} not tried" if untried else ""]  # fmt: skip
    return ", ".join(filter(None, parts))


def measures_table(measures: Sequence[Measure], title: str = MEASURES_TITLE, last: str = "peers") -> str:
    """Return all measures with the figures of peers, or of another `last` column; one without trials has no value."""
    from mldyno.views.tables import aligned

    many_frameworks = len({measure.framework for measure in measures}) > 1
    header = ["", *(["framework"] if many_frameworks else []), "measure", "here", "at worst", "target", "", "n", last]
    body, notes = [], []
    for measure in measures:
        here = amount(measure.value if measure.n else None, measure.unit)
        open_ = f"too few trials to judge ({measure.n:,})" if measure.n else "not tried"
        met = {True: "met", False: "MISSED", None: open_}[measure.ok]
        figures = [here, amount(measure.bound, measure.unit), measure.target, met, f"{measure.n:,}"]
        of_framework = [measure.framework] if many_frameworks else []
        body.append([str(measure.id), *of_framework, measure.name, *figures, measure.peers])
        notes += [f"{' '.join([str(measure.id), *of_framework])}: {measure.note}"] if measure.note else []
    return "\n".join([aligned(header, body, 2 + many_frameworks, title), *notes])


def replay_lines(tested: SelftestResult, differing: Sequence[Measure]) -> Iterator[str]:
    """Yield what a result of the self-test holds, what differs from the expectation, and what libraries printed."""
    kind = tested.device.partition(":")[0]
    yield f"{tested.device}, mldyno {tested.mldyno}, {tested.created}, {show_seconds(tested.seconds)}"
    yield from machine_lines(tested.machine)
    yield from (f"{device.framework} {device.name}: {device_line(device)}" for device in tested.machine.devices)
    for name, of_framework in tested.software["frameworks"].items():
        yield f"{name}: {as_words(of_framework)}"
    if differing:
        yield measures_table(differing, f"what differs from what is expected of {kind}", "simulated device")
    for process in tested.processes:
        if process.ended or process.printed:
            yield f"{process.framework}, process of {', '.join(process.tasks)}: {process.ended or 'ended as it should'}"
            yield from (f"  {line}" for line in process.printed)
    untried = [f"{each.framework} {each.id}" for each in tested.measures if each.ok is None and not each.n]
    if untried:
        yield f"not tried: {', '.join(untried)}"
    if not tested.complete:
        yield "it was interrupted: further measures were not tried"
    yield f"{len(differing)} of {len(tested.measures)} measures differ from what is expected of {kind}."


def as_words(content: object) -> str:
    """Return the texts and numbers of JSON data on one line, by name."""
    if isinstance(content, dict):
        return ", ".join(f"{name} {words}" for name, value in content.items() if (words := as_words(value)))
    return "" if content in (None, "") else str(content)
