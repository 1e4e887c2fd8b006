"""What frameworks with arrays share: a case of a portable workload as a program, and layers with parameters by name.

A framework gives layers, of which the workload makes its network, and a model: that network on a device, with all that
training changes. Whatever is the same in every framework is here: batches, placements, steps, checks.
"""

from __future__ import annotations

import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import (
    COMPARED_UPDATES,
    PROOF_NUMBERS,
    PROOF_RATE,
    TOLERANCE,
    Program,
    Unsupported,
    proof_case,
    relative_error,
)

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads._portable import Portable, Values

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


@dataclass(frozen=True)
class Parameter:
    """A parameter by its name and shape in PyTorch, and how it lies in a framework's memory."""

    name: str
    shape: tuple[int, ...]
    split: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()

    def arranged(self, values: Any) -> Any:
        """An array of that shape, as the framework wants it."""
        values = values.reshape(self.split) if self.split else values
        values = values.transpose(*self.order) if self.order else values
        return values.reshape(self.joined) if self.joined else values


class Layers:
    """Layers with parameters by name; images have their channels last."""

    name: str
    """The framework's."""
    inputs_first = True
    """Whether the weight of a linear layer is (inputs, outputs); else (outputs, inputs)."""
    kernel_order: tuple[int, ...] = (2, 3, 1, 0)
    """How a kernel lies: of (outputs, inputs, rows, columns) which comes first."""

    def __init__(self) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.values: Mapping[str, Any] = {}
        """Of the parameters, while the network runs."""
        self.statistics: dict[str, Any] = {}
        """Running means and variances of batch norms, while the network runs; in training they are the new ones."""
        self.normed: dict[str, int] = {}
        """The channels of each batch norm."""
        self.training = False
        self.dropping = False
        """Whether dropout is on: in training, but for the steps that are compared."""
        self.multiplied: set[str] = set()
        """Types of what went into matmuls."""

    def add(self, name: str, *shape: int, **arrangement: tuple[int, ...]) -> str:
        """A parameter; gives its name."""
        self.parameters[name] = Parameter(name, shape, **arrangement)
        return name

    def add_linear(
        self, weight: str, inputs: int, outputs: int, image: tuple[int, int, int] | None, inputs_first: bool
    ) -> str:
        """The weight of a linear layer; behind images it is ordered by channels, rows and columns in PyTorch."""
        if inputs_first:
            return self.add(weight, inputs, outputs, order=() if self.inputs_first else (1, 0))
        if image is None:
            return self.add(weight, outputs, inputs, order=(1, 0) if self.inputs_first else ())
        order, joined = ((2, 3, 1, 0), (inputs, outputs)) if self.inputs_first else ((0, 2, 3, 1), (outputs, inputs))
        return self.add(weight, outputs, inputs, split=(outputs, *image), order=order, joined=joined)

    def note(self, x: Any) -> Any:
        """Remember the type of what goes into a matmul."""
        self.multiplied.add(getattr(x.dtype, "name", None) or str(x.dtype).rpartition(".")[2])
        return x

    # -- layers ------------------------------------------------------------------------------------

    def linear(
        self,
        name: str | None,
        inputs: int,
        outputs: int,
        image: tuple[int, int, int] | None = None,
        weight: str = "",
        bias: str = "",
        inputs_first: bool = False,
    ) -> Callable[[Any], Any]:
        """Times a matrix, plus a bias; behind flattened images of that shape, where one is given."""
        kernel = self.add_linear(weight or f"{name}.weight", inputs, outputs, image, inputs_first)
        offset = self.add(bias or f"{name}.bias", outputs)
        return lambda x: self._linear(self.note(x), self.values[kernel], self.values[offset])

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> Callable[[Any], Any]:
        """Images (batch, rows, columns, channels) to the same."""
        weight = self.add(f"{name}.weight", outputs, inputs, kernel, kernel, order=self.kernel_order)
        offset = self.add(f"{name}.bias", outputs) if bias else None

        def convolved(x: Any) -> Any:
            x = self._convolution(self.note(x), self.values[weight], stride, padding)
            return x if offset is None else x + self.values[offset]

        return convolved

    def batch_norm(self, name: str, channels: int) -> Callable[[Any], Any]:
        """By the means and variances of the batch in training, and else by running ones."""
        scale, offset = self.add(f"{name}.weight", channels), self.add(f"{name}.bias", channels)
        self.normed[name] = channels
        return lambda x: self._batch_norm(name, x, self.values[scale], self.values[offset])

    def layer_norm(self, name: str, width: int, epsilon: float) -> Callable[[Any], Any]:
        """Of the last axis."""
        scale, offset = self.add(f"{name}.weight", width), self.add(f"{name}.bias", width)
        return lambda x: self._layer_norm(x, self.values[scale], self.values[offset], epsilon)

    def embedding(self, name: str, count: int, width: int) -> Embedding:
        """A row for each of so many words."""
        return Embedding(self, self.add(f"{name}.weight", count, width))

    def dropout(self, rate: float) -> Callable[[Any], Any]:
        """Some values are 0 in training, by chance."""
        return lambda x: self._dropout(x, rate) if self.dropping and rate else x

    def lstm(self, name: str, inputs: int, hidden: int) -> Callable[[Any], Any]:
        """(sequence, batch, inputs) to (sequence, batch, hidden), with the two biases of PyTorch."""
        order = (1, 0) if self.inputs_first else ()
        weights = [
            self.add(f"weight_ih_{name}", 4 * hidden, inputs, order=order),
            self.add(f"weight_hh_{name}", 4 * hidden, hidden, order=order),
            *(self.add(f"bias_{which}_{name}", 4 * hidden) for which in ("ih", "hh")),
        ]
        return lambda x: self._lstm(self.note(x), *(self.values[weight] for weight in weights))

    def attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        heads: int,
        dropout: float = 0.0,
        causal: bool = False,
        cache: Any = None,
    ) -> Any:
        """Of (batch, sequence, width), in so many heads; `causal`: a token sees none after it."""
        batch, _, width = query.shape
        query, key, value = (x.reshape(batch, x.shape[1], heads, width // heads) for x in (query, key, value))
        before = 0
        if cache is not None:
            before = cache.length
            key, value = cache.extend(key, value)
        attended = self._attention(self.note(query), key, value, dropout if self.dropping else 0.0, causal, before)
        return attended.reshape(batch, -1, width)

    # -- the framework's own; what it leaves out, it has not ------------------------------------------

    def _missing(self, *_: Any, **__: Any) -> Any:
        raise Unsupported(f"{self.name} has no layers of all the kinds that this workload needs")

    _linear: Callable[..., Any] = _missing
    """Of x, a weight and a bias."""
    _convolution: Callable[..., Any] = _missing
    """Of x, a kernel, the stride and the padding on each side."""
    _batch_norm: Callable[..., Any] = _missing
    """Of a name, x, a scale and an offset."""
    _layer_norm: Callable[..., Any] = _missing
    """Of x, a scale, an offset and an epsilon."""
    _dropout: Callable[..., Any] = _missing
    """Of x and a rate."""
    _lstm: Callable[..., Any] = _missing
    """Of x, the weights of inputs and of the last state, and two biases."""
    _attention: Callable[..., Any] = _missing
    """Of query, key and value (batch, sequence, heads, width), a rate of dropout, whether it is causal, and how many
    tokens come before the query's."""
    max_pool: Callable[..., Any] = _missing
    """The largest of each window of a size, with a stride (the size, if it is 0) and a padding; gives a function."""
    constant: Callable[..., Any] = _missing
    """A matrix that nothing changes, from its rows; gives a function without arguments."""
    relu: Callable[..., Any] = _missing
    gelu: Callable[..., Any] = _missing
    """Exact, or by the formula with tanh (`by_tanh`)."""
    tanh: Callable[..., Any] = _missing
    mean: Callable[..., Any] = _missing
    """Of x over these axes."""
    split: Callable[..., Any] = _missing
    """The last axis of x in so many equal parts."""
    take: Callable[..., Any] = _missing
    """Rows of a table by their numbers."""
    rows: Callable[..., Any] = _missing
    """Of a table from that row on so many."""
    scores: Callable[..., Any] = _missing
    """The product of x with each row of a table."""

    def flatten(self, x: Any) -> Any:
        """All but the first axis in one."""
        return x.reshape(x.shape[0], -1)


class Caches(dict[int, Any]):
    """The keys and values of each layer, by its number; each is made when it is first asked for."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, number: int) -> Any:
        self[number] = self.make()
        return self[number]


class Embedding:
    """A table of rows, one for each word."""

    def __init__(self, layers: Layers, weight: str) -> None:
        self.layers, self.weight = layers, weight

    def __call__(self, ids: Any) -> Any:
        """The rows of these words."""
        return self.layers.take(self.layers.values[self.weight], ids)

    def rows(self, start: Any, count: int) -> Any:
        """So many rows from that one on."""
        return self.layers.rows(self.layers.values[self.weight], start, count)

    def scores(self, x: Any) -> Any:
        """How well each word fits."""
        return self.layers.scores(self.layers.note(x), self.layers.values[self.weight])


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

    def __init__(self, case: Case, portable: Portable, make: Make) -> None:
        self.case, self.portable, self.make = case, portable, make
        self.training = case.mode == "train"
        self.copies, self.returns = case.placement != "device", case.placement == "roundtrip"
        self.model = make(case, portable, True)
        self.params = self.model.params
        pool = [portable.batch(case, seed) for seed in range(BATCH_POOL)]
        self.fixed = self._placed(pool[0])
        put = self.model.on_host if self.copies else self.model.place
        self.batches = itertools.cycle([(put(inputs), put(targets)) for inputs, targets in pool])
        self.first_loss: Any = None
        self.carry: Any = None
        self.noted: dict[str, Any] = {}

    def _placed(self, batch: tuple[Values, Values]) -> tuple[Any, Any]:
        inputs, targets = batch
        return self.model.place(inputs), self.model.place(targets)

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
        """Of a step that generates text."""
        if not self._generates:
            return {}
        batch, seq = self.fixed[0].shape
        return {"prefill": batch * seq, "decode": batch * self.portable.decoded}

    def run_phase(self, name: str) -> None:
        """One phase, on the fixed batch."""
        if name == "prefill":
            self.carry = self._prefilled(self.fixed[0])
        else:
            self.model.decode(self.carry, self.portable.decoded)

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
        wanted, seen = multiplied_type(self.case), self.model.layers.multiplied
        if seen <= {wanted}:
            return ""
        return f"{self.case.precision} did not take effect: matmuls ran in {', '.join(sorted(seen))}"

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the step's compilation took, and what matmuls ran in."""
        types = ", ".join(sorted(self.model.layers.multiplied))
        return self.noted | ({"products_in": types} if types else {})

    # -- checks ------------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """The loss that the first step found, on the fixed batch."""
        return None if self.first_loss is None else {"loss": self._number(self.first_loss)}

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
