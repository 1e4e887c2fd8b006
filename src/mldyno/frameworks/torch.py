"""PyTorch, on the CPU and on any device that torch.accelerator knows (CUDA, MPS, XPU).

Requires: torch
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from mldyno.frameworks import Unsupported

if TYPE_CHECKING:
    from mldyno.records import Case, Device

SEED = 20240229
POOL = 4  # batches drawn ahead and taken in turn, so that no cache or shortcut wins
TOLERANCE = {"fp32": 1e-3}  # largest relative difference from the CPU in fp32


class Recipe(Protocol):
    """The shape of a workload's recipe, as this file uses it."""

    network: Any
    draw: Callable[[], tuple[Any, Any]]
    loss: Callable[[Any, Any], Any]
    optimiser: Callable[[Any], Any]


Build = Callable[[ModuleType, "Case"], Recipe]


def waiting(torch: ModuleType, device: Any) -> Callable[[], None]:
    """What waits for an accelerator. The CPU is done when its call returns: there it does nothing, and fast."""
    if device.type == "cpu":
        return _done
    return lambda: torch.accelerator.synchronize(device)


def _done() -> None:
    """Nothing to wait for."""


class Product:
    """The product of two random square matrices, over and over."""

    def __init__(self, torch: ModuleType, case: Case, size: int) -> None:
        self.torch = torch
        device = torch.device(case.device)
        self.synchronize = waiting(torch, device)
        chance = torch.Generator().manual_seed(SEED)
        self.factors = [torch.randn(size, size, generator=chance).to(device) for _ in range(2)]
        self.result = torch.empty_like(self.factors[0])
        self.flops = 2.0 * size**3

    def run(self, steps: int) -> None:
        """Issue products."""
        (a, b), result, multiply = self.factors, self.result, self.torch.mm
        for _ in range(steps):
            multiply(a, b, out=result)


