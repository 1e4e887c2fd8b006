"""Comparisons, trust, phases and records in plain words: what every view says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mldyno.analysis.comparisons import (
    DELTA,
    ONE_SIDED,
    Claim,
    Comparison,
    Mean,
    alike,
    compared,
    differences,
    differing,
)
from mldyno.analysis.estimates import Estimate, counting, of_metric, step_time
from mldyno.analysis.grouping import grouped
from mldyno.analysis.loops import loop_parts
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.ranks import RankSplit, split
from mldyno.analysis.tables import column
from mldyno.axes import AXIS
from mldyno.records import Case, Machine, Pairing, Record
from mldyno.sources import as_typed
from mldyno.store.figures import marks
from mldyno.units import (
    Interval,
    count,
    digits,
    show,
    show_bytes,
    show_error,
    show_half_width,
    show_interval,
    show_percent,
    show_seconds,
)
from mldyno.views.loops import parts_in_words
from mldyno.views.titles import case_name, case_on_device

CANT_TELL = "can't tell"
NO_CLEAR_DIFFERENCE = "no clear difference"
WORK = {"train": "training", "infer": "inference"}
PAIRING = {
    "interleaved": "in one process",
    "live-processes": "live processes taking turns",
    "alternating-processes": "whole processes in alternation",
}
FAKE_FRAMEWORK = "This was the fake framework: nothing was computed, and no time is real"
FEW_OUTCOMES = 4  # of which each has a trust line of its own
NOT_STEADY = ("drifting", "two-modes")  # warnings that speak against a steady state


# -- comparisons -----------------------------------------------------------------------------------


def factor(comparison: Comparison | Mean) -> str:
    """The ratio with its interval, turned so that it reads as 'so many times'."""
    speedup = comparison.speedup
    return show_interval(speedup if speedup.value >= 1 else speedup.inverse, "x")


def span(result: Interval | Claim) -> str:
    """An interval in words: 20 % slower to 10 % faster."""
    return " to ".join(_end_in_words(end) for end in (result.low, result.high) if end is not None)


def _end_in_words(ratio: float) -> str:
    times = max(ratio, 1 / ratio)
    by = show_percent(times - 1) if times < 2 else f"{digits(times, most=2)}x"
    return f"{by} {'faster' if ratio > 1 else 'slower'}"


def arms(comparison: Comparison) -> tuple[str, str]:
    """What the two sides differ in, in words: ('roundtrip', 'device'); where in nothing, their runs."""
    base, other = comparison.base, comparison.other
    different = differing(base, other)
    if not different:
        return run_name(other.records[0]), run_name(base.records[0])

    def side(outcome: Outcome) -> str:
        names = [named(axis, column(outcome, axis)) for axis in different]
        return " ".join(names) + (" (published)" if outcome.published else "")

    return side(other), side(base)


def run_name(record: Record) -> str:
    """When a record was made, and in which run: 2026-11-16 04:01 UTC (run 20261116T040042-0260ab)."""
    return f"{record.created[:16].replace('T', ' ')} UTC (run {record.run.id})"


def named(axis: str, value: Any) -> str:
    """A value of an axis as it stands in a sentence: mps, roundtrip, batch 16, threads as usual."""
    if isinstance(value, bool):
        return AXIS[axis].say(value)
    if value is None or isinstance(value, int):
        return f"{axis.replace('_', ' ')} {'as usual' if value is None else value}"
    return as_typed(str(value)) if axis == "workload" else str(value)


def sentence(comparison: Comparison) -> str:
    """One comparison as a sentence; that a published figure has no interval is said once, below all of them."""
    base, other = comparison.base, comparison.other
    case = f"{case_on_device(other.case, *differing(base, other))}: "
    if base.machine == other.machine and other.published:
        case = f"{case[:-2]}, {other.machine}: "
    if other.case.own_command and other.case.workload != base.case.workload:  # a command says it all
        case = ""
    codes = dict.fromkeys(code for code, _, _ in doubts(comparison))
    changed = [] if differing(base, other) else [f"differing {name}" for name in differences(base, other)]
    advice = "" if _published(comparison) and comparison.low is None else comparison.advice
    notes = "; ".join([comparison.how, *codes, *changed, *([advice] if advice else [])])
    return f"{case}{claim(comparison, *arms(comparison))} [{notes}]"


def nothing_along(axis: str, where: str = "") -> str:
    """That there is nothing to compare along an axis, and what would give something."""
    why = "no case was ok in two runs" if axis == "run" else f"no two cases that are ok differ only in {axis}"
    cure = {"run": "measure it once more", "machine": "import what another has measured", "workload": "measure another"}
    option = AXIS[axis].options[0] if axis in AXIS else ""
    return f"nothing to compare along {axis}{where}: {why}; {cure.get(axis, f'measure some with {option} A,B')}."


def best_sizes(outcomes: Sequence[Outcome], axis: str) -> list[str]:
    """For cases that differ in one size only: at which of them most items a second are done."""
    lines = []
    for group in alike([outcome for outcome in outcomes if outcome.status == "ok"], axis):
        rated = [(rate.value, outcome) for outcome in group if (rate := outcome.figure("throughput")) is not None]
        if len(rated) > 1:
            most, best = max(rated, key=lambda pair: pair[0])
            item = best.good[0].fact("item") or "item"
            size = named(axis, getattr(best.case, axis))
            lines.append(f"best of {len(rated)}: {size}, {digits(most)} {item}s/s [{case_on_device(best.case, axis)}]")
    return lines


def fastest_frameworks(comparisons: Sequence[Comparison]) -> list[str]:
    """For cases that were compared in several frameworks: in which of them the work is done fastest."""
    lines = []
    along = [each for each in comparisons if differing(each.base, each.other) == ["framework"]]
    for group in grouped(along, lambda each: each.base.records[0].id).values():
        if len(group) == 1:
            continue  # the sentence about the two has said it
        best = max(group, key=lambda each: each.ratio)
        base, work = best.base, case_on_device(best.base.case, "framework")
        first = best.other if best.ratio > 1 else base
        others = [side for side in (base, *(each.other for each in group)) if side is not first]
        rivals = [each for each in compared([(other, first) for other in others]) if each.verdict != "faster"]
        if rivals:
            names = " and ".join([first.case.framework, *(each.base.case.framework for each in rivals)])
            equal = all(each.verdict == "equivalent" for each in rivals)
            how = f"equivalent (within {show_percent(DELTA)})" if equal else "within noise of each other"
            lines.append(f"no clear winner of {len(group) + 1} frameworks: {names} are {how} [{work}]")
        else:
            how = f", {factor(best)} faster than {base.case.framework}" if first is not base else ""
            lines.append(f"fastest of {len(group) + 1} frameworks: {first.case.framework}{how} [{work}]")
    return lines


def mean_sentence(mean: Mean) -> str:
    """The mean of several comparisons as a sentence."""
    comparisons = mean.comparisons
    doubtful = sum(bool(doubts(comparison)) for comparison in comparisons)
    among = f", {doubtful} of them doubtful" if doubtful else ""
    why = "" if mean.low is not None or any(map(_published, comparisons)) else ", since not each case has one"
    if mean.low is not None and any(comparison.how == ONE_SIDED for comparison in comparisons):
        why = ", own interval only"
    return f"geometric mean of {len(comparisons)} cases{among}: {claim(mean, *arms(comparisons[0]))}{why}"


def claim(result: Comparison | Mean, other: str, base: str) -> str:
    """What is said of two sides, and no more than is known."""
    comparisons = result.comparisons if isinstance(result, Mean) else (result,)
    if comparisons[0].value == "energy":
        return _energy_claim(result, other, base, " an item" if comparisons[0].per_item else " a step")
    each = " per item" if comparisons[0].per_item else ""
    if result.verdict == "equivalent":
        return f"{other} and {base} are equivalent{each} (within {show_percent(DELTA)})"
    if result.verdict != "inconclusive":
        return f"{other} is {factor(result)} {result.verdict}{each} than {base}"
    if result.low is not None:
        return f"{NO_CLEAR_DIFFERENCE}{each} between {other} and {base} (the first is {span(result)})"
    way = f"{'faster' if result.ratio > 1 else 'slower'}{each}"
    no_interval = "" if any(map(_published, comparisons)) else "; no interval"
    return f"{other} looks {factor(result)} {way} than {base}{no_interval}"


def _energy_claim(result: Comparison | Mean, other: str, base: str, each: str) -> str:
    """The same of energies, as a share: bf16 takes 0.61x (0.57-0.65) of fp32's energy a step."""
    if result.verdict == "equivalent":
        return f"{other} and {base} take equivalent energy{each} (within {show_percent(DELTA)})"
    share = show_interval(result.speedup.inverse, "x")
    if result.verdict != "inconclusive":
        return f"{other} takes {share} of {base}'s energy{each}"
    if result.low is None:
        return f"{other} looks as if it took {share} of {base}'s energy{each}; no interval"
    return f"{NO_CLEAR_DIFFERENCE} in energy{each} between {other} and {base} (the first takes {share} of it)"


