"""What frameworks with arrays share: a model on its device, and a case as a program of its steps and checks.

Whose model it is, those beside this file know: `_portable` has the networks of workloads, `_callables` users' own.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import TOLERANCE, Program

if TYPE_CHECKING:
    from mldyno.records import Case

BATCH_POOL = 4  # batches drawn ahead and taken in turn, so that no cache or shortcut wins
PRECISIONS = ("fp32", "bf16", "fp16", "amp-bf16")  # weights and inputs in that type; amp: only what is multiplied
STORED = {"bf16": "bfloat16", "fp16": "float16"}
MULTIPLIED = {**STORED, "amp-bf16": "bfloat16"}


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stored_type(case: Case) -> str:
    """The type of weights and inputs."""
    return STORED.get(case.precision or "fp32", "float32")


def multiplied_type(case: Case) -> str:
    """The type of what goes into matmuls."""
    return MULTIPLIED.get(case.precision or "fp32", "float32")


class Model(ABC):
    """A network on its device, with all that training changes."""

    traces = 0
    """How often the framework has read the step's function: once for each graph that it makes of it."""

    @abstractmethod
    def place(self, values: Any) -> Any:
        """Arrays on the device, in the case's type."""

    @abstractmethod
    def on_host(self, values: Any) -> Any:
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
    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values of an array, evenly taken from all of it."""

    @abstractmethod
    def devices(self, *arrays: Any) -> set[str]:
        """Where all of the model and these arrays lie."""

    @property
    @abstractmethod
    def params(self) -> int | None:
        """How many numbers are trained; None where that is not known."""

    @property
    @abstractmethod
    def multiplied(self) -> set[str]:
        """Types of what went into matmuls while the step was made."""

    def compile_time(self) -> float | None:
        """Time in s that this process has spent on tracing and compiling; None where the framework tells none."""
        return None

    def peak(self) -> int | None:
        """Peak memory on the device in B; None where the framework does not count it."""
        return None


class ArrayProgram(Program):
    """A case of a model that takes and gives arrays."""

    fixed: tuple[Any, Any]
    """The batch of the checks, on the device."""
    batches: Iterator[tuple[Any, Any]]
    """Without end; on the device, or on the host where the case's placement says so."""

    def __init__(self, case: Case, model: Model, updates: bool) -> None:
        self.case, self.model, self.updates = case, model, updates
        self.training = case.mode == "train"
        self.copies, self.returns = case.placement != "device", case.placement == "roundtrip"
        self.params = model.params
        self.first_loss: Any = None
        self.noted: dict[str, Any] = {}

    # -- steps -------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Issue steps; placement says whether the batch and the result cross to and from the host."""
        step = self._step()
        for inputs, targets in itertools.islice(self.batches, steps):
            output = step(inputs, targets)
            if self.returns:
                self.model.copy_out(output)

    def _step(self) -> Callable[[Any, Any], Any]:
        return self._train if self.training else self._infer

    def _train(self, inputs: Any, targets: Any) -> Any:
        if self.copies:
            inputs, targets = self.model.copy_in(inputs), self.model.copy_in(targets)
        output, loss = self.model.train(inputs, targets, self.updates)
        if self.first_loss is None:
            self.first_loss = loss
        return output

    def _infer(self, inputs: Any, _: Any) -> Any:
        return self.model.infer(self.model.copy_in(inputs) if self.copies else inputs)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.model.wait()

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
        types = self.model.multiplied
        if types <= {multiplied_type(self.case)}:
            return ""
        return f"{self.case.precision} did not take effect: matmuls ran in {', '.join(sorted(types))}"

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the step's compilation took, and what matmuls ran in."""
        types = ", ".join(sorted(self.model.multiplied))
        return self.noted | ({"products_in": types} if types else {})

    # -- checks ------------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """The loss that the first step found, which was on the fixed batch."""
        return self.losses() if self.first_loss is None else {"loss": self._number(self.first_loss)}

    def losses(self) -> Mapping[str, float] | None:
        """Training: the loss on the fixed batch, as one more step finds it."""
        if not self.training:
            return None
        return {"loss": self._number(self.model.train(*self.fixed, self.updates)[1])}

    def check_step(self) -> None:
        """One step on the fixed batch, with the optimiser's in any case."""
        self.model.train(*self.fixed, True)

    def _number(self, value: Any) -> float:
        return self.model.sample_values(value, 1)[0]

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Against the same framework in fp32 on the CPU."""
        plain = replace(self.case, device="cpu", precision="fp32", compile=False)
        if plain == self.case:
            return None
        error = self._error_against(plain)
        return None if error is None else (error, TOLERANCE[self.case.precision or "fp32"])

    @abstractmethod
    def _error_against(self, plain: Case) -> float | None:
        """How far results are from those of a plain case, relative; None where that can't be told."""
