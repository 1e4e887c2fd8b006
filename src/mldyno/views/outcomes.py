"""Outcomes in words: how far to trust them, their energy, and where the time of a step goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mldyno.analysis import grouped
from mldyno.analysis.breakdown import LoaderCost, LoopParts, RankSplit, loop_parts, split
from mldyno.analysis.estimates import Estimate, contended, of_metric, undisturbed
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Record
from mldyno.stats.intervals import mean
from mldyno.units import count, digits, show, show_error, show_interval, show_percent, show_seconds

FEW_OUTCOMES = 4  # up to this number each has a trust line
NOT_STEADY = ("drifting", "two-modes")  # warnings about times that were not steady
MIN_RUNS_TO_JUDGE = 20  # runs of a process before a drift among them can show
ID_DIGITS = 10  # of a record's id


def _name(outcome: Outcome) -> str:
    from mldyno.views.titles import case_name  # imports all tables, which a tracked loop does not need

    return case_name(outcome.case)


def trust(outcome: Outcome) -> str:
    """Say how far to trust an outcome: steady or not, its interval, and the warnings."""
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
    waited = len(outcome.good) - len(undisturbed(outcome.good, contended))
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
    """Say whether its times were steady: as the warm-up judged, unless there is a warning.

    Whole processes have no warm-up: enough of them without a warning are steady.
    """
    moved = [code for code in _codes(outcome) if code in NOT_STEADY]
    if moved:
        return f"not steady ({', '.join(moved)})"
    judged = [_judged_steady(record) for record in outcome.good]
    if all(steady is True for steady in judged):
        return "steady"
    unit = "runs" if all(record.fact("end_to_end") for record in outcome.good) else "steps"
    return f"too few {unit} to judge if steady" if None in judged else "steady only after its warm-up"


def _judged_steady(record: Record) -> bool | None:
    judged: bool | None = record.fact("warmup_steady")
    if judged is None and record.fact("end_to_end") and len(record.values("step_time")) >= MIN_RUNS_TO_JUDGE:
        return True
    return judged


def trust_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a trust line for each of a few outcomes, or one for all; then the warnings explained."""
    several = len({outcome.machine for outcome in outcomes}) > 1
    lines = [f"trust {_name(outcome)}{f' on {outcome.machine}' if several else ''}: {trust(outcome)}"
             for outcome in outcomes]  # fmt: skip
    return [*(lines if len(lines) <= FEW_OUTCOMES else [trust_line(outcomes)]), *warning_meanings(outcomes)]


def trust_line(outcomes: Sequence[Outcome]) -> str:
    """Say how far to trust many outcomes, with the number of cases for each warning."""
    good = [outcome for outcome in outcomes if outcome.good]
    steady = sum(_steadiness(outcome) == "steady" for outcome in good)
    steps = [outcome.step for outcome in good]
    errors = [step.half_width / step.value for step in steps if step is not None and step.half_width is not None]
    ends = [show_error(1, error).strip() for error in (min(errors), max(errors))] if errors else []
    spans = f"; known to {ends[0]}{f' at best, {ends[1]} at worst' if ends[0] != ends[1] else ''}" if ends else ""
    codes = Counter(code for outcome in outcomes for code in _codes(outcome))
    everywhere = [code for code, number in codes.items() if number == len(outcomes)]
    some = [f"{code} ({number})" for code, number in codes.items() if number < len(outcomes)]
    against = "; but " + ", ".join([*everywhere, *some]) if codes else ""
    return f"trust: {len(good)} of {count(len(outcomes), 'case')} succeeded, {steady} steady{spans}{against}"


def warning_meanings(outcomes: Sequence[Outcome]) -> list[str]:
    """Explain each warning once, with the next step."""
    warnings = dict.fromkeys(warning for outcome in outcomes for warning in outcome.warnings)
    by_cure = grouped(warnings, lambda warning: (warning.code, warning.hint))
    return [
        f"  {code}: {' / '.join(_without_repeats([warning.message for warning in warnings]))}. Next: {hint}."
        for (code, hint), warnings in by_cure.items()
    ]


