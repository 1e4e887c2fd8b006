"""NumPy: linear layers and ReLU with gradients written by hand; the example of a framework with arrays.

Requires: numpy
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mldyno.frameworks.layers import Layers, in_numpy
from mldyno.frameworks.program import ArrayFramework, Backend, Repeated
from mldyno.records import Device
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads import Optimiser, Recipe


class Numpy(ArrayFramework):
    """NumPy."""

    name = "numpy"
    example = True
    precisions, placements = ("fp32",), ("device",)
    np: Any = None

    def start(self) -> None:
        import numpy

        self.np = numpy

    def versions(self) -> dict[str, str]:
        return {"numpy": self.np.__version__}

    def devices(self) -> list[Device]:
        return [Device("cpu", "numpy")]

    def layers(self, case: Case, dropout: bool) -> NumpyLayers:
        return NumpyLayers(self.np)

    def array(self, values: Values, case: Case) -> Any:
        return in_numpy(values)

    def backend(self, case: Case, recipe: Recipe, dropout: bool) -> NumpyBackend:
        return NumpyBackend(self.np, recipe)

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Repeated:
        chance = self.np.random.default_rng(SEED)
        factors = [chance.standard_normal((size, size), self.np.float32) for _ in range(2)]
        result = self.np.empty((size, size), self.np.float32)
        return Repeated(partial(self.np.matmul, *factors, out=result), lambda: None, 2.0 * size**3)

    def allocate(self, case: Case, size: int) -> Any:
        return self.np.zeros(size, self.np.uint8)


class NumpyBackend(Backend):
    """A network of layers; NumPy is done when its call returns."""

    def __init__(self, np: Any, recipe: Recipe) -> None:
        self.np, self.network, self.loss, self.update = np, recipe.network, recipe.loss, recipe.optimiser(None)
        self.params = sum(value.size for value in self.network.values.values())

    def infer(self, inputs: Any) -> Any:
        return self.network.forward(inputs)

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        output = self.network.forward(inputs)
        loss, gradient = self.loss(output, targets)
        self.network.backward(gradient)
        if update:
            self.update()
        return output, loss

    def wait(self) -> None:
        """Do nothing: the work is done."""

    def flat(self, array: Any) -> Any:
        return self.np.asarray(array).reshape(-1)

    def devices(self, *trees: Any) -> set[str]:
        return {"cpu"}

    def fp32_mode(self) -> str:
        """Return fp32: NumPy has no setting for less."""
        return "fp32"

    @property
    def product_types(self) -> set[str]:
        return {str(value.dtype) for value in self.network.values.values()}


class NumpyLayers(Layers):
    """Layers that note their way back when they are run; they are the network themselves."""

    name = "numpy"

    def __init__(self, np: Any) -> None:
        super().__init__()
        self.np = np
        self.way_back: list[Callable[[Any], Any]] = []
        self.gradients: dict[str, Any] = {}

    def network(self, forward: Callable[..., Any], first_values: Callable[..., Values]) -> NumpyLayers:
        self.values = {
            name: self.np.ascontiguousarray(parameter.arranged(in_numpy(first_values(name, parameter.shape))))
            for name, parameter in self.parameters.items()
        }
        self.function = forward
        return self

    def forward(self, inputs: Any) -> Any:
        self.way_back.clear()
        return self.function(inputs)

    def backward(self, gradient: Any) -> None:
        """Find the gradients of all parameters from that of the output."""
        for back in reversed(self.way_back):
            gradient = back(gradient)

    def cross_entropy(self, output: Any, targets: Any) -> tuple[Any, Any]:
        """Return the loss and its gradient."""
        np, rows = self.np, self.np.arange(len(targets))
        shares = np.exp(output - output.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        loss = -np.log(shares[rows, targets]).mean()
        shares[rows, targets] -= 1
        return loss, shares / np.float32(len(targets))

    def optimiser(self, wanted: Optimiser) -> Callable[[], None]:
        """Return what makes a step of SGD."""
        if wanted.kind != "sgd" or wanted.momentum:
            raise NotImplementedError("numpy has SGD without momentum only")

        def update() -> None:
            for name, change in self.gradients.items():
                self.values[name] -= self.np.float32(wanted.rate) * change  # type: ignore[index]

        return update

    def linear(self, name: str, inputs: int, outputs: int, *_: Any, **__: Any) -> Callable[[Any], Any]:
        weight = self.add_linear(f"{name}.weight", inputs, outputs, None, False)
        bias = self.add(f"{name}.bias", outputs)

        def forward(x: Any) -> Any:
            is_first = not self.way_back  # whose inputs need no gradient

            def back(gradient: Any) -> Any:
                self.gradients[weight], self.gradients[bias] = x.T @ gradient, gradient.sum(0)
                return None if is_first else gradient @ self.values[weight].T

            self.way_back.append(back)
            return x @ self.values[weight] + self.values[bias]

        return forward

    def relu(self, x: Any) -> Any:
        """Set what is under 0 to 0, and its gradient too."""
        self.way_back.append(lambda gradient: gradient * (x > 0))
        return self.np.maximum(x, 0)


FRAMEWORK = Numpy()
