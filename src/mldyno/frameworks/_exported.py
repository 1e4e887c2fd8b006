"""Networks of PyTorch, exported with their weights and run by another engine, and files: what runtimes share."""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import PROOF_NUMBERS, TOLERANCE, Framework, Unsupported, proof_case, relative_error
from mldyno.frameworks._engine import Engine, EngineProgram
from mldyno.frameworks._onnx_file import FileProgram
from mldyno.frameworks._torch_program import tensor_of, with_first_values
from mldyno.frameworks.program import BATCH_POOL, cores
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Build, Portable, Recipe, Workload
    from mldyno.workloads.user_models.onnx import OnnxFile


class ExportedProgram(EngineProgram):
    """A case whose network was exported from PyTorch."""

    def __init__(self, torch: ModuleType, case: Case, build: Build, load: Callable[[bytes, Case], Engine]) -> None:
        self.torch, self.case, self.build, self.load = torch, case, build, load
        recipe = self._fresh(case)
        if recipe.phases:
            raise Unsupported(f"a step of it is made of phases ({', '.join(recipe.phases)}), which no export holds")
        self.params = sum(parameter.numel() for parameter in recipe.network.parameters())
        pool = [recipe.draw()[0] for _ in range(BATCH_POOL)]
        if not torch.is_tensor(pool[0]):
            raise Unsupported("it takes several inputs; what is exported here takes one, and a file .onnx of yours any")
        self.engine = self._loaded(recipe.network, pool[0], case)
        self.take([inputs.numpy() for inputs in pool])

    def _fresh(self, case: Case) -> Recipe:
        self.torch.manual_seed(SEED)
        return self.build(self.torch, case)

    def _loaded(self, network: Any, inputs: Any, case: Case) -> Engine:
        return self.load(exported(self.torch, network, inputs), case)

    def _results(self, network: Any, inputs: Any, case: Case) -> list[float]:
        engine = self._loaded(network, inputs, case)
        output = engine.fetch(engine.run(engine.place(inputs.numpy())))
        return numbers(output.reshape(-1).tolist())

    def error_vs_reference(self) -> tuple[float, float]:
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


@dataclass(frozen=True)
class FileBuild:
    """What builds a workload that is a file already, and needs no export."""

    build: Build


class ExportedFramework(Framework):
    """A runtime for networks that PyTorch has exported, and for files."""

    builds_from = "torch"
    placements = ("device", "host", "roundtrip")
    torch: Any = None
    exporter: Any = None
    _threads = 0

    def start_exporter(self) -> None:
        """Import PyTorch, and what it exports with; a file needs neither."""
        import onnxscript
        import torch

        self.torch, self.exporter = torch, onnxscript

    def versions(self) -> dict[str, str]:
        """Of the runtime, and of what exported, where something did."""
        own = {self.name: self.runtime_version()}
        if self.torch is None:
            return own
        return {**own, "torch": str(self.torch.__version__), "onnxscript": self.exporter.__version__}

    @abstractmethod
    def runtime_version(self) -> str:
        """Its version."""

    @abstractmethod
    def load(self, network: bytes, case: Case) -> Engine:
        """An engine for a network."""

    @abstractmethod
    def load_file(self, file: OnnxFile, case: Case) -> Engine:
        """An engine for a file, which gets inputs by their names and gives all outputs."""

    def load_plain(self, file: OnnxFile, case: Case) -> Engine | None:
        """An engine for a file that optimises nothing, on the CPU; None where there is none."""
        return None

    def version_of(self, workload: Workload) -> Any:
        """A file, or what PyTorch has to export."""
        file = workload.build.get(self.name)
        return super().version_of(workload) if file is None else FileBuild(file)

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

    def build_program(self, case: Case, build: Build | FileBuild, data: Opened | None) -> EngineProgram:
        """The case: exported, unless it is a file."""
        if isinstance(build, FileBuild):
            return FileProgram(case, build.build, self.load_file, self.load_plain)
        self.start_exporter()
        return ExportedProgram(self.torch, case, build, self.load)

    def explain(self, error: BaseException) -> tuple[str, str]:
        """Of both, the runtime and what it needs."""
        status, reason = super().explain(error)
        if isinstance(error, ModuleNotFoundError):
            return "failed", f"{error.name} is not installed for this Python; pip install 'mldyno[{self.name}]'"
        if status == "failed" and any(words in str(error).lower() for words in ("out of memory", "allocate memory")):
            return "oom", reason
        return status, reason