def _published(comparison: Comparison) -> bool:
    return comparison.base.published or comparison.other.published


def doubts(comparison: Comparison) -> list[tuple[str, Outcome, str]]:
    """What speaks against a published figure of either side: suspect or superseded, the figure, and the reason."""
    return [
        (code, side, reason)
        for side in (comparison.base, comparison.other)
        if side.published
        for code, reason in marks(side.records[0])
    ]


def contradictions(comparisons: Sequence[Comparison]) -> list[str]:
    """Why tables and paired comparisons point in different directions, a line for each that does."""
    sides = dict.fromkeys(" and ".join(arms(each)) for each in comparisons if each.contradicts_times)
    return [
        f"{both}: their times in tables say otherwise, since each was measured alone, at another moment; the paired "
        "comparison counts: there they took turns"
        for both in sides
    ]


def footers(comparisons: Sequence[Comparison]) -> list[str]:
    """What is said once for all comparisons: why figures are doubted or contradicted, and which have no interval."""
    marked = [doubt for comparison in comparisons for doubt in doubts(comparison)]
    lines = [f"{code}: {side.machine}, {case_on_device(side.case)}: {reason}" for code, side, reason in marked]
    if any(map(_published, comparisons)):
        lines.append("a published figure has no interval: how far off a factor with one may be is not known")
    return [*contradictions(comparisons), *dict.fromkeys(lines)]


