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
from typing import TYPE_CHECKING, Any

from mldyno import machine as machines
from mldyno.analysis.processes import Process
from mldyno.axes import TRACKED, unstated
from mldyno.errors import MldynoError, StoreLocked
from mldyno.records import Fact, Machine, Record, Run, Series
from mldyno.runner.events import Interrupts
from mldyno.runner.recording import Observed, new_run_id, processes_before, record_of
from mldyno.stats.intervals import rounded
from mldyno.store import Store
from mldyno.store.transfer import rescue
from mldyno.timing.loops import LoopBlocks, LoopTimes
from mldyno.timing.stopping import Stopping, warm_from
from mldyno.tracking import process
from mldyno.units import count
from mldyno.views.outcomes import loop_line

if TYPE_CHECKING:
    from mldyno.tracking.tracker import Loop

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
        ranks.tell(loop.name, json.dumps(_for_first_rank(loop)))
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
    """What was observed of a loop, the machine with its devices, and the time in s that was timed in all."""

    observed: Observed
    machine: Machine
    wall_time: float

    def record(self, before: Sequence[Process] | None = None) -> Record:
        """Return its record; `before` are earlier processes of the machine."""
        return record_of(self.observed, self.machine, self.wall_time, "ok", "", before=before)


def _stored(ended: EndedLoop, store: Store, name: str, interrupts: Interrupts) -> Record:
    """Make and store a record; wait a while for another process that holds the store."""
    ends = math.inf
    with closing(store):
        while True:
            try:
                record = ended.record(_before(store, ended.machine))
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


def _before(store: Store, machine: Machine) -> list[Process] | None:
    try:
        return processes_before(store, machine)
    except StoreLocked:
        raise
    except MldynoError:
        return None  # a store that can't be read may still be added to


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
    case = replace(unstated(loop.name, TRACKED), device=loop.place.device)
    if ranks is not None:
        case = replace(case, ranks=ranks.world)
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
    observed.series += [*_apart_series(times), *_rank_series(loop, steady, of_ranks)]
    for series in loop.contention.stop() if loop.watched is not None else ():  # what got in the way, over all epochs
        observed.series.append(replace(series, values=(math.fsum(series.values),)))
    observed.facts |= _facts(loop, size, unsteady, of_ranks, len(usual.times))
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


def _apart_series(times: LoopTimes) -> Iterator[Series]:
    """Yield what lies between steps, and the rounds of real and held batches."""
    for stage, values in (("between", times.between), ("apart", times.apart)):
        if values:
            yield Series("apart_time", "s", _seconds(values), stage)
    if times.rounds:
        real, held = zip(*times.rounds, strict=True)
        yield Series("step_time", "s", _seconds(real), "beside", times.blocks.size)
        yield Series("held_time", "s", _seconds(held), "beside", times.blocks.size)


def _facts(loop: Loop, size: int, unsteady: str, of_ranks: dict[int, str], blocks: int) -> dict[str, Fact]:
    times, items = loop.times, loop.count.per_step
    world = 1 if loop.ranks is None else loop.ranks.world
    steady = None if blocks < 20 else not unsteady
    ended = getattr(sys, "last_type", None)
    facts: dict[str, Fact] = {
        "first_step": _seconds([times.first or 1])[0], "warmup_steady": steady, "block_steps": size,
        "item": loop.item, "ended": loop.ended if ended is None or loop.ended != "left" else ended.__name__,
        "epochs": times.epochs or None,
    }  # fmt: skip
    if items is not None:
        items_of_ranks = [json.loads(text).get("items") or items for text in of_ranks.values()]
        facts["items_per_step"] = items + sum(items_of_ranks) if of_ranks else items * world
        if world > 1:
            facts |= {"batch_per_rank": items, "batch_in_all": facts["items_per_step"]}
    return facts


def _for_first_rank(loop: Loop) -> dict[str, Any]:
    """Return what a rank leaves for the first one."""
    loop.times.catch_up()
    usual, _ = loop.times.blocks.without_long()
    return {"size": usual.size, "times": usual.times, "waits": usual.waits, "items": loop.count.per_step}


def _rank_series(loop: Loop, steady: LoopBlocks, of_ranks: dict[int, str]) -> Iterator[Series]:
    """Yield the same steps, as each rank timed them."""
    if loop.ranks is None:
        return
    yield from _series_of(steady, "rank-0")
    for rank, text in of_ranks.items():
        content = json.loads(text)
        yield from _series_of(LoopBlocks(content["size"], content["times"], content["waits"]), f"rank-{rank}")
