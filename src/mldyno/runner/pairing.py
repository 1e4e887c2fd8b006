"""In how many processes each case is measured, which cases are compared head-to-head, and how.

Cases that do the same work in different ways are compared: they differ in one axis, and that axis is not what is
computed (workload, mode, batch, seq), unless the user asks for it. The closest possible of three pairings is taken:
interleaved in one process, block by block; live processes that take turns; whole processes in alternation, where
they do not fit in memory together, or where a loader's workers would work ahead during the turns of other cases. A
paired comparison gives times for ratios only: first steps and peaks come from a process with one case in it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from mldyno import machine
from mldyno.analysis.estimates import log_ratios, step_time, times_in_process
from mldyno.axes import AXES, NAMES, WORK, Case
from mldyno.plan import Plan
from mldyno.records import Pairing, Record, Series
from mldyno.runner.remote_case import RemoteCase, measure_rounds
from mldyno.stats.intervals import median, paired
from mldyno.timing.stopping import FIRST_LOOK, GROWTH, SHORTEST_WARMUP_S, SUSTAINED_S, WARMUP_SHARE, relative_half_width
from mldyno.worker.client import Ended

MOST_TOGETHER = 8  # cases in one comparison
FRESH_PAIRS = 5  # of processes, over all repeats of a run, where cases can't share one
ROOM_SHARE = 0.9  # of a device's memory, that cases may fill together
LIVE_TURN_S = 0.05  # for which a live process works before it hands over
FEWEST_ROUNDS = 12  # as many pairs as an interval has batches
PAIRED_SHARE = 0.5  # of a case's budget, for its paired comparisons; all of it where the ratio is asked for
ENERGY_TURNS, ENERGY_TURN_S = 3, 2.0  # of each case; counters need windows of half a second
_OWN_PROCESS = tuple(axis.name for axis in AXES if axis.own_process)


# -- which -----------------------------------------------------------------------------------------
def comparable(a: Case, b: Case, by: str | None) -> bool:
    """Return whether two cases differ in exactly one axis, and comparing along it makes sense or is asked for."""
    different = [name for name in NAMES if getattr(a, name) != getattr(b, name)]
    return len(different) == 1 and (different[0] not in WORK or different[0] == by)


def groups(cases: Sequence[Case], by: str | None = None) -> list[list[Case]]:
    """Return the cases in groups: each case with those that are comparable to a member, in the plan's order."""
    left, grouped = list(cases), []
    while left:
        group = [left.pop(0)]
        for member in group:  # grows while it is walked through
            near = [case for case in left if comparable(case, member, by)]
            group += near
            left = [case for case in left if case not in near]
        grouped.append([case for case in cases if case in group])
    return grouped


def pairings(group: Sequence[Case]) -> list[list[Case]]:
    """Split a group into parts that can be compared at once; the first case, the baseline, is in each of them."""
    if len(group) < 2:
        return []
    base, rest = group[0], group[1:]
    size = MOST_TOGETHER - 1
    return [[base, *rest[start : start + size]] for start in range(0, len(rest), size)]


def pairing_for(records: Sequence[Record]) -> Pairing:
    """Return the closest pairing that cases can have, from what each needed when it was alone."""
    return nearest([record.case for record in records]) if _fit(records) else "alternating-processes"


def nearest(cases: Sequence[Case]) -> Pairing:
    """Return the closest pairing that cases can have where all of them fit in memory.

    Other nodes have one job at a time. Workers of a loader fill their queue while their case waits for its turn, and a
    short turn would then use batches that cost it nothing.
    """
    if any(case.nodes > 1 or case.loads_ahead for case in cases):
        return "alternating-processes"
    kinds = {tuple(getattr(case, name) for name in _OWN_PROCESS) for case in cases}
    ranks = any(case.in_ranks for case in cases)  # of which a process has those of one case
    return "interleaved" if len(kinds) == 1 and not ranks else "live-processes"


def pairs_per_repeat(pairing: Pairing, repeats: int) -> int:
    """Return how often cases are paired in a repeat; speed varies between processes, so one pair is too few."""
    return 1 if pairing == "interleaved" else math.ceil(FRESH_PAIRS / repeats)


def paired_budget(plan: Plan, pairs: int = 1) -> float:
    """Return the time in s that a case has in one of `pairs` paired comparisons of a repeat."""
    return (1.0 if plan.head_to_head else PAIRED_SHARE) * plan.budget / plan.fewest_repeats / pairs


