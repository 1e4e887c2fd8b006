"""Our BERT-base and GPT-2 beside those of transformers: same weights, same batches, as ratios of the step time."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import plugins
from mldyno.records import Case
from mldyno.stats.intervals import median, paired
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, rounds
from mldyno.units import show_seconds
from mldyno.workloads import Recipe, bert, gpt2

SLOWER = 1.02  # our time over theirs, at most
THREADS = 1
POOL = 4  # batches taken in turn, as mldyno does
WARMUP = 1  # steps, beside the one in which both are held against each other
SEED = 20240229
CASES = (("bert-base", "train"), ("bert-base", "infer"), ("gpt2", "train"), ("gpt2", "infer"))
QUICK = (("bert-base", "train"),)
SIZES: Mapping[str, tuple[int, int]] = {"bert-base": (2, 128), "gpt2": (1, 128)}
SMALL: Mapping[str, tuple[int, int]] = {"bert-base": (1, 8), "gpt2": (1, 8)}
SECONDS, ROUNDS = 45.0, 30  # of measuring for each case, whichever takes longer
AGREE = 1e-4  # largest difference of two logits: the weights are the same

Step = Callable[[Any, Any], Any]


class Program:
    """A step over a pool of batches on the CPU, which is done when its call returns."""

    def __init__(self, step: Step, batches: list[tuple[Any, Any]]) -> None:
        self.step, self.batches = step, itertools.cycle(batches)

    def run(self, steps: int) -> None:
        """Do the steps."""
        for inputs, targets in itertools.islice(self.batches, steps):
            self.step(inputs, targets)

    def synchronize(self) -> None:
        """Nothing to wait for."""


@dataclass(frozen=True)
class Ratio:
    """Our step time over theirs, with the ends of its 95 % interval, and both medians in s."""

    value: float
    low: float
    high: float
    ours: float
    theirs: float


def measure(work: Work) -> Chapter:
    """The time of a step of ours over that of the same step of transformers."""
    import transformers

    chapter = Chapter("7. A step of our networks over one of transformers'")
    least, seconds = (2, 0.0) if work.quick else (ROUNDS, SECONDS)
    with _threads(THREADS):
        for name, mode in QUICK if work.quick else CASES:
            batch, seq = (SMALL if work.quick else SIZES)[name]
            say(f"  {name} {mode}")
            found = _compare(Case(name, mode=mode, batch=batch, seq=seq), seconds, least)  # type: ignore[arg-type]
            how = (
                f"batch {batch}, sequence {seq}, fp32, {THREADS} thread; transformers {transformers.__version__} with"
                f" attention sdpa{_generation(name, mode)}; at least {least} rounds in one process, one step of each"
                " in random order; mean log-ratio of paired rounds"
            )
            half = (found.high - found.low) / 2
            chapter.figures.append(Figure(f"`{name}` {mode}", found.value, "", SLOWER, how, half_width=half))
            chapter.notes.append(
                f"`{name}` {mode}: 95 % interval {found.low:.3f} to {found.high:.3f}; medians"
                f" {show_seconds(found.ours)} and {show_seconds(found.theirs)} a step."
            )
    return chapter


def _generation(name: str, mode: str) -> str:
    """What a step of inference is, where it is more than a pass."""
    if (name, mode) != ("gpt2", "infer"):
        return ""
    return f"; a prompt and {gpt2.DECODED} tokens decoded after it, each with its own cache of keys and values"


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of an operation, and as many as before afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _compare(case: Case, seconds: float, least: int) -> Ratio:
    import torch

    torch.manual_seed(SEED)
    recipe = plugins.workload(case.workload).build["torch"](torch, case)
    theirs = _theirs(case.workload, recipe)
    batches = [recipe.draw() for _ in range(POOL)]
    steps = _inference(recipe, theirs)
    _check_agreement(*(step(*batches[0]) for step in steps))
    if case.mode == "train":
        steps = _training(recipe, theirs)
    programs = [Blocks(Program(step, batches), clock.now) for step in steps]
    for blocks in programs:
        blocks.time(WARMUP)
    ours, other = rounds(programs, seconds, least, random.Random(SEED), lambda values, now: None)
    centre, half = paired([math.log(a / b) for a, b in zip(ours, other, strict=True)])
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), median(ours), median(other))


def _theirs(name: str, recipe: Recipe) -> Any:
    """The network of transformers with our weights."""
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

    state = recipe.network.state_dict()
    if name == "gpt2":
        network = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa"))  # its defaults are GPT-2 small
        state["lm_head.weight"] = state["transformer.wte.weight"]
    else:
        shape = bert.BASE
        network = BertForSequenceClassification(
            BertConfig(
                vocab_size=shape.vocabulary, hidden_size=shape.width, num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads, intermediate_size=shape.inner, attn_implementation="sdpa",
            )
        )  # fmt: skip
    network.load_state_dict(state, strict=True)
    return network


def _check_agreement(ours: Any, theirs: Any) -> None:
    """Both must do the same work: the same logits, or the same tokens."""
    off = float((ours - theirs).abs().max())
    assert off < AGREE, f"the outputs differ by {off:.2g}"


def _training(recipe: Recipe, theirs: Any) -> tuple[Step, Step]:
    """A step of each, as mldyno's: forward, loss, backward, optimiser, zero-grad, with dropout."""

    def training(network: Any, logits: Callable[[Any], Any]) -> Step:
        network.train()
        optimiser = recipe.optimiser(network.parameters())

        def step(inputs: Any, targets: Any) -> None:
            recipe.loss(logits(inputs), targets).backward()
            optimiser.step()
            optimiser.zero_grad()

        return step

    caching = {"use_cache": False} if theirs.config.model_type == "gpt2" else {}
    return (
        training(recipe.network, recipe.network),
        training(theirs, lambda inputs: theirs(inputs, **caching).logits),
    )  # fmt: skip


def _inference(recipe: Recipe, theirs: Any) -> tuple[Step, Step]:
    """A step of each: a pass, or the phases of the recipe and the same done with transformers."""
    import torch

    def ours(inputs: Any, _: Any) -> Any:
        if not recipe.phases:
            return recipe.network(inputs)
        given = None
        for phase in recipe.phases.values():
            given = phase.run(recipe.network, inputs, given)
        return given

    def other(inputs: Any, _: Any) -> Any:
        return _generated(theirs, inputs) if recipe.phases else theirs(inputs).logits

    recipe.network.eval()
    theirs.eval()
    return torch.inference_mode()(ours), torch.inference_mode()(other)


def _generated(network: Any, ids: Any) -> Any:
    """The tokens after the prompt's next one, each the likeliest, by transformers' network and cache."""
    import torch

    found = []
    token, cache = ids, None
    for _ in range(gpt2.DECODED + 1):
        given = network(token, past_key_values=cache, use_cache=True, logits_to_keep=1)
        token, cache = given.logits[:, -1].argmax(1, keepdim=True), given.past_key_values
        found.append(token)
    return torch.cat(found[1:], 1)
