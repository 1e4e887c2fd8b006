"""The catalogue: one file per workload, each holding one `WORKLOAD`; and `Recipe`: what it tells a framework to build.

The docstring of a file begins with what the workload is; a list shows that line.
Rules: a workload is frozen; whatever changes what is computed raises its version. A file imports
no framework: it has a build function for each, which is handed what the framework's `module` is (torch, for instance)
and the case, and gives back a `Recipe`, from which the framework makes the steps. So a workload can neither take time
nor forget a sync. What a network, a batch, an output or an optimiser is, is agreed between a framework and its build
functions: in PyTorch a Module, tensors and an Optimizer; elsewhere it may be a Keras model, or parameters and the
function that applies them.

A `Portable` workload is described once for every framework: its network from layers that the framework provides, its
batches, and its first weights. PyTorch makes modules of the layers (`torch_layers`), and draws weights and batches from
its own random numbers. Parameters have the names and shapes of PyTorch, whatever a framework makes of them. For the
other frameworks, first values and batches are drawn as random bytes from a seed, and each makes the same arrays of
them. So two frameworks can start from the same weights, and their results can be compared: that proves that both do
the same work.
"""

from __future__ import annotations

import array
import itertools
import math
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any, Literal

from mldyno.records import Case
from mldyno.values import SEED, Values

BIAS_DEVIATION, NORM_DEVIATION = 0.02, 0.1  # of first values: none is 0 or 1, so that one in the wrong place shows
NORM = 0.5  # around which the first scales of norms lie: at 1 the shortcuts of a deep network make much of rounding

Batch = tuple[Any, Any]  # inputs and targets, arrays or trees of them; no targets where the network gives its loss


@dataclass(frozen=True)
class Phase:
    """One of the phases of a step, which is also timed by itself."""

    run: Callable[[Any, Any, Any], Any]
    """Does the phase: gets the network, a batch's inputs and what the phase before it gave (None at first);
    what the last phase gives is the step's output."""
    items: int  # items that it works through


@dataclass(frozen=True)
class Recipe:
    """All that a framework needs to make steps of a workload.

    A step is a forward pass; in training also the loss, the backward pass and the optimiser's step.
    Where it is more than that it is made of `phases`; network, loss and optimiser then serve the checks.
    """

    network: Any  # the model, on the CPU, in fp32, freshly initialised from the seed that the framework set
    draw: Callable[[], Batch]  # draws one learnable batch on the CPU
    loss: Callable[[Any, Any], Any]  # loss of the network's output against the targets; never negative
    optimiser: Callable[[Any], Any]  # makes the optimiser of the parameters that it is given
    updates: bool = True  # whether a training step ends with the optimiser's; else it is forward and backward only
    phases: Mapping[str, Phase] = field(default_factory=dict)  # of a step by name and in order, where it has some
    checks: Callable[[Any], Mapping[str, float]] | None = None
    """Training: what must fall, of the network given, where that is not the loss on a batch; never negative."""
    notes: Mapping[str, Any] = field(default_factory=dict)  # facts for the record
    dataset: Any = None  # what placement `loader` reads from, where that is the user's own
    collate: Callable[[Any], Any] | None = None  # what makes a batch of its items; the framework's own way, if None


Build = Callable[[Any, Case], Recipe]  # from the framework's module and the case


# -- workloads that any framework can build --------------------------------------------------------


def random_values(chance: random.Random, shape: tuple[int, ...], deviation: float = 1.0, centre: float = 0.0) -> Values:
    """Draw uniform numbers of that standard deviation around the centre."""
    whole = array.array("i")
    whole.frombytes(chance.randbytes(whole.itemsize * math.prod(shape)))
    if sys.byteorder == "big":
        whole.byteswap()
    return Values(shape, whole, math.sqrt(3) * deviation / 2**31, centre)


class Draws:
    """Random batches of which every framework makes the same arrays."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def numbers(self, shape: tuple[int, ...], centre: float = 0.0) -> Values:
        """Draw numbers of standard deviation 1 around the centre."""
        return random_values(self.chance, shape, centre=centre)

    def labels(self, shape: tuple[int, ...], classes: int) -> Values:
        """Draw integers from 0 to below `classes`."""
        drawn = [self.chance.randrange(0, classes) for _ in range(math.prod(shape))]
        return Values(shape, array.array("i", drawn))

    def marked_words(self, batch: int, seq: int, vocabulary: int, labels: int) -> tuple[Values, Values]:
        """Draw sequences of words from that part of the vocabulary which is their label; none is word 0."""
        part, marks = vocabulary // labels, self.labels((batch,), labels)
        words = [self.chance.randrange(1, part) + part * label for label in marks.whole for _ in range(seq)]
        return Values((batch, seq), array.array("i", words)), marks

    def cyclic_words(self, batch: int, seq: int, cycle: int, stride: int) -> tuple[Values, Values]:
        """Draw texts that go round one cycle of words, each from a random place; the targets are one word ahead."""
        starts = self.labels((batch,), cycle).whole

        def texts(ahead: int) -> Values:
            words = [(start + place + ahead) % cycle * stride for start in starts for place in range(seq)]
            return Values((batch, seq), array.array("i", words))

        return texts(0), texts(1)


def first_values(name: str, shape: tuple[int, ...]) -> Values:
    """Draw the first values of a parameter by its name; the more inputs it has, the narrower their spread."""
    chance = random.Random(f"{SEED} {name}")
    if len(shape) > 1:
        return random_values(chance, shape, 1 / math.sqrt(math.prod(shape[1:])))
    if name.endswith("weight"):  # of a norm
        return random_values(chance, shape, NORM_DEVIATION, NORM)
    return random_values(chance, shape, BIAS_DEVIATION)


@dataclass(frozen=True)
class Optimiser:
    """The optimiser of a workload; its other constants are PyTorch's."""

    kind: Literal["sgd", "adam", "adamw"]
    rate: float
    momentum: float = 0.0
    decay: float = 0.0

    def in_torch(self, torch: ModuleType, parameters: Any) -> Any:
        if self.kind == "sgd":
            return torch.optim.SGD(parameters, lr=self.rate, momentum=self.momentum)
        if self.kind == "adam":
            return torch.optim.Adam(parameters, lr=self.rate)
        return torch.optim.AdamW(parameters, lr=self.rate, weight_decay=self.decay)


