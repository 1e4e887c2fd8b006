"""Layers from which a catalogue workload makes its network: parameters by name, images with their channels last.

A framework with arrays overrides what it has; a workload that needs more than that is unsupported there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mldyno.frameworks import Unsupported
from mldyno.values import IMAGE_DIMENSIONS, Values

NORM_MOMENTUM, NORM_EPSILON = 0.1, 1e-5  # of batch norms: how far running statistics follow, as in PyTorch


def in_numpy(values: Values) -> Any:
    """Return numbers that are the same in every framework, as an array of NumPy."""
    import numpy

    whole = numpy.frombuffer(values.whole, values.whole.typecode).reshape(values.shape)
    if values.scale is None:
        return whole
    scale, offset = (numpy.float32(number).reshape(per_channel(number)) for number in (values.scale, values.offset))
    return whole.astype(numpy.float32) * scale + offset


def per_channel(numbers: float | tuple[float, ...]) -> tuple[int, ...]:
    """Return the shape in which one number serves all, or one each channel of images that have these first."""
    return (len(numbers), 1, 1) if isinstance(numbers, tuple) else ()


def with_channels_last(array: Any) -> Any:
    """Return a batch of images with their channels last; anything else as it is."""
    return array.transpose(0, 2, 3, 1) if array.ndim == IMAGE_DIMENSIONS else array


@dataclass(frozen=True)
class Parameter:
    """A parameter by its name and shape in PyTorch, and how it lies in a framework's memory."""

    name: str
    shape: tuple[int, ...]
    split: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()

    def arranged(self, values: Any) -> Any:
        """Return an array of that shape, as the framework wants it."""
        values = values.reshape(self.split) if self.split else values
        values = values.transpose(*self.order) if self.order else values
        return values.reshape(self.joined) if self.joined else values


