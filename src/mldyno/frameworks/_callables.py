"""A case of a user's own model as a program, in frameworks with arrays: from a recipe, of which they know the parts.

A recipe's network takes its inputs as one tree. In JAX it is a function with its parameters, in TensorFlow a callable
with `trainable_variables`, in MLX a Module or a function.
"""

from __future__ import annotations

import itertools
import random
import sys
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks import COMPARED_UPDATES, OTHER_DRAWS, TOLERANCE, Unsupported, relative_error, without_chance
from mldyno.frameworks._arrays import BATCH_POOL, ArrayProgram, Model
from mldyno.trees import each_array, is_array

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads import Batch, Recipe

SEED = 20240229
COMPARED_ITEMS = 8  # that results are compared on: in fp32 on the CPU a whole batch can take minutes
COMPARED_NUMBERS = 4096  # of each output


def seed_generators(seed: int = SEED) -> None:
    """Let what the user's code draws from Python's and NumPy's generators be the same each time it is called."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def first_items(tree: Any, most: int) -> Any:
    """So many items of a batch; all of it where its arrays do not have their items first."""
    lengths = {leaf.shape[0] if leaf.shape else 0 for leaf in trees.leaves(tree) if is_array(leaf)}
    sparse = any(map(trees.is_sparse, trees.leaves(tree)))
    return tree if sparse or len(lengths) != 1 else each_array(lambda array: array[:most], tree)


class CallableModel(Model):
    """A user's model on its device; batches and outputs are trees."""

    def place(self, values: Any) -> Any:
        """Arrays on the device, in the case's type."""
        return self.copy_in(self.on_host(values))

    @abstractmethod
    def weights(self) -> Any:
        """All that it has learned, as it is now."""

    @abstractmethod
    def start_from(self, weights: Any) -> None:
        """Take the weights of another such model, in the type of its own."""


Make = Callable[["Case", "Recipe", bool], CallableModel]
"""Makes a model of a case, with dropout or without, where the framework can switch it off."""


class CallableProgram(ArrayProgram):
    """A case of a user's own model."""

    model: CallableModel

    def __init__(self, case: Case, recipe_of: Callable[[Case], Recipe], make: Make) -> None:
        recipe = recipe_of(case)
        if recipe.phases or recipe.checks is not None:
            raise Unsupported(f"a recipe with phases or checks of its own is for torch, not for {case.framework}")
        pool = [recipe.draw() for _ in range(BATCH_POOL)]
        super().__init__(case, make(case, recipe, True), recipe.updates)
        self.recipe_of, self.make = recipe_of, make
        self.noted |= recipe.notes
        self.fixed = self._placed(pool[0])
        put = self._on_host if self.copies else self._placed
        self.batches = itertools.cycle([put(batch) for batch in pool])

    def _placed(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self.model.place(inputs), self.model.place(targets)

    def _on_host(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self.model.on_host(inputs), self.model.on_host(targets)

    def _error_against(self, plain: Case) -> float | None:
        """On the first items of the first batch, from the same weights: outputs, or losses of a few updates."""
        try:
            expected, weights, batch = self._results(plain)
        except Exception:  # of items that depend on each other, as the nodes of a graph do: then all of them
            expected, weights, batch = self._results(plain, batch=self.recipe_of(plain).draw())
        actual, _, _ = self._results(self.case, weights, batch)
        tolerance = TOLERANCE[self.case.precision or "fp32"]
        errors, drawn = list(map(relative_error, actual, expected)), [0.0 for _ in expected]
        for passes in range(1, 1 + OTHER_DRAWS) if not max(errors) <= tolerance else ():
            other, _, _ = self._results(plain, weights, batch, passes)
            drawn = list(map(max, drawn, map(relative_error, other, expected)))
        own = without_chance(list(zip(errors, drawn, strict=True)), tolerance)
        if len(own) < len(errors):
            self.noted["draws_random"] = True
        return max(own, default=None)

    def _results(
        self, case: Case, weights: Any = None, batch: Any = None, passes: int = 0
    ) -> tuple[list[list[float]], Any, Batch]:
        """What a model computes, with the weights and the batch that it began with: the user's code may draw others.

        After so many forward passes, in which a model that draws random numbers uses some up.
        """
        recipe = self.recipe_of(case)
        batch = batch or first_items(recipe.draw(), COMPARED_ITEMS)
        model = self.make(case, recipe, False)
        if weights is not None:
            model.start_from(weights)
        first_weights = model.weights()
        inputs, targets = (model.place(part) for part in batch)
        for _ in range(passes):
            model.infer(inputs)
        if self.training:
            losses = [model.train(inputs, targets, True)[1] for _ in range(COMPARED_UPDATES + 1)]
            return [[model.sample_values(loss, 1)[0] for loss in losses]], first_weights, batch
        output = model.infer(inputs)
        model.wait()
        arrays = [leaf for leaf in trees.leaves(output) if is_array(leaf)]
        return [model.sample_values(array, COMPARED_NUMBERS) for array in arrays], first_weights, batch
