"""The catalogue: one file per workload, each holding one `WORKLOAD`.

The docstring of a file begins with what the workload is; a list shows that line.
Rules: a workload is frozen; whatever changes what is computed raises its version. A file imports
no framework: its build function is handed the framework's module and gives back a `Recipe`, from
which the framework makes the steps. So a workload can neither take time nor forget a sync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mldyno.records import Case


@dataclass(frozen=True)
class Recipe:
    """What a framework needs to make steps of a workload."""

    network: Any
    """The model, on the CPU, in fp32, freshly initialised from the seed that the framework set."""
    draw: Callable[[], tuple[Any, Any]]
    """Draws one learnable batch on the CPU: inputs and targets."""
    loss: Callable[[Any, Any], Any]
    """Loss of the network's output against the targets; never negative."""
    optimiser: Callable[[Any], Any]
    """The optimiser over the network's parameters."""


Build = Callable[[ModuleType, "Case"], Recipe]


@dataclass(frozen=True)
class Workload:
    """What is computed, frozen: name and version, sizes, and one build function per framework."""

    name: str
    version: int
    item: str
    batch: int
    params: int
    flops: Callable[[Case], float]
    """Floating-point operations of one step in products and convolutions; a test holds it against
    torch's own counter."""
    build: Mapping[str, Build]
    seq: int | None = None
    modes: tuple[str, ...] = ("train", "infer")

    def items(self, case: Case) -> int:
        """How many items one step of the case works through."""
        return (case.batch or self.batch) * ((case.seq or self.seq or 1) if self.item == "token" else 1)
