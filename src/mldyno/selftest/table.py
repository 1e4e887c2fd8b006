"""The self-test as a whole: which measures there are, how much effort each takes, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mldyno.selftest import on_device, on_machine, on_series
from mldyno.selftest.contract import CASES, Contract
from mldyno.selftest.measures import Measure

SEED = 20240229
ON_ANY_MACHINE = (1, 2, 3, 5, 6, 8, 9, 10, 12)  # what `mldyno selftest` prints; all twelve are for development
ON_A_DEVICE = tuple(range(21, 31))  # and with a device other than the CPU
Tick = Callable[[], None]


@dataclass(frozen=True)
class Effort:
    """How much is done: comparisons of two arms, simulated series a cell, fresh processes, pairs of loops."""

    comparisons: int
    series: int
    processes: int
    seconds: float
    pairs: int


QUICK = Effort(comparisons=20, series=40, processes=4, seconds=1.4, pairs=150)
FULL = Effort(comparisons=200, series=400, processes=10, seconds=1.6, pairs=500)
CLAIMS_SHARE = 4  # the stopping rule reads long series: so many times fewer of them
CONTRACT_SHARE = 2  # on a device comparisons take longer: so many times fewer of them


@dataclass(frozen=True)
class Part:
    """One or two measures that come from the same work; `seconds` is what it takes on a slow machine."""

    name: str
    ids: tuple[int, ...]
    seconds: float
    run: Callable[[Tick], list[Measure]]


def parts(effort: Effort, framework: str) -> list[Part]:
    """The parts of the self-test."""
    each, start = 0.9, 3.0  # s: a comparison, and the start of a process with its framework
    return [
        Part("harness", (1,), start + 0.05 * effort.pairs,
             lambda tick: on_machine.harness_overhead(framework, effort.pairs, tick)),
        Part("identical code", (2,), start + each * effort.comparisons,
             lambda tick: on_machine.false_verdicts(framework, effort.comparisons, tick)),
        Part("a true 3 %", (3, 4), start + each * effort.comparisons,
             lambda tick: on_machine.power(framework, effort.comparisons, tick)),
        Part("coverage", (5,), 0.02 * effort.series, lambda tick: [on_series.coverage(effort.series, SEED, tick)]),
        Part("fresh processes", (6, 7), (start + effort.seconds) * effort.processes,
             lambda tick: on_machine.reproducibility(framework, effort.processes, effort.seconds, tick)),
        Part("simulated device", (8,), 2.0, on_machine.simulated_device),
        Part("drift", (9,), 0.03 * effort.series, lambda tick: [on_series.drift_found(effort.series, SEED, tick)]),
        Part("warm-up", (10,), 0.04 * effort.series, lambda tick: [on_series.warm_up_bias(effort.series, SEED, tick)]),
        Part("late changes", (11,), 2.0, lambda tick: on_machine.late_changes(40, tick)),
        Part("stopping", (12,), 0.1 * effort.series,
             lambda tick: [on_series.false_reached(effort.series // CLAIMS_SHARE, SEED, tick)]),
    ]  # fmt: skip


def contract(effort: Effort, framework: str, device: str) -> list[Part]:
    """The parts of the contract of a device, in the order in which its process carries them out."""
    comparisons = max(1, effort.comparisons // CONTRACT_SHARE)
    of = Contract(framework, device, comparisons).of
    return [
        Part("the device", (21,), 5.0, lambda tick: on_device.found(of("device", tick), device)),
        Part("its memory", (22, 23), 5.0,
             lambda tick: on_device.overflow(of("overflow", tick)) + on_device.memory(of("memory", tick))),
        Part("known work", (24,), 5.0, lambda tick: on_device.work(of("work", tick))),
        Part("waiting", (25,), 3.0, lambda tick: on_device.wait(of("wait", tick))),
        Part("precisions", (26, 27, 28), 50.0,
             lambda tick: on_device.cases({task: of(task, tick) for task in CASES}, device)),
        Part("identical code", (29,), 2.5 * comparisons, lambda tick: on_device.identical(of("identical", tick))),
        Part("copies", (30,), 8.0, lambda tick: on_device.placements(of("placements", tick))),
    ]  # fmt: skip


def run(
    effort: Effort, framework: str, ids: tuple[int, ...], progress: Callable[[str, float], None], device: str = "cpu"
) -> Iterator[Measure]:
    """The measures with these ids, one after the other; `progress` hears the part and the s that are left."""
    every = parts(effort, framework) if device == "cpu" else contract(effort, framework, device)
    todo = [part for part in every if set(part.ids) & set(ids)]
    for number, part in enumerate(todo):
        left = sum(later.seconds for later in todo[number:])
        progress(part.name, left)
        for measure in part.run(lambda part=part, left=left: progress(part.name, left)):  # type: ignore[misc]
            if measure.id in ids:
                yield measure
