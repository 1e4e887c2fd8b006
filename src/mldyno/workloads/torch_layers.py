"""Layers of PyTorch, of which a workload's description makes its network: an nn.Module.

They have the methods of the `Layers` that frameworks with arrays give, and hide the same differences. Each layer with
parameters is a module in the place that its name says, so that the keys of the state dict are the names in the
description. First weights are drawn when a layer is made, as PyTorch does it, and drawn again by `initialise`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any


class TorchDraws:
    """`Draws` from PyTorch's own random numbers."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch

    def numbers(self, shape: tuple[int, ...], centre: float = 0.0) -> Any:
        """Draw normal numbers of standard deviation 1 around the centre."""
        drawn = self.torch.randn(shape)
        return drawn + centre if centre else drawn

    def labels(self, shape: tuple[int, ...], classes: int) -> Any:
        return self.torch.randint(classes, shape)

    def marked_words(self, batch: int, seq: int, vocabulary: int, labels: int) -> tuple[Any, Any]:
        part, marks = vocabulary // labels, self.labels((batch,), labels)
        return self.torch.randint(1, part, (batch, seq)) + part * marks[:, None], marks

    def cyclic_words(self, batch: int, seq: int, cycle: int, stride: int) -> tuple[Any, Any]:
        ids = (self.labels((batch, 1), cycle) + self.torch.arange(seq + 1)) % cycle * stride
        return ids[:, :-1], ids[:, 1:]


class TorchLayers:
    """The `Layers` of frameworks with arrays, as modules; images have their channels first."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch, self.functional = torch, torch.nn.functional
        self.tanh, self.relu = torch.tanh, torch.relu
        self.relu_in_place = torch.relu_

        class Part(torch.nn.Module):  # type: ignore[name-defined,misc]
            """A part of the network; only its blocks and the whole have a forward pass."""

            def forward(self, *inputs: Any, **named: Any) -> Any:
                return self.run(*inputs, **named)

            def __deepcopy__(self, memo: Any) -> Any:
                raise TypeError("its functions would still run the layers of the original; build the network anew")

        self.part = Part
        self.root = Part()
        self.dropouts: dict[float, Any] = {}
        self.padded: list[tuple[Any, int]] = []

    def network(self, forward: Callable[..., Any] | None) -> Any:
        """Return the module that runs the function."""
        with self.torch.no_grad():
            for parameter, row in self.padded:
                parameter[row].zero_()
        self.root.run = forward
        return self.root

    def at(self, path: str) -> Any:
        """Return the part of a name, which is made where there is none."""
        part = self.root
        for name in filter(None, path.split(".")):
            if not hasattr(part, name):
                part.add_module(name, self.part())
            part = getattr(part, name)
        return part

    def put(self, name: str, layer: Any) -> Any:
        """Put a module or parameter into its place; return it."""
        path, _, last = name.rpartition(".")
        setattr(self.at(path), last, layer)
        return layer

    def initialise(self, kind: str, ending: str = "weight", dimensions: int = 2, **how: Any) -> None:
        """Draw first weights by a function of torch.nn.init, for parameters of that ending and number of dimensions."""
        for name, parameter in self.root.named_parameters():
            if name.endswith(ending) and parameter.dim() == dimensions:
                getattr(self.torch.nn.init, kind)(parameter, **how)

    # -- layers ------------------------------------------------------------------------------------

    def linear(self, name: str, inputs: int, outputs: int, image: Any = None, inputs_first: bool = False) -> Any:
        """Multiply by a matrix, which may have its inputs first as in GPT-2, and add a bias."""
        if not inputs_first:
            return self.put(name, self.torch.nn.Linear(inputs, outputs))
        parameter, part = self.torch.nn.Parameter, self.put(name, self.part())
        part.weight, part.bias = parameter(self.torch.empty(inputs, outputs)), parameter(self.torch.zeros(outputs))
        return lambda x: self.torch.addmm(part.bias, x.flatten(0, 1), part.weight).unflatten(0, x.shape[:2])

    def projection(self, name: str, inputs: int, outputs: int) -> Callable[[Any], Any]:
        torch, (path, _, last) = self.torch, name.rpartition(".")
        self.put(f"{name}_weight", torch.nn.Parameter(torch.empty(outputs, inputs)))
        self.put(f"{name}_bias", torch.nn.Parameter(torch.zeros(outputs)))
        part, weight, bias = self.at(path), f"{last}_weight", f"{last}_bias"
        return lambda x: self.functional.linear(x, getattr(part, weight), getattr(part, bias))

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> Any:
        return self.put(name, self.torch.nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias))

    def batch_norm(self, name: str, channels: int) -> Any:
        return self.put(name, self.torch.nn.BatchNorm2d(channels))

    def layer_norm(self, name: str, width: int, epsilon: float) -> Any:
        return self.put(name, self.torch.nn.LayerNorm(width, eps=epsilon))

    def embedding(self, name: str, count: int, width: int, padding: int | None = None) -> TorchEmbedding:
        """Look up a row for each word of a vocabulary; the row of the padding is zero, and is not trained."""
        table = self.put(name, self.torch.nn.Embedding(count, width, padding_idx=padding))
        if padding is not None:
            self.padded.append((table.weight, padding))
        return TorchEmbedding(self.torch, table)

    def dropout(self, rate: float) -> Any:
        """Set some values to 0 in training, by chance: one module for all places with that rate."""
        if rate not in self.dropouts:
            self.dropouts[rate] = self.put(f"dropout{len(self.dropouts) or ''}", self.torch.nn.Dropout(rate))
        return self.dropouts[rate]

    def stack(self, name: str, count: int, make: Callable[[str], Callable[..., Any]]) -> list[Any]:
        """Make blocks that follow each other, each a module, from the start of its parameters' names."""
        self.put(name, self.torch.nn.ModuleList(self.part() for _ in range(count)))
        blocks = []
        for number in range(count):
            run = make(f"{name}.{number}.")
            blocks.append(self.at(f"{name}.{number}"))
            blocks[-1].run = run
        return blocks

    def attention(
        self, parts: Iterable[Any], heads: int, dropout: float = 0.0, causal: bool = False, cache: Any = None,
        mask: Any = None,
    ) -> Any:  # fmt: skip
        query, key, value = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts)
        if cache is not None:
            key, value = cache.extend(key, value)
        dropped = dropout if dropout and self.dropouts[dropout].training else 0.0
        causal = causal and query.shape[2] > 1  # a single token may look at all that is there
        attended = self.functional.scaled_dot_product_attention(query, key, value, mask, dropped, causal)
        return attended.transpose(1, 2).flatten(2)

    def sinusoids(self, name: str, seq: int, width: int) -> Callable[[Any], Any]:
        torch = self.torch
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        angles = torch.arange(seq)[:, None] * rates
        self.root.register_buffer(name, torch.stack((angles.sin(), angles.cos()), 2).flatten(1), persistent=False)
        return lambda ids: getattr(self.root, name)[: ids.shape[1]]

    def positions(self, ids: Any, start: int | None = None) -> Any:
        limits = (ids.shape[1],) if start is None else (start, start + ids.shape[1])
        return self.torch.arange(*limits, device=ids.device)

    def max_pool(self, size: int, stride: int = 0, padding: int = 0) -> Callable[[Any], Any]:
        return lambda x: self.functional.max_pool2d(x, size, stride or size, padding)

    def mean_pool(self, x: Any) -> Any:
        return self.torch.flatten(self.functional.adaptive_avg_pool2d(x, 1), 1)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.mean(axes)

    def gelu(self, x: Any, by_tanh: bool = False) -> Any:
        return self.functional.gelu(x, approximate="tanh" if by_tanh else "none")

    def split(self, x: Any, parts: int) -> Any:
        return x.chunk(parts, dim=2)

    # -- losses and phases ---------------------------------------------------------------------------

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        if output.dim() > targets.dim() + 1 or targets.dim() == 1:
            return self.functional.cross_entropy(output, targets)
        return self.functional.cross_entropy(output.flatten(0, 1), targets.flatten())

    def squared_error(self, output: Any, targets: Any) -> Any:
        return (output - targets).square().sum(2).mean()

    def prefill(self, forward: Any, decoded: int, network: Any, ids: Any, _: Any) -> tuple[Any, dict[int, TorchCache]]:
        """Return the token after the prompt, (batch, 1), and its keys and values with room for what is decoded."""
        caches: dict[int, TorchCache] = defaultdict(lambda: TorchCache(ids.shape[1] + decoded))
        return network(ids, caches).argmax(1, keepdim=True), caches

    def decode(self, forward: Any, decoded: int, network: Any, _: Any, given: tuple[Any, dict[int, TorchCache]]) -> Any:
        """Return the tokens that follow, (batch, decoded); they stay on the device."""
        token, caches = given
        tokens = []
        for _ in range(decoded):
            token = network(token, caches).argmax(1, keepdim=True)
            tokens.append(token)
        return self.torch.cat(tokens, 1)