def _without_repeats(messages: Sequence[str]) -> Iterator[str]:
    """Yield the messages; of those that differ only in their numbers the first two, and how many more there are."""
    for alike in grouped(messages, lambda message: re.sub(r"[\d.,]+", "0", message)).values():
        *shown, last = alike[:2]
        yield from shown
        yield f"{last} ({len(alike) - 2} more like it)" if len(alike) > 2 else last


def energy_lines(outcomes: Sequence[Outcome], wanted: bool = False) -> list[str]:
    """Return the energy of a step for each outcome that has some; if `wanted`, also why the rest have none."""
    good = [outcome for outcome in outcomes if outcome.status == "ok"]
    lines = [f"{_name(outcome)}: {text}" for outcome in good if (text := energy_summary(outcome))]
    return [*lines, *(unknown_energy_lines(outcomes) if wanted else ())]


def unknown_energy_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Explain why there is no energy, for each outcome or once for all."""
    good = [outcome for outcome in outcomes if outcome.status == "ok"]
    lost = {
        _name(outcome): next((why for record in outcome.good if (why := record.fact("energy_lost"))), None)
        for outcome in good if outcome.figure("energy") is None
    }  # fmt: skip
    if len(lost) < len(good):
        return [f"{case}: energy unknown: {why or 'its sensor reported nothing'}" for case, why in lost.items()]
    reason = next(filter(None, lost.values()), "no sensor can be read here")
    return [f"energy: unknown: {reason}; `mldyno doctor` lists the sensors"] if good else []


def energy_summary(outcome: Outcome) -> str:
    """Return energy per step, power, and items per joule, with the sensor; empty without a sensor."""
    energy = outcome.figure("energy")
    return "" if energy is None else "{} [{}]".format(*energy_in_words(outcome, energy))


def price_summary(outcome: Outcome) -> str:
    """Return what a million steps and a million items cost, and what the machine costs; empty if that is unknown."""
    price, steps, items = outcome.price, *map(outcome.figure, ("price_per_million_steps", "price_per_million_items"))
    if price is None or steps is None:
        return ""
    parts = [f"{show_estimate(steps)} per million steps"]
    parts += [f"{show_estimate(items)} per million {outcome.item}s"] if items is not None else []
    return f"{', '.join(parts)}, at {price}"


def energy_in_words(outcome: Outcome, energy: Estimate) -> tuple[str, str]:
    """Say the energy of a step, power, and items per joule; and how they were measured."""
    fact = outcome.with_energy[0].fact
    above, rate = outcome.figure("energy_above_idle"), outcome.figure("efficiency")
    parts = [f"{show_estimate(energy)} a step"]
    if above is not None:
        clear = above.value > 0 and (above.low is None or above.low > 0)
        parts[0] += f", {show_estimate(above)} of it above idle" if clear else ", not clearly above idle"
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
    return "; ".join(parts), "; ".join(notes)


def energy_source(outcome: Outcome) -> str:
    """Return scope, sensor and method of an energy figure."""
    fact = outcome.with_energy[0].fact if outcome.with_energy else lambda name: None
    if not fact("energy_scope"):
        return "of unknown scope"
    return f"{fact('energy_scope')}, by {fact('energy_by')} ({fact('energy_method')})"


def show_estimate(estimate: Estimate) -> str:
    """Show a figure and its relative error: 2.31 ms ±1.2 %."""
    return show(estimate.value, estimate.unit, estimate.half_width) + show_error(estimate.value, estimate.half_width)


def phase_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for each outcome that has more than the time of its step."""
    lines = []
    for outcome in (outcome for outcome in outcomes if outcome.status == "ok"):
        first = outcome.figure("first_batch")
        parts = [*([f"first batch {show_seconds(first.value)}"] if first else []), *phases(outcome)]
        lines += [f"{_name(outcome)}: {'; '.join(parts)}"] if parts else []
    return lines


