"""A user's own model in MLX: steps as its people write them, each issued as soon as it is described."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks import Unsupported
from mldyno.frameworks._arrays import stored_type
from mldyno.frameworks._callables import CallableModel
from mldyno.trees import each_array, is_array, is_floating

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads import Recipe

SEED = 1


class MlxCallable(CallableModel):
    """A module, or a function, on one of MLX's devices; a module keeps all that training changes."""

    def __init__(self, mx: Any, nn: ModuleType, device: Any, case: Case, recipe: Recipe, dropout: bool) -> None:
        if case.precision == "amp-bf16":
            raise Unsupported("mlx has no autocast for a model of your own; take bf16")
        self.mx, self.network, self.loss = mx, recipe.network, recipe.loss
        mx.set_default_device(device)
        mx.random.seed(SEED)
        self.stored, self.returns = getattr(mx, stored_type(case)), case.placement == "roundtrip"
        self.is_module = isinstance(self.network, nn.Module)
        self.output_types: set[str] = set()
        if self.is_module:
            self.network.set_dtype(self.stored)
            self.network.train(case.mode == "train")
            if not dropout:
                self._switch_dropout_off(nn)
        self.state: list[Any] = [self.network.state] if self.is_module else []
        compiled = self._compiled if case.compile else lambda function: function
        if case.mode == "train":
            self.optimiser = recipe.optimiser(self.network.trainable_parameters())
            self.optimiser.init(self.network.trainable_parameters())
            self.state += [self.optimiser.state, mx.random.state]
            self._find = nn.value_and_grad(self.network, self._loss_of)
            self._steps = {update: compiled(self._step(update)) for update in (True, False)}
        self._infer = compiled(self._forward)
        mx.eval(self.state)

    def _switch_dropout_off(self, nn: ModuleType) -> None:
        for module in self.network.modules():
            if isinstance(module, nn.Dropout | nn.Dropout2d | nn.Dropout3d):
                module.eval()

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as one graph, with all that it changes; MLX reads it anew for each graph."""

        def counted(*arguments: Any) -> Any:
            self.traces += 1
            return function(*arguments)

        graph: Callable[..., Any] = self.mx.compile(counted, inputs=self.state, outputs=self.state)
        return graph

    def weights(self) -> Any:
        """The arrays of a module, which no step changes in place."""
        return self.network.parameters() if self.is_module else {}

    def start_from(self, weights: Any) -> None:
        """The arrays of another module."""
        if self.is_module:
            self.network.update(weights)
            self.network.set_dtype(self.stored)

    @property
    def params(self) -> int | None:
        """Of a function alone it is not known what it has within."""
        if not self.is_module:
            return None
        return sum(int(leaf.size) for leaf in trees.leaves(self.network.trainable_parameters()))

    @property
    def multiplied(self) -> set[str]:
        """What it multiplies can't be watched: by what it gives, which is wider where anything within was."""
        return self.output_types

    # -- arrays ------------------------------------------------------------------------------------

    def _stored(self, leaf: Any) -> Any:
        array = self.mx.array(leaf)
        array = self.mx.contiguous(array.astype(self.stored) if is_floating(array) else array)
        self.mx.eval(array)
        return array

    def place(self, values: Any) -> Any:
        """Arrays, which MLX has in one memory for all devices."""
        return each_array(self._stored, values)

    def on_host(self, values: Any) -> Any:
        """As views of memory, which MLX copies."""
        return each_array(lambda leaf: memoryview(self._stored(leaf)), values)

    def copy_in(self, array: Any) -> Any:
        """Copies in MLX's own memory."""
        return trees.mapped(lambda leaf: self.mx.array(leaf) if isinstance(leaf, memoryview) else leaf, array)

    def copy_out(self, array: Any) -> None:
        """As bytes of the host's."""
        self.mx.eval(array)
        for leaf in trees.leaves(array):
            if is_array(leaf):
                bytes(memoryview(leaf))

    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values, evenly taken."""
        flat = array.astype(self.mx.float32).reshape(-1)
        values: list[float] = flat[:: max(1, flat.size // most)][:most].tolist()
        return values

    def devices(self, *arrays: Any) -> set[str]:
        """Where all of it is computed: MLX's arrays have no place of their own."""
        if self.mx.default_device() == self.mx.Device(self.mx.cpu):
            return {"cpu"}
        return {"mps" if self.mx.metal.is_available() else "cuda:0"}

    # -- steps -------------------------------------------------------------------------------------

    def _forward(self, inputs: Any) -> Any:
        output = self.network(inputs)
        if not self.output_types:
            floats = (leaf for leaf in trees.leaves(output) if is_array(leaf) and is_floating(leaf))
            self.output_types |= {str(leaf.dtype).rpartition(".")[2] for leaf in floats}
        return output

    def _loss_of(self, inputs: Any, targets: Any) -> Any:
        output = self._forward(inputs)
        exact_output, exact_targets = (each_array(self._widened, tree) for tree in (output, targets))
        return self.loss(exact_output, exact_targets).mean(), output

    def _widened(self, array: Any) -> Any:
        return array.astype(self.mx.float32) if is_floating(array) else array

    def _step(self, update: bool) -> Any:
        def step(inputs: Any, targets: Any) -> Any:
            (loss, output), gradients = self._find(inputs, targets)
            if not update:
                return output, loss, gradients
            self.optimiser.update(self.network, gradients)
            return output, loss, {}

        return step

    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass."""
        output = self._infer(inputs)
        self.mx.async_eval(output)
        return output

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step."""
        output, loss, gradients = self._steps[update](inputs, targets)
        self.mx.async_eval(self.state, loss, gradients)
        return output, loss

    def wait(self) -> None:
        """Until the device has nothing left to do."""
        self.mx.synchronize()

    def peak(self) -> int:
        """In B."""
        return int(self.mx.get_peak_memory())
