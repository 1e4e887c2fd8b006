"""Where the tensors of a PyTorch program really lie, and where its matmuls ran: the check that a device was used.

Code that asks for an accelerator and gets the CPU runs, and gives right results. One published comparison was made so.
What can lie elsewhere unnoticed is looked at: all parameters and buffers, not the first; the inputs and the output;
what the optimiser keeps; and, while a step is watched, its matmuls and the gradients that the optimiser gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks._torch_operations import watch_matmuls

if TYPE_CHECKING:
    from mldyno.workloads import Batch


def actual_device(network: Any, optimiser: Any, batch: Batch, output_on: Any, expected_on: Any = None) -> str:
    """The device that all of a program lies on; where something lies elsewhere, that is named too.

    `output_on` is where the output was, None before there is one; `expected_on` where it must be, if not with the rest.
    """
    home = None
    for what, tensor in _tensors(network, optimiser, batch):
        home = tensor.device if home is None else home
        if tensor.device != home:
            return f"{home}, {what} on {tensor.device}"
    if output_on is not None and output_on != (expected_on or home):
        return f"{home}, the output on {output_on}"
    return str(home)


def _tensors(network: Any, optimiser: Any, batch: Batch) -> Iterator[tuple[str, Any]]:
    for kind, named in (("parameter", network.named_parameters()), ("buffer", network.named_buffers())):
        for name, tensor in named:
            yield f"{kind} {name}", tensor
    for what, tree in zip(("the inputs", "the targets"), batch, strict=True):
        yield from ((what, leaf) for leaf in trees.leaves(tree) if hasattr(leaf, "device"))
    states = getattr(optimiser, "state", None)
    for state in states.values() if isinstance(states, Mapping) else ():
        for name, tensor in state.items() if isinstance(state, Mapping) else ():
            if getattr(tensor, "dim", int)():  # step counters are single numbers, and lie on the host on purpose
                yield f"the optimiser's {name}", tensor


@contextmanager
def watch_compute(torch: ModuleType) -> Iterator[set[str]]:
    """The devices on which matmuls run meanwhile, and where the gradients lie that an optimiser gets."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    devices: set[str] = set()

    def look(optimiser: Any, *_: Any) -> None:
        parameters = (parameter for group in optimiser.param_groups for parameter in group["params"])
        devices.update(str(parameter.grad.device) for parameter in parameters if parameter.grad is not None)

    hook = register_optimizer_step_pre_hook(look)
    try:
        with watch_matmuls(torch) as ran:
            yield devices
    finally:
        hook.remove()
        devices.update(device for device, _ in ran)
