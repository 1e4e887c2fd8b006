"""A case of a portable workload as a program, in any framework with arrays.

A framework gives layers, of which the workload makes its network, and a model: that network on a device, with all that
training changes. Whatever is the same in every framework is here: batches, phases, proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import COMPARED_UPDATES, PROOF_NUMBERS, PROOF_RATE, proof_case, relative_error
from mldyno.frameworks._arrays import BATCH_POOL, ArrayProgram, Model
from mldyno.frameworks._layers import Layers
from mldyno.frameworks._loader import FETCHED_BATCHES, TEST_BATCH, PlainLoader

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads._portable import Portable


def in_numpy(numpy: Any, values: Values) -> Any:
    """Numbers that are the same in every framework, as an array of NumPy."""
    whole = numpy.frombuffer(values.whole, values.whole.typecode).reshape(values.shape)
    if values.scale is None:
        return whole
    scale, offset = (numpy.float32(number).reshape(per_channel(number)) for number in (values.scale, values.offset))
    return whole.astype(numpy.float32) * scale + offset


def per_channel(numbers: float | tuple[float, ...]) -> tuple[int, ...]:
    """The shape in which one number serves all, or one each channel of images that have these first."""
    return (len(numbers), 1, 1) if isinstance(numbers, tuple) else ()


class PortableModel(Model):
    """A network of layers; images have their channels last."""

    layers: Layers

    def correct(self, output: Any, targets: Any) -> int:
        """How many outputs are largest where their targets say."""
        return int((output.argmax(-1) == targets).sum().item())

    def prefill(self, ids: Any, room: int) -> Any:
        """The token after a prompt, and what decoding needs of it, with room for so many tokens in all."""
        raise NotImplementedError

    def decode(self, given: Any, count: int) -> Any:
        """So many tokens after a prompt, one by one."""
        raise NotImplementedError

    @property
    def params(self) -> int:
        """How many numbers are trained."""
        return sum(math.prod(parameter.shape) for parameter in self.layers.parameters.values())

    @property
    def multiplied(self) -> set[str]:
        """As layers have noted."""
        return self.layers.multiplied


Make = Callable[["Case", "Portable", bool], PortableModel]
"""Makes a model of a case, with dropout or without."""


class PortableProgram(ArrayProgram):
    """A case of a portable workload."""

    model: PortableModel

    def __init__(self, case: Case, portable: Portable, make: Make, data: Opened | None = None) -> None:
        super().__init__(case, make(case, portable, True), portable.updates)
        self.portable, self.make = portable, make
        self.loader = None if data is None else PlainLoader(data, case.batch or 1, self.training)
        self.fixed = self._placed(portable.batch(case, 0) if self.loader is None else self.loader.first())
        self.batches = self._stream()
        self.carry: Any = None

    def _placed(self, batch: tuple[Values, Values]) -> tuple[Any, Any]:
        inputs, targets = batch
        return self.model.place(inputs), self.model.place(targets)

    def _on_host(self, batch: tuple[Values, Values]) -> tuple[Any, Any]:
        inputs, targets = batch
        return self.model.on_host(inputs), self.model.on_host(targets)

    def _stream(self) -> Iterator[tuple[Any, Any]]:
        """Batches without end: from a data set on disk, or a few that were drawn ahead."""
        if self.loader is not None:
            return map(self._on_host, self.loader.endless())
        put = self._on_host if self.copies else self._placed
        return itertools.cycle([put(self.portable.batch(self.case, seed)) for seed in range(BATCH_POOL)])

    def load_first(self) -> bool:
        """Get the first batch from disk."""
        if self.loader is None:
            return False
        self.batches = itertools.chain([next(self.batches)], self.batches)
        return True

    @property
    def _generates(self) -> bool:
        return bool(self.portable.decoded) and not self.training

    # -- steps -------------------------------------------------------------------------------------

    def _step(self) -> Callable[[Any, Any], Any]:
        return self._generate if self._generates else super()._step()

    def _generate(self, inputs: Any, _: Any) -> Any:
        ids = self.model.copy_in(inputs) if self.copies else inputs
        return self.model.decode(self._prefilled(ids), self.portable.decoded)

    def _prefilled(self, ids: Any) -> Any:
        return self.model.prefill(ids, ids.shape[1] + self.portable.decoded)

    @property
    def phases(self) -> Mapping[str, int]:
        """Of a step that generates text, or beside one whose batches come from a data set."""
        if self.loader is not None:
            return self.loader.phases
        if not self._generates:
            return {}
        batch, seq = self.fixed[0].shape
        return {"prefill": batch * seq, "decode": batch * self.portable.decoded}

    def run_phase(self, name: str) -> None:
        """One phase; those of a step that generates text on the fixed batch."""
        if name == "data":
            for _ in range(FETCHED_BATCHES):
                next(self.batches)
        elif name == "epoch":
            self._epoch()
        elif name == "prefill":
            self.carry = self._prefilled(self.fixed[0])
        else:
            self.model.decode(self.carry, self.portable.decoded)

    def prepare_phases(self) -> None:
        """An epoch has batches of sizes that no step had: the graphs for these are made before it is timed."""
        if self.loader is not None:
            for inputs, _ in map(self._placed, self.loader.of_each_size(self.loader.data.test, TEST_BATCH)):
                self.model.infer(inputs)
            if self.training:
                for batch in self.loader.of_each_size(self.loader.data.train, self.loader.batch):
                    self.model.train(*self._placed(batch), self.updates)
            self.model.wait()

    def _epoch(self) -> None:
        """Every item of the data set once, then the evaluation on its held-out part."""
        assert self.loader is not None
        if self.training:
            for batch in self.loader.epoch():
                self.model.train(*self._placed(batch), self.updates)
        correct = 0
        for batch in self.loader.held_out():
            inputs, targets = self._placed(batch)
            correct += self.model.correct(self.model.infer(inputs), targets)
        self.noted["accuracy"] = correct / self.loader.tested

    # -- checks ------------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """The loss that the first step found, where it was on the fixed batch."""
        return super().first_losses() if self.loader is None else self.losses()

    def _error_against(self, plain: Case) -> float:
        """On a small batch, without dropout."""
        return relative_error(self._results(self.case), self._results(plain))

    def proof(self, portable: Portable) -> list[float]:
        """What the case computes from the workload's first weights and its first batch."""
        return self._results(self.case, PROOF_RATE)

    def _results(self, case: Case, rate: float = 1.0) -> list[float]:
        """Outputs, or losses at `rate` times the usual learning rate."""
        small = proof_case(case)
        slower = replace(self.portable.optimiser, rate=rate * self.portable.optimiser.rate)
        model = self.make(small, replace(self.portable, optimiser=slower), False)
        inputs, targets = (model.place(values) for values in self.portable.batch(small, 0))
        if self.training:
            losses = [model.train(inputs, targets, True)[1] for _ in range(COMPARED_UPDATES + 1)]
            return [model.sample_values(loss, 1)[0] for loss in losses]
        return model.sample_values(model.infer(inputs), PROOF_NUMBERS)
