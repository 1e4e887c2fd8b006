"""Networks of PyTorch, exported with their weights and run by another engine: what inference runtimes share."""

from __future__ import annotations

import itertools
import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from mldyno.frameworks import PROOF_NUMBERS, TOLERANCE, Framework, Program, Unsupported, proof_case, relative_error
from mldyno.frameworks._portable import cores
from mldyno.frameworks._torch_program import BATCH_POOL, SEED, tensor_of, with_first_values

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Build, Recipe
    from mldyno.workloads._portable import Portable


class Engine(Protocol):
    """A network in a runtime's hands."""

    def place(self, array: Any) -> Any:
        """A batch where the runtime takes it from, without a copy in each step."""

    def run(self, batch: Any) -> Any:
        """A forward pass; gives the output."""

    def fetch(self, output: Any) -> Any:
        """An output as an array of NumPy."""

    def wait(self) -> None:
        """Until all that was issued is done."""


class ExportedProgram(Program):
    """A case whose network was exported from PyTorch."""

    def __init__(self, torch: ModuleType, case: Case, build: Build, load: Callable[[bytes, Case], Engine]) -> None:
        self.torch, self.case, self.build, self.load = torch, case, build, load
        recipe = self._fresh(case)
        if recipe.phases:
            raise Unsupported(f"a step of it is made of phases ({', '.join(recipe.phases)}), which no export holds")
        self.params = sum(parameter.numel() for parameter in recipe.network.parameters())
        pool = [recipe.draw()[0] for _ in range(BATCH_POOL)]
        self.engine = self._loaded(recipe.network, pool[0], case)
        self.copies, self.returns = case.placement != "device", case.placement == "roundtrip"
        arrays = [inputs.numpy() for inputs in pool]
        self.batches = itertools.cycle(arrays if self.copies else [self.engine.place(array) for array in arrays])

    def _fresh(self, case: Case) -> Recipe:
        self.torch.manual_seed(SEED)
        return self.build(self.torch, case)

    def _loaded(self, network: Any, inputs: Any, case: Case) -> Engine:
        return self.load(exported(self.torch, network, inputs), case)

    def run(self, steps: int) -> None:
        """Forward passes."""
        engine = self.engine
        for batch in itertools.islice(self.batches, steps):
            output = engine.run(engine.place(batch) if self.copies else batch)
            if self.returns:
                engine.fetch(output)

    def synchronize(self) -> None:
        """Wait for the runtime."""
        self.engine.wait()

    def losses(self) -> Mapping[str, float] | None:
        """Nothing is trained."""
        return None

    def actual_device(self) -> str:
        """The engine was made for this device, and takes no other."""
        return self.case.device

    def precision_flaw(self) -> str:
        """Only fp32 can be asked for."""
        return ""

    def _results(self, network: Any, inputs: Any, case: Case) -> list[float]:
        engine = self._loaded(network, inputs, case)
        output = engine.fetch(engine.run(engine.place(inputs.numpy())))
        return numbers(output.reshape(-1).tolist())

    def disagreement(self) -> tuple[float, float]:
        """Against PyTorch in fp32 on the CPU."""
        small = proof_case(self.case)
        recipe = self._fresh(small)
        network, inputs = recipe.network.eval(), recipe.draw()[0]
        with self.torch.inference_mode():
            expected = numbers(network(inputs).flatten().tolist())
        return relative_error(self._results(network, inputs, small), expected), TOLERANCE["fp32"]

    def proof(self, portable: Portable) -> list[float]:
        """What the case computes from the workload's first weights and batch."""
        small = proof_case(self.case)
        network = with_first_values(self.torch, self._fresh(small).network, portable)
        return self._results(network, tensor_of(self.torch, portable.batch(small, 0)[0]), small)


def numbers(flat: list[float]) -> list[float]:
    """Some of them, evenly taken."""
    return flat[:: max(1, len(flat) // PROOF_NUMBERS)][:PROOF_NUMBERS]


def exported(torch: ModuleType, network: Any, inputs: Any) -> bytes:
    """The network as an ONNX file, for inputs of this shape."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of packages that are not there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(network.eval(), (inputs,), dynamo=True, verbose=False)
    content: bytes = program.model_proto.SerializeToString()
    return content


class ExportedFramework(Framework):
    """A runtime for networks that PyTorch has exported."""

    builds_from = "torch"
    placements = ("device", "host", "roundtrip")
    torch: Any = None
    _threads = 0

    def start(self) -> None:
        """Import the runtime, and PyTorch, which exports."""
        import torch

        self.torch = torch
        self.start_runtime()

    @abstractmethod
    def start_runtime(self) -> None:
        """Import the runtime."""

    @abstractmethod
    def load(self, network: bytes, case: Case) -> Engine:
        """An engine for a network."""

    def threads(self) -> int | None:
        """That an engine is given."""
        return self._threads or cores()

    def limit_threads(self, threads: int) -> None:
        """Of engines that are made from now on."""
        self._threads = threads

    def check(self, case: Case, build: Callable[..., Any] | None, data: Opened | None) -> None:
        """Inference only."""
        super().check(case, build, data)
        if case.mode != "infer":
            raise Unsupported(f"{self.name} runs networks, and does not train them; take --mode infer")

    def build_program(self, case: Case, build: Build, data: Opened | None) -> ExportedProgram:
        """The case, exported."""
        return ExportedProgram(self.torch, case, build, self.load)

    def explain(self, error: BaseException) -> tuple[str, str]:
        """Of both, the runtime and what it needs."""
        status, reason = super().explain(error)
        if isinstance(error, ModuleNotFoundError):
            return "failed", f"{error.name} is not installed for this Python; pip install 'mldyno[{self.name}]'"
        if status == "failed" and any(words in str(error).lower() for words in ("out of memory", "allocate memory")):
            return "oom", reason
        return status, reason
