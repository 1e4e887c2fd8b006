"""NumPy: linear layers and ReLU with gradients written by hand; the example of a framework with arrays.

Requires: numpy
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Framework
from mldyno.frameworks._layers import Layers
from mldyno.frameworks._portable import PortableModel, PortableProgram, in_numpy
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads._portable import Portable


class NumpyLayers(Layers):
    """Each layer notes its way back when it is run."""

    name = "numpy"

    def __init__(self, np: Any) -> None:
        super().__init__()
        self.np = np
        self.way_back: list[Callable[[Any], Any]] = []
        self.gradients: dict[str, Any] = {}

    def linear(self, name: str | None, inputs: int, outputs: int, *_: Any, **__: Any) -> Callable[[Any], Any]:
        """Times a matrix, plus a bias."""
        weight, bias = (
            self.add_linear(f"{name}.weight", inputs, outputs, None, False),
            self.add(f"{name}.bias", outputs),
        )

        def forward(x: Any) -> Any:
            is_first = not self.way_back  # nobody asks for the gradient of the inputs

            def back(gradient: Any) -> Any:
                self.gradients[weight], self.gradients[bias] = x.T @ gradient, gradient.sum(0)
                return None if is_first else gradient @ self.values[weight].T

            self.way_back.append(back)
            return self.note(x) @ self.values[weight] + self.values[bias]

        return forward

    def relu(self, x: Any) -> Any:
        """What is under 0 becomes 0, and so does its gradient."""
        self.way_back.append(lambda gradient: gradient * (x > 0))
        return self.np.maximum(x, 0)


class NumpyModel(PortableModel):
    """A network and its parameters; NumPy is done when its call returns."""

    def __init__(self, np: Any, case: Case, portable: Portable) -> None:
        self.np, self.rate, self.momentum = np, portable.optimiser.rate, portable.optimiser.momentum
        self.layers: NumpyLayers = NumpyLayers(np)
        self.network = portable.network(self.layers, case)
        if portable.optimiser.kind != "sgd" or portable.loss != "cross-entropy" or self.momentum:
            raise NotImplementedError("numpy has SGD without momentum and cross-entropy only")
        self.layers.values = {
            name: np.ascontiguousarray(parameter.arranged(self.on_host(portable.first_values(name, parameter.shape))))
            for name, parameter in self.layers.parameters.items()
        }

    def on_host(self, values: Values) -> Any:
        """As an array."""
        return in_numpy(self.np, values)

    place = on_host

    def copy_in(self, array: Any) -> Any:
        """There is no other device."""
        return array

    def copy_out(self, array: Any) -> None:
        """There is no other device."""

    def infer(self, inputs: Any) -> Any:
        """A forward pass."""
        self.layers.way_back.clear()
        return self.network(inputs)

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Forward, cross-entropy, backward, SGD."""
        np, rows = self.np, self.np.arange(len(targets))
        output = self.infer(inputs)
        shares = np.exp(output - output.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        loss = -np.log(shares[rows, targets]).mean()
        shares[rows, targets] -= 1
        gradient = shares / np.float32(len(targets))
        for back in reversed(self.layers.way_back):
            gradient = back(gradient)
        if update:
            for name, change in self.layers.gradients.items():
                self.layers.values[name] -= np.float32(self.rate) * change  # type: ignore[index]
        return output, loss

    def wait(self) -> None:
        """Done already."""

    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values, evenly taken."""
        flat = self.np.asarray(array).reshape(-1)
        return [float(value) for value in flat[:: max(1, len(flat) // most)][:most]]

    def devices(self, *arrays: Any) -> set[str]:
        """There is no other."""
        return {"cpu"}


class Matmul:
    """The product of two random square matrices, over and over."""

    def __init__(self, np: Any, size: int) -> None:
        chance = np.random.default_rng(1)
        self.factors = [chance.standard_normal((size, size), np.float32) for _ in range(2)]
        self.result, self.multiply = np.empty((size, size), np.float32), np.matmul
        self.work = 2.0 * size**3

    def run(self, steps: int) -> None:
        """Matmuls."""
        for _ in range(steps):
            self.multiply(*self.factors, out=self.result)

    def synchronize(self) -> None:
        """Done already."""


class Numpy(Framework):
    """NumPy as mldyno uses it."""

    portable = example = True
    np: Any = None

    def start(self) -> None:
        """Import numpy."""
        import numpy

        self.np = numpy

    def versions(self) -> dict[str, str]:
        """Of numpy."""
        return {"numpy": self.np.__version__}

    def devices(self) -> list[Device]:
        """The CPU."""
        return [Device("cpu", "numpy")]

    def build_program(self, case: Case, build: Portable, data: Opened | None) -> PortableProgram:
        """The case."""
        return PortableProgram(case, build, lambda case, portable, dropout: NumpyModel(self.np, case, portable))

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Matmul:
        """Two square matrices."""
        return Matmul(self.np, size)

    def allocate(self, case: Case, size: int) -> Any:
        """Zeros that nothing is written to."""
        return self.np.zeros(size, self.np.uint8)


FRAMEWORK = Numpy()
