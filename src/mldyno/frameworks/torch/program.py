"""A case as a PyTorch program: its network on its device, its steps, and PyTorch's counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks import COMPARED_UPDATES, PROOF_NUMBERS, PROOF_RATE, Unsupported, proof_case
from mldyno.frameworks.program import Backend, Computed, ModelProgram, first_items, seed_generators
from mldyno.frameworks.torch.devices import counted_memory, every_warning, fallen_back, relative_error
from mldyno.frameworks.torch.loader import OwnData, TorchLoader
from mldyno.frameworks.torch.operations import actual_device, count_operations, watch_compute
from mldyno.frameworks.torch.precision import PrecisionPolicy, backward_and_step, fp32_mode, set_fp32_mode
from mldyno.values import IMAGE_DIMENSIONS, SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads import Batch, Build, Phase, Portable, Recipe

MAX_COMPARED_STEPS = 24  # to get enough updates: a gradient scaler skips some


def waiting(torch: ModuleType, device: Any) -> Callable[[], None]:
    """Return a function that waits for a device; on the CPU it does nothing: calls return when they are done."""
    return (lambda: None) if device.type == "cpu" else lambda: torch.accelerator.synchronize(device)


class TorchBackend(Backend):
    """A network on its device, in the types of its case; in training with its optimiser."""

    product_types: Any = frozenset()  # types of matmuls in a forward pass, once it was watched

    def __init__(
        self, torch: ModuleType, case: Case, recipe: Recipe, dropout: bool, together: Callable[[Any], Any] | None = None
    ) -> None:
        """`together` wraps the network as all ranks train it."""
        self.torch, self.loss, self.training = torch, recipe.loss, case.mode == "train"
        self.device = torch.device(case.device)
        self.policy = PrecisionPolicy(torch, case, self.device)
        self.network = self.policy.cast(recipe.network).to(self.device).train(self.training)
        self.check_recurrent()
        if not dropout:
            for module in dropout_modules(torch, self.network):
                module.eval()
        self.params = sum(parameter.numel() for parameter in self.network.parameters())
        wrapped = self.network if together is None else together(self.network)
        self.optimiser: Any = recipe.optimiser(self.network.parameters()) if self.training else None
        self.scaler = self.policy.scaler() if self.training else None
        self.forward = torch.compile(wrapped) if case.compile else wrapped
        self.apply, self.forward_loss = self.policy.around(self.forward), self.with_loss(self.forward)
        set_fp32_mode(torch, "fp32")  # the user's code may have changed it
        self._wait = waiting(torch, self.device)
        self.last_phase = [None, *recipe.phases.values()][-1]
        self.output_device: Any = None
        self.expected_device: Any = None  # the device of outputs, if they are not with the rest

    def check_recurrent(self) -> None:
        """Refuse LSTMs under autocast on MPS: their weights stay in fp32, and the kernel takes one type only."""
        recurrent = any(isinstance(module, self.torch.nn.RNNBase) for module in self.network.modules())
        if recurrent and self.policy.autocasts and self.device.type == "mps":
            raise Unsupported("recurrent layers can't run under autocast on MPS; take fp32; fp16 and bf16 are untested")

    def with_loss(self, forward: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
        """Return a function that computes an output and its loss."""
        loss = self.loss

        def forward_loss(inputs: Any, targets: Any) -> tuple[Any, Any]:
            output = forward(inputs)
            return output, loss(output, targets)

        return self.policy.around(forward_loss)

    # -- batches -----------------------------------------------------------------------------------

    def each(self, change: Callable[[Any], Any], tree: Any) -> Any:
        """Return a tree with every tensor replaced."""
        is_tensor = self.torch.is_tensor
        if is_tensor(tree):  # as most are
            return change(tree)
        return trees.mapped(lambda leaf: change(leaf) if is_tensor(leaf) else leaf, tree)

    def on_host(self, tree: Any) -> Any:
        return self.each(self.policy.on_host, tree)

    def copy_in(self, tree: Any) -> Any:
        def moved(leaf: Any) -> Any:
            if self.torch.is_tensor(leaf):
                return self.policy.to_device(leaf)
            return leaf.to(self.device) if callable(getattr(leaf, "to", None)) else leaf  # such as a graph's data

        return trees.mapped(moved, tree)

    place = copy_in

    def copy_out(self, tree: Any) -> None:
        self._note(self.each(lambda tensor: tensor.detach().cpu(), tree), self.torch.device("cpu"))

    def flat(self, array: Any) -> Any:
        return array.detach().cpu().double().flatten()

    def devices(self, *batch: Any) -> set[str]:
        """Return the actual device; name a tensor that is on another one."""
        return {actual_device(self.network, self.optimiser, batch, self.output_device, self.expected_device)}

    # -- steps -------------------------------------------------------------------------------------

    @contextmanager
    def steps(self) -> Iterator[None]:
        """Allow TF32 if the case asks for it; in inference, turn gradients off."""
        with self.policy.steps(), nullcontext() if self.training else self.torch.inference_mode():
            yield

    def fp32_mode(self) -> str | None:
        return fp32_mode(self.torch, self.device.type)

    def _note(self, output: Any, expected: Any = None) -> None:
        """Note the device of an output, and its expected device if it is not with the rest."""
        self.output_device, self.expected_device = first_tensor(self.torch, output).device, expected

    def infer(self, inputs: Any) -> Any:
        output = self.apply(inputs)
        self._note(output)
        return output

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        output, loss = self.forward_loss(inputs, targets)
        if self.first_loss is None:
            self.first_loss = self.exact_loss(output, targets)
        backward_and_step(loss, self.optimiser if update else None, self.scaler)
        self.optimiser.zero_grad()
        self._note(output)
        return output, loss

    def run_phase(self, phase: Phase, inputs: Any, previous: Any) -> Any:
        previous = self.policy.around(phase.run, caches=not self.training)(self.network, inputs, previous)
        if phase is self.last_phase and previous is not None:
            self._note(previous)
        return previous

    def wait(self) -> None:
        self._wait()

    def exact_loss(self, output: Any, targets: Any) -> Any:
        """Return a loss in at least fp32, for checks: in bf16 a step may change less than the last digit."""
        exact = self.torch.promote_types(self.policy.storage_type, self.torch.float32)

        def widened(tensor: Any) -> Any:
            return tensor.detach().to(exact) if tensor.is_floating_point() else tensor.detach()

        with self.torch.no_grad():
            return self.loss(self.each(widened, output), self.each(widened, targets))

    def count_correct(self, batches: Iterable[Batch]) -> int:
        """Count on the device, and read the sum once."""
        self.network.eval()
        correct = self.torch.zeros((), dtype=self.torch.long, device=self.device)
        with self.torch.inference_mode(), self.policy.steps():
            for inputs, targets in batches:
                correct += (self.apply(inputs).argmax(1) == targets).sum()
        self.network.train(self.training)
        return int(correct)

    # -- what is compared --------------------------------------------------------------------------

    def begin_draw(self, draw: int, inputs: Any) -> None:
        seed_all(self.torch, SEED + draw)

    def losses(self, inputs: Any, targets: Any) -> Any:
        """Return the losses before and after each of a few updates, without those that the gradient scaler skips."""
        losses: list[float] = []
        for _ in range(MAX_COMPARED_STEPS):
            before = 0.0 if self.scaler is None else self.scaler.get_scale()
            loss = self.train(inputs, targets, True)[1]
            if self.scaler is None or self.scaler.get_scale() >= before:
                losses.append(float(loss.detach()))
            if len(losses) > COMPARED_UPDATES:
                break
        missing = [float("nan")] * (COMPARED_UPDATES + 1 - len(losses))
        return self.torch.tensor(losses + missing, dtype=self.torch.float64)

    def numbers(self, output: Any, count: int) -> list[Any]:
        """Return the outputs in double precision; integers only of a network without weights, which rounds nothing.

        Elsewhere integers are choices, such as the likeliest word, which the last bit of a number can change.
        """
        tensors = (leaf for leaf in trees.leaves(output) if self.torch.is_tensor(leaf))
        dense = (leaf if leaf.layout is self.torch.strided else leaf.to_dense() for leaf in tensors)
        return [leaf.cpu().double() for leaf in dense if leaf.numel() and (leaf.is_floating_point() or not self.params)]


class TorchProgram(ModelProgram):
    """A case in PyTorch."""

    rank, size = 0, 1
    build: Build
    backend: TorchBackend
    loader: TorchLoader | None
    difference = staticmethod(relative_error)

    def __init__(self, framework: Any, case: Case, build: Build, data: Opened | None) -> None:
        torch = self.torch = framework.torch
        self.device = torch.device(case.device)
        super().__init__(framework, case, build, data)
        self.network, self.policy = self.backend.network, self.backend.policy
        self.compute_devices: set[str] = set()
        self.noted |= {"emulated": True} if self.policy.emulated else {}
        if any(isinstance(module, torch.nn.modules.conv._ConvNd) for module in self.network.modules()):
            self.noted["convolutions"] = True

    def make_recipe(self, case: Case, rate: float = 1.0, dropout: bool = True) -> Recipe:
        """Build the recipe with its first weights, in fp32 on the CPU."""
        seed_all(self.torch, SEED)
        recipe = self.build(self.torch, case)
        self.check_phases(", ".join(recipe.phases))
        return recipe

    def check_phases(self, phases: str) -> None:
        """Refuse what phases can't do: they have their own optimisers, or shapes that change."""
        if phases and self.case.compile:
            raise Unsupported(f"a step of it is made of phases ({phases}) of changing shapes, not compiled as one")
        if phases and self.training and self.case.precision == "amp-fp16":
            raise Unsupported(f"its phases ({phases}) have their own optimisers, which no gradient scaler serves")

    def make_backend(self, case: Case, recipe: Recipe, dropout: bool) -> TorchBackend:
        return TorchBackend(self.torch, case, recipe, dropout, self.together if dropout else None)

    def together(self, network: Any) -> Any:
        """Wrap the network for ranks; here there is one process only."""
        return network

    def make_loader(self, data: Opened | None) -> TorchLoader | None:
        """Return a loader of the workload's data set, or of the user's."""
        if self.case.placement != "loader":
            return None
        source: Any = data or OwnData(self.recipe.dataset, self.recipe.collate)
        return TorchLoader(self.torch, source, self.case, self.rank, self.size)

    def draw_pool(self) -> list[Batch]:
        if self.rank:  # each rank has different batches
            self.torch.manual_seed(SEED + self.rank)
        pool = super().draw_pool()
        if self.case.layout != "contiguous" and first_tensor(self.torch, pool[0][0]).dim() != IMAGE_DIMENSIONS:
            raise Unsupported(f"its inputs are no images, so that {self.case.layout} is no other case than contiguous")
        return pool

    def stream(self, pool: list[Batch]) -> Iterator[Batch]:
        """Return a loader's batches unchanged: they are cast on the way to the device."""
        return super().stream(pool) if self.loader is None else self.loader.endless()

    def prepare_phases(self) -> None:
        """Start the loader's workers; eager PyTorch has no graphs to compile for other batch sizes."""
        if self.loader is not None:
            self.loader.start_workers()
        if self.case.compile:
            super().prepare_phases()

    # -- counters --------------------------------------------------------------------------------

    def flops(self) -> float | None:
        """Count with PyTorch's own counter; None for compiled models and those that fail under it."""
        if self.case.compile:
            return None
        from torch.utils.flop_counter import FlopCounterMode

        batch = next(self.batches)
        try:
            with FlopCounterMode(display=False) as counter:
                self.run_on(iter([batch]))
        except AttributeError:  # of computed weights, such as weight_norm's, which it loses in inference mode
            return None
        return float(counter.get_total_flops())

    def counts(self) -> dict[str, int]:
        """Count a step's kernels, syncs and bytes; nothing for a compiled model."""
        if self.case.compile:
            return {}
        batch = next(self.batches)
        with watch_compute(self.torch) as self.compute_devices, every_warning(self.torch) as caught:
            counts = count_operations(self.torch, self.device, lambda: self.run_on(iter([batch])))
        return counts | ({"fallbacks_per_step": len(fallen_back(caught))} if self.device.type != "cpu" else {})

    @property
    def facts(self) -> dict[str, Any]:
        """Add the compiler's facts for a compiled model."""
        return {**super().facts, **(compiler_facts(self.torch) if self.case.compile else {})}

    def device_time(self, steps: int) -> float | None:
        """Time with events of the device: torch.cuda.Event, torch.xpu.Event, torch.mps.event.Event."""
        backend = getattr(self.torch, self.device.type, None)
        event = getattr(backend, "Event", None) or getattr(getattr(backend, "event", None), "Event", None)
        if self.device.type == "cpu" or event is None:
            return None
        try:
            with getattr(backend, "device", nullcontext)(self.device):  # events record on the current device
                start, end = event(enable_timing=True), event(enable_timing=True)
                start.record()
                self.run(steps)
                end.record()
                self.synchronize()
            return float(start.elapsed_time(end)) / 1e3
        except (RuntimeError, TypeError, AttributeError, NotImplementedError):
            return None  # not every device has events with times

    def steady_counters(self) -> tuple[int, ...]:
        """Return the number of graphs compiled, and the device memory in B that the allocator has reserved."""
        compiled = self.torch._dynamo.utils.counters["stats"]["unique_graphs"] if self.case.compile else 0
        return (compiled, counted_memory(self.torch, self.device, "memory_reserved") or self._driver_memory() or 0)

    def device_peak(self) -> int | None:
        """Return the peak of allocated memory, or the driver's memory if no peak is counted: on MPS before 2.13."""
        peak = counted_memory(self.torch, self.device, "max_memory_allocated")
        counted = peak or self._driver_memory()
        if counted:
            self.noted["device_peak_by"] = "allocator" if peak else "driver"
        return counted

    def _driver_memory(self) -> int | None:
        """Return the memory in B that a device's driver has allocated; only MPS has this counter."""
        driver = getattr(getattr(self.torch, self.device.type, None), "driver_allocated_memory", None)
        return None if driver is None else int(driver())

    def actual_device(self) -> str:
        """Return the actual device; name a tensor, a matmul or a gradient that is on another one."""
        actual = super().actual_device()
        elsewhere = sorted(self.compute_devices - {actual.partition(",")[0]})
        return f"{actual}, matmuls or gradients on {elsewhere[0]}" if elsewhere else actual

    # -- checks ----------------------------------------------------------------------------------

    def losses(self) -> Mapping[str, float] | None:
        """Return the loss on the fixed batch in training, or the workload's own checks.

        The model is not compiled here: the compiler would compile it again for a pass without gradients.
        """
        if not self.training:
            return None
        with self.policy.steps(), self.torch.no_grad():
            if self.recipe.checks is not None:
                return self.recipe.checks(self.network)
            inputs, targets = self.fixed
            return {"loss": float(self.backend.exact_loss(self.policy.around(self.network)(inputs), targets))}

    def precision_flaw(self) -> str:
        """Watch a forward pass of one item through the uncompiled model: compiled kernels can't be watched."""
        inputs = self.fixed[0]
        self.network.eval()
        try:
            with self.policy.steps():
                try:
                    flaw, matmuls = self.policy.flaw(self.network, first_items(inputs, 1))
                except Unsupported:
                    raise
                except Exception:  # such as of items that depend on each other, like a graph's nodes: then take all
                    flaw, matmuls = self.policy.flaw(self.network, inputs)
        finally:
            self.network.train(self.training)
        self.backend.product_types = {*matmuls}
        return flaw

    def compared_recipe(self, case: Case, rate: float, reference: Computed | None) -> Recipe:
        """Build a recipe; in inference, return the reference's, whose network then moves to the device."""
        return self.make_recipe(self.case) if reference is None or self.training else reference.recipe

    def compared_batch(self, recipe: Recipe, most: int | None) -> Batch:
        """Return the first items of the first batch; all of them if the model is compiled for that many."""
        batch = recipe.draw() if self.loader is None else self.loader.first()
        few: Batch = batch if most is None or self.case.compile else first_items(batch, most)
        return few

    def proof(self, portable: Portable) -> list[float]:
        small = proof_case(self.case)
        recipe = self.make_recipe(small)
        with_first_values(self.torch, recipe.network, portable)
        backend = self.make_backend(small, recipe, dropout=False)
        inputs, targets = (backend.place(tensor_of(self.torch, values)) for values in portable.batch(small, 0))
        with backend.steps():
            if not self.training:
                return backend.sample_values(backend.infer(inputs), PROOF_NUMBERS)
            for group in backend.optimiser.param_groups:
                group["lr"] *= PROOF_RATE
            return list(backend.losses(inputs, targets).tolist())