# -- trust -----------------------------------------------------------------------------------------


def trust(outcome: Outcome) -> str:
    """How far an outcome can be trusted: steady or not, how well it is known, and what spoke against it."""
    if outcome.published:
        return "a published figure, as it was published"
    if not outcome.good:
        return f"no number: {outcome.reason}" if outcome.status == "unsteady" else f"no number: {outcome.status}"
    estimate = outcome.step
    parts = [_steadiness(outcome)]
    if estimate is not None and estimate.half_width is not None:
        shown = show_error(estimate.value, estimate.half_width).strip()
        within = "" if estimate.within is None else f"{show_error(estimate.value, estimate.within).strip()} within it, "
        parts.append(f"{within}{shown} over {count(estimate.processes, 'process')}")
    against = [code for code in _codes(outcome) if code not in NOT_STEADY]
    waited = len(outcome.good) - len(counting(outcome.good))
    if waited:
        place = against.index("contended")
        against[place] = f"contended ({waited} of {count(len(outcome.good), 'process')}, left out)"
    bad = [record for record in outcome.records if record.status != "ok"]
    if bad:
        against.insert(0, f"{len(bad)} of {count(len(outcome.records), 'process')} {bad[0].status} ({bad[0].reason})")
    return ", ".join(parts) + (f"; but {', '.join(against)}" if against else "")


def _codes(outcome: Outcome) -> list[str]:
    return list(dict.fromkeys(warning.code for warning in outcome.warnings))


def _steadiness(outcome: Outcome) -> str:
    """Whether its times were steady: as the warm-up judged it, unless a warning says that they were not."""
    moved = [code for code in _codes(outcome) if code in NOT_STEADY]
    if moved:
        return f"not steady ({', '.join(moved)})"
    judged = [record.fact("warmup_steady") for record in outcome.good]
    if all(steady is True for steady in judged):
        return "steady"
    return "too few steps to judge if steady" if None in judged else "steady only after its warm-up"


def sharing(counts: Mapping[tuple[Case, str], int], private: bool) -> str:
    """What goes out with so many records of each case on each machine."""
    machines = {machine for _, machine in counts}
    lines = {case.workload for case, _ in counts if case.own_command}
    commands = f", {count(len(lines), 'command line')}" if lines and not private else ""
    left_out = "command lines and paths are left out" if private else "--private leaves command lines and paths out"
    whose = "its name, processor, versions" if len(machines) == 1 else "their names, processors, versions"
    records = count(sum(counts.values()), "record")
    return f"shares {records} of {count(len(machines), 'machine')}: {whose}{commands}; {left_out}"


def trust_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """A trust line for each of a few outcomes, or one for all; and what the warnings mean and what to do, once each."""
    each = [f"trust {case_name(outcome.case)}: {trust(outcome)}" for outcome in outcomes]
    return [*(each if len(each) <= FEW_OUTCOMES else [trust_line(outcomes)]), *warning_meanings(outcomes)]


