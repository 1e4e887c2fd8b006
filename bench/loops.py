"""Figure 8: a step as mldyno reports it, over that of a loop written by hand around the same model."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import plugins
from mldyno.records import Case
from mldyno.stats.intervals import median, paired
from mldyno.units import show_seconds
from mldyno.worker.session import CaseSession, open_case

LEAST, MOST = 0.99, 1.01  # a harness that seems faster than the loop is as wrong as a slower one
THREADS = 1
PORTION = 0.02  # s of steps that each side does in a round, or one block where that takes longer
# In so short a portion, two of mldyno's blocks find cold caches: the first one, and the one after the first look at
# meters and reference kernel. In a run these come once in a window, and no median sees them. Both sides omit them.
COLD = 2
KNOWN = 0.004  # relative half-width at which a ratio is known well enough
SEED = 20240229
# Batch and sequence length with which a step is as short as the model allows.
SIZES: Mapping[str, tuple[int, int | None]] = {
    "attention": (2, 64), "attention-1head": (2, 64), "bert-base": (1, 8), "bert-large": (1, 8), "bert-tiny": (4, 32),
    "cifar10-cnn": (4, None), "cnn-224": (1, None), "compute-loop": (1, None), "copy": (16, None), "encoder": (1, 8),
    "encoder-ragged": (1, 8), "gpt2": (1, 8), "lstm": (1, 16), "matmul": (512, None), "mlp": (128, None),
    "mnist-cnn": (64, None), "mnist-linear": (64, None), "mnist-mlp": (64, None), "resnet18": (1, None),
    "resnet18-cifar": (1, None), "resnet50": (1, None), "venv-ppo": (2, None),
}  # fmt: skip
SHORT = ("copy", "mlp")  # those of a quick run

Loop = Callable[[int], None]


@dataclass(frozen=True)
class Effort:
    """How long a case is warmed up, and measured: in s, but for the fewest rounds."""

    warmup: float
    shortest: float
    longest: float
    rounds: int


FULL, QUICK = Effort(1.0, 3.0, 15.0, 16), Effort(0.2, 0.3, 0.3, 4)


@dataclass(frozen=True)
class Ratio:
    """mldyno's time of a step over the loop's, half of its 95 % interval, and what it comes from."""

    value: float
    half_width: float
    ours: float
    theirs: float
    """Medians of all rounds, in s."""
    rounds: int
    steps: int
    """Of each side in a round."""


def measure(work: Work) -> Chapter:
    """The time of a step by mldyno's harness over that by a plain loop, for every workload and mode."""
    chapter = Chapter("8. A step as mldyno reports it, over a hand-written loop's")
    chapter.notes.append(
        f"One process, {THREADS} thread, fp32, the CPU. A case is opened and warmed up as in a worker, and measured by"
        " `CaseSession.turn`, with meters and reference kernel; beside it a loop around the same model, its optimiser,"
        " its batches, with a clock around it. In each round both do as many steps in blocks of the same size, in"
        f" random order, for about {PORTION * 1e3:.0f} ms or one block each; the medians of their blocks are paired."
        f" Where there are several, {COLD} more go before, on both sides, which do not count: right after other work a"
        " block finds cold caches."
        " The value is the mean log-ratio of the rounds, with its 95 % interval; the target is held against the value"
        " itself."
    )
    for case in cases(SHORT if work.quick else tuple(SIZES)):
        found = _compare(case, QUICK if work.quick else FULL)
        size = f"batch {case.batch}" + (f", sequence {case.seq}" if case.seq else "")
        how = f"{size}; {found.rounds} rounds of {found.steps} step{'s' * (found.steps > 1)} each"
        name = f"`{case.workload}` {case.mode}"
        say(f"  {case.workload} {case.mode}: {found.value:.4f} ± {found.half_width:.4f}")
        chapter.figures.append(Figure(name, found.value, "", MOST, how, LEAST, found.half_width))
        chapter.notes.append(f"{name}: {show_seconds(found.ours)} over {show_seconds(found.theirs)} a step.")
    return chapter


