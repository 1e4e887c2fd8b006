"""A case as a program in frameworks with arrays: its batches, placements, phases, checks and proof.

A framework with arrays gives three things, all in its own file. `Layers` make the network of a catalogue workload. A
`Backend` is a recipe's network on its device, with all that training changes. A subclass of `ArrayFramework` makes
both. Catalogue workloads and models of the user's own meet in a `Recipe`: all else is here, once for all frameworks.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mldyno import trees
from mldyno.frameworks import (
    COMPARED_UPDATES,
    OTHER_DRAWS,
    PROOF_NUMBERS,
    PROOF_RATE,
    TOLERANCE,
    Framework,
    Program,
    Unsupported,
    proof_case,
    relative_error,
    without_chance,
)
from mldyno.frameworks.layers import Layers
from mldyno.frameworks.loader import FETCHED_BATCHES, TEST_BATCH, Loader, PlainLoader
from mldyno.trees import each_array, is_array
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads import Batch, Build, Phase, Portable, Recipe

BATCH_POOL = 4  # batches drawn ahead and cycled through, so that no cache or shortcut wins
COMPARED_ITEMS = 8  # of the batch whose results are compared: in fp32 on the CPU a whole one can take minutes
COMPARED_NUMBERS = 4096  # of each output
MATMUL_SIDE = 1024  # of the random matrix that larger ones repeat: to draw all takes longer than to multiply
PRECISIONS = ("fp32", "bf16", "fp16", "amp-bf16")  # weights and inputs in that type; amp: only what is multiplied
STORED = {"bf16": "bfloat16", "fp16": "float16"}
MULTIPLIED = {**STORED, "amp-bf16": "bfloat16"}


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stored_type(case: Case) -> str:
    """Return the type of weights and inputs."""
    return STORED.get(case.precision or "fp32", "float32")


def multiplied_type(case: Case) -> str:
    """Return the type of what goes into matmuls."""
    return MULTIPLIED.get(case.precision or "fp32", "float32")


def seed_generators(seed: int = SEED) -> None:
    """Seed Python's and NumPy's generators, so that the user's code draws the same each time it is called."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def first_items(tree: Any, most: int) -> Any:
    """Return the first items of a batch; all of it where its arrays do not have their items first."""
    lengths = {leaf.shape[0] if leaf.shape else 0 for leaf in trees.leaves(tree) if is_array(leaf)}
    sparse = any(map(trees.is_sparse, trees.leaves(tree)))
    return tree if sparse or len(lengths) != 1 else each_array(lambda array: array[:most], tree)


