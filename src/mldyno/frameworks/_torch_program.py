"""A case as a PyTorch program: its model on its device, the batches it takes, its steps and its proofs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from mldyno.frameworks import Unsupported, _torch_places
from mldyno.frameworks._torch_counts import count_operations
from mldyno.frameworks._torch_loader import Loader
from mldyno.frameworks._torch_precision import TOLERANCE, PrecisionPolicy, backward_and_step

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case

SEED = 20240229
FETCHED = 20  # batches that are got from disk in a row, to time that
POOL = 4  # batches drawn ahead and taken in turn, so that no cache or shortcut wins
CHECKED = 8  # items that results are compared on: in fp32 on the CPU a whole batch can take minutes
UPDATES, MOST_TRIES = 3, 24  # updates after which losses are compared, and steps to get so many of them
Batch = tuple[Any, Any]


class Phase(Protocol):
    """The shape of a phase of a step, as this file uses it."""

    run: Callable[[Any, Any, Any], Any]
    items: int


class Recipe(Protocol):
    """The shape of a workload's recipe, as this file uses it."""

    network: Any
    draw: Callable[[], Batch]
    loss: Callable[[Any, Any], Any]
    optimiser: Callable[[Any], Any]
    updates: bool
    phases: Mapping[str, Phase]
    checks: Callable[[Any], Mapping[str, float]] | None


Build = Callable[[ModuleType, "Case"], Recipe]


def waiting(torch: ModuleType, device: Any) -> Callable[[], None]:
    """What waits for an accelerator. The CPU is done when its call returns: there it does nothing, and fast."""
    if device.type == "cpu":
        return _done
    return lambda: torch.accelerator.synchronize(device)


def _done() -> None:
    """Nothing to wait for."""