def cases(names: tuple[str, ...]) -> Iterator[Case]:
    """The cases of these workloads, in every mode that they have."""
    for name in names:
        workload, (batch, seq) = plugins.workload(name), SIZES[name]
        for mode in workload.modes:
            yield Case(name, workload.version, mode=mode, batch=batch, seq=seq, threads=THREADS)  # type: ignore[arg-type]


def _compare(case: Case, effort: Effort) -> Ratio:
    import torch

    threads = torch.get_num_threads()
    try:
        opened = open_case(case)
        opened.warm_up(effort.warmup)
        loop = by_hand(opened.program)
        loop(1)
        return paired_rounds(opened, loop, effort)
    finally:
        torch.set_num_threads(threads)
        gc.unfreeze()  # the warm-up froze what there was; the next case needs the room
        gc.collect()


def paired_rounds(opened: CaseSession, loop: Loop, effort: Effort) -> Ratio:
    """Rounds of both, until their ratio is known well enough or they took long enough."""
    size = opened.blocks.size
    count = max(1, round(PORTION * 1e9 / opened.blocks.time(size)))
    cold = COLD if count > 1 else 0
    sides = [lambda: _by_mldyno(opened, (cold + count) * size), lambda: _by_clock(loop, cold + count, size)]
    found: list[list[float]] = [[], []]
    logs: list[float] = []
    order, chance, began = [0, 1], random.Random(SEED), time.perf_counter()
    while True:
        chance.shuffle(order)
        for place in order:
            found[place].append(median(sides[place]()[cold:]))
        logs.append(math.log(found[0][-1] / found[1][-1]))
        elapsed = time.perf_counter() - began
        if len(logs) >= effort.rounds and elapsed >= effort.shortest:
            centre, half = paired(logs)
            if half <= KNOWN or elapsed >= effort.longest:
                break
    value = math.exp(centre)
    return Ratio(value, value * half, median(found[0]), median(found[1]), len(logs), count * size)


def _by_mldyno(opened: CaseSession, steps: int) -> list[float]:
    """Times of a step in s, one for each block, as a record would hold them."""
    series = opened.turn(0.0, steps).series
    return [value for part in series if part.metric == "step_time" for value in part.values]


def _by_clock(loop: Loop, blocks: int, size: int) -> list[float]:
    """Times of a step in s, one for each block, by a clock around the loop."""
    times = []
    for _ in range(blocks):
        began = time.perf_counter()
        loop(size)
        times.append((time.perf_counter() - began) / size)
    return times


# -- loops as a user would write them ------------------------------------------------------------


def by_hand(program: Any) -> Loop:
    """A loop around what a program has built; on the CPU a step is done when its call returns.

    Not around a second model: two that share a heap take each other's freed memory, and the page faults of that
    made the first of two equal ones 1.5 times as slow.
    """
    if program.recipe.phases:
        return _in_pieces(program)
    return _training(program) if program.training else _inference(program)


def _training(program: Any) -> Loop:
    network, optimiser, batches = program.network, program.backend.optimiser, program.batches
    loss, updates = program.recipe.loss, program.recipe.updates

    def loop(steps: int) -> None:
        for _ in range(steps):
            x, y = next(batches)
            loss(network(x), y).backward()
            if updates:
                optimiser.step()
            optimiser.zero_grad()  # last: mldyno's next step must not find gradients of this one

    return loop


def _inference(program: Any) -> Loop:
    import torch

    network, batches = program.network, program.batches

    def loop(steps: int) -> None:
        with torch.inference_mode():
            for _ in range(steps):
                x, _ = next(batches)
                network(x)

    return loop


def _in_pieces(program: Any) -> Loop:
    """A step that is more than a pass: its phases, one after the other."""
    import torch

    network, batches, training = program.network, program.batches, program.training
    phases = [phase.run for phase in program.recipe.phases.values()]

    def loop(steps: int) -> None:
        with torch.inference_mode(not training):
            for _ in range(steps):
                x, _ = next(batches)
                given = None
                for phase in phases:
                    given = phase(network, x, given)

    return loop
