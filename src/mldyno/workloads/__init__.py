"""The catalogue: one file per workload, each holding one `WORKLOAD`.

The docstring of a file begins with what the workload is; a list shows that line.
Rules: a workload is frozen; whatever changes what is computed raises its version. A file imports
no framework: it has a build function for each, which is handed the framework's module and gives back a
`Recipe`, from which the framework makes the steps. So a workload can neither take time nor forget a sync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mldyno.recipes import Build
    from mldyno.records import Case


@dataclass(frozen=True)
class EndToEnd:
    """A process that trains a workload from its data set, end to end: so many epochs, each with its evaluation."""

    workload: str
    epochs: int


@dataclass(frozen=True)
class Workload:
    """What is computed, frozen: name and version, sizes, and one build function per framework."""

    name: str
    version: int
    item: str
    batch: int
    params: int
    flops: Callable[[Case], float]
    """Floating-point operations of one step in matmuls and convolutions; a test holds it against
    torch's own counter."""
    build: Mapping[str, Build]
    seq: int | None = None
    modes: tuple[str, ...] = ("train", "infer")
    placement: str = "device"
    """Where its batches lie if nothing else is asked for."""
    data: str | None = None
    """The data set on disk from which placement `loader` takes its batches."""
    end_to_end: EndToEnd | None = None
    """What framework `command` runs of it."""
    count: Callable[[Case], int] | None = None
    """How many items a step works through, where that is not the batch, or the batch's tokens."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that have a version of it."""
        return (*self.build, *(("command",) if self.end_to_end else ()))

    def items(self, case: Case) -> int:
        """How many items one step of the case works through."""
        if self.count is not None:
            return self.count(case)
        return (case.batch or self.batch) * ((case.seq or self.seq or 1) if self.item == "token" else 1)