def network_in_torch(torch: ModuleType, describe: Callable[[TorchLayers], Callable[..., Any]]) -> Any:
    """Return the module of a network that is described by its layers."""
    layers = TorchLayers(torch)
    return layers.network(describe(layers))


class TorchEmbedding:
    """A table of rows, one for each word."""

    def __init__(self, torch: ModuleType, table: Any) -> None:
        self.torch, self.table = torch, table

    def __call__(self, ids: Any) -> Any:
        return self.table(ids)

    rows = __call__

    def first(self, ids: Any) -> Any:
        """Return the first row, for each of these words."""
        return self.table(self.torch.zeros_like(ids))

    def scores(self, x: Any) -> Any:
        return self.torch.nn.functional.linear(x, self.table.weight)


class TorchCache:
    """Keys and values of one layer, with room for `room` tokens; empty at first."""

    def __init__(self, room: int) -> None:
        self.room, self.length = room, 0
        self.stored: tuple[Any, Any] | None = None

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Keep those of the next tokens, (batch, heads, tokens, width); return all that are stored."""
        if self.stored is None:  # only now are batch, type and device known
            batch, heads, _, width = key.shape
            keys, values = (each.new_empty(batch, heads, self.room, width) for each in (key, value))
            self.stored = keys, values
        keys, values = self.stored
        start, self.length = self.length, self.length + key.shape[2]
        keys[:, :, start : self.length], values[:, :, start : self.length] = key, value
        return keys[:, :, : self.length], values[:, :, : self.length]