class TorchProgram:
    """A case on its device, with the batches it takes in turn."""

    def __init__(self, torch: ModuleType, case: Case, build: Build, data: Opened | None) -> None:
        self.torch, self.case = torch, case
        self.device = torch.device(case.device)
        self.synchronize = waiting(torch, self.device)
        self.training = case.mode == "train"
        self.copies = case.placement != "device"
        self.returns = case.placement == "roundtrip"
        self.policy = PrecisionPolicy(torch, case, self.device)
        self.build = build
        self.recipe = recipe = self._fresh()
        self._check_phases()
        self.loader = None if data is None else Loader(torch, data, case.batch or 1, self.training)
        pool = [recipe.draw() for _ in range(POOL)] if self.loader is None else [self.loader.first()]
        self.network = self._on_device(recipe.network)
        self.params = sum(p.numel() for p in self.network.parameters())
        self.fixed = self._placed(pool[0])
        self.optimiser: Any = self._optimiser(self.network) if self.training else None
        self.scaler = self.policy.scaler() if self.training else None
        self.forward = self._compiled(self.network)
        self.passed, self.inferred = self._pass(self.forward), self.policy.around(self.forward)
        self.batches = self._stream(pool)
        self.output: Any = None
        self.carried: Any = None
        self.output_on: Any = None
        self.first_loss: Any = None
        self.worked_on: set[str] = set()
        self.seen: dict[str, Any] = {}

    def _fresh(self) -> Recipe:
        """The recipe with its network as it was in the beginning, in fp32 on the CPU."""
        self.torch.manual_seed(SEED)
        return self.build(self.torch, self.case)

    def _check_phases(self) -> None:
        """What a step that is more than a pass can't be: it has optimisers of its own, or shapes that change."""
        several = ", ".join(self.recipe.phases)
        if several and self.case.compile:
            raise Unsupported(f"a step of it is made of phases ({several}) of changing shapes, not compiled as one")
        if several and self.training and self.policy.precision == "amp-fp16":
            raise Unsupported(f"its phases ({several}) have optimisers of their own, which no gradient scaler serves")

    def _on_device(self, network: Any) -> Any:
        return self.policy.cast(network).to(self.device).train(self.training)

    def _optimiser(self, network: Any) -> Any:
        return self.recipe.optimiser(network.parameters())

    def _compiled(self, network: Any) -> Any:
        return self.torch.compile(network) if self.case.compile else network

    def _pass(self, forward: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
        """What gives the output for inputs, and its loss."""
        loss = self.recipe.loss

        def passed(inputs: Any, targets: Any) -> tuple[Any, Any]:
            output = forward(inputs)
            return output, loss(output, targets)

        return self.policy.around(passed)

    def _stream(self, pool: list[Batch]) -> Iterator[Batch]:
        if self.loader is not None:
            return self.loader.endless()
        if self.copies:
            return itertools.cycle(
                [(self.policy.ready(inputs), self.policy.ready(targets)) for inputs, targets in pool]
            )
        return itertools.cycle([self._placed(batch) for batch in pool])

    def _placed(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return self.policy.moved(inputs), self.policy.moved(targets)

    # -- steps -----------------------------------------------------------------------------------

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
                output = output.detach().cpu()
            self.output_on = output.device
            del output  # a small tensor that outlives its step leaves holes in the heap: a tenth more memory

    def _train(self, inputs: Any, targets: Any, update: bool) -> Any:
        output, loss = self.passed(inputs, targets)
        if self.first_loss is None:
            self.first_loss = self._exact(output, targets)
        backward_and_step(loss, self.optimiser if update else None, self.scaler)
        self.optimiser.zero_grad()
        return output

    def _exact(self, output: Any, targets: Any) -> Any:
        """The loss of an output as a proof, in fp32 at least: in bf16 a lesson may be less than its last digit."""
        stored = self.torch.promote_types(self.policy.stored, self.torch.float32)
        known = targets.to(stored) if targets.is_floating_point() else targets
        with self.torch.no_grad():
            return self.recipe.loss(output.detach().to(stored), known)

    def _run_inference(self, batches: Iterator[Batch]) -> None:
        forward, moved, copies, returns = self.inferred, self.policy.moved, self.copies, self.returns
        with self.torch.inference_mode():
            for inputs, _ in batches:
                output = forward(moved(inputs) if copies else inputs)
                if returns:
                    output = output.cpu()
                self.output_on = output.device
                del output  # one that is still there when the next is made takes it out of the cache

    def _run_in_phases(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            for name in self.recipe.phases:
                self._run_phase(name, batch)
            if self.returns and self.output is not None:
                self.output = self.output.cpu()

    def _run_phase(self, name: str, batch: Batch) -> None:
        with self.torch.inference_mode(not self.training):
            inputs = self.policy.moved(batch[0]) if self.copies else batch[0]
            work = self.policy.around(self.recipe.phases[name].run, caches=not self.training)
            self.carried = work(self.network, inputs, self.carried)
        if name == [*self.recipe.phases][-1]:
            self.output, self.carried = self.carried, None

    # -- phases ----------------------------------------------------------------------------------

    @property
    def phases(self) -> Mapping[str, int]:
        """What can be timed apart from the step, in this order, and the items in it."""
        if self.recipe.phases:
            return {name: phase.items for name, phase in self.recipe.phases.items()}
        if self.loader is not None:
            return {"data": FETCHED * self.loader.batch, "epoch": self.loader.items}
        return {}

    def run_phase(self, name: str) -> None:
        """Issue one phase; those of a step one after the other, on one batch."""
        if name == "data":
            for _ in range(FETCHED):
                next(self.batches)
        elif name == "epoch":
            self._epoch()
        else:
            self._run_phase(name, self.fixed)

    def _epoch(self) -> None:
        """Every item of the data set once, then the evaluation on its held-out part."""
        assert self.loader is not None
        if self.training:
            with self.policy.steps():
                for batch in self.loader.epoch():
                    self._train(*self._placed(batch), self.recipe.updates)
        self.network.eval()
        right = self.torch.zeros((), dtype=self.torch.long, device=self.device)
        with self.torch.inference_mode(), self.policy.steps():
            for batch in self.loader.held_out():
                inputs, targets = self._placed(batch)
                right += (self.inferred(inputs).argmax(1) == targets).sum()
        self.network.train(self.training)
        self.seen["accuracy"] = int(right) / self.loader.tested

    # -- what is seen beside the time ------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """What one step issues, reads back and moves; of a compiled model's kernels nothing is seen from here."""
        if self.case.compile:
            return {}
        batch = next(self.batches)
        with _torch_places.work_watched(self.torch) as self.worked_on:
            found = count_operations(self.torch, self.device, lambda: self._run_on(iter([batch])))
        return {"kernels_per_step": found.kernels, "host_syncs_per_step": found.reads,
                "bytes_per_step": found.moved, "copied_per_step": found.copied}  # fmt: skip

    @property
    def facts(self) -> dict[str, Any]:
        """What has come up so far; of a compiled model also what its compiler says of itself."""
        return self.seen | (compiler_facts(self.torch) if self.case.compile else {})

    def device_time(self, steps: int) -> float | None:
        """By events of the device: torch.cuda.Event, torch.xpu.Event, torch.mps.event.Event."""
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
        """Graphs that the compiler has made, and device memory that the allocator has reserved."""
        compiled = self.torch._dynamo.utils.counters["stats"]["unique_graphs"] if self.case.compile else 0
        return (compiled, self._memory("memory_reserved") or 0)

    def _memory(self, counter: str) -> int | None:
        if self.device.type == "cpu":
            return None
        try:
            return int(getattr(self.torch.accelerator, counter)(self.device))
        except (AttributeError, RuntimeError, ValueError, TypeError):
            return None  # not every device counts its memory through torch.accelerator

    def device_peak(self) -> int | None:
        """Peak of the device's allocated memory in B; on MPS, which counts no peak, what its driver has given out."""
        peak = self._memory("max_memory_allocated")
        driver = getattr(getattr(self.torch, self.device.type, None), "driver_allocated_memory", None)
        if peak or driver is None:
            return peak or None
        self.seen["device_peak_by"] = "driver"
        return int(driver())

    def seen_device(self) -> str:
        """Where everything really is; what lies elsewhere, or was computed elsewhere, is told too."""
        home = self.torch.device("cpu") if self.returns else None
        output_on = self.output_on if self.output is None else self.output.device
        seen = _torch_places.seen(self.network, self.optimiser, self.fixed, output_on, home)
        elsewhere = sorted(self.worked_on - {seen.partition(",")[0]})
        return f"{seen}, products or gradients on {elsewhere[0]}" if elsewhere else seen

    # -- proofs ----------------------------------------------------------------------------------

    def first_losses(self) -> Mapping[str, float] | None:
        """Training: the loss that the first step found, where it was on the fixed batch; no pass is made for it."""
        if self.loader is None and self.first_loss is not None:
            self.first_loss = float(self.first_loss)  # the tensor is not kept
            return {"loss": self.first_loss}
        return self.losses()

    def losses(self) -> Mapping[str, float] | None:
        """Training: what must fall; the loss on the fixed batch in train mode, or the workload's own proofs.

        By the model as it was written: a compiled one would be compiled once more, for a pass without gradients.
        """
        if not self.training:
            return None
        with self.policy.steps(), self.torch.no_grad():
            if self.recipe.checks is not None:
                return self.recipe.checks(self.network)
            inputs, targets = self.fixed
            return {"loss": float(self._exact(self.policy.around(self.network)(inputs), targets))}

    def check_step(self) -> None:
        """One training step on the fixed batch, with the optimiser's step in any case."""
        if self.recipe.phases:
            self.run(1)
            return
        with self.policy.steps():
            self._train(*self.fixed, update=True)

    def precision_flaw(self) -> str:
        """Of one item's way through the model, as it was written: what a compiler makes of it can't be watched."""
        self.network.eval()
        try:
            with self.policy.steps():
                told, seen = self.policy.flaw(self.network, self.fixed[0][:1])
        finally:
            self.network.train(self.training)
        self.seen["products_in"] = ", ".join(sorted(seen))
        return told

    def disagreement(self) -> tuple[float, float] | None:
        """Inference compares outputs; training the loss after three updates with dropout off.

        Against the same model in fp32 on the CPU, neither compiled. It is built anew: a second model that was
        kept meanwhile would count as memory of the case.
        """
        if self.case.device == "cpu" and self.case.precision == "fp32" and not self.case.compile:
            return None
        error = self._off_in_training() if self.training else self._off_in_inference()
        return error, TOLERANCE[self.policy.precision]

    def _few(self, recipe: Recipe) -> Batch:
        """The first items of the first batch; all of them for a compiled model, made for that many."""
        inputs, targets = recipe.draw() if self.loader is None else self.loader.first()
        if self.case.compile or len(inputs) != len(targets):
            return inputs, targets
        return inputs[:CHECKED], targets[:CHECKED]

    def _off_in_inference(self) -> float:
        recipe = self._fresh()
        inputs = self._few(recipe)[0]
        with self.torch.inference_mode():
            truth = recipe.network.eval()(inputs)
        network = self._on_device(recipe.network).eval()
        with self.torch.inference_mode(), self.policy.steps():
            mine = self.policy.around(self._compiled(network))(self.policy.moved(inputs)).cpu()
        return _relative(mine.double(), truth.double())

    def _off_in_training(self) -> float:
        recipe = self._fresh()
        batch = self._few(recipe)
        truth = self._loss_after(recipe.network, recipe.network, batch, plain=True)
        network = self._on_device(self._fresh().network)
        with self.policy.steps():
            mine = self._loss_after(network, self._compiled(network), self._placed(batch), plain=False)
        return abs(mine - truth) / max(abs(truth), 1e-6)

    def _loss_after(self, network: Any, forward: Any, batch: Batch, plain: bool) -> float:
        """The loss of the last of three updates; those that a scaler leaves out do not count."""
        network.train()
        for module in network.modules():
            if isinstance(module, self.torch.nn.modules.dropout._DropoutNd):
                module.eval()
        optimiser = self._optimiser(network)
        loss_of = self.recipe.loss
        passed = (lambda x, y: (None, loss_of(forward(x), y))) if plain else self._pass(forward)
        scaler = None if plain else self.policy.scaler()
        value, updates = float("nan"), 0
        for _ in range(MOST_TRIES):
            loss = passed(*batch)[1]
            before = 0.0 if scaler is None else scaler.get_scale()
            backward_and_step(loss, optimiser, scaler)
            optimiser.zero_grad()
            if scaler is None or scaler.get_scale() >= before:
                value, updates = float(loss.detach()), updates + 1
            if updates == UPDATES:
                break
        return value


def compiler_facts(torch: ModuleType) -> dict[str, Any]:
    """Graphs that were compiled, breaks between them, the time in s that it took, and whether a cache had them."""
    told = torch._dynamo.utils
    spent, counters = told.calculate_time_spent(), told.counters
    return {
        "compile_time": round(float(spent["total_wall_time"]), 6),
        "graphs": int(counters["stats"]["unique_graphs"]),
        "graph_breaks": sum(counters["graph_break"].values()),
        "compile_cached": bool(counters["inductor"]["fxgraph_cache_hit"]),
    }


def _relative(mine: Any, truth: Any) -> float:
    """The largest difference of two tensors, relative to the largest value; infinite where one is not a number."""
    error = float((mine - truth).abs().max() / truth.abs().max().clamp_min(1e-6))
    return error if error == error else float("inf")  # noqa: PLR0124


def check(case: Case, build: Build | None, data: Opened | None, devices: list[str]) -> None:
    """Raise Unsupported, with the reason, where a case can't be built here."""
    if build is None:
        raise Unsupported(f"{case.workload} has no PyTorch version")
    if case.precision == "tf32" and not case.device.startswith("cuda"):
        raise Unsupported(f"tf32 is a way in which CUDA multiplies; {case.device} has none")
    if case.ranks != 1:
        raise Unsupported("more than one rank can't be measured yet")
    if case.placement == "loader" and data is None:
        raise Unsupported(f"{case.workload} has no data set on disk; take placement device, host or roundtrip")
    if case.device not in devices:
        raise Unsupported(f"no device '{case.device}' here; torch sees {', '.join(devices)}")
