"""A case as a program: its batches, placements, steps, phases and checks, for every framework that trains models.

A `Recipe` is a catalogue workload or a user's model. A `Backend` is a recipe's network on its device, with all that
training changes. `ModelProgram` makes a program of both. A framework with arrays defines three classes in one file:
`Layers`, which build the networks of the catalogue, a `Backend`, and a subclass of `ArrayFramework`.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
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
    matmul_precision,
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

BATCH_POOL = 4  # batches to cycle through, so that steps do not find their inputs in a cache
COMPARED_ITEMS = 8  # of a batch: in fp32 on the CPU a whole batch can take minutes
COMPARED_NUMBERS = 4096  # of each output
MATMUL_SIDE = 1024  # of a random matrix, which larger ones repeat: to draw them takes longer than to multiply
PROBE_SIDE = 256  # of a product that shows which bits of fp32 numbers a device keeps
PRECISIONS = ("fp32", "bf16", "fp16", "amp-bf16")  # the type of weights and inputs; amp: of the inputs of matmuls only
STORED = {"bf16": "bfloat16", "fp16": "float16"}
MULTIPLIED = {**STORED, "amp-bf16": "bfloat16"}


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stored_type(case: Case) -> str:
    """Return the type of weights and inputs."""
    return STORED.get(case.precision or "fp32", "float32")


def multiplied_type(case: Case) -> str:
    """Return the type of the inputs of matmuls."""
    return MULTIPLIED.get(case.precision or "fp32", "float32")


def seed_generators(seed: int = SEED) -> None:
    """Seed Python's and NumPy's generators, so that the user's code draws the same numbers each time."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def first_items(tree: Any, most: int) -> Any:
    """Return the first items of a batch; all of it if the first axis of its arrays is not the items."""
    lengths = {leaf.shape[0] if leaf.shape else 0 for leaf in trees.leaves(tree) if is_array(leaf)}
    sparse = any(map(trees.is_sparse, trees.leaves(tree)))
    return tree if sparse or len(lengths) != 1 else each_array(lambda array: array[:most], tree)


def kept_precision(multiply: Callable[[float], float]) -> str:
    """Return how fp32 numbers are multiplied, from what a product with 1 keeps of them: fp32, tf32 or bf16."""
    if multiply(1 + 2**-9) == 1:  # bf16 has 7 bits behind the point, tf32 has 10
        return "bf16"
    return "tf32" if multiply(1 + 2**-12) == 1 else "fp32"


@dataclass
class Repeated:
    """Fixed work on a device, issued repeatedly: the reference kernel and the peaks."""

    issue: Callable[[], Any]
    synchronize: Callable[[], None]
    work: float
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    def run(self, steps: int) -> None:
        issue = self.issue
        with self.around():
            for _ in range(steps):
                issue()


