"""What frameworks with arrays share: a case of a portable workload as a program.

A framework gives layers, of which the workload makes its network, and a model: that network on a device, with all that
training changes. Whatever is the same in every framework is here: batches, placements, steps, checks.
"""

from __future__ import annotations

import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import (
    COMPARED_UPDATES,
    PROOF_NUMBERS,
    PROOF_RATE,
    TOLERANCE,
    Program,
    proof_case,
    relative_error,
)
from mldyno.frameworks._layers import Layers
from mldyno.frameworks._loader import FETCHED_BATCHES, TEST_BATCH, PlainLoader

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads._portable import Portable

BATCH_POOL = 4  # batches drawn ahead and taken in turn, so that no cache or shortcut wins
PRECISIONS = ("fp32", "bf16", "fp16", "amp-bf16")  # weights and inputs in that type; amp: only what is multiplied
STORED = {"bf16": "bfloat16", "fp16": "float16"}
MULTIPLIED = {**STORED, "amp-bf16": "bfloat16"}


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def stored_type(case: Case) -> str:
    """The type of weights and inputs."""
    return STORED.get(case.precision or "fp32", "float32")


def multiplied_type(case: Case) -> str:
    """The type of what goes into matmuls."""
    return MULTIPLIED.get(case.precision or "fp32", "float32")


class Model(ABC):
    """A network on its device, with all that training changes."""

    layers: Layers
    traces = 0
    """How often the framework has read the step's function: once for each graph that it makes of it."""

    @abstractmethod
    def place(self, values: Values) -> Any:
        """An array on the device, in the case's type; images with their channels last."""

    @abstractmethod
    def on_host(self, values: Values) -> Any:
        """The same on the host."""

    @abstractmethod
    def copy_in(self, array: Any) -> Any:
        """An array of the host on the device."""

    @abstractmethod
    def copy_out(self, array: Any) -> None:
        """An array of the device on the host; returns when it is there."""

    @abstractmethod
    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass; gives the output."""

    @abstractmethod
    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step, with the optimiser's or without; gives the output and the loss before it."""

    @abstractmethod
    def wait(self) -> None:
        """Until all that was issued is done."""

    @abstractmethod
    def numbers(self, array: Any, most: int) -> list[float]:
        """So many values of an array, evenly taken from all of it."""

    @abstractmethod
    def devices(self, *arrays: Any) -> set[str]:
        """Where all of the model and these arrays lie."""

    def correct(self, output: Any, targets: Any) -> int:
        """How many outputs are largest where their targets say."""
        return int((output.argmax(-1) == targets).sum().item())

    def compile_time(self) -> float | None:
        """Time in s that this process has spent on tracing and compiling; None where the framework tells none."""
        return None

    def peak(self) -> int | None:
        """Peak memory on the device in B; None where the framework does not count it."""
        return None

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


Make = Callable[["Case", "Portable", bool], Model]
"""Makes a model of a case, with dropout or without."""


class PortableProgram(Program):
    """A case of a portable workload."""

    def __init__(self, case: Case, portable: Portable, make: Make, data: Opened | None = None) -> None:
        self.case, self.portable, self.make = case, portable, make
        self.training = case.mode == "train"
        self.copies, self.returns = case.placement != "device", case.placement == "roundtrip"
        self.model = make(case, portable, True)
        self.params = self.model.params
        self.loader = None if data is None else PlainLoader(data, case.batch or 1, self.training)
        self.fixed = self._placed(portable.batch(case, 0) if self.loader is None else self.loader.first())
        self.batches = self._stream()
        self.first_loss: Any = None
        self.carry: Any = None
        self.noted: dict[str, Any] = {}

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

    @property
    def _generates(self) -> bool:
        return bool(self.portable.decoded) and not self.training

    # -- steps -------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Issue steps; placement says whether the batch and the result cross to and from the host."""
        step = self._train if self.training else self._generate if self._generates else self._infer
        for inputs, targets in itertools.islice(self.batches, steps):
            output = step(inputs, targets)
            if self.returns:
                self.model.copy_out(output)

    def _train(self, inputs: Any, targets: Any) -> Any:
        if self.copies:
            inputs, targets = self.model.copy_in(inputs), self.model.copy_in(targets)
        output, loss = self.model.train(inputs, targets, self.portable.updates)
        if self.first_loss is None:
            self.first_loss = loss
        return output

    def _infer(self, inputs: Any, _: Any) -> Any:
        return self.model.infer(self.model.copy_in(inputs) if self.copies else inputs)

    def _generate(self, inputs: Any, _: Any) -> Any:
        ids = self.model.copy_in(inputs) if self.copies else inputs
        return self.model.decode(self._prefilled(ids), self.portable.decoded)

    def _prefilled(self, ids: Any) -> Any:
        return self.model.prefill(ids, ids.shape[1] + self.portable.decoded)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.model.wait()

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
                    self.model.train(*self._placed(batch), self.portable.updates)
            self.model.wait()

    def _epoch(self) -> None:
        """Every item of the data set once, then the evaluation on its held-out part."""
        assert self.loader is not None
        if self.training:
            for batch in self.loader.epoch():
                self.model.train(*self._placed(batch), self.portable.updates)
        correct = 0
        for batch in self.loader.held_out():
            inputs, targets = self._placed(batch)
            correct += self.model.correct(self.model.infer(inputs), targets)
        self.noted["accuracy"] = correct / self.loader.tested

    # -- what is seen ------------------------------------------------------------------------------

    def steady_counters(self) -> tuple[int, ...]:
        """Graphs that were made of the step; after the first step, also what that took is known."""
        if self.model.traces and "compile_time" not in self.noted:
            self.noted["compile_time"] = self.model.compile_time()
        return (self.model.traces,)

    def device_peak(self) -> int | None:
        """Peak memory on an accelerator in B."""
        return None if self.case.device == "cpu" else self.model.peak()

    def actual_device(self) -> str:
        """Where everything really is."""
        devices = self.model.devices(*self.fixed)
        return " and ".join(sorted(devices))

    def precision_flaw(self) -> str:
        """By the types of what went into matmuls while the step was made."""
        types = self.model.layers.multiplied
        if types <= {multiplied_type(self.case)}:
            return ""
        return f"{self.case.precision} did not take effect: matmuls ran in {', '.join(sorted(types))}"

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the step's compilation took, and what matmuls ran in."""
        types = ", ".join(sorted(self.model.layers.multiplied))
        return self.noted | ({"products_in": types} if types else {})

    # -- checks ------------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """The loss that the first step found, where it was on the fixed batch."""
        if self.loader is not None or self.first_loss is None:
            return self.losses()
        return {"loss": self._number(self.first_loss)}

    def losses(self) -> Mapping[str, float] | None:
        """Training: the loss on the fixed batch, as one more step finds it."""
        if not self.training:
            return None
        return {"loss": self._number(self.model.train(*self.fixed, self.portable.updates)[1])}

    def check_step(self) -> None:
        """One step on the fixed batch, with the optimiser's in any case."""
        self.model.train(*self.fixed, True)

    def _number(self, value: Any) -> float:
        return self.model.numbers(value, 1)[0]

    def disagreement(self) -> tuple[float, float] | None:
        """Against the same framework in fp32 on the CPU."""
        plain = replace(self.case, device="cpu", precision="fp32", compile=False)
        if plain == self.case:
            return None
        error = relative_error(self._results(self.case), self._results(plain))
        return error, TOLERANCE[self.case.precision or "fp32"]

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
            return [model.numbers(loss, 1)[0] for loss in losses]
        return model.numbers(model.infer(inputs), PROOF_NUMBERS)