def trust_line(outcomes: Sequence[Outcome]) -> str:
    """How far many outcomes can be trusted; each warning with its number of cases."""
    good = [outcome for outcome in outcomes if outcome.good]
    steady = sum(_steadiness(outcome) == "steady" for outcome in good)
    steps = [outcome.step for outcome in good]
    errors = [step.half_width / step.value for step in steps if step is not None and step.half_width is not None]
    spans = f"; known to {_between(min(errors), max(errors))}" if errors else ""
    codes = Counter(code for outcome in outcomes for code in _codes(outcome))
    everywhere = [code for code, number in codes.items() if number == len(outcomes)]
    some = [f"{code} ({number})" for code, number in codes.items() if number < len(outcomes)]
    against = "; but " + ", ".join([*everywhere, *some]) if codes else ""
    return f"trust: {len(good)} of {count(len(outcomes), 'case')} succeeded, {steady} surely steady{spans}{against}"


def _between(least: float, most: float) -> str:
    shown = [f"±{show_half_width(error)}" for error in (least, most)]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} at best, {shown[1]} at worst"


def warning_meanings(outcomes: Sequence[Outcome]) -> list[str]:
    """What the warnings of outcomes mean, and what to do, once each."""
    warnings = dict.fromkeys(warning for outcome in outcomes for warning in outcome.warnings)
    by_cure = grouped(warnings, lambda warning: (warning.code, warning.hint))
    return [
        f"  {code}: {' / '.join(warning.message for warning in warnings)}. Next: {hint}."
        for (code, hint), warnings in by_cure.items()
    ]


# -- energy ------------------------------------------------------------------------------------------


def energy_lines(outcomes: Sequence[Outcome], wanted: bool = False) -> list[str]:
    """What a step takes of energy, a line for each outcome that has some; where it was wanted, why others have none."""
    good = [outcome for outcome in outcomes if outcome.status == "ok"]
    lines = [f"{case_name(outcome.case)}: {text}" for outcome in good if (text := energy_summary(outcome))]
    return [*lines, *(unknown_energy_lines(outcomes) if wanted else ())]


def unknown_energy_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Why there is no energy: a line for each outcome, or one for all of them."""
    good = [outcome for outcome in outcomes if outcome.status == "ok"]
    lost = {
        case_name(outcome.case): next((why for record in outcome.good if (why := record.fact("energy_lost"))), None)
        for outcome in good if outcome.figure("energy") is None
    }  # fmt: skip
    if len(lost) < len(good):
        return [f"{case}: energy unknown: {why or 'its sensor told nothing'}" for case, why in lost.items()]
    said = next(filter(None, lost.values()), "no sensor can be read here")
    return [f"energy: unknown: {said}; `mldyno doctor` says which there are"] if good else []


def energy_summary(outcome: Outcome) -> str:
    """Energy of a step, that above idle, power and what is done for a joule; and who tells it; empty where nobody."""
    energy = outcome.figure("energy")
    if energy is None:
        return ""
    fact = outcome.with_energy[0].fact
    above, rate = outcome.figure("energy_above_idle"), outcome.figure("efficiency")
    parts = [f"{shown(energy)} a step" + ("" if above is None else f", {_above_idle(above)}")]
    powers = {"at work": "power", "at most": "peak_power", "at rest": "idle_power"}
    watts = [f"{show(power.value, 'W')} {when}" for when, name in powers.items()
             if (power := outcome.figure(name)) is not None]  # fmt: skip
    parts += [", ".join(watts)] if watts else []
    parts += [f"{digits(rate.value, rate.half_width)} {fact('item') or 'item'}s a joule"] if rate is not None else []
    lost = dict.fromkeys(why for record in outcome.good if (why := record.fact("energy_lost")))
    notes = [
        energy_source(outcome),
        *(["too few windows for an interval"] if energy.half_width is None else []),
        *([f"lost meanwhile: {', '.join(lost)}"] if lost else []),
    ]
    return f"{'; '.join(parts)} [{'; '.join(notes)}]"


def _above_idle(energy: Estimate) -> str:
    """What a step takes beside the machine at rest; one that rested badly takes no less than at work."""
    if energy.value <= 0 or (energy.low is not None and energy.low <= 0):
        return "not surely more than at rest"
    return f"{shown(energy)} of it above idle"


def energy_source(outcome: Outcome) -> str:
    """What its energy is that of, and which sensors told it, how."""
    fact = outcome.with_energy[0].fact if outcome.with_energy else lambda name: None
    if not fact("energy_scope"):
        return "of unknown scope"
    return f"{fact('energy_scope')}, by {fact('energy_by')} ({fact('energy_method')})"


def shown(estimate: Estimate) -> str:
    """A figure and how well it is known."""
    return show(estimate.value, estimate.unit, estimate.half_width) + show_error(estimate.value, estimate.half_width)


# -- what was timed apart from the step: phases of it, its data, epochs, whole processes -------------


def phase_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each outcome that has something beside its step to tell."""
    good = [outcome for outcome in outcomes if outcome.status == "ok"]
    texts = [(case_name(outcome.case), "; ".join([*_first_batch(outcome), *phases(outcome)])) for outcome in good]
    return [f"{case}: {text}" for case, text in texts if text]


