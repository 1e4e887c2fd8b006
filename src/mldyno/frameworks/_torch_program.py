"""A case as a PyTorch program: its model on its device, the batches it takes, its steps and its proofs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from mldyno.frameworks import Unsupported, _torch_places
from mldyno.frameworks._torch_counts import count_operations
from mldyno.frameworks._torch_loader import Loader

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case

SEED = 20240229
FETCHED = 20  # batches that are got from disk in a row, to time that
POOL = 4  # batches drawn ahead and taken in turn, so that no cache or shortcut wins
TOLERANCE = {"fp32": 1e-3}  # largest relative difference from the CPU in fp32
Batch = tuple[Any, Any]


class Piece(Protocol):
    """The shape of a piece of a step, as this file uses it."""

    run: Callable[[Any, Any, Any], Any]
    items: int


class Recipe(Protocol):
    """The shape of a workload's recipe, as this file uses it."""

    network: Any
    draw: Callable[[], Batch]
    loss: Callable[[Any, Any], Any]
    optimiser: Callable[[Any], Any]
    updates: bool
    pieces: Mapping[str, Piece]
    proofs: Callable[[Any], Mapping[str, float]] | None


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
        torch.manual_seed(SEED)
        self.recipe = recipe = build(torch, case)
        self.loader = None if data is None else Loader(torch, data, case.batch or 1, self.training)
        pool = [recipe.draw() for _ in range(POOL)] if self.loader is None else [self.loader.first()]
        self.reference = None if case.device == "cpu" else (copy.deepcopy(recipe.network), pool[0])
        self.network = recipe.network.to(self.device).train(self.training)
        self.params = sum(p.numel() for p in self.network.parameters())
        self.fixed = self._placed(pool[0])
        self.optimiser: Any = self._optimiser(self.network) if self.training else None
        self.batches = self._stream(pool)
        self.output: Any = None
        self.carried: Any = None
        self.output_on: Any = None
        self.first_loss: Any = None
        self.facts: dict[str, Any] = {}
        self.worked_on: set[str] = set()

    def _optimiser(self, network: Any) -> Any:
        return self.recipe.optimiser(network.parameters())

    def _stream(self, pool: list[Batch]) -> Iterator[Batch]:
        if self.loader is not None:
            return self.loader.endless()
        return itertools.cycle(pool if self.copies else [self._placed(batch) for batch in pool])

    def _placed(self, batch: Batch) -> Batch:
        inputs, targets = batch
        return inputs.to(self.device), targets.to(self.device)

    # -- steps -----------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Issue steps; placement says whether the batch and the result cross to and from the host."""
        self._run_on(itertools.islice(self.batches, steps))

    def _run_on(self, batches: Iterator[Batch]) -> None:
        if self.recipe.pieces:
            self._run_in_pieces(batches)
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
        output = self.network(inputs)
        loss = self.recipe.loss(output, targets)
        loss.backward()
        if update:
            self.optimiser.step()
        self.optimiser.zero_grad()
        if self.first_loss is None:
            self.first_loss = loss.detach()
        return output

    def _run_inference(self, batches: Iterator[Batch]) -> None:
        output = self.output  # that stays, after a run of no steps
        network, device, copies, returns = self.network, self.device, self.copies, self.returns
        with self.torch.inference_mode():
            for inputs, _ in batches:
                output = network(inputs.to(device) if copies else inputs)
                if returns:
                    output = output.cpu()
        self.output = output

    def _run_in_pieces(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            for name in self.recipe.pieces:
                self._run_piece(name, batch)
            if self.returns and self.output is not None:
                self.output = self.output.cpu()

    def _run_piece(self, name: str, batch: Batch) -> None:
        with self.torch.inference_mode(not self.training):
            inputs = batch[0].to(self.device) if self.copies else batch[0]
            self.carried = self.recipe.pieces[name].run(self.network, inputs, self.carried)
        if name == [*self.recipe.pieces][-1]:
            self.output, self.carried = self.carried, None

    # -- pieces ----------------------------------------------------------------------------------

    @property
    def pieces(self) -> Mapping[str, int]:
        """What can be timed apart from the step, in this order, and the items in it."""
        if self.recipe.pieces:
            return {name: piece.items for name, piece in self.recipe.pieces.items()}
        if self.loader is not None:
            return {"data": FETCHED * self.loader.batch, "epoch": self.loader.items}
        return {}

    def run_piece(self, name: str) -> None:
        """Issue one piece; those of a step one after the other, on one batch."""
        if name == "data":
            for _ in range(FETCHED):
                next(self.batches)
        elif name == "epoch":
            self._epoch()
        else:
            self._run_piece(name, self.fixed)

    def _epoch(self) -> None:
        """Every item of the data set once, then the evaluation on its held-out part."""
        assert self.loader is not None
        if self.training:
            for batch in self.loader.epoch():
                self._train(*self._placed(batch), self.recipe.updates)
        self.network.eval()
        right = self.torch.zeros((), dtype=self.torch.long, device=self.device)
        with self.torch.inference_mode():
            for batch in self.loader.held_out():
                inputs, targets = self._placed(batch)
                right += (self.network(inputs).argmax(1) == targets).sum()
        self.network.train(self.training)
        self.facts["accuracy"] = int(right) / self.loader.tested

    # -- what is seen beside the time ------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Kernels that one step on a batch issues, and values that it reads back to the host."""
        with _torch_places.work_watched(self.torch) as self.worked_on:
            kernels, reads = count_operations(self.torch, self.device, lambda: self._run_on(iter([self.fixed])))
        return {"kernels_per_step": kernels, "host_reads_per_step": reads}

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

    def causes(self) -> tuple[int, ...]:
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
        """Peak of the device's allocated memory in B."""
        return self._memory("max_memory_allocated")

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
        """Training: what must fall; the loss on the fixed batch in train mode, or the workload's own proofs."""
        if not self.training:
            return None
        if self.recipe.proofs is not None:
            return self.recipe.proofs(self.network)
        inputs, targets = self.fixed
        with self.torch.no_grad():
            return {"loss": float(self.recipe.loss(self.network(inputs), targets))}

    def learn(self) -> None:
        """One training step on the fixed batch, with the optimiser's step in any case."""
        if self.recipe.pieces:
            self.run(1)
        else:
            self._train(*self.fixed, update=True)

    def disagreement(self) -> tuple[float, float] | None:
        """Inference compares outputs; training the loss after three steps with dropout off."""
        if self.reference is None:
            return None
        tolerance = TOLERANCE[self.case.precision or "fp32"]
        network, batch = self.reference
        self.reference = None
        twin = copy.deepcopy(network).to(self.device)
        if self.training:
            ours, theirs = self._three_losses(twin, self._placed(batch)), self._three_losses(network, batch)
            return abs(ours - theirs) / max(abs(theirs), 1e-6), tolerance
        with self.torch.inference_mode():
            output = network.eval()(batch[0])
            mine = twin.eval()(batch[0].to(self.device)).float().cpu()
            error = (mine - output).abs().max() / output.abs().max().clamp_min(1e-6)
        return float(error), tolerance

    def _three_losses(self, network: Any, batch: Batch) -> float:
        network.train()
        for module in network.modules():
            if isinstance(module, self.torch.nn.modules.dropout._DropoutNd):
                module.eval()
        optimiser = self._optimiser(network)
        loss: Any = None
        for _ in range(3):
            loss = self.recipe.loss(network(batch[0]), batch[1])
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        return float(loss.detach())


def check(case: Case, build: Build | None, data: Opened | None, devices: list[str]) -> None:
    """Raise Unsupported, with the reason, where a case can't be built here."""
    if build is None:
        raise Unsupported(f"{case.workload} has no PyTorch version")
    if case.precision not in TOLERANCE:
        raise Unsupported(f"precision {case.precision} can't be measured yet; fp32 can")
    if case.compile:
        raise Unsupported("torch.compile can't be measured yet")
    if case.workers != 1:
        raise Unsupported("more than one worker can't be measured yet")
    if case.placement == "loader" and data is None:
        raise Unsupported(f"{case.workload} has no data set on disk; take placement device, host or roundtrip")
    if case.device not in devices:
        raise Unsupported(f"no device '{case.device}' here; torch sees {', '.join(devices)}")
