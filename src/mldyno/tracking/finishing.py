"""The end of a tracked loop: its record, made like any other, stored, and reported in a line.

Rule: whatever is needed here is imported before the program ends (see `Loop`). CPython notes that Ctrl-C has ended the
program, but clears that note whenever it executes source text, as the making of a namedtuple or a dataclass does; the
program would then exit with 1 instead of dying of the signal.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mldyno import machine as machines
from mldyno.analysis.estimates import Process
from mldyno.axes import TRACKED, unstated
from mldyno.errors import MldynoError, StoreLocked
from mldyno.records import Fact, Machine, Record, Run, Series
from mldyno.runner.events import Interrupts
from mldyno.runner.recording import Observed, new_run_id, processes_before, record_of, rescue
from mldyno.stats.intervals import rounded
from mldyno.store import Store
from mldyno.timing.loops import LoopBlocks
from mldyno.timing.stopping import Stopping, warm_from
from mldyno.tracking import process
from mldyno.units import count
from mldyno.views.outcomes import loop_line

if TYPE_CHECKING:
    from mldyno.tracking.tracker import Loop

FEWEST_TO_BE_STEADY = 20  # blocks; fewer don't show whether a loop is steady
WAIT_S, LONGEST_LOCK_WAIT_S = 0.5, 5.0  # for another process that holds the store: at once without a word, and in all


def say(line: str) -> None:
    """Print one line for the user, never among what the program prints itself."""
    with suppress(Exception):  # standard error may be closed
        sys.stderr.write(f"mldyno: {line}\n")
        sys.stderr.flush()


def finish(loop: Loop, interrupts: Interrupts) -> Record | None:
    """Make the record of a loop, in the first of its ranks; store it, and report it."""
    times, ranks = loop.times, loop.ranks
    if not times.steps:
        return None  # it was never used
    if ranks is not None and ranks.rank > 0:
        times.catch_up()
        usual, _ = times.blocks.without_long()
        content = {"size": usual.size, "times": usual.times, "waits": usual.waits, "items": loop.count.per_step}
        ranks.tell(loop.name, json.dumps(content))
        return None
    ended = observed_of(loop, {} if ranks is None else ranks.hear(loop.name))
    if ended is None:
        say(line_so_far(loop))
        return None
    path, failure = None, ""
    try:
        named = loop.store.path if isinstance(loop.store, Store) else loop.store
        store = Store(named, patience=WAIT_S)
        path = store.path
        record = _stored(ended, store, loop.name, interrupts)
    except (MldynoError, OSError) as error:
        record = ended.record()
        failure = f"not stored: {str(error).rstrip('.')}. {rescue([record], path)}"
    say(loop_line(record))
    if times.fault:
        say(f"{loop.name}: not all of it was measured: {times.fault}")
    if failure:
        say(f"{loop.name}: {failure}")
    return record


@dataclass(frozen=True)
class EndedLoop:
    """The observations of a loop, its machine with devices, and the total time measured, in s."""

    observed: Observed
    machine: Machine
    wall_time: float

    def record(self, before: Sequence[Process] | None = None) -> Record:
        return record_of(self.observed, self.machine, self.wall_time, "ok", "", before=before)


def _stored(ended: EndedLoop, store: Store, name: str, interrupts: Interrupts) -> Record:
    """Make and store a record; wait a while for another process that holds the store."""
    ends = math.inf
    with closing(store):
        while True:
            try:
                try:
                    before = processes_before(store, ended.machine)
                except StoreLocked:
                    raise
                except MldynoError:
                    before = None  # a store that can't be read may still be added to
                record = ended.record(before)
                store.append([record])
                return record
            except StoreLocked:
                if time.monotonic() > ends:
                    raise
                if ends == math.inf:
                    wait = f"waiting up to {LONGEST_LOCK_WAIT_S:.0f} s for it"
                    say(f"{name}: another process holds store {store.path}; {wait}")
                    ends = time.monotonic() + LONGEST_LOCK_WAIT_S
            interrupts.check()


def line_so_far(loop: Loop) -> str:
    """Return what is known of a loop by now, in a line."""
    if loop.record is not None:
        return loop_line(loop.record)
    if (so_far := observed_of(loop, {})) is not None:
        return loop_line(so_far.record())
    return f"{loop.name}: {count(loop.times.steps, 'step')} so far: too few for a number"


def observed_of(loop: Loop, of_ranks: dict[int, str]) -> EndedLoop | None:
    """Return what was observed of a loop; None where that is too little. `of_ranks` are texts of the other ranks."""
    times, ranks = loop.times, loop.ranks
    times.catch_up()
    smaller = list(times.smaller)
    blocks = smaller.pop() if smaller and not times.blocks.times else times.blocks  # a loop shorter than one block
    usual, long = blocks.without_long()
    if not usual.times or times.first is None:
        return None
    start, unsteady = warm_from([time / usual.size for time in usual.times])
    size = usual.size
    steady = LoopBlocks(size, usual.times[start:], usual.waits[start:])
    case = replace(unstated(loop.name, TRACKED), device=loop.place.device, ranks=ranks.world if ranks else None)
    observed = Observed(case, Run(new_run_id()), Stopping(steps=times.steps))
    observed.unsteady = unsteady
    observed.series.append(Series("step_time", "s", _seconds([times.first]), "first"))
    if times.fetches:
        observed.series.append(Series("data_wait", "s", _seconds(times.fetches), "first"))
    for part in (*smaller, LoopBlocks(size, usual.times[:start], usual.waits[:start])):
        observed.series += _series_of(part, "warmup")
    for series in _series_of(steady, "steady"):
        observed.take(series)
    for part in (*times.long, long):
        observed.series += _series_of(part, "long")
    for stage, values in (("between", times.between), ("apart", times.apart)):
        if values:
            observed.series.append(Series("apart_time", "s", _seconds(values), stage))
    if times.rounds:
        real, held = zip(*times.rounds, strict=True)
        observed.series.append(Series("step_time", "s", _seconds(real), "beside", times.blocks.size))
        observed.series.append(Series("held_time", "s", _seconds(held), "beside", times.blocks.size))
    if ranks is not None:  # the same steps, as each rank timed them
        observed.series += _series_of(steady, "rank-0")
        for rank, text in of_ranks.items():
            content = json.loads(text)
            part = LoopBlocks(content["size"], content["times"], content["waits"])
            observed.series += _series_of(part, f"rank-{rank}")
    for series in loop.contention.stop() if loop.watched is not None else ():  # what got in the way, over all epochs
        observed.series.append(replace(series, values=(math.fsum(series.values),)))
    ended, last_error = loop.ended, getattr(sys, "last_type", None)
    observed.facts |= {
        "first_step": _seconds([times.first or 1])[0], "block_steps": size,
        "warmup_steady": None if len(usual.times) < FEWEST_TO_BE_STEADY else not unsteady,
        "item": loop.item, "ended": last_error.__name__ if last_error and ended == "left" else ended,
        "epochs": times.epochs or None, **_items(loop, of_ranks),
    }  # fmt: skip
    observed.software = process.software()
    devices = process.devices(case.device)
    machine = machines.describe(machines.Vendors().describe(devices) if devices else ())
    timed = [*(part.times for part in (times.blocks, *times.smaller, *times.long)),
             [times.first or 0], times.fetches, times.between, times.apart]  # fmt: skip
    return EndedLoop(observed, machine, sum(map(sum, timed)) / 1e9)


def _seconds(values: Sequence[float], size: int = 1) -> tuple[float, ...]:
    return rounded(value / size / 1e9 for value in values)


def _series_of(part: LoopBlocks, stage: str) -> Iterator[Series]:
    if part.times:
        yield Series("step_time", "s", _seconds(part.times, part.size), stage, part.size)
        yield Series("data_wait", "s", _seconds(part.waits, part.size), stage, part.size)


def _items(loop: Loop, of_ranks: dict[int, str]) -> dict[str, Fact]:
    """Return the facts of the items of a step, over all ranks."""
    items, world = loop.count.per_step, 1 if loop.ranks is None else loop.ranks.world
    if items is None:
        return {}
    items_of_ranks = [json.loads(text).get("items") or items for text in of_ranks.values()]
    total = items + sum(items_of_ranks) if of_ranks else items * world
    return {"items_per_step": total, **({"batch_per_rank": items, "batch_in_all": total} if world > 1 else {})}