class TorchProgram:
    """A case as a PyTorch model on its device, with the batches it takes in turn."""

    def __init__(self, torch: ModuleType, case: Case, build: Build) -> None:
        self.torch, self.case = torch, case
        self.device = torch.device(case.device)
        self.synchronize = waiting(torch, self.device)
        self.training = case.mode == "train"
        torch.manual_seed(SEED)
        recipe = build(torch, case)
        self.recipe = recipe
        batches = [recipe.draw() for _ in range(POOL)]
        self.reference = None if case.device == "cpu" else (copy.deepcopy(recipe.network), batches[0])
        self.network = recipe.network.to(self.device).train(self.training)
        self.params = sum(p.numel() for p in self.network.parameters())
        self.fixed = self._placed(batches[0])
        self.optimiser: Any = recipe.optimiser(self.network.parameters()) if self.training else None
        self.copies = case.placement in ("host", "roundtrip")
        self.returns = case.placement == "roundtrip"
        self.batches: Iterator[tuple[Any, Any]] = itertools.cycle(
            batches if self.copies else [self._placed(batch) for batch in batches]
        )
        self.output: Any = None

    def _placed(self, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        inputs, targets = batch
        return inputs.to(self.device), targets.to(self.device)

    def _train(self, inputs: Any, targets: Any) -> Any:
        output = self.network(inputs)
        self.recipe.loss(output, targets).backward()
        self.optimiser.step()
        self.optimiser.zero_grad()
        return output

    def run(self, steps: int) -> None:
        """Issue steps; placement says whether the batch and the result cross to and from the host."""
        output = None
        if self.training:
            for batch in itertools.islice(self.batches, steps):
                output = self._train(*(self._placed(batch) if self.copies else batch))
                if self.returns:
                    output = output.detach().cpu()
        else:
            network, device, copies, returns = self.network, self.device, self.copies, self.returns
            with self.torch.inference_mode():
                for inputs, _ in itertools.islice(self.batches, steps):
                    output = network(inputs.to(device) if copies else inputs)
                    if returns:
                        output = output.cpu()
        self.output = output

    def device_time(self, steps: int) -> float | None:
        """By events of the device: torch.cuda.Event, torch.xpu.Event, torch.mps.event.Event."""
        backend = getattr(self.torch, self.device.type, None)
        event = getattr(backend, "Event", None) or getattr(getattr(backend, "event", None), "Event", None)
        if self.device.type == "cpu" or event is None:
            return None
        try:
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

    def loss(self) -> float | None:
        """The loss on the fixed batch in train mode."""
        if not self.training:
            return None
        inputs, targets = self.fixed
        with self.torch.no_grad():
            return float(self.recipe.loss(self.network(inputs), targets))

    def learn(self) -> None:
        """One training step on the fixed batch."""
        self._train(*self.fixed)

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

    def _three_losses(self, network: Any, batch: tuple[Any, Any]) -> float:
        network.train()
        for module in network.modules():
            if isinstance(module, self.torch.nn.modules.dropout._DropoutNd):
                module.eval()
        optimiser = self.recipe.optimiser(network.parameters())
        loss: Any = None
        for _ in range(3):
            loss = self.recipe.loss(network(batch[0]), batch[1])
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        return float(loss.detach())

    def device_peak(self) -> int | None:
        """Peak of the device's allocated memory in B."""
        return self._memory("max_memory_allocated")

    def seen_device(self) -> str:
        """Where the parameters really are, and the last output where it is not where it should be."""
        seen = next(self.network.parameters()).device
        expected = self.torch.device("cpu") if self.returns else seen
        if self.output is not None and self.output.device != expected:
            return f"{seen}, the output on {self.output.device}"
        return str(seen)


class Torch:
    """PyTorch as mldyno uses it."""

    name = "torch"
    clock: Callable[[], int] | None = None
    torch: Any = None

    def start(self) -> None:
        """Import torch, and let fp32 be fp32: no TF32 in products or convolutions."""
        import warnings

        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch

        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        self.torch = torch

    def versions(self) -> dict[str, str]:
        """Torch's version, and that of CUDA where it was built with it."""
        found = {"torch": str(self.torch.__version__)}
        if self.torch.version.cuda:
            found["cuda"] = str(self.torch.version.cuda)
        return found

    def threads(self) -> int | None:
        """Threads of one operation on the CPU."""
        return int(self.torch.get_num_threads())

    def limit_threads(self, threads: int) -> None:
        """Threads of one operation on the CPU."""
        self.torch.set_num_threads(threads)

    def devices(self) -> list[Device]:
        """The CPU, and every accelerator that torch finds."""
        from mldyno.records import Device

        found = [Device("cpu", "torch", "CPU")]
        accelerator = self.torch.accelerator
        if accelerator.is_available():
            kind = accelerator.current_accelerator().type
            count = accelerator.device_count()
            for index in range(count):
                name = f"{kind}:{index}" if kind == "cuda" or count > 1 else kind
                found.append(Device(name, "torch", *self._properties(kind, index)))
        return found

    def _properties(self, kind: str, index: int) -> tuple[str, int | None]:
        try:
            properties = getattr(self.torch, kind).get_device_properties(index)
            return str(properties.name), int(properties.total_memory)
        except (AttributeError, RuntimeError, AssertionError):
            return kind, None

    def open(self, case: Case, build: Build | None) -> TorchProgram:
        """Build the case on its device, or say why it can't be."""
        if build is None:
            raise Unsupported(f"{case.workload} has no PyTorch version")
        if case.precision not in TOLERANCE:
            raise Unsupported(f"precision {case.precision} can't be measured yet; fp32 can")
        if case.compile:
            raise Unsupported("torch.compile can't be measured yet")
        if case.workers != 1:
            raise Unsupported("more than one worker can't be measured yet")
        if case.placement == "loader":
            raise Unsupported("placement loader can't be measured yet; device, host and roundtrip can")
        names = [device.name for device in self.devices()]
        if case.device not in names:
            raise Unsupported(f"no device '{case.device}' here; torch sees {', '.join(names)}")
        if case.threads:
            self.limit_threads(case.threads)
        return TorchProgram(self.torch, case, build)

    def product(self, case: Case, size: int) -> Product:
        """Two square matrices on the case's device."""
        return Product(self.torch, case, size)

    def explain(self, error: BaseException) -> tuple[str, str]:
        """Memory errors have their own types on accelerators, and only words on the CPU and on MPS."""
        text = str(error).strip().split("\n")[0] or type(error).__name__
        if isinstance(error, Unsupported | NotImplementedError):
            return "unsupported", text
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return "failed", "torch is not installed for this Python; pip install 'mldyno[torch]'"
        words = ("out of memory", "can't allocate memory", "not enough memory")
        if isinstance(error, MemoryError) or any(word in str(error) for word in words):
            return "oom", text
        return "failed", f"{type(error).__name__}: {text}"


FRAMEWORK = Torch()