class Repeated:
    """Fixed work on a device, issued over and over: the reference kernel and the peaks."""

    def __init__(
        self,
        issue: Callable[[], Any],
        synchronize: Callable[[], None],
        work: float,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.issue, self.synchronize, self.work, self.around = issue, synchronize, work, around

    def run(self, steps: int) -> None:
        """Issue the work that many times."""
        issue = self.issue
        with self.around():
            for _ in range(steps):
                issue()


class Backend(ABC):
    """A recipe's network on its device, with all that training changes; batches and outputs are trees of arrays."""

    network: Any
    traces = 0
    """How often the framework has traced a function: once for each graph that it makes."""
    params: int | None = None
    """Trained parameters; None where they are not known."""

    @abstractmethod
    def on_host(self, tree: Any) -> Any:
        """Return the arrays on the host, in the case's type."""

    @abstractmethod
    def copy_in(self, tree: Any) -> Any:
        """Copy arrays of the host to the device."""

    @abstractmethod
    def copy_out(self, tree: Any) -> None:
        """Copy arrays of the device to the host; return when they are there."""

    def place(self, tree: Any) -> Any:
        """Return the arrays on the device, in the case's type."""
        return self.copy_in(self.on_host(tree))

    @abstractmethod
    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass; return the output."""

    @abstractmethod
    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step, with the optimiser's or without; return the output and the loss before it."""

    def run_phase(self, phase: Phase, inputs: Any, carried: Any) -> Any:
        """Issue one of the recipe's phases; return what the next one needs."""
        return phase.run(self.network, inputs, carried)

    @abstractmethod
    def wait(self) -> None:
        """Wait until all that was issued is done."""

    @abstractmethod
    def flat(self, array: Any) -> Any:
        """Return an array in fp32 on the host, in one dimension."""

    def sample_values(self, array: Any, count: int) -> list[float]:
        """Return that many values of an array, evenly spaced over all of it."""
        flat = self.flat(array)
        return [float(value) for value in flat[:: max(1, len(flat) // count)][:count]]

    def correct(self, output: Any, targets: Any) -> int:
        """Count the outputs that are largest where their targets say."""
        return int((output.argmax(-1) == targets).sum().item())

    @abstractmethod
    def devices(self, *trees: Any) -> set[str]:
        """Return where all of the network and these arrays lie."""

    @property
    @abstractmethod
    def product_types(self) -> set[str]:
        """Return the types of what went into matmuls, or of the outputs where the framework does not show these."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return facts for the record: what matmuls ran in."""
        return {"products_in": ", ".join(sorted(self.product_types))} if self.product_types else {}

    def weights(self) -> Any:
        """Return all that is learned, as it is now."""
        return None

    def start_from(self, weights: Any) -> None:  # noqa: B027 (a catalogue workload starts from the same values anyway)
        """Take the weights of another backend, each in the type that it has here."""

    def compile_time(self) -> float | None:
        """Return the time in s spent on tracing and compiling; None where the framework does not report it."""
        return None

    def peak(self) -> int | None:
        """Return the peak memory on the device in B; None where the framework does not count it."""
        return None


class ArrayFramework(Framework):
    """A framework with arrays."""

    portable = True
    precisions: tuple[str, ...] = PRECISIONS
    placements: tuple[str, ...] = ("device", "host", "roundtrip", "loader")

    thread_variables: tuple[str, ...] = ()
    """Of the environment, from which it takes its threads when it starts."""

    def environment(self, case: Case) -> dict[str, str]:
        return {name: str(case.threads) for name in self.thread_variables} if case.threads else {}

    def threads(self) -> int | None:
        return int(os.environ.get(self.thread_variables[0]) or cores()) if self.thread_variables else None

    def limit_threads(self, threads: int) -> None:
        """Refuse any number but the one that the environment gave at the start."""
        if not self.thread_variables:
            super().limit_threads(threads)
        if threads != self.threads():
            raise Unsupported(f"{self.name} takes its threads when it starts: {self.thread_variables[0]}={threads}")

    @abstractmethod
    def layers(self, case: Case, dropout: bool) -> Layers:
        """Return the layers from which a catalogue workload makes its network."""

    @abstractmethod
    def array(self, values: Values, case: Case) -> Any:
        """Return a part of a catalogue batch as an array of the host; images have their channels last."""

    @abstractmethod
    def backend(self, case: Case, recipe: Recipe, dropout: bool) -> Backend:
        """Place a recipe's network on the case's device; without dropout, where that can be switched off."""

    def user_recipe(self, case: Case, build: Build) -> Recipe:
        """Return the recipe of a model of the user's own."""
        raise Unsupported(f"{self.name} takes workloads of the catalogue only")

    def recipe(self, case: Case, build: Build | Portable, dropout: bool, rate: float = 1.0) -> Recipe:
        """Return the recipe of a case, with `rate` times the usual learning rate where it is the catalogue's."""
        if not callable(build):
            return build.recipe(self.layers(case, dropout), case, lambda values: self.array(values, case), rate)
        recipe = self.user_recipe(case, build)
        if recipe.phases or recipe.checks is not None:
            raise Unsupported(f"a recipe with phases or checks of its own is for torch, not for {case.framework}")
        return recipe

    def build_program(self, case: Case, build: Build | Portable, data: Opened | None) -> ArrayProgram:
        return ArrayProgram(self, case, build, data)


class ModelProgram(Program):
    """A case of a model: what any framework does with batches from disk and with phases."""

    training: bool
    loader: Loader | None
    batches: Iterator[Any]
    """Without end; on the device, or on the host where the case's placement says so."""
    step_phases: Mapping[str, Phase]
    """The recipe's."""
    noted: dict[str, Any]

    def load_first(self) -> bool:
        if self.loader is None:
            return False
        self.batches = itertools.chain([next(self.batches)], self.batches)
        return True

    @property
    def phases(self) -> Mapping[str, int]:
        if self.step_phases or self.loader is None:
            return {name: phase.items for name, phase in self.step_phases.items()}
        return self.loader.phases

    def run_phase(self, name: str) -> None:
        """Issue one phase; those of a step one after the other, on the fixed batch."""
        if name == "data":
            for _ in range(FETCHED_BATCHES):
                next(self.batches)
        elif name == "epoch":
            self._epoch()
        else:
            self._run_step_phase(name)

    def _epoch(self) -> None:
        """Take every item of the data set once, then evaluate on its held-out part."""
        assert self.loader is not None
        if self.training:
            self._train_on(self.loader.epoch())
        self.noted["accuracy"] = self._count_correct(self.loader.held_out()) / self.loader.tested

    @abstractmethod
    def _run_step_phase(self, name: str) -> None:
        """Issue one of the recipe's phases on the fixed batch."""

    @abstractmethod
    def _train_on(self, batches: Iterator[Any]) -> None:
        """Issue a training step on each of a loader's batches."""

    @abstractmethod
    def _count_correct(self, batches: Iterator[Any]) -> int:
        """Count the right answers on a loader's batches."""


class Computed(NamedTuple):
    """What a case computed from some weights on some batch: outputs, or losses of a few updates."""

    numbers: list[list[float]]
    weights: Any
    batch: Batch


class ArrayProgram(ModelProgram):
    """A case on its device, with the batches that it cycles through."""

    def __init__(
        self, framework: ArrayFramework, case: Case, build: Build | Portable, data: Opened | None = None
    ) -> None:
        self.framework, self.case, self.build = framework, case, build
        self.training = case.mode == "train"
        self.copies, self.returns = case.placement != "device", case.placement == "roundtrip"
        recipe = framework.recipe(case, build, dropout=True)
        self.loader: PlainLoader | None = None if data is None else PlainLoader(data, case.batch or 1, self.training)
        pool = [recipe.draw() for _ in range(BATCH_POOL)] if self.loader is None else [self._drawn(self.loader.first())]
        self.backend = framework.backend(case, recipe, dropout=True)
        self.params, self.updates, self.step_phases = self.backend.params, recipe.updates, recipe.phases
        self.noted: dict[str, Any] = dict(recipe.notes)
        self.fixed = self._placed(pool[0])
        self.batches = self._stream(pool)
        self.first_loss: Any = None
        self.carry: Any = None

    def _drawn(self, batch: tuple[Values, Values]) -> Batch:
        """Turn what a loader read into arrays."""
        inputs, targets = batch
        return self.framework.array(inputs, self.case), self.framework.array(targets, self.case)

    def _placed(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self.backend.place(inputs), self.backend.place(targets)

    def _on_host(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self.backend.on_host(inputs), self.backend.on_host(targets)

    def _stream(self, pool: list[Batch]) -> Iterator[Batch]:
        """Give batches without end: from a data set on disk, or a few that were drawn ahead."""
        if self.loader is not None:
            return map(self._on_host, map(self._drawn, self.loader.endless()))
        put = self._on_host if self.copies else self._placed
        return itertools.cycle([put(batch) for batch in pool])

    # -- steps -------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Issue steps; placement says whether the batch and the result cross to and from the host."""
        step = self._step_in_phases if self.step_phases else self._train if self.training else self._infer
        for inputs, targets in itertools.islice(self.batches, steps):
            output = step(inputs, targets)
            if self.returns:
                self.backend.copy_out(output)

    def _train(self, inputs: Any, targets: Any) -> Any:
        if self.copies:
            inputs, targets = self.backend.copy_in(inputs), self.backend.copy_in(targets)
        output, loss = self.backend.train(inputs, targets, self.updates)
        if self.first_loss is None:
            self.first_loss = loss
        return output

    def _infer(self, inputs: Any, _: Any) -> Any:
        return self.backend.infer(self.backend.copy_in(inputs) if self.copies else inputs)

    def _step_in_phases(self, inputs: Any, _: Any) -> Any:
        inputs, carried = self.backend.copy_in(inputs) if self.copies else inputs, None
        for phase in self.step_phases.values():
            carried = self.backend.run_phase(phase, inputs, carried)
        return carried

    def synchronize(self) -> None:
        self.backend.wait()

    # -- phases ------------------------------------------------------------------------------------

    def _run_step_phase(self, name: str) -> None:
        self.carry = self.backend.run_phase(self.step_phases[name], self.fixed[0], self.carry)

    def prepare_phases(self) -> None:
        """Make the graphs for batches of sizes that only an epoch has, before it is timed."""
        if self.loader is not None:
            for batch in self.loader.of_each_size(self.loader.data.test, TEST_BATCH):
                self.backend.infer(self._placed(self._drawn(batch))[0])
            if self.training:
                for batch in self.loader.of_each_size(self.loader.data.train, self.loader.batch):
                    self.backend.train(*self._placed(self._drawn(batch)), self.updates)
            self.backend.wait()

    def _train_on(self, batches: Iterator[Any]) -> None:
        for batch in batches:
            self.backend.train(*self._placed(self._drawn(batch)), self.updates)

    def _count_correct(self, batches: Iterator[Any]) -> int:
        placed = map(self._placed, map(self._drawn, batches))
        return sum(self.backend.correct(self.backend.infer(inputs), targets) for inputs, targets in placed)

    # -- what is observed --------------------------------------------------------------------------

    def steady_counters(self) -> tuple[int, ...]:
        """Return how many graphs were made; after the first step, note what that took."""
        if self.backend.traces and "compile_time" not in self.noted:
            self.noted["compile_time"] = self.backend.compile_time()
        return (self.backend.traces,)

    def device_peak(self) -> int | None:
        return None if self.case.device == "cpu" else self.backend.peak()

    def actual_device(self) -> str:
        return " and ".join(sorted(self.backend.devices(*self.fixed)))

    def precision_flaw(self) -> str:
        """Judge by the types of what went into matmuls while the step was made."""
        types = self.backend.product_types
        if types <= {multiplied_type(self.case)}:
            return ""
        return f"{self.case.precision} did not take effect: matmuls ran in {', '.join(sorted(types))}"

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.noted | self.backend.facts

    # -- checks ------------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """Return the loss that the first step found, where it was on the fixed batch."""
        if self.first_loss is None or self.loader is not None:
            return self.losses()
        return {"loss": self.backend.sample_values(self.first_loss, 1)[0]}

    def losses(self) -> Mapping[str, float] | None:
        """Return the loss on the fixed batch, as one more training step finds it."""
        if not self.training:
            return None
        return {"loss": self.backend.sample_values(self.backend.train(*self.fixed, self.updates)[1], 1)[0]}

    def check_step(self) -> None:
        """Train on the fixed batch, with the optimiser's step in any case."""
        self.backend.train(*self.fixed, True)

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Compare with the same framework in fp32 on the CPU, from the same weights, on a small batch."""
        case = self.case if callable(self.build) else proof_case(self.case)
        plain = replace(case, device="cpu", precision="fp32", compile=False)
        if plain == case:
            return None
        error = self._error_against(case, plain)
        return None if error is None else (error, TOLERANCE[self.case.precision or "fp32"])

    def _error_against(self, case: Case, plain: Case) -> float | None:
        """Return the relative error; None where the model's own random numbers explain all of it."""
        try:
            expected, weights, batch = self._compute(plain)
        except Exception:  # of items that depend on each other, as the nodes of a graph do: then all of them
            whole = self.framework.recipe(plain, self.build, dropout=False).draw()
            expected, weights, batch = self._compute(plain, batch=whole)
        actual = self._compute(case, weights, batch).numbers
        tolerance = TOLERANCE[self.case.precision or "fp32"]
        errors, drawn = list(map(relative_error, actual, expected)), [0.0 for _ in expected]
        for passes in range(1, 1 + OTHER_DRAWS) if not max(errors) <= tolerance else ():
            again = self._compute(plain, weights, batch, passes).numbers
            drawn = list(map(max, drawn, map(relative_error, again, expected)))
        unexplained = without_chance(list(zip(errors, drawn, strict=True)), tolerance)
        if len(unexplained) < len(errors):
            self.noted["draws_random"] = True
        return max(unexplained, default=None)

    def proof(self, portable: Portable) -> list[float]:
        return self._compute(proof_case(self.case), rate=PROOF_RATE, count=PROOF_NUMBERS).numbers[0]

    def _compute(
        self,
        case: Case,
        weights: Any = None,
        batch: Batch | None = None,
        passes: int = 0,
        rate: float = 1.0,
        count: int = COMPARED_NUMBERS,
    ) -> Computed:
        """Compute a case without dropout; the weights and the batch are its own, if none are given.

        A model that draws random numbers uses some up in forward passes before that, as many as `passes`.
        """
        recipe = self.framework.recipe(case, self.build, False, rate)
        batch = batch or first_items(recipe.draw(), COMPARED_ITEMS)
        backend = self.framework.backend(case, recipe, dropout=False)
        if weights is not None:
            backend.start_from(weights)
        first_weights = backend.weights()
        inputs, targets = (backend.place(part) for part in batch)
        for _ in range(passes):
            backend.infer(inputs)
        if self.training:
            losses = [backend.train(inputs, targets, True)[1] for _ in range(COMPARED_UPDATES + 1)]
            return Computed([[backend.sample_values(loss, 1)[0] for loss in losses]], first_weights, batch)
        output = backend.infer(inputs)
        backend.wait()
        arrays = [leaf for leaf in trees.leaves(output) if is_array(leaf)]
        return Computed([backend.sample_values(array, count) for array in arrays], first_weights, batch)
