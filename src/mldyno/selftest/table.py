"""The self-test as a whole: which measures there are, how much effort each takes, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from mldyno.selftest import behaviour, on_device, on_machine, on_series
from mldyno.selftest.contract import CASES, Contract
from mldyno.selftest.measures import Measure

SEED = 20240229
ON_ANY_MACHINE = (1, 2, 3, 5, 6, 8, 9, 10, 12, 13)  # what `mldyno selftest` prints; the rest is for development
ON_A_DEVICE = tuple(range(21, 38))  # and with a device other than the CPU
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
CLAIMS_DIVISOR = 4  # the stopping rule reads long series: so many times fewer of them
CONTRACT_DIVISOR = 2  # on a device comparisons take longer: so many times fewer of them


@dataclass(frozen=True)
class Exercise:
    """One or two measures that come from the same work; `seconds` is what it takes on a slow machine."""

    name: str
    ids: tuple[int, ...]
    seconds: float
    run: Callable[[Tick], list[Measure]]


def on_any_machine(effort: Effort, framework: str) -> list[Exercise]:
    """The exercises of the self-test."""
    each, start = 0.9, 3.0  # s: a comparison, and the start of a process with its framework
    return [
        Exercise("harness", (1,), start + 0.05 * effort.pairs,
                 lambda tick: on_machine.harness_overhead(framework, effort.pairs, tick)),
        Exercise("identical code", (2,), start + each * effort.comparisons,
                 lambda tick: on_machine.false_verdicts(framework, effort.comparisons, tick)),
        Exercise("a true 3 %", (3, 4), start + each * effort.comparisons,
                 lambda tick: on_machine.power(framework, effort.comparisons, tick)),
        Exercise("coverage", (5,), 0.02 * effort.series, lambda tick: [on_series.coverage(effort.series, SEED, tick)]),
        Exercise("fresh processes", (6, 7, 13), (start + effort.seconds) * effort.processes,
                 lambda tick: on_machine.reproducibility(framework, effort.processes, effort.seconds, tick)),
        Exercise("simulated device", (8,), 2.0, on_machine.simulated_device),
        Exercise("drift", (9,), 0.03 * effort.series, lambda tick: [on_series.drift_found(effort.series, SEED, tick)]),
        Exercise("warm-up", (10,), 0.04 * effort.series,
                 lambda tick: [on_series.warm_up_bias(effort.series, SEED, tick)]),
        Exercise("late changes", (11,), 2.0, lambda tick: on_machine.late_changes(40, tick)),
        Exercise("stopping", (12,), 0.1 * effort.series,
                 lambda tick: [on_series.false_reached(effort.series // CLAIMS_DIVISOR, SEED, tick)]),
    ]  # fmt: skip


def on_a_device(contract: Contract, comparisons: int, device: str) -> list[Exercise]:
    """The exercises of the contract of a device, in the order in which its process carries them out."""
    of = contract.of
    return [
        Exercise("the device", (21,), 5.0, lambda tick: on_device.found(of("device", tick), device)),
        Exercise("its memory", (22, 23), 5.0,
                 lambda tick: on_device.overflow(of("overflow", tick)) + on_device.memory(of("memory", tick))),
        Exercise("known work", (24,), 5.0, lambda tick: on_device.work(of("work", tick))),
        Exercise("waiting", (25,), 3.0, lambda tick: on_device.wait(of("wait", tick))),
        Exercise("precisions", (26, 27, 28), 50.0,
                 lambda tick: on_device.cases({task: of(task, tick) for task in CASES}, device)),
        Exercise("identical code", (29,), 2.5 * comparisons, lambda tick: on_device.identical(of("identical", tick))),
        Exercise("copies", (30,), 8.0, lambda tick: on_device.placements(of("placements", tick))),
        Exercise("its queue", (31, 32), 8.0, lambda tick: behaviour.queue(of("queue", tick), device)
                 + behaviour.lazy(of("lazy", tick), device)),
        Exercise("latency", (33,), 5.0, lambda tick: behaviour.latency(of("latency", tick))),
        Exercise("its peak", (34,), 5.0, lambda tick: behaviour.peak(of("peak", tick))),
        Exercise("sustained load", (35,), 12.0, lambda tick: behaviour.sustained(of("sustained", tick))),
        Exercise("the edge of its memory", (36,), 5.0, lambda tick: behaviour.edge(of("edge", tick))),
        Exercise("layouts", (37,), 10.0, lambda tick: behaviour.layouts(of("layouts", tick))),
    ]  # fmt: skip


def run(
    effort: Effort, framework: str, ids: tuple[int, ...], progress: Callable[[str, float], None], device: str = "cpu"
) -> Iterator[Measure]:
    """The measures with these ids, one after the other; `progress` hears the exercise and the s that are left."""
    comparisons = max(1, effort.comparisons // CONTRACT_DIVISOR)
    contract = Contract(framework, device, comparisons)
    every = on_any_machine(effort, framework) if device == "cpu" else on_a_device(contract, comparisons, device)
    todo = [exercise for exercise in every if set(exercise.ids) & set(ids)]
    try:
        for number, exercise in enumerate(todo):
            left = sum(later.seconds for later in todo[number:])
            tell = partial(progress, exercise.name, left)
            tell()
            for measure in exercise.run(tell):
                if measure.id in ids:
                    yield measure
    finally:
        contract.end()
