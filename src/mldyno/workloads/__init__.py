"""The catalogue: one file per workload, each holding one `WORKLOAD`; and `Recipe`: what it tells a framework to build.

The docstring of a file begins with what the workload is; a list shows that line.
Rules: a workload is frozen; whatever changes what is computed raises its version. A file imports
no framework: it has a build function for each, which is handed what the framework's `module` is (torch, for instance)
and the case, and gives back a `Recipe`, from which the framework makes the steps. So a workload can neither take time
nor forget a sync. What a network, a batch, an output or an optimiser is, is agreed between a framework and its build
functions: in PyTorch a Module, tensors and an Optimizer; elsewhere it may be a Keras model, or parameters beside the
function that applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mldyno.records import Case
from mldyno.workloads._portable import Portable

Batch = tuple[Any, Any]
"""Inputs and targets: an array each, or a tree of them; targets may be None where the network gives its loss."""


@dataclass(frozen=True)
class Phase:
    """One of the phases that a step is made of, which is also timed apart from the others."""

    run: Callable[[Any, Any, Any], Any]
    """Does the phase: gets the network, a batch's inputs and what the phase before it gave (None at first);
    what the last phase gives is the step's output."""
    items: int
    """Items that it works through."""


@dataclass(frozen=True)
class Recipe:
    """What a framework needs to make steps of a workload.

    A step is a forward pass; in training also the loss, the backward pass and the optimiser's step.
    Where it is more than that it is made of `phases`; network, loss and optimiser then serve the checks.
    """

    network: Any
    """The model, on the CPU, in fp32, freshly initialised from the seed that the framework set."""
    draw: Callable[[], Batch]
    """Draws one learnable batch on the CPU."""
    loss: Callable[[Any, Any], Any]
    """Loss of the network's output against the targets; never negative."""
    optimiser: Callable[[Any], Any]
    """Makes the optimiser of the parameters that it is given."""
    updates: bool = True
    """Whether a training step ends with the optimiser's; else it is forward and backward only."""
    phases: Mapping[str, Phase] = field(default_factory=dict)
    """The phases of a step by name and in order, where it has some."""
    checks: Callable[[Any], Mapping[str, float]] | None = None
    """Training: what must fall, of the network given, where that is not the loss on a batch; never negative."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Facts for the record."""
    dataset: Any = None
    """What placement `loader` reads from, where that is the user's own."""
    collate: Callable[[Any], Any] | None = None
    """What makes a batch of its items; the framework's own way, if None."""


Build = Callable[[Any, Case], Recipe]
"""A workload's build function for a framework: from the framework's module and the case."""


@dataclass(frozen=True)
class EndToEnd:
    """A process that trains a workload from its data set, end to end: so many epochs, each with its evaluation."""

    workload: str
    epochs: int


@dataclass(frozen=True)
class Workload:
    """What is computed, frozen: name and version, sizes, and one build function per framework."""

    name: str
    title: str
    """What people call it."""
    version: int
    item: str
    batch: int
    """Items of a step if nothing is said; 0 where that can't be chosen."""
    params: int
    flops: Callable[[Case], float]
    """Floating-point operations of one step in matmuls and convolutions; a test holds it against
    torch's own counter. 0 where they are not known before it runs."""
    build: Mapping[str, Build]
    """For frameworks that it has a version of its own for."""
    portable: Portable | None = None
    """For frameworks that make networks of layers."""
    seq: int | None = None
    modes: tuple[str, ...] = ("train", "infer")
    untrained: str = ""
    """Why it has no mode `train`, where that is known."""
    placement: str = "device"
    """Where its batches lie if nothing else is asked for."""
    data: str | None = None
    """The data set on disk from which placement `loader` takes its batches."""
    end_to_end: EndToEnd | None = None
    """What framework `command` runs of it."""
    count: Callable[[Case], int] | None = None
    """How many items a step works through, where that is not the batch, or the batch's tokens."""
    own: bool = False
    """Whether it is of the user's own: then its parameters and operations are whatever is counted."""
    own_data: bool = False
    """Whether placement `loader` takes its batches from a data set of the user's own."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that have a version of it."""
        return (*self.build, *(("command",) if self.end_to_end else ()))

    @property
    def loads(self) -> bool:
        """Whether it has a data set from which a loader can read."""
        return self.data is not None or self.own_data

    def items(self, case: Case) -> int:
        """How many items one step of the case works through."""
        if self.count is not None:
            return self.count(case)
        return (case.batch or self.batch or 1) * ((case.seq or self.seq or 1) if self.item == "token" else 1)