def _first_batch(outcome: Outcome) -> Iterator[str]:
    first = outcome.figure("first_batch")
    if first is not None:
        yield f"first batch {show_seconds(first.value)}"


def ranks_told(outcome: Outcome, parts: RankSplit) -> Iterator[str]:
    """What ranks gain, how long they wait for gradients, and whether one is slower than the others."""
    fact, given = outcome.good[0].fact, f"{parts.ranks} ranks give" if parts.ranks > 1 else "1 rank gives"
    if parts.over_same_threads is not None:
        gain = f"{show_interval(parts.over_same_threads, 'x')} the speed of one process with the threads of a rank"
        whole = f", {show_interval(parts.over_all_cores, 'x')} of one with all cores" if parts.over_all_cores else ""
        yield f"{given} {gain}{whole}"
    yield f"{show_interval(parts.waiting, '%')} of a step waits for gradients"
    if parts.hidden is not None:
        yield f"{show_interval(parts.hidden, '%')} of their exchange overlaps with compute"
    yield f"wrapper overhead: a step takes {show_interval(parts.wrapper, 'x')} as long"
    yield f"batch {fact('batch_per_rank')} a rank, {fact('batch_in_all')} in all"
    if parts.straggler is not None:
        rank, slower = parts.straggler
        yield f"rank {rank} takes {show_interval(slower, 'x')} as long as the others for its own work"


def phases(outcome: Outcome) -> Iterator[str]:
    """What was timed apart from the step, and what else there is beside it, in words."""
    fact = outcome.good[0].fact
    for name in outcome.phases:
        time, rate = of_metric(outcome.good, f"{name}_time"), outcome.figure(f"throughput:{name}")
        if time is not None:
            each = f", {digits(rate.value)} {fact('item')}s/s" if rate is not None else ""
            items, batch = fact(f"{name}_items"), fact("batch_in_all") or outcome.case.batch
            if name == "data" and items and batch:  # several batches were fetched in a row
                time, each = time.scaled(batch / items, "s"), f" a batch{each}"
            yield f"{name} {shown(time)}{each}"
    if (loop := loop_parts(outcome.good[0])) is not None:
        yield from parts_in_words(loop)
    if (parts := split(outcome)) is not None:
        yield from ranks_told(outcome, parts)
    waits = outcome.waits_for_data()
    if waits is not None:
        accuracy = fact("accuracy")
        reached = f", accuracy {show_percent(accuracy)}" if accuracy is not None else ""
        loads = f"{show_percent(waits)} of a step goes into getting its batch"
        if outcome.case.loader_workers:  # which load while the step computes
            loads = f"steps take {show_percent(waits)} of what the loader's workers can load"
        yield f"{loads} ({fact('data')} data{reached})"
    if fact("end_to_end"):
        cold, warm = outcome.figure("first_step"), outcome.figure("step")
        if cold is not None and warm is not None:
            yield f"first run: {show_seconds(cold.value)}; later runs: {show_seconds(warm.value)}"
    syncs, kernels = fact("host_syncs_per_step"), fact("kernels_per_step")
    if outcome.phases and syncs is not None and kernels:
        yield f"{count(kernels, 'kernel')} and {count(syncs, 'device-to-host sync')} a step"


# -- machines and records --------------------------------------------------------------------------


def machine_lines(machine: Machine) -> list[str]:
    """A machine in two lines."""
    memory = show_bytes(machine.memory) if machine.memory else "unknown memory"
    cores = count(machine.cores, "core") if machine.cores else "? cores"
    virtual = {True: "virtual machine", False: "real hardware", None: "virtual or not: unknown"}[machine.virtualised]
    return [
        f"{machine.name}",
        f"{machine.system} {machine.release}, {machine.arch}, {cores}, {memory}, {virtual}, power: {machine.power}",
    ]


def how_paired(case: Case, pairing: Pairing) -> str:
    """In what way a case was measured head-to-head with others; each run of a command is a process of its own."""
    return "run by run" if (case.framework, pairing) == ("command", "interleaved") else PAIRING[pairing]


def headline(*records: Record) -> str:
    """One line for the processes of a case: its time and how well it is known, or what became of the last one."""
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
