"""The self-test as a whole: which measures there are, how much effort each takes, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from mldyno.selftest import device, on_machine, on_series
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


def on_a_device(contract: Contract, comparisons: int, name: str) -> list[Exercise]:
    """The exercises of the contract of a device, in the order in which its process carries them out."""

    def exercise(title: str, seconds: float, *tasks: str) -> Exercise:
        ids = tuple(device.TRIALS[task].id for task in tasks)
        return Exercise(title, ids, seconds, lambda tick: [
            device.measure(task, contract.of(task, tick), name) for task in tasks
        ])  # fmt: skip

    return [
        exercise("the device", 5.0, "device"),
        exercise("its memory", 5.0, "overflow", "memory"),
        exercise("known work", 5.0, "work"),
        exercise("waiting", 3.0, "wait"),
        Exercise("precisions", (26, 27, 28), 50.0,
                 lambda tick: device.cases({task: contract.of(task, tick) for task in CASES}, name)),
        exercise("identical code", 2.5 * comparisons, "identical"),
        exercise("copies", 8.0, "placements"),
        exercise("its queue", 8.0, "queue", "lazy"),
        exercise("latency", 5.0, "latency"),
        exercise("its peak", 5.0, "peak"),
        exercise("sustained load", 12.0, "sustained"),
        exercise("the edge of its memory", 5.0, "edge"),
        exercise("layouts", 10.0, "layouts"),
    ]  # fmt: skip


def run(
    effort: Effort, framework: str, ids: tuple[int, ...], progress: Callable[[str, float], None], name: str = "cpu"
) -> Iterator[Measure]:
    """Yield the measures with these ids, on a device; `progress` hears the exercise and the s that are left."""
    comparisons = max(1, effort.comparisons // CONTRACT_DIVISOR)
    contract = Contract(framework, name, comparisons)
    every = on_any_machine(effort, framework) if name == "cpu" else on_a_device(contract, comparisons, name)
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
