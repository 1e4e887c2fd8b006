"""A case as a PyTorch program: its model on its device, the batches it takes, its steps and its checks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks import (
    COMPARED_UPDATES,
    OTHER_DRAWS,
    PROOF_NUMBERS,
    PROOF_RATE,
    TOLERANCE,
    Unsupported,
    proof_case,
    without_chance,
)
from mldyno.frameworks.program import BATCH_POOL, COMPARED_ITEMS, ModelProgram, seed_generators
from mldyno.frameworks.torch.devices import counted_memory, every_warning, fallen_back, relative_error
from mldyno.frameworks.torch.loader import OwnLoader, TorchLoader
from mldyno.frameworks.torch.operations import actual_device, count_operations, watch_compute
from mldyno.frameworks.torch.precision import PrecisionPolicy, backward_and_step
from mldyno.values import IMAGE_DIMENSIONS, SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads import Batch, Build, Portable, Recipe

MAX_COMPARED_STEPS = 24  # to get that many updates: a gradient scaler skips some


def waiting(torch: ModuleType, device: Any) -> Callable[[], None]:
    """Return what waits for a device; on the CPU it does nothing, fast, since a call returns when its work is done."""
    if device.type == "cpu":
        return _done
    return lambda: torch.accelerator.synchronize(device)


def _done() -> None:
    """Wait for nothing."""


class TorchProgram(ModelProgram):
    """A case on its device, with the batches that it cycles through."""

    rank, size = 0, 1

    def __init__(self, torch: ModuleType, case: Case, build: Build, data: Opened | None) -> None:
        self.torch, self.case = torch, case
        self.device = torch.device(case.device)
        self.wait = waiting(torch, self.device)
        self.training = case.mode == "train"
        self.copies = case.placement != "device"
        self.returns = case.placement == "roundtrip"
        self.policy = PrecisionPolicy(torch, case, self.device)
        self.build = build
        self.recipe = recipe = self._fresh()
        self.step_phases = recipe.phases
        self._check_phases()
        self.loader: TorchLoader | None = self._loader(data)
        if self.rank:  # each rank has different batches
            torch.manual_seed(SEED + self.rank)
        pool = [recipe.draw() for _ in range(BATCH_POOL)] if self.loader is None else [self.loader.first()]
        if case.layout != "contiguous" and first_tensor(torch, pool[0][0]).dim() != IMAGE_DIMENSIONS:
            raise Unsupported(f"its inputs are no images, so that {case.layout} is no other case than contiguous")
        self.network = self._on_device(recipe.network)
        self._check_recurrent()
        self.params = sum(p.numel() for p in self.network.parameters())
        self.fixed = self._placed(pool[0])
        together = self._together(self.network)
        self.optimiser: Any = self._optimiser(self.network) if self.training else None
        self.scaler = self.policy.scaler() if self.training else None
        self.forward = self._compiled(together)
        self.forward_loss, self.infer = self._forward_loss(self.forward), self.policy.around(self.forward)
        self.batches = self._stream(pool)
        self.output: Any = None
        self.carry: Any = None
        self.output_device: Any = None
        self.first_loss: Any = None
        self.compute_devices: set[str] = set()
        self.noted: dict[str, Any] = {**recipe.notes, **({"emulated": True} if self.policy.emulated else {})}
        if any(isinstance(module, torch.nn.modules.conv._ConvNd) for module in self.network.modules()):
            self.noted["convolutions"] = True

    def _loader(self, data: Opened | None) -> TorchLoader | None:
        """Return what reads batches from a data set: the workload's, or the user's own."""
        if data is not None:
            return TorchLoader(self.torch, data, self.case, self.rank, self.size)
        if self.case.placement == "loader":
            return OwnLoader(self.torch, self.recipe, self.case, self.rank, self.size)
        return None

    def _fresh(self) -> Recipe:
        """Build the recipe with its first weights, in fp32 on the CPU."""
        self._seed(SEED)
        return self.build(self.torch, self.case)

    def _check_phases(self) -> None:
        """Refuse what a step made of phases can't do: they have their own optimisers, or shapes that change."""
        phases = ", ".join(self.recipe.phases)
        if phases and self.case.compile:
            raise Unsupported(f"a step of it is made of phases ({phases}) of changing shapes, not compiled as one")
        if phases and self.training and self.policy.precision == "amp-fp16":
            raise Unsupported(f"its phases ({phases}) have optimisers of their own, which no gradient scaler serves")

    def _check_recurrent(self) -> None:
        """Refuse LSTMs under autocast on MPS: their weights stay in fp32, and the kernel takes one type only."""
        recurrent = any(isinstance(module, self.torch.nn.RNNBase) for module in self.network.modules())
        if recurrent and self.policy.autocasts and self.device.type == "mps":
            raise Unsupported("recurrent layers can't run under autocast on MPS; take fp32, fp16 or bf16")

    def _on_device(self, network: Any) -> Any:
        return self.policy.cast(network).to(self.device).train(self.training)

    def _optimiser(self, network: Any) -> Any:
        return self.recipe.optimiser(network.parameters())

    def _together(self, network: Any) -> Any:
        """Return the network as all ranks train it; here there is one process only."""
        return network

    def _compiled(self, network: Any) -> Any:
        return self.torch.compile(network) if self.case.compile else network

    def _forward_loss(self, forward: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
        """Return what computes the output for inputs, and its loss."""
        loss = self.recipe.loss

        def forward_loss(inputs: Any, targets: Any) -> tuple[Any, Any]:
            output = forward(inputs)
            return output, loss(output, targets)

        return self.policy.around(forward_loss)

    def _stream(self, pool: list[Batch]) -> Iterator[Batch]:
        if self.loader is not None:
            return self.loader.endless()
        if self.copies:
            return itertools.cycle([self._each(self.policy.on_host, batch) for batch in pool])
        return itertools.cycle([self._placed(batch) for batch in pool])

    def _each(self, change: Callable[[Any], Any], tree: Any) -> Any:
        """Return a tree with every tensor in it changed."""
        is_tensor = self.torch.is_tensor
        if is_tensor(tree):  # as most are
            return change(tree)
        return trees.mapped(lambda leaf: change(leaf) if is_tensor(leaf) else leaf, tree)

    def _to_device(self, tree: Any) -> Any:
        def moved(leaf: Any) -> Any:
            if self.torch.is_tensor(leaf):
                return self.policy.to_device(leaf)
            return leaf.to(self.device) if callable(getattr(leaf, "to", None)) else leaf  # such as a graph's data

        return trees.mapped(moved, tree)

    @property
    def loads_ahead(self) -> int:  # type: ignore[override]
        return 0 if self.loader is None else self.loader.ahead

    @property
    def steps_in_cycle(self) -> int:  # type: ignore[override]
        return 1 if self.loader is None else max(1, self.loader.workers)

    def drop_loaded(self) -> None:
        for _ in range(self.loads_ahead):
            next(self.batches)

    def end(self) -> None:
        if self.loader is not None:
            self.batches = iter(())
            self.loader.end()

    def _placed(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self._to_device(inputs), self._to_device(targets)

    # -- steps -----------------------------------------------------------------------------------

    def synchronize(self) -> None:
        self.wait()

    def run(self, steps: int) -> None:
        """Issue steps; placement says whether the batch and the result cross to and from the host."""
        self._run_on(itertools.islice(self.batches, steps))

    def _run_on(self, batches: Iterator[Batch]) -> None:
        with self.policy.steps():
            if self.recipe.phases:
                self._run_in_phases(batches)
            elif self.training:
                self._run_training(batches)
            else:
                self._run_inference(batches)

    def _run_training(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            output = self._train(*(self._placed(batch) if self.copies else batch), self.recipe.updates)
            if self.returns:
                output = self._each(lambda tensor: tensor.detach().cpu(), output)
            self.output_device = first_tensor(self.torch, output).device
            del output  # a small tensor that outlives its step leaves holes in the heap: a tenth more memory

    def _train(self, inputs: Any, targets: Any, update: bool) -> Any:
        output, loss = self.forward_loss(inputs, targets)
        if self.first_loss is None:
            self.first_loss = self._check_loss(output, targets)
        backward_and_step(loss, self.optimiser if update else None, self.scaler)
        self.optimiser.zero_grad()
        return output

    def _check_loss(self, output: Any, targets: Any) -> Any:
        """Return the loss of an output for checks, in fp32 at least: in bf16 a step may change less than a digit."""
        stored = self.torch.promote_types(self.policy.storage_type, self.torch.float32)

        def widened(tensor: Any) -> Any:
            return tensor.detach().to(stored) if tensor.is_floating_point() else tensor.detach()

        with self.torch.no_grad():
            return self.recipe.loss(self._each(widened, output), self._each(widened, targets))

    def _run_inference(self, batches: Iterator[Batch]) -> None:
        torch, forward, copies, returns = self.torch, self.infer, self.copies, self.returns
        with torch.inference_mode():
            for inputs, _ in batches:
                output = forward(self._to_device(inputs) if copies else inputs)
                if returns:
                    output = self._each(torch.Tensor.cpu, output)
                self.output_device = first_tensor(torch, output).device
                del output  # one that is still there when the next is made takes it out of the cache

    def _run_in_phases(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            for name in self.recipe.phases:
                self._run_phase(name, batch)
            if self.returns and self.output is not None:
                self.output = self._each(self.torch.Tensor.cpu, self.output)

    def _run_phase(self, name: str, batch: Batch) -> None:
        with self.torch.inference_mode(not self.training):
            inputs = self._to_device(batch[0]) if self.copies else batch[0]
            work = self.policy.around(self.recipe.phases[name].run, caches=not self.training)
            self.carry = work(self.network, inputs, self.carry)
        if name == [*self.recipe.phases][-1]:
            self.output, self.carry = self.carry, None

    # -- phases ----------------------------------------------------------------------------------

    def _run_step_phase(self, name: str) -> None:
        self._run_phase(name, self.fixed)

    def _train_on(self, batches: Iterator[Batch]) -> None:
        with self.policy.steps():
            for batch in batches:
                self._train(*self._placed(batch), self.recipe.updates)

    def _count_correct(self, batches: Iterator[Batch]) -> int:
        """Count on the device, and read the sum once."""
        self.network.eval()
        correct = self.torch.zeros((), dtype=self.torch.long, device=self.device)
        with self.torch.inference_mode(), self.policy.steps():
            for batch in batches:
                inputs, targets = self._placed(batch)
                correct += (self.infer(inputs).argmax(1) == targets).sum()
        self.network.train(self.training)
        return int(correct)

    # -- what is observed besides the time -------------------------------------------------------

    def flops(self) -> float | None:
        """Count with PyTorch's own counter, which can't see compiled models, nor run those that break under it."""
        if self.case.compile:
            return None
        from torch.utils.flop_counter import FlopCounterMode

        batch = next(self.batches)
        try:
            with FlopCounterMode(display=False) as counter:
                self._run_on(iter([batch]))
        except AttributeError:  # of weights that are computed, such as weight_norm's: in inference mode it loses them
            return None
        return float(counter.get_total_flops())

    def counts(self) -> dict[str, int]:
        """Count what one step issues, reads back and moves; a compiled model's kernels can't be counted."""
        if self.case.compile:
            return {}
        batch = next(self.batches)
        with watch_compute(self.torch) as self.compute_devices, every_warning(self.torch) as said:
            counts = count_operations(self.torch, self.device, lambda: self._run_on(iter([batch])))
        return {"kernels_per_step": counts.kernels, "host_syncs_per_step": counts.host_syncs,
                "bytes_per_step": counts.moved, "copied_per_step": counts.copied,
                **({"fallbacks_per_step": len(fallen_back(said))} if self.device.type != "cpu" else {})}  # fmt: skip

    @property
    def facts(self) -> dict[str, Any]:
        """Return what was noted so far, and for a compiled model what its compiler reports."""
        return self.noted | (compiler_facts(self.torch) if self.case.compile else {})

    def device_time(self, steps: int) -> float | None:
        """Time with events of the device: torch.cuda.Event, torch.xpu.Event, torch.mps.event.Event."""
        backend = getattr(self.torch, self.device.type, None)
        event = getattr(backend, "Event", None) or getattr(getattr(backend, "event", None), "Event", None)
        if self.device.type == "cpu" or event is None:
            return None
        try:
            with getattr(backend, "device", nullcontext)(self.device):  # events tell of the device that is current
                start, end = event(enable_timing=True), event(enable_timing=True)
                start.record()
                self.run(steps)
                end.record()
                self.synchronize()
            return float(start.elapsed_time(end)) / 1e3
        except (RuntimeError, TypeError, AttributeError, NotImplementedError):
            return None  # not every device has events that tell time

    def steady_counters(self) -> tuple[int, ...]:
        """Return how many graphs the compiler has made, and the device memory that the allocator has reserved."""
        compiled = self.torch._dynamo.utils.counters["stats"]["unique_graphs"] if self.case.compile else 0
        return (compiled, counted_memory(self.torch, self.device, "memory_reserved") or self._given_out() or 0)

    def device_peak(self) -> int | None:
        """Return the peak of the allocated memory; on MPS, which counts no peak, what its driver has given out."""
        peak = counted_memory(self.torch, self.device, "max_memory_allocated")
        given_out = self._given_out()
        if peak or given_out is None:
            return peak or None
        self.noted["device_peak_by"] = "driver"
        return given_out

    def _given_out(self) -> int | None:
        """Return what a device's driver has given out, in B; only MPS has such a counter."""
        driver = getattr(getattr(self.torch, self.device.type, None), "driver_allocated_memory", None)
        return None if driver is None else int(driver())

    def actual_device(self) -> str:
        """Return where everything really is; name what lies elsewhere, or was computed elsewhere."""
        home = self.torch.device("cpu") if self.returns else None
        output_device = self.output_device if self.output is None else first_tensor(self.torch, self.output).device
        actual = actual_device(self.network, self.optimiser, self.fixed, output_device, home)
        elsewhere = sorted(self.compute_devices - {actual.partition(",")[0]})
        return f"{actual}, matmuls or gradients on {elsewhere[0]}" if elsewhere else actual

    # -- checks ----------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """Return the loss of the first step, where it was on the fixed batch; no pass is made for it."""
        if self.loader is None and self.first_loss is not None:
            self.first_loss = float(self.first_loss)  # the tensor is not kept
            return {"loss": self.first_loss}
        return self.losses()

    def losses(self) -> Mapping[str, float] | None:
        """Return the loss on the fixed batch in train mode, or the workload's own checks.

        By the model as it was written: a compiled one would be compiled once more, for a pass without gradients.
        """
        if not self.training:
            return None
        with self.policy.steps(), self.torch.no_grad():
            if self.recipe.checks is not None:
                return self.recipe.checks(self.network)
            inputs, targets = self.fixed
            return {"loss": float(self._check_loss(self.policy.around(self.network)(inputs), targets))}

    def check_step(self) -> None:
        """Train on the fixed batch, with the optimiser's step in any case."""
        if self.recipe.phases:
            self.run(1)
            return
        with self.policy.steps():
            self._train(*self.fixed, update=True)

    def precision_flaw(self) -> str:
        """Watch the forward pass of one item by the uncompiled model: what a compiler makes of it can't be watched."""
        self.network.eval()
        try:
            with self.policy.steps():
                flaw, matmuls = self.policy.flaw(self.network, self._few(self.network, self.fixed[0], 1))
        finally:
            self.network.train(self.training)
        self.noted["products_in"] = ", ".join(sorted(matmuls))
        return flaw

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Compare outputs in inference, and in training the loss after three updates with dropout off.

        Against the same model in fp32 on the CPU, neither compiled nor laid out otherwise. It is built anew: a second
        model that was kept meanwhile would count as memory of the case.
        """
        plain = self.case.precision == "fp32" and not self.case.compile and self.case.layout == "contiguous"
        if self.case.device == "cpu" and plain:
            return None
        error = self._error_in_training() if self.training else self._error_in_inference()
        return None if error is None else (error, TOLERANCE[self.policy.precision])

    def _compared_batch(self, recipe: Recipe) -> Batch:
        """Return the first items of the first batch; all of them for a compiled model, made for that many."""
        inputs, targets = recipe.draw() if self.loader is None else self.loader.first()
        if self.case.compile:
            return inputs, targets
        few: Batch = self._few(recipe.network.eval(), (inputs, targets), COMPARED_ITEMS, given=0)
        return few

    def _few(self, network: Any, tree: Any, most: int, given: int | None = None) -> Any:
        """Return the first items of inputs, or of a batch whose inputs are at `given`; all where the network needs all.

        Items may depend on each other, as the nodes of a graph do.
        """
        few = first_items(self.torch, tree, most)
        if few is not tree:
            try:
                with self.torch.no_grad():
                    network(few if given is None else few[given])
            except Exception:  # whatever their code raises; if it was not for the items, the whole batch raises it too
                return tree
        return few

    def _error_in_inference(self) -> float | None:
        recipe = self._fresh()
        inputs = self._compared_batch(recipe)[0]
        plain = recipe.network.eval()
        expected = self._outputs(plain, inputs, SEED)
        drawn = self._spread(expected, lambda seed: self._outputs(plain, inputs, seed))
        network = self._on_device(recipe.network).eval()
        with self.policy.steps():
            actual = self._outputs(self.policy.around(self._compiled(network)), self._to_device(inputs), SEED)
        return self._not_by_chance(list(map(relative_error, actual, expected)), drawn)

    def _outputs(self, forward: Any, inputs: Any, seed: int) -> list[Any]:
        """Return the outputs of a network that draws its random numbers from a seed."""
        self._seed(seed)
        with self.torch.inference_mode():
            output = forward(inputs)
        tensors = (leaf for leaf in trees.leaves(output) if self.torch.is_tensor(leaf))
        dense = (leaf if leaf.layout is self.torch.strided else leaf.to_dense() for leaf in tensors)
        return [leaf.cpu().double() for leaf in dense if leaf.is_floating_point() and leaf.numel()]

    def _double(self, number: float) -> Any:
        return self.torch.tensor(number, dtype=self.torch.float64)

    def _seed(self, seed: int) -> None:
        self.torch.manual_seed(seed)
        seed_generators(seed)

    def _error_in_training(self) -> float | None:
        recipe = self._fresh()
        batch = self._compared_batch(recipe)

        def plain(network: Any, seed: int) -> list[Any]:
            self._seed(seed)
            return [self._double(self._losses_of(network, network, batch, plain=True)[-1])]

        expected = plain(recipe.network, SEED)
        network = self._on_device(self._fresh().network)
        self._seed(SEED)
        with self.policy.steps():
            loss = self._losses_of(network, self._compiled(network), self._placed(batch), plain=False)[-1]
        error = relative_error(self._double(loss), expected[0])
        if error <= TOLERANCE[self.policy.precision]:
            return error
        return self._not_by_chance([error], self._spread(expected, lambda seed: plain(self._fresh().network, seed)))

    def _spread(self, expected: list[Any], outputs: Callable[[int], list[Any]]) -> list[float]:
        """Return how far passes in fp32 are from the first if they draw other random numbers; 0 if they draw none."""
        spread = [0.0 for _ in expected]
        for seed in range(SEED + 1, SEED + 1 + OTHER_DRAWS):
            spread = list(map(max, spread, map(relative_error, outputs(seed), expected)))
            if not any(spread):
                break
        return spread

    def _not_by_chance(self, errors: list[float], drawn: list[float]) -> float | None:
        """Return the largest error that random numbers do not explain; None where they explain all of them."""
        own = without_chance(list(zip(errors, drawn, strict=True)), TOLERANCE[self.policy.precision])
        if len(own) < len(errors):
            self.noted["draws_random"] = True
        return max(own, default=None)

    def _losses_of(
        self, network: Any, forward: Any, batch: Batch, plain: bool, updates: int = COMPARED_UPDATES, rate: float = 1.0
    ) -> list[float]:
        """Return the losses of that many updates at `rate` times the usual rate, without those that a scaler skips."""
        network.train()
        for module in network.modules():
            if isinstance(module, self.torch.nn.modules.dropout._DropoutNd):
                module.eval()
        optimiser = self._optimiser(network)
        for group in optimiser.param_groups:
            group["lr"] *= rate
        loss_of = self.recipe.loss
        forward_loss = (lambda x, y: (None, loss_of(forward(x), y))) if plain else self._forward_loss(forward)
        scaler = None if plain else self.policy.scaler()
        losses: list[float] = []
        for _ in range(MAX_COMPARED_STEPS):
            loss = forward_loss(*batch)[1]
            before = 0.0 if scaler is None else scaler.get_scale()
            backward_and_step(loss, optimiser, scaler)
            optimiser.zero_grad()
            if scaler is None or scaler.get_scale() >= before:
                losses.append(float(loss.detach()))
            if len(losses) == updates:
                break
        return losses or [float("nan")]

    def proof(self, portable: Portable) -> list[float]:
        small = proof_case(self.case)
        network = self._on_device(with_first_values(self.torch, self.build(self.torch, small).network, portable))
        inputs, targets = (self.policy.to_device(tensor_of(self.torch, values)) for values in portable.batch(small, 0))
        forward = self._compiled(network)
        if self.training:
            with self.policy.steps():
                return self._losses_of(network, forward, (inputs, targets), False, COMPARED_UPDATES + 1, PROOF_RATE)
        with self.torch.inference_mode(), self.policy.steps():
            flat = self.policy.around(forward)(inputs).float().flatten()
        numbers: list[float] = flat[:: max(1, len(flat) // PROOF_NUMBERS)][:PROOF_NUMBERS].tolist()
        return numbers


def first_tensor(torch: ModuleType, tree: Any) -> Any:
    """Return the first tensor of a tree."""
    return tree if torch.is_tensor(tree) else next(leaf for leaf in trees.leaves(tree) if torch.is_tensor(leaf))


def first_items(torch: ModuleType, tree: Any, most: int) -> Any:
    """Return the first items of a batch; all of it where its tensors do not have their items first."""
    tensors = [leaf for leaf in trees.leaves(tree) if torch.is_tensor(leaf)]
    if any(tensor.is_nested or tensor.layout is not torch.strided for tensor in tensors):
        return tree
    if len({len(tensor) if tensor.dim() else 0 for tensor in tensors}) != 1:
        return tree
    return trees.mapped(lambda leaf: leaf[:most] if torch.is_tensor(leaf) else leaf, tree)


def tensor_of(torch: ModuleType, values: Values) -> Any:
    """Return numbers that are the same in every framework, as a tensor."""
    whole = torch.frombuffer(values.whole, dtype=torch.int32).reshape(values.shape)
    return whole.long() if values.scale is None else whole.float() * values.scale + values.offset


def with_first_values(torch: ModuleType, network: Any, portable: Portable) -> Any:
    """Give the network the workload's first values, which are the same in every framework."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(tensor_of(torch, portable.first_values(name, tuple(parameter.shape))))
    return network


def compiler_facts(torch: ModuleType) -> dict[str, Any]:
    """Return the graphs compiled, the breaks between them, the time in s that it took, and whether a cache had them."""
    dynamo = torch._dynamo.utils
    spent, counters = dynamo.calculate_time_spent(), dynamo.counters
    return {
        "compile_time": round(float(spent["total_wall_time"]), 6),
        "graphs": int(counters["stats"]["unique_graphs"]),
        "graph_breaks": sum(counters["graph_break"].values()),
        "compile_cached": bool(counters["inductor"]["fxgraph_cache_hit"]),
    }
