"""How much memory a case will take in PyTorch, found out without taking it: its steps on the meta device."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks._torch_operations import watch_operations
from mldyno.frameworks._torch_precision import PrecisionPolicy
from mldyno.frameworks.program import BATCH_POOL

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads import Build

STEPS = 2  # the second one finds the optimiser's state in place


def peak(torch: ModuleType, case: Case, build: Build) -> int:
    """The most bytes that weights, gradients, optimiser and activations of a step hold at once.

    On the CPU the model is built in fp32 and then cast, which counts; other devices get it as it is then.
    """
    training = case.mode == "train"
    policy = PrecisionPolicy(torch, case, torch.device("meta"))
    built: list[Any] = []

    def network() -> None:
        recipe = build(torch, case)
        built.extend((recipe, policy.cast(recipe.network).train(training)))

    def steps() -> None:
        recipe, network = built
        on_host = lambda leaf: policy.on_host(leaf) if torch.is_tensor(leaf) else leaf  # noqa: E731
        pool = [trees.mapped(on_host, recipe.draw()) for _ in range(BATCH_POOL)]
        optimiser: Any = recipe.optimiser(network.parameters()) if training else None
        for (inputs, targets), _ in zip(pool, range(STEPS), strict=False):
            if training:
                recipe.loss(network(inputs), targets).backward()
                optimiser.step()
                optimiser.zero_grad()
            else:
                with torch.inference_mode():
                    _infer(recipe, network, inputs)

    with torch.device("meta"):
        building = _highest(torch, network, ())
        working = _highest(torch, steps, (*built[1].parameters(), *built[1].buffers()))
    return max(building, working) if case.device == "cpu" else working


def _infer(recipe: Any, network: Any, inputs: Any) -> None:
    if not recipe.phases:
        network(inputs)
    carried = None
    for phase in recipe.phases.values():
        carried = phase.run(network, inputs, carried)


def _highest(torch: ModuleType, work: Callable[[], None], existing: Iterable[Any]) -> int:
    """The highest sum of the sizes of all storages that live at once while the work is done, in B.

    `existing`: tensors that were made before it.
    """
    sizes: dict[int, int] = {}
    alive = highest = 0

    def allocate(storage: Any) -> None:
        nonlocal alive, highest
        key = storage._cdata
        if key not in sizes:
            sizes[key] = storage.nbytes()
            alive += sizes[key]
            highest = max(highest, alive)
            weakref.finalize(storage, drop, key)

    def drop(key: int) -> None:
        nonlocal alive
        alive -= sizes.pop(key, 0)

    def see(operation: Any, inputs: list[Any], outputs: list[Any]) -> None:
        for tensor in outputs:
            allocate(tensor.untyped_storage())

    for tensor in existing:
        allocate(tensor.untyped_storage())
    with watch_operations(torch, see):
        work()
    return highest