class Layers:
    """Layers with parameters by name; images have their channels last.

    A framework adds these functions; a workload that needs one that it leaves out is unsupported there.

    - `_linear`: of x, a weight and a bias. `_convolution`: of x, a kernel, the stride and the padding on each side.
    - `_layer_norm`: of x, a scale, an offset and an epsilon. `rsqrt`, for batch norms.
    - `_dropout`: of x and a rate. `_lstm`: of x, the weights of inputs and of the last state, and two biases.
    - `_attention`: of query, key and value (batch, sequence, heads, width), a rate of dropout, whether it is causal,
      and how many tokens come before the query's.
    - `max_pool`: returns a function that takes the largest of each window of a size, with a stride (the size, if it
      is 0) and a padding. `constant`: returns a function that returns a matrix, from its rows.
    - `relu`, `tanh`, `sigmoid`, and `gelu`: exact, or by the formula with tanh (`by_tanh`).
    - `split`: the last axis of x in equal parts. `take`: rows of a table by their numbers. `rows`: of a table, from a
      row on, that many. `scores`: the product of x with each row of a table.
    - `network`: the network of a recipe, from a function of layers and a function that returns the first values of a
      parameter. `optimiser`: the framework's, from an `Optimiser`.
    - `cross_entropy`: the mean over all items, from logits and labels. `squared_error`: the sum over the last axis, its
      mean over all others, from an output and targets.
    - `prefill`: the phase that returns the token after a prompt, and what decoding needs; from a function of layers,
      how many tokens will be decoded, the network, the prompt and None. `decode`: the phase that returns the tokens
      after that, one by one; from the same, but with the prefill's result at the end.
    """

    name: str  # the framework's
    inputs_first = True  # whether the weight of a linear layer is (inputs, outputs); else (outputs, inputs)
    kernel_order: tuple[int, ...] = (2, 3, 1, 0)  # how a kernel lies, of (outputs, inputs, rows, columns)

    def __init__(self) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.values: Mapping[str, Any] = {}  # of the parameters, while the network runs
        self.statistics: dict[str, Any] = {}  # running means and variances of batch norms, while the network runs
        self.normed: dict[str, int] = {}  # the channels of each batch norm
        self.training = False
        self.dropping = False  # whether dropout is on: in training, but for the steps that are compared

    def add(self, name: str, *shape: int, **arrangement: tuple[int, ...]) -> str:
        self.parameters[name] = Parameter(name, shape, **arrangement)
        return name

    def add_linear(
        self, weight: str, inputs: int, outputs: int, image: tuple[int, int, int] | None, inputs_first: bool
    ) -> str:
        """Add the weight of a linear layer; behind images PyTorch orders it by channels, rows and columns."""
        if inputs_first:
            return self.add(weight, inputs, outputs, order=() if self.inputs_first else (1, 0))
        if image is None:
            return self.add(weight, outputs, inputs, order=(1, 0) if self.inputs_first else ())
        order, joined = ((2, 3, 1, 0), (inputs, outputs)) if self.inputs_first else ((0, 2, 3, 1), (outputs, inputs))
        return self.add(weight, outputs, inputs, split=(outputs, *image), order=order, joined=joined)

    # -- layers ------------------------------------------------------------------------------------

    def linear(
        self, name: str, inputs: int, outputs: int, image: tuple[int, int, int] | None = None,
        inputs_first: bool = False,
    ) -> Callable[[Any], Any]:  # fmt: skip
        """Multiply by a matrix and add a bias; behind flattened images of that shape, where one is given."""
        kernel = self.add_linear(f"{name}.weight", inputs, outputs, image, inputs_first)
        return self._linear_layer(kernel, self.add(f"{name}.bias", outputs), inputs, outputs)

    def projection(self, name: str, inputs: int, outputs: int) -> Callable[[Any], Any]:
        """Multiply by a matrix and add a bias, which are `NAME_weight` and `NAME_bias`."""
        kernel = self.add_linear(f"{name}_weight", inputs, outputs, None, False)
        return self._linear_layer(kernel, self.add(f"{name}_bias", outputs), inputs, outputs)

    def _linear_layer(self, kernel: str, offset: str, inputs: int, outputs: int) -> Callable[[Any], Any]:
        return lambda x: self._linear(x, self.values[kernel], self.values[offset])

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> Callable[[Any], Any]:
        """Convolve images (batch, rows, columns, channels)."""
        weight = self.add(f"{name}.weight", outputs, inputs, kernel, kernel, order=self.kernel_order)
        offset = self.add(f"{name}.bias", outputs) if bias else None

        def convolved(x: Any) -> Any:
            x = self._convolution(x, self.values[weight], stride, padding)
            return x if offset is None else x + self.values[offset]

        return convolved

    def batch_norm(self, name: str, channels: int) -> Callable[[Any], Any]:
        """Normalise by the means and variances of the batch in training, and else by running ones."""
        scale, offset = self.add(f"{name}.weight", channels), self.add(f"{name}.bias", channels)
        self.normed[name] = channels

        def normalised(x: Any) -> Any:
            weight, bias, running = self.values[scale], self.values[offset], self.statistics[name]
            mean, variance = running
            if self.training:
                exact = self.exact(x)
                mean, variance = exact.mean((0, 1, 2)), exact.var((0, 1, 2))
                pairs = zip(running, (mean, variance), strict=True)
                self.statistics[name] = [(1 - NORM_MOMENTUM) * old + NORM_MOMENTUM * new for old, new in pairs]
            factor = weight * self.rsqrt(variance + NORM_EPSILON).astype(weight.dtype)
            return x * factor + (bias - mean.astype(weight.dtype) * factor)

        return normalised

    def exact(self, x: Any) -> Any:
        """Return x in the type in which the statistics of a batch are computed."""
        return x

    def layer_norm(self, name: str, width: int, epsilon: float) -> Callable[[Any], Any]:
        """Normalise the last axis."""
        scale, offset = self.add(f"{name}.weight", width), self.add(f"{name}.bias", width)
        return lambda x: self._layer_norm(x, self.values[scale], self.values[offset], epsilon)

    def embedding(self, name: str, count: int, width: int, padding: int | None = None) -> Embedding:
        """Look up a row for each word of a vocabulary; PyTorch does not train the row of the padding."""
        return Embedding(self, self.add(f"{name}.weight", count, width))

    def dropout(self, rate: float) -> Callable[[Any], Any]:
        """Set some values to 0 in training, by chance."""
        return lambda x: self._dropout(x, rate) if self.dropping and rate else x

    def lstm(self, name: str, inputs: int, hidden: int) -> Callable[[Any], Any]:
        """Map (sequence, batch, inputs) to (sequence, batch, hidden), with the two biases of PyTorch."""
        order = (1, 0) if self.inputs_first else ()
        weights = [
            self.add(f"weight_ih_{name}", 4 * hidden, inputs, order=order),
            self.add(f"weight_hh_{name}", 4 * hidden, hidden, order=order),
            *(self.add(f"bias_{which}_{name}", 4 * hidden) for which in ("ih", "hh")),
        ]
        return lambda x: self._lstm(x, *(self.values[weight] for weight in weights))

    def lstm_step(self, gates: Any, cell: Any) -> tuple[Any, Any]:
        """Return the next hidden state and cell of an LSTM, from the inputs of all gates."""
        into, forget, new, out = self.split(gates, 4)
        cell = self.sigmoid(forget) * cell + self.sigmoid(into) * self.tanh(new)
        return self.sigmoid(out) * self.tanh(cell), cell

    def stack(self, name: str, count: int, make: Callable[[str], Callable[..., Any]]) -> list[Callable[..., Any]]:
        """Make blocks that follow each other, from the start of their parameters' names."""
        return [make(f"{name}.{number}.") for number in range(count)]

    def attention(
        self, parts: Iterable[Any], heads: int, dropout: float = 0.0, causal: bool = False, cache: Any = None
    ) -> Any:
        """Attend within (batch, sequence, width), from query, key and value; `causal`: a token sees none after it."""
        parts = list(parts)
        batch, seq, width = parts[0].shape
        query, key, value = (self.reshape(x, (batch, seq, heads, width // heads)) for x in parts)
        before = 0
        if cache is not None:
            before = cache.length
            key, value = cache.extend(key, value)
        attended = self._attention(query, key, value, dropout if self.dropping else 0.0, causal, before)
        return self.reshape(attended, (batch, seq, width))

    def sinusoids(self, name: str, seq: int, width: int) -> Callable[[Any], Any]:
        """Return the positional encoding of ids (batch, seq): alternating sines and cosines."""
        rates = [math.exp(-math.log(10_000.0) / width * pair) for pair in range(0, width, 2)]
        table = self.constant(
            [[wave(place * rate) for rate in rates for wave in (math.sin, math.cos)] for place in range(seq)]
        )
        return lambda ids: table()

    def positions(self, ids: Any, start: Any = 0) -> tuple[Any, int]:
        """Return the positions of ids (batch, sequence), from `start` on: the first, and how many."""
        return start, ids.shape[1]

    def mean_pool(self, x: Any) -> Any:
        return self.mean(x, (1, 2))

    def relu_in_place(self, x: Any) -> Any:
        """Set what is under 0 to 0; PyTorch does it in the same memory."""
        return self.relu(x)

    def initialise(self, kind: str, ending: str = "weight", dimensions: int = 2, **how: Any) -> None:
        """Do nothing: first weights of other kinds are PyTorch's."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsupported(f"{self.name} has no layers of all the kinds that this workload needs")

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.mean(axes)

    def flatten(self, x: Any) -> Any:
        """Join all axes but the first."""
        return self.reshape(x, (x.shape[0], -1))


class Embedding:
    """A table of rows, one for each word."""

    def __init__(self, layers: Layers, weight: str) -> None:
        self.layers, self.weight = layers, weight

    def __call__(self, ids: Any) -> Any:
        return self.layers.take(self.layers.values[self.weight], ids)

    def rows(self, places: tuple[Any, int]) -> Any:
        return self.layers.rows(self.layers.values[self.weight], *places)

    def first(self, ids: Any) -> Any:
        """Return the first row, which serves all of these words."""
        return self.rows((0, 1))

    def scores(self, x: Any) -> Any:
        return self.layers.scores(x, self.layers.values[self.weight])