def _fit(records: Sequence[Record]) -> bool:
    """Return whether the peaks of all of them together leave room, on the host and on each device."""
    if all(record.case.framework == "command" for record in records):  # a run has ended when the next one begins
        return True
    left = machine.available_memory()
    if left is not None and sum(_peak(record, "peak_memory") for record in records) > left:
        return False
    for name in {record.case.device for record in records}:
        there = [record for record in records if record.case.device == name]
        sizes = [device.memory for device in there[0].machine.devices if device.name == name and device.memory]
        if sizes and sum(_peak(record, "peak_device_memory") for record in there) > ROOM_SHARE * sizes[0]:
            return False
    return True


def _peak(record: Record, metric: str) -> float:
    ranks = record.values("rank_peak_memory", "process") if metric == "peak_memory" else []
    return math.fsum(ranks) or max(record.values(metric, "process"), default=0.0)


# -- how -------------------------------------------------------------------------------------------
def run_paired(pairing: Pairing, cases: Sequence[RemoteCase], chance: random.Random, energy: bool = False) -> None:
    """Measure these cases head-to-head by that pairing, for about the budget that each of them has.

    `energy`: then they take turns of seconds for it, in the same processes.
    """
    if pairing == "alternating-processes":
        return alternating_processes(cases, chance, energy)
    (interleaved if pairing == "interleaved" else live_processes)(cases, chance)
    if energy:
        energy_turns(cases, chance)


def energy_turns(cases: Sequence[RemoteCase], chance: random.Random) -> None:
    """Measure the energy of open cases in turns of seconds, in random order."""
    for turn in range(ENERGY_TURNS):
        for case in chance.sample(cases, len(cases)):
            case.take_energy_turn(turn, ENERGY_TURN_S)
            _let_rest(case)


def interleaved(cases: Sequence[RemoteCase], chance: random.Random) -> None:
    """Measure all cases in one process, in rounds of one block each, until their ratios are known well enough."""
    cases[0].worker.start()
    for case in cases:
        case.open(start=False)
    stopping = cases[0].stopping
    budget = stopping.budget * len(cases)
    seconds = FIRST_LOOK * len(cases)
    while True:
        measure_rounds(cases, seconds, 2, chance.random())
        elapsed = sum(case.elapsed for case in cases)
        known = len(cases[0].values) >= FEWEST_ROUNDS and ratios_known([case.series for case in cases], stopping.target)
        if elapsed >= budget or known:
            return
        seconds = max(FIRST_LOOK, min((GROWTH - 1) * elapsed, budget - elapsed))


def by_turns(
    cases: Sequence[RemoteCase], chance: random.Random, time_left: Callable[[], float]
) -> tuple[list[RemoteCase], list[tuple[RemoteCase, Ended]]]:
    """Run commands, each in its worker, round by round in random order, until times and ratios are known.

    Every run is a process, so that the time of each command alone comes from the same runs. Return the commands that
    succeeded, and those that failed with how they ended; the rest goes on without them.
    """
    running, failures = list(cases), list[tuple[RemoteCase, Ended]]()

    def attempt(step: Callable[[RemoteCase], None]) -> None:
        for case in chance.sample(running, len(running)):
            try:
                step(case)
            except Ended as end:
                failures.append((case, end))
        for case, _ in failures:
            if case in running:
                running.remove(case)

    def take_turn(case: RemoteCase) -> None:
        if case.stopping.steps is None or not case.settled:  # else all its steps are done, and another's are not
            case.measure(LIVE_TURN_S)

    attempt(RemoteCase.open)
    while running:
        attempt(take_turn)
        if time_left() <= 0 or any(case.out_of_time for case in running) or _enough_turns(running):
            break
    return running, failures


def _enough_turns(cases: Sequence[RemoteCase]) -> bool:
    """Return whether times and ratios of commands are known to the target, or the budget is spent."""
    if not cases or cases[0].stopping.steps is not None:
        return all(case.settled for case in cases)
    stopping, rounds = cases[0].stopping, cases[0].turns
    if sum(case.elapsed for case in cases) >= stopping.budget * len(cases):
        return rounds > 1
    known = rounds >= FEWEST_ROUNDS and all(case.settled for case in cases)
    return known and ratios_known([in_rounds(case).series for case in cases], stopping.target)


def in_rounds(case: RemoteCase) -> RemoteCase:
    """Return a command's turns as rounds of a paired comparison: the median of the runs of each."""
    turns = [
        replace(part, values=(median(part.values),), stage="paired", turn=None)
        for part in case.series
        if (part.metric, part.stage) == ("step_time", "steady")
    ]
    energy = [part for part in case.series if part.stage == "paired"]
    return replace(case, run=replace(case.run, pairing="interleaved"), series=[*turns, *energy])


def ratios_known(cases: Sequence[Sequence[Series]], target: float) -> bool:
    """Return whether each ratio to the first case is known to half the target: close cases can then be called equal."""
    base, *compared = (times_in_process(series) for series in cases)
    return all(paired(log_ratios(base, other))[1] <= target / 2 for other in compared)