@dataclass(frozen=True)
class Portable:
    """A workload as any framework can build it."""

    network: Callable[[Any, Case], Callable[..., Any] | None]  # from layers, the function from inputs to outputs
    examples: Callable[[Case, Any], Batch]  # draws one learnable batch from `Draws`; images have their channels first
    optimiser: Optimiser
    loss: Literal["cross_entropy", "squared_error"] = "cross_entropy"
    """Of the last axis: its cross-entropy, or the sum of its squared errors; the mean over all others."""
    updates: bool = True  # whether a training step ends with the optimiser's; else it is forward and backward only
    decoded: int = 0  # tokens that inference decodes after its prompt: its phases are then prefill and decode
    first_values: Callable[[str, tuple[int, ...]], Values] = first_values  # of a parameter, by its name and shape
    torch_network: Callable[[ModuleType], Any] | None = None  # where PyTorch has other kernels than layers have

    def batch(self, case: Case, seed: int) -> Batch:
        """Draw the batch of a seed, as `Values`."""
        return self.examples(case, Draws(random.Random(SEED + seed)))

    def in_torch(self, torch: ModuleType, case: Case) -> Recipe:
        from mldyno.workloads.torch_layers import TorchDraws, TorchLayers

        layers, draws = TorchLayers(torch), TorchDraws(torch)
        if self.torch_network is None:
            network = layers.network(self.network(layers, case))
        else:
            network = self.torch_network(torch)
        return Recipe(
            network=network,
            draw=partial(self.examples, case, draws),
            loss=getattr(layers, self.loss),
            optimiser=partial(self.optimiser.in_torch, torch),
            updates=self.updates,
            phases=self._phases(layers, network, case),
        )

    def recipe(self, layers: Any, case: Case, to_array: Callable[[Values], Any], rate: float = 1.0) -> Recipe:
        """Build the recipe from a framework's layers, at `rate` times the usual learning rate."""
        forward, seeds = self.network(layers, case), itertools.count()
        optimiser = replace(self.optimiser, rate=rate * self.optimiser.rate)

        def draw() -> Batch:
            inputs, targets = self.batch(case, next(seeds))
            return to_array(inputs), to_array(targets)

        return Recipe(
            network=layers.network(forward, self.first_values),
            draw=draw,
            loss=getattr(layers, self.loss),
            optimiser=lambda parameters: layers.optimiser(optimiser),
            updates=self.updates,
            phases=self._phases(layers, forward, case),
        )

    def _phases(self, layers: Any, forward: Any, case: Case) -> dict[str, Phase]:
        if not self.decoded or case.mode != "infer":
            return {}
        batch, seq = self.batch(case, 0)[0].shape
        return {
            "prefill": Phase(partial(layers.prefill, forward, self.decoded), batch * seq),
            "decode": Phase(partial(layers.decode, forward, self.decoded), batch * self.decoded),
        }


# -- the catalogue's entries -------------------------------------------------------------------------


@dataclass(frozen=True)
class EndToEnd:
    """A process that trains a workload from its data set, end to end: a number of epochs, each with its evaluation."""

    workload: str
    epochs: int


@dataclass(frozen=True)
class Workload:
    """The frozen definition of a computation: name and version, sizes, and one build function per framework."""

    name: str
    title: str  # what people call it
    version: int
    item: str
    batch: int  # items of a step if nothing is said; 0 where that can't be chosen
    params: int
    flops: Callable[[Case], float]  # floating-point operations of a step in matmuls and convolutions; 0 where not known
    build: Mapping[str, Build]  # for frameworks with a version written for them
    portable: Portable | None = None  # for frameworks that make networks of layers
    seq: int | None = None
    modes: tuple[str, ...] = ("train", "infer")
    untrained: str = ""  # why it has no mode `train`, where that is known
    placement: str = "device"  # where its batches lie if nothing else is asked for
    data: str | None = None  # the data set on disk from which placement `loader` takes its batches
    end_to_end: EndToEnd | None = None  # what framework `command` runs of it
    count: Callable[[Case], int] | None = None  # the items of a step, where that is not the batch, or its tokens
    own: bool = False  # whether it is of the user's own: then its parameters and operations are whatever is counted
    own_data: bool = False  # whether placement `loader` takes its batches from a data set of the user's own

    @property
    def frameworks(self) -> tuple[str, ...]:
        return (*self.build, *(("command",) if self.end_to_end else ()))

    @property
    def loads(self) -> bool:
        """Return whether it has a data set from which a loader can read."""
        return self.data is not None or self.own_data

    def items(self, case: Case) -> int:
        if self.count is not None:
            return self.count(case)
        return (case.batch or self.batch or 1) * ((case.seq or self.seq or 1) if self.item == "token" else 1)