def rank_lines(outcome: Outcome, parts: RankSplit) -> Iterator[str]:
    """Say how well ranks scale, how long they wait for gradients, and which rank is slow."""
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
    """Say what was timed besides the step: phases, data, ranks, first run, kernels."""
    fact = outcome.good[0].fact
    for name in outcome.phases:
        time, rate = of_metric(outcome.good, f"{name}_time"), outcome.figure(f"throughput:{name}")
        if time is not None:
            each = f", {digits(rate.value)} {fact('item')}s/s" if rate is not None else ""
            items, batch = fact(f"{name}_items"), fact("batch_in_all") or outcome.case.batch
            if name == "data" and items and batch:  # two or more batches were fetched in a row
                time, each = time.scaled(batch / items, "s"), f" a batch{each}"
            yield f"{name} {show_estimate(time)}{each}"
    if (loop := loop_parts(outcome.good[0])) is not None:
        yield from loop_lines(loop)
    if (parts := split(outcome)) is not None:
        yield from rank_lines(outcome, parts)
    waits = outcome.waits_for_data()
    if waits is not None:
        accuracy = fact("accuracy")
        reached = f", accuracy {show_percent(accuracy)}" if accuracy is not None else ""
        loads = f"{show_percent(waits)} of a step goes into getting its batch"
        if outcome.case.loads_ahead:  # which load while the step computes
            loads = f"steps take {show_percent(waits)} of what the loader's workers can load"
        yield f"{loads} ({fact('data')} data{reached})"
    if fact("end_to_end"):
        cold, warm = outcome.figure("first_step"), outcome.figure("step")
        if cold is not None and warm is not None:
            yield f"first run: {show_seconds(cold.value)}; later runs: {show_seconds(warm.value)}"
    syncs, kernels = fact("host_syncs_per_step"), fact("kernels_per_step")
    if outcome.phases and syncs is not None and kernels:
        yield f"{count(kernels, 'kernel')} and {count(syncs, 'device-to-host sync')} a step"


def loop_line(record: Record) -> str:
    """Describe a loop in one line: its step, the interval within this process, and where the time goes."""
    outcome, name = Outcome((record,)), record.case.workload
    step, parts = outcome.step, loop_parts(record)
    if step is None:
        steps = record.values("step_time")
        shown = f"no single step time: {record.reason.partition(';')[0]}"
        shown += f"; {show_seconds(mean(steps))} on average" if steps else ""
    else:
        shown = f"step {show_seconds(step.value, step.within)}{show_error(step.value, step.within)}"
    rate = outcome.figure("throughput")
    if rate is not None:
        shown += f" ({digits(rate.value, rate.within, 2)} {record.fact('item') or 'item'}s/s)"
    phrases = [] if parts is None else list(loop_lines(replace(parts, waiting=None)))
    if parts is not None and parts.waiting is not None:
        shown += f", {show_interval(parts.waiting, '%')} of it waiting for data"
    phrases += [f"{warning.code}: {warning.message}" for warning in record.warnings if warning.code == "contended"]
    return f"{name}: {'; '.join([shown, *phrases])} [record {record.id[:ID_DIGITS]}]"


def loop_lines(parts: LoopParts) -> Iterator[str]:
    """Say what a step of a loop waits for, what its loader costs, where it changed, and what was excluded."""
    if parts.waiting is not None:
        yield f"{show_interval(parts.waiting, '%')} of a step waiting for data"
    if parts.loader is not None:
        yield _of_loader(parts.loader)
    if (change := parts.change) is not None:
        where = "bit by bit" if change.step is None else f"from step {change.step:,} on"
        yield f"{'slower' if change.change > 0 else 'faster'} by {show_percent(abs(change.change))} {where}"
    if parts.long_blocks:
        long = "long step" if parts.steps_each == 1 else "long block"
        yield f"{count(parts.long_blocks, long)} apart, {show_seconds(parts.long_time)} in all"
    if parts.pauses:
        yield f"{count(parts.pauses, 'pause')} for other work, {show_seconds(parts.pause_time)} in all"


def _of_loader(cost: LoaderCost) -> str:
    share, time = cost.share, cost.time
    how = f"over {count(cost.rounds, 'round')} of real and held batches"
    if share.low is None or time.low is None or time.high is None:
        return f"the loader costs {show_seconds(max(0.0, time.value))} a step, {how}"
    if share.low <= 0:
        return f"no measurable loader cost: at most {show_seconds(time.high)} a step, {how}"
    interval = f"{show_seconds(time.low)} to {show_seconds(time.high)}"
    return f"the loader costs {show_interval(share, '%')} of a step, {interval}, {how}"
