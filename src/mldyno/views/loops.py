"""Tracked loops in plain words: what is said when a loop ends, and what other views say of it."""

from __future__ import annotations

from collections.abc import Iterator

from mldyno.analysis.loops import Change, LoaderCost, LoopParts, loop_parts
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Record
from mldyno.stats.intervals import mean
from mldyno.units import count, digits, show_error, show_interval, show_percent, show_seconds

ID_DIGITS = 10  # of a record, that name it


def loop_line(record: Record) -> str:
    """A loop in one line: its step, how well it is known within this process, and what it is made of."""
    outcome, name = Outcome((record,)), record.case.workload
    step, parts = outcome.step, loop_parts(record)
    if step is None:
        steps = record.values("step_time")
        shown = f"no one number for a step: {record.reason.partition(';')[0]}"
        shown += f"; {show_seconds(mean(steps))} on average" if steps else ""
    else:
        shown = f"step {show_seconds(step.value, step.within)}{show_error(step.value, step.within)}"
    rate = outcome.figure("throughput")
    if rate is not None:
        shown += f" ({digits(rate.value, rate.within, 2)} {record.fact('item') or 'item'}s/s)"
    phrases = [] if parts is None else list(parts_in_words(parts))
    if parts is not None and parts.waiting is not None:
        shown += f", {phrases.pop(0).replace('of a step', 'of it', 1)}"
    phrases += [f"{warning.code}: {warning.message}" for warning in record.warnings if warning.code == "contended"]
    return f"{name}: {'; '.join([shown, *phrases])} [record {record.id[:ID_DIGITS]}]"


def parts_in_words(parts: LoopParts) -> Iterator[str]:
    """What a step of a loop waits for, what its loader costs, where it changed, and what stands apart."""
    if parts.waiting is not None:
        yield f"{show_interval(parts.waiting, '%')} of a step waiting for data"
    if parts.loader is not None:
        yield _of_loader(parts.loader)
    if parts.change is not None:
        yield _of_change(parts.change)
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
        return f"what the loader costs can't be told from nothing: at most {show_seconds(time.high)} a step, {how}"
    interval = f"{show_seconds(time.low)} to {show_seconds(time.high)}"
    return f"the loader costs {show_interval(share, '%')} of a step, {interval}, {how}"


def _of_change(change: Change) -> str:
    way = "slower" if change.change > 0 else "faster"
    where = "bit by bit" if change.step is None else f"from step {change.step:,} on"
    return f"{way} by {show_percent(abs(change.change))} {where}"
