"""A network in the hands of an inference runtime: what it is asked for, and the steps that are made of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mldyno.frameworks import Program

if TYPE_CHECKING:
    from mldyno.records import Case


class Engine(Protocol):
    """A network in a runtime's hands."""

    def place(self, array: Any) -> Any:
        """A batch where the runtime takes it from, without a copy in each step."""

    def run(self, batch: Any) -> Any:
        """A forward pass; gives the output."""

    def fetch(self, output: Any) -> Any:
        """An output as an array of NumPy."""

    def wait(self) -> None:
        """Until all that was issued is done."""


class EngineProgram(Program):
    """A case whose forward passes an engine makes; nothing is trained."""

    case: Case
    engine: Engine
    batches: Iterator[Any]

    def take(self, batches: Sequence[Any]) -> None:
        """Take these batches in turn, from where the placement says."""
        self.copies, self.returns = self.case.placement != "device", self.case.placement == "roundtrip"
        self.batches = itertools.cycle(batches if self.copies else [self.engine.place(batch) for batch in batches])

    def run(self, steps: int) -> None:
        """Forward passes."""
        engine = self.engine
        for batch in itertools.islice(self.batches, steps):
            output = engine.run(engine.place(batch) if self.copies else batch)
            if self.returns:
                engine.fetch(output)

    def synchronize(self) -> None:
        """Wait for the runtime."""
        self.engine.wait()

    def losses(self) -> Mapping[str, float] | None:
        """Nothing is trained."""
        return None

    def actual_device(self) -> str:
        """The engine was made for this device, and takes no other."""
        return self.case.device

    def precision_flaw(self) -> str:
        """Only fp32 can be asked for."""
        return ""