class Backend(ABC):
    """A recipe's network on its device, with all that training changes; batches and outputs are trees of arrays.

    By default arrays stay where they are: the device is the host.
    """

    network: Any
    traces = 0  # functions that the framework has traced, one for each graph
    params: int | None = None  # number of trained parameters; None if not known
    first_loss: Any = None  # the loss of the first training step

    def on_host(self, tree: Any) -> Any:
        """Return the arrays on the host, in the case's type."""
        return tree

    def copy_in(self, tree: Any) -> Any:
        """Copy arrays from the host to the device."""
        return tree

    def copy_out(self, tree: Any) -> None:  # noqa: B027
        """Copy arrays from the device to the host; wait for the copies."""

    def place(self, tree: Any) -> Any:
        """Return the arrays on the device, in the case's type."""
        return self.copy_in(self.on_host(tree))

    @abstractmethod
    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass and return the output."""

    @abstractmethod
    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step, without the optimiser's unless `update`; return its output and loss."""

    def run_phase(self, phase: Phase, inputs: Any, previous: Any) -> Any:
        """Issue a phase of the recipe; return the input of the next one."""
        return phase.run(self.network, inputs, previous)

    @abstractmethod
    def wait(self) -> None:
        """Wait until the device has done all that was issued."""

    @abstractmethod
    def flat(self, array: Any) -> Any:
        """Return an array on the host, in fp32 and flat."""

    def sample_values(self, array: Any, count: int) -> list[float]:
        """Return that many values of an array, evenly spaced."""
        flat = self.flat(array)
        return [float(value) for value in flat[:: max(1, len(flat) // count)][:count]]

    def steps(self) -> AbstractContextManager[Any]:
        """Return the context that steps run in."""
        return nullcontext()

    def begin_draw(self, draw: int, inputs: Any) -> None:
        """Prepare a pass with other random numbers, if the model draws any; `draw` numbers them."""
        for _ in range(draw):
            self.infer(inputs)

    def losses(self, inputs: Any, targets: Any) -> Any:
        """Return the losses before and after each of a few updates."""
        losses = [self.train(inputs, targets, True)[1] for _ in range(COMPARED_UPDATES + 1)]
        return [self.sample_values(loss, 1)[0] for loss in losses]

    def numbers(self, output: Any, count: int) -> list[Any]:
        """Return the numbers of each output that are compared."""
        self.wait()
        return [self.sample_values(array, count) for array in trees.leaves(output) if is_array(array)]

    def count_correct(self, batches: Iterable[Batch]) -> int:
        """Count the items whose largest output is that of their target."""
        return sum(self.correct(self.infer(inputs), targets) for inputs, targets in batches)

    def correct(self, output: Any, targets: Any) -> int:
        """Count these items of a batch."""
        return int((output.argmax(-1) == targets).sum().item())

    @abstractmethod
    def devices(self, *trees: Any) -> set[str]:
        """Return the devices of the network and of these arrays."""

    @property
    @abstractmethod
    def product_types(self) -> set[str]:
        """Return the types of the inputs of matmuls; of the outputs if the framework does not show these."""

    def fp32_mode(self) -> str | None:
        """Return how fp32 numbers are multiplied within `steps`: fp32, tf32, bf16; None if no setting can be read."""
        return None

    @property
    def facts(self) -> dict[str, Any]:
        return {"products_in": ", ".join(sorted(self.product_types))} if self.product_types else {}

    def weights(self) -> Any:
        """Return a copy of all that is learned."""
        return None

    def start_from(self, weights: Any) -> None:  # noqa: B027 (a catalogue workload starts from the same values anyway)
        """Take the weights of another backend, cast to the types here."""

    def compile_time(self) -> float | None:
        """Return the time in s of tracing and compiling; None if the framework does not report it."""
        return None

    def peak(self) -> int | None:
        """Return the peak memory on the device in B; None if the framework does not count it."""
        return None


class ArrayFramework(Framework):
    """A framework with arrays."""

    portable = True
    precisions: tuple[str, ...] = PRECISIONS
    placements: tuple[str, ...] = ("device", "host", "roundtrip", "loader")

    thread_variables: tuple[str, ...] = ()  # environment variables that set its number of threads when it starts

    def environment(self, case: Case) -> dict[str, str]:
        return {name: str(case.threads) for name in self.thread_variables} if case.threads else {}

    def threads(self) -> int | None:
        return int(os.environ.get(self.thread_variables[0]) or cores()) if self.thread_variables else None

    def limit_threads(self, threads: int) -> None:
        """Refuse any number but that of the environment."""
        if not self.thread_variables:
            super().limit_threads(threads)
        if threads != self.threads():
            raise Unsupported(f"{self.name} takes its threads when it starts: {self.thread_variables[0]}={threads}")

    def on_device(self, case: Case) -> AbstractContextManager[Any]:
        """Return the context in which networks and batches are made: arrays are on the case's device by default."""
        return nullcontext()

    @abstractmethod
    def layers(self, case: Case, dropout: bool) -> Layers:
        """Return the layers from which a catalogue workload builds its network."""

    @abstractmethod
    def array(self, values: Values, case: Case) -> Any:
        """Return a part of a catalogue batch as an array on the host; images have their channels last."""

    @abstractmethod
    def backend(self, case: Case, recipe: Recipe, dropout: bool) -> Backend:
        """Place a recipe's network on the case's device; without `dropout` turn it off, if possible."""

    def user_recipe(self, case: Case, build: Build) -> Recipe:
        raise Unsupported(f"{self.name} takes workloads of the catalogue only")

    def recipe(self, case: Case, build: Build | Portable, dropout: bool, rate: float = 1.0) -> Recipe:
        """Return the recipe of a case; for the catalogue, at `rate` times the learning rate."""
        with self.on_device(case):
            if not callable(build):
                return build.recipe(self.layers(case, dropout), case, lambda values: self.array(values, case), rate)
            recipe = self.user_recipe(case, build)
        if recipe.phases or recipe.checks is not None:
            raise Unsupported(f"{case.framework} has no recipes with their own phases or checks; torch has")

        def draw() -> Batch:
            with self.on_device(case):
                return recipe.draw()

        return replace(recipe, draw=draw)

    def build_program(self, case: Case, build: Build | Portable, data: Opened | None) -> ModelProgram:
        return ModelProgram(self, case, build, data)


class Computed(NamedTuple):
    """Numbers of each output of a case, or losses of a few updates; and what they were computed from."""

    numbers: list[Any]
    recipe: Recipe
    weights: Any
    batch: Batch


class ModelProgram(Program):
    """A case of a model on its device: its batches, steps, phases, and the comparison with fp32 on the CPU."""

    backend: Backend
    loader: Loader | None
    difference: Callable[[Any, Any], float] = staticmethod(relative_error)
    """Return the relative error of a backend's numbers."""

    def __init__(self, framework: ArrayFramework, case: Case, build: Build | Portable, data: Opened | None) -> None:
        self.framework, self.case, self.build = framework, case, build
        self.training = case.mode == "train"
        self.copies, self.returns = case.placement != "device", case.placement == "roundtrip"
        self.recipe = self.make_recipe(case)
        self.loader = self.make_loader(data)
        if self.loader is not None:
            self.loads_ahead, self.steps_in_cycle = self.loader.ahead, self.loader.cycle
        pool = self.draw_pool()
        self.backend = self.make_backend(case, self.recipe, dropout=True)
        self.params = self.backend.params
        self.noted: dict[str, Any] = dict(self.recipe.notes)
        self.fixed = self.placed(pool[0])
        self.batches = self.stream(pool)
        self.carry: Any = None

    def make_recipe(self, case: Case, rate: float = 1.0, dropout: bool = True) -> Recipe:
        """Build the recipe with its first weights, at `rate` times its learning rate."""
        return self.framework.recipe(case, self.build, dropout, rate)

    def make_backend(self, case: Case, recipe: Recipe, dropout: bool) -> Backend:
        """Place a recipe's network on the case's device; without `dropout` turn it off, if possible."""
        return self.framework.backend(case, recipe, dropout)

    def make_loader(self, data: Opened | None) -> Loader | None:
        """Return a loader of batches from disk; None if the case draws its batches."""
        to_array = partial(self.framework.array, case=self.case)
        return None if data is None else PlainLoader(data, self.case.batch or 1, self.training, to_array)

    def draw_pool(self) -> list[Batch]:
        """Return the batches to cycle through; of a data set only the first batch, for checks."""
        return [self.recipe.draw() for _ in range(BATCH_POOL)] if self.loader is None else [self.loader.first()]

    def placed(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self.backend.place(inputs), self.backend.place(targets)

    def _on_host(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self.backend.on_host(inputs), self.backend.on_host(targets)

    def stream(self, pool: list[Batch]) -> Iterator[Batch]:
        """Return endless batches: from a data set on disk, or a few that are repeated."""
        if self.loader is not None:
            return map(self._on_host, self.loader.endless())
        put = self._on_host if self.copies else self.placed
        return itertools.cycle([put(batch) for batch in pool])

    # -- steps -------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Issue steps, with copies from and to the host as the placement asks."""
        self.run_on(itertools.islice(self.batches, steps))

    def run_on(self, batches: Iterator[Batch]) -> None:
        step = self._step_in_phases if self.recipe.phases else self._train if self.training else self._infer
        with self.backend.steps():
            for inputs, targets in batches:
                output = step(inputs, targets)
                if self.returns and output is not None:
                    self.backend.copy_out(output)
                del output  # the next step must find its memory free, and its caches without it

    def _train(self, inputs: Any, targets: Any) -> Any:
        if self.copies:
            inputs, targets = self.backend.copy_in(inputs), self.backend.copy_in(targets)
        output, loss = self.backend.train(inputs, targets, self.recipe.updates)
        if self.backend.first_loss is None:
            self.backend.first_loss = loss
        return output

    def _infer(self, inputs: Any, _: Any) -> Any:
        return self.backend.infer(self.backend.copy_in(inputs) if self.copies else inputs)

    def _step_in_phases(self, inputs: Any, _: Any) -> Any:
        inputs, previous = self.backend.copy_in(inputs) if self.copies else inputs, None
        for phase in self.recipe.phases.values():
            previous = self.backend.run_phase(phase, inputs, previous)
        return previous

    def synchronize(self) -> None:
        self.backend.wait()

    def load_first(self) -> bool:
        if self.loader is None:
            return False
        self.batches = itertools.chain([next(self.batches)], self.batches)
        return True

    def drop_loaded(self) -> None:
        for _ in range(self.loads_ahead):
            next(self.batches)

    def end(self) -> None:
        if self.loader is not None:
            self.batches = iter(())
            self.loader.end()

    # -- phases ------------------------------------------------------------------------------------

    @property
    def phases(self) -> Mapping[str, int]:
        if self.recipe.phases or self.loader is None:
            return {name: phase.items for name, phase in self.recipe.phases.items()}
        return self.loader.phases

    def run_phase(self, name: str) -> None:
        """Issue a phase; the phases of a step run in order, on the fixed batch."""
        if name == "data":
            for _ in range(FETCHED_BATCHES):
                next(self.batches)
        elif name == "epoch":
            self._run_epoch()
        else:
            phases = self.recipe.phases
            previous = None if name == next(iter(phases)) else self.carry
            with self.backend.steps():
                self.carry = self.backend.run_phase(phases[name], self.fixed[0], previous)

    def _run_epoch(self) -> None:
        """Train on every item of the data set once, then evaluate on its held-out part."""
        assert self.loader is not None
        correct = self._train_and_test(self.loader.epoch() if self.training else (), self.loader.held_out())
        self.noted["accuracy"] = correct / self.loader.tested

    def _train_and_test(self, train: Iterable[Batch], test: Iterable[Batch]) -> int:
        with self.backend.steps():
            for batch in train:
                self.backend.train(*self.placed(batch), self.recipe.updates)
        return self.backend.count_correct(map(self.placed, test))

    def prepare_phases(self) -> None:
        """Compile graphs for batch sizes that only an epoch has, before it is timed."""
        if self.loader is not None and "epoch" in self.phases:
            data, batch = self.loader.data, self.loader.batch
            train = self.loader.of_each_size(data.train, batch) if self.training else ()
            self._train_and_test(train, self.loader.of_each_size(data.test, TEST_BATCH))
            self.backend.wait()

    # -- counters ----------------------------------------------------------------------------------

    def steady_counters(self) -> tuple[int, ...]:
        """Return the number of graphs; after the first step, note the time to compile them."""
        if self.backend.traces and "compile_time" not in self.noted:
            self.noted["compile_time"] = self.backend.compile_time()
        return (self.backend.traces,)

    def device_peak(self) -> int | None:
        return None if self.case.device == "cpu" else self.backend.peak()

    def precision_flaw(self) -> str:
        """Judge by the types of the inputs of matmuls in the step's graph."""
        types = self.backend.product_types
        if types <= {multiplied_type(self.case)}:
            return ""
        return f"{self.case.precision} did not take effect: matmuls ran in {', '.join(sorted(types))}"

    def effective_precision(self) -> str | None:
        """Return how fp32 numbers are multiplied; of other precisions, the type that `precision_flaw` found."""
        asked = matmul_precision(self.case)
        if asked not in ("fp32", "tf32"):
            return asked if self.backend.product_types else None
        with self.backend.steps():
            return self.backend.fp32_mode()

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.noted | self.backend.facts

    def actual_device(self) -> str:
        return " and ".join(sorted(self.backend.devices(*self.fixed)))

    # -- checks ------------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """Return the loss of the first step, if it was on the fixed batch."""
        if self.backend.first_loss is None or self.loader is not None:
            return self.losses()
        self.backend.first_loss = self.backend.sample_values(self.backend.first_loss, 1)[0]  # releases the array
        return {"loss": self.backend.first_loss}

    def losses(self) -> Mapping[str, float] | None:
        """Return the loss on the fixed batch, from one more training step."""
        if not self.training:
            return None
        return {"loss": self.backend.sample_values(self.backend.train(*self.fixed, self.recipe.updates)[1], 1)[0]}

    def check_step(self) -> None:
        """Train on the fixed batch, always with the optimiser's step."""
        if self.recipe.phases:
            self.run(1)
            return
        with self.backend.steps():
            self.backend.train(*self.fixed, True)

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Compare with the same framework in fp32 on the CPU, not compiled, with contiguous images.

        From the same weights, on a few items: outputs in inference, losses of a few updates in training. Both networks
        are built for it: one from the start of the case would count as memory of the case.
        """
        case = self.case if callable(self.build) else proof_case(self.case)
        plain = replace(case, device="cpu", precision="fp32", compile=False, layout="contiguous")
        if plain == case:
            return None
        error = self._error_against(case, plain)
        return None if error is None else (error, TOLERANCE[case.precision or "fp32"])

    def _error_against(self, case: Case, plain: Case) -> float | None:
        """Return the relative error; None if the model's own random numbers explain all of it."""
        try:
            expected = self.compute(plain)
        except Exception:  # such as of items that depend on each other, like a graph's nodes: then take all
            expected = self.compute(plain, most=None)
        tolerance = TOLERANCE[case.precision or "fp32"]
        errors = list(map(self.difference, self.compute(case, expected).numbers, expected.numbers))
        drawn = [0.0 for _ in errors]
        for draw in range(1, 1 + OTHER_DRAWS) if not max(errors, default=0.0) <= tolerance else ():
            again = self.compute(plain, expected, draw).numbers
            drawn = list(map(max, drawn, map(self.difference, again, expected.numbers)))
        unexplained = without_chance(list(zip(errors, drawn, strict=True)), tolerance)
        if len(unexplained) < len(errors):
            self.noted["draws_random"] = True
        return max(unexplained, default=None)

    def compute(
        self, case: Case, reference: Computed | None = None, draw: int = 0, most: int | None = COMPARED_ITEMS,
        rate: float = 1.0, count: int = COMPARED_NUMBERS,
    ) -> Computed:  # fmt: skip
        """Compute a case without dropout, from the weights and the batch of a reference if one is given.

        `draw` selects the random numbers of the model itself; `most` limits the items, `count` the numbers.
        """
        recipe = self.compared_recipe(case, rate, reference if draw == 0 else None)
        batch = self.compared_batch(recipe, most) if reference is None else reference.batch
        backend = self.make_backend(case, recipe, dropout=False)
        if reference is not None:
            backend.start_from(reference.weights)
        weights = backend.weights()
        inputs, targets = (backend.place(part) for part in batch)
        with backend.steps():
            backend.begin_draw(draw, inputs)
            if self.training:
                return Computed([backend.losses(inputs, targets)], recipe, weights, batch)
            return Computed(backend.numbers(backend.infer(inputs), count), recipe, weights, batch)

    def compared_recipe(self, case: Case, rate: float, reference: Computed | None) -> Recipe:
        return self.make_recipe(case, rate, dropout=False)

    def compared_batch(self, recipe: Recipe, most: int | None) -> Batch:
        """Return the first items of the first batch; all of them if `most` is None."""
        batch = recipe.draw()
        return batch if most is None else first_items(batch, most)

    def proof(self, portable: Portable) -> list[float]:
        (numbers, *_) = self.compute(proof_case(self.case), rate=PROOF_RATE, count=PROOF_NUMBERS).numbers
        return list(numbers)