def seed_all(torch: ModuleType, seed: int) -> None:
    """Seed PyTorch's generators, Python's and NumPy's."""
    torch.manual_seed(seed)
    seed_generators(seed)


def dropout_modules(torch: ModuleType, network: Any) -> list[Any]:
    """Return the dropout modules of a network."""
    return [module for module in network.modules() if isinstance(module, torch.nn.modules.dropout._DropoutNd)]


def first_tensor(torch: ModuleType, tree: Any) -> Any:
    """Return the first tensor of a tree."""
    return tree if torch.is_tensor(tree) else next(leaf for leaf in trees.leaves(tree) if torch.is_tensor(leaf))


def tensor_of(torch: ModuleType, values: Values) -> Any:
    """Return values as a tensor."""
    whole = torch.frombuffer(values.whole, dtype=torch.int32).reshape(values.shape)
    return whole.long() if values.scale is None else whole.float() * values.scale + values.offset


def with_first_values(torch: ModuleType, network: Any, portable: Portable) -> Any:
    """Set a network's parameters to the workload's first values, which are the same in every framework."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(tensor_of(torch, portable.first_values(name, tuple(parameter.shape))))
    return network


def compiler_facts(torch: ModuleType) -> dict[str, Any]:
    """Return the compiler's time in s, its graphs and graph breaks, and whether its cache had them."""
    dynamo = torch._dynamo.utils
    spent, counters = dynamo.calculate_time_spent(), dynamo.counters
    return {
        "compile_time": round(float(spent["total_wall_time"]), 6),
        "graphs": int(counters["stats"]["unique_graphs"]),
        "graph_breaks": sum(counters["graph_break"].values()),
        "compile_cached": bool(counters["inductor"]["fxgraph_cache_hit"]),
    }