def live_processes(
    cases: Sequence[RemoteCase], chance: random.Random, rounds: int = FEWEST_ROUNDS, turn_s: float = LIVE_TURN_S
) -> None:
    """Start a process for each case, and let the processes take turns in random order, one at a time.

    The threads of a process must sleep before another one has its turn.
    """
    for case in cases:
        case.open()
        _let_rest(case)
    budget = cases[0].stopping.budget * len(cases)
    for number in range(rounds):
        for case in chance.sample(cases, len(cases)):
            case.measure(turn_s)
            _let_rest(case)
        if number and sum(case.elapsed for case in cases) >= budget:
            return


def _let_rest(case: RemoteCase) -> None:
    """Wait until its threads sleep, so that another process can work; nothing spins in fake time."""
    if not case.facts.get("fake_time"):
        case.worker.wait_until_idle()


def alternating_processes(cases: Sequence[RemoteCase], chance: random.Random, energy: bool = False) -> None:
    """Measure one whole process after the other, in random order."""
    for case in chance.sample(cases, len(cases)):
        try:
            case.open()
            case.measure(max(case.stopping.budget, LIVE_TURN_S))
            if energy:
                case.take_energy_turn(0, ENERGY_TURN_S)
        finally:
            case.worker.kill()


# -- how many processes ----------------------------------------------------------------------------

SHORTEST_PROCESS_S = 1.0  # for which a process is measured; starting it takes some seconds
NORMAL = 1.96  # standard deviations in half of a 95 % interval


def longest_warm_up(plan: Plan) -> float:
    """Return the time in s that the warm-up of a process may take: a share of its budget."""
    return max(SHORTEST_WARMUP_S, WARMUP_SHARE * plan.budget / plan.fewest_repeats)


def load_before(plan: Plan, case: Case) -> float:
    """Return the time in s for which a case's device works before it is measured, where the budget allows it."""
    return 0.0 if case.device == "cpu" else min(SUSTAINED_S, WARMUP_SHARE * plan.budget / plan.fewest_repeats)


def shortest_budget(plan: Plan) -> float:
    """Return the shortest time in s for which a process is measured, where the number of processes is open."""
    return min(plan.budget / plan.fewest_repeats, max(SHORTEST_PROCESS_S, plan.budget / plan.most_repeats))


def measured(record: Record) -> float:
    """Return the time in s within the measured blocks of a process."""
    parts = (part for part in record.series if part.metric == "step_time" and part.stage in ("steady", "paired"))
    return math.fsum(part.block * math.fsum(part.values) for part in parts)


def start_time(record: Record) -> float:
    """Return the time in s that a process took without its measured blocks; fake time costs none."""
    return 0.0 if record.fact("fake_time") else max(0.0, (record.fact("wall_time") or 0.0) - measured(record))


def budget_of_process(plan: Plan, before: Sequence[Record]) -> float:
    """Return the time in s for which the next process of a case is measured, after these.

    It follows Kalibera and Jones (2013): another process narrows what differs between processes, and costs a start;
    measuring on narrows only what differs within one. Where the ratio is asked for, paired comparisons get the time.
    """
    if plan.head_to_head and not plan.commands:
        return shortest_budget(plan)
    if plan.most_repeats == plan.fewest_repeats:
        return plan.budget / plan.fewest_repeats
    shortest, longest = shortest_budget(plan), plan.budget / plan.fewest_repeats
    last = next((record for record in reversed(before) if record.status == "ok"), None)
    spread = last and last.fact("process_spread")
    width = relative_half_width(last.values("step_time")) if last else None
    if last is None or not spread or width is None:
        return shortest
    ratio = (width / NORMAL / spread) ** 2 * measured(last)  # of the variances, within a process for each s of it
    return min(longest, max(shortest, math.sqrt(start_time(last) * ratio)))


def cannot_work(record: Record) -> bool:
    """Return whether another process would fail in the same way: this process failed before its first step."""
    return record.status == "unsupported" or (record.status == "failed" and not record.series)


def wants_another(plan: Plan, before: Sequence[Record]) -> bool:
    """Return whether a case is measured in another process after these: until its time is known to the target."""
    count = len(before)
    if before and cannot_work(before[-1]):
        return False
    if count < plan.fewest_repeats or plan.most_repeats == plan.fewest_repeats or plan.head_to_head:
        return count < plan.fewest_repeats
    estimate = step_time([record for record in before if record.status == "ok"])
    if count >= plan.most_repeats or estimate is None or estimate.half_width is None:
        return False
    if estimate.half_width <= plan.target * estimate.value:
        return False
    starts = [start_time(record) for record in before]
    spent = sum(map(measured, before)) + sum(starts[plan.fewest_repeats :])
    return spent + starts[-1] + budget_of_process(plan, before) <= plan.budget
