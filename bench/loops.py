"""Figure 8: a step as mldyno reports it, over that of a loop written by hand around the same model."""

from __future__ import annotations

import gc
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import plugins
from mldyno.frameworks._torch_program import POOL, SEED
from mldyno.intervals import median, paired
from mldyno.records import Case
from mldyno.units import show_seconds
from mldyno.worker.opened import OpenCase, open_case
from mldyno.workloads import Recipe

LEAST, MOST = 0.99, 1.01  # a harness that seems faster than the loop is as wrong as a slower one
THREADS = 1
PORTION = 0.02  # s of steps that each side does in a round, or one block where that takes longer
WARMUP, SECONDS, ROUNDS = 1.0, 4.0, 12  # s of warming up, s of measuring and rounds at least, of each case
# Batch and sequence length with which a step is as short as the model allows.
SIZES: Mapping[str, tuple[int, int | None]] = {
    "attention": (2, 64), "attention-1head": (2, 64), "bert-base": (1, 8), "bert-large": (1, 8), "bert-tiny": (4, 32),
    "cifar10-cnn": (4, None), "cnn-224": (1, None), "compute-loop": (1, None), "copy": (16, None), "encoder": (1, 8),
    "encoder-ragged": (1, 8), "gpt2": (1, 8), "lstm": (1, 16), "matmul": (512, None), "mlp": (128, None),
    "mnist-cnn": (64, None), "mnist-linear": (64, None), "mnist-mlp": (64, None), "resnet18": (1, None),
    "resnet18-cifar": (1, None), "resnet50": (1, None), "venv-ppo": (2, None),
}  # fmt: skip
QUICK = ("copy", "mlp")

Loop = Callable[[int], None]


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
    effort = (0.2, 0.3, 4) if work.quick else (WARMUP, SECONDS, ROUNDS)
    for case in cases(QUICK if work.quick else tuple(SIZES)):
        found = _compare(case, *effort)
        size = f"batch {case.batch}" + (f", sequence {case.seq}" if case.seq else "")
        how = f"{size}; {found.rounds} rounds of {found.steps} step{'s' * (found.steps > 1)} each"
        name = f"`{case.workload}` {case.mode}"
        say(f"  {case.workload} {case.mode}: {found.value:.4f} ± {found.half_width:.4f}")
        chapter.figures.append(Figure(name, found.value, "", MOST, how, LEAST, found.half_width))
        chapter.notes.append(f"{name}: {show_seconds(found.ours)} over {show_seconds(found.theirs)} a step.")
    chapter.notes.insert(
        0,
        f"One process, {THREADS} thread, fp32, the CPU. A case is opened and warmed up as in a worker, and measured by"
        " `OpenCase.turn`, with meters and yardstick. Beside it stands a second model of the same seed and batches,"
        " with a loop that only trains or infers. In each round both do the same steps in blocks of the same size, in"
        f" random order, for about {PORTION * 1e3:.0f} ms or one block each; the medians of their blocks are paired."
        " The value is the mean log-ratio of the rounds, with its 95 % interval; the target is held against the value"
        " itself.",
    )
    return chapter


def cases(names: tuple[str, ...]) -> Iterator[Case]:
    """The cases of these workloads, in every mode that they have."""
    for name in names:
        workload, (batch, seq) = plugins.workload(name), SIZES[name]
        for mode in workload.modes:
            yield Case(name, workload.version, mode=mode, batch=batch, seq=seq, threads=THREADS)  # type: ignore[arg-type]


def _compare(case: Case, warmup: float, seconds: float, least: int) -> Ratio:
    import torch

    threads = torch.get_num_threads()
    try:
        opened = open_case(asdict(case))
        opened.warm_up(warmup, lambda step: None)
        loop = _by_hand(case)
        _warm(loop, warmup)
        return _paired(opened, loop, seconds, least)
    finally:
        torch.set_num_threads(threads)
        gc.unfreeze()  # the warm-up froze what there was; the next case needs the room
        gc.collect()


def _warm(loop: Loop, seconds: float) -> None:
    ends = time.perf_counter() + seconds
    loop(2)
    while time.perf_counter() < ends:
        loop(1)


def _paired(opened: OpenCase, loop: Loop, seconds: float, least: int) -> Ratio:
    """Rounds of both, for so many s but `least` of them."""
    size = opened.blocks.size
    count = max(1, round(PORTION * 1e9 / opened.blocks.time(size)))
    sides = [lambda: _by_mldyno(opened, count * size), lambda: _by_clock(loop, count, size)]
    found: list[list[float]] = [[], []]
    order, chance = [0, 1], random.Random(SEED)
    ends = time.perf_counter() + seconds
    while len(found[0]) < least or time.perf_counter() < ends:
        chance.shuffle(order)
        for place in order:
            found[place].append(median(sides[place]()))
    ours, theirs = found
    centre, half = paired([math.log(a / b) for a, b in zip(ours, theirs, strict=True)])
    value = math.exp(centre)
    return Ratio(value, value * half, median(ours), median(theirs), len(ours), count * size)


def _by_mldyno(opened: OpenCase, steps: int) -> list[float]:
    """Times of a step in s, one for each block, as a record would hold them."""
    series = opened.turn(0.0, steps, lambda step: None)["series"]
    return [value for one in series if one["metric"] == "step_time" for value in one["values"]]


def _by_clock(loop: Loop, blocks: int, size: int) -> list[float]:
    """Times of a step in s, one for each block, by a clock around the loop."""
    times = []
    for _ in range(blocks):
        began = time.perf_counter()
        loop(size)
        times.append((time.perf_counter() - began) / size)
    return times


# -- loops as a user would write them ------------------------------------------------------------


def _by_hand(case: Case) -> Loop:
    """A loop over a model of its own; on the CPU a step is done when its call returns."""
    import torch

    torch.manual_seed(SEED)
    recipe = plugins.workload(case.workload).build["torch"](torch, case)
    batches = itertools.cycle([recipe.draw() for _ in range(POOL)])
    recipe.network.train(case.mode == "train")
    if recipe.pieces:
        return _in_pieces(recipe, batches, case.mode == "train")
    return _training(recipe, batches) if case.mode == "train" else _inference(recipe, batches)


def _training(recipe: Recipe, batches: Iterator[Any]) -> Loop:
    network, loss, updates = recipe.network, recipe.loss, recipe.updates
    optimiser = recipe.optimiser(network.parameters())

    def loop(steps: int) -> None:
        for _ in range(steps):
            x, y = next(batches)
            loss(network(x), y).backward()
            if updates:
                optimiser.step()
            optimiser.zero_grad()  # last, as in a step of mldyno: who keeps gradients between blocks holds the heap

    return loop


def _inference(recipe: Recipe, batches: Iterator[Any]) -> Loop:
    import torch

    network = recipe.network

    def loop(steps: int) -> None:
        with torch.inference_mode():
            for _ in range(steps):
                x, _ = next(batches)
                network(x)

    return loop


def _in_pieces(recipe: Recipe, batches: Iterator[Any], training: bool) -> Loop:
    """A step that is more than a pass: its pieces, one after the other."""
    import torch

    network, pieces = recipe.network, [piece.run for piece in recipe.pieces.values()]

    def loop(steps: int) -> None:
        with torch.inference_mode(not training):
            for _ in range(steps):
                x, _ = next(batches)
                given = None
                for piece in pieces:
                    given = piece(network, x, given)

    return loop
