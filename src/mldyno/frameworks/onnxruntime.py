"""ONNX Runtime: networks exported from PyTorch with their weights, and ONNX files, inference only.

Requires: onnxruntime
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mldyno.frameworks._exported import ExportedFramework
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads.user_models.onnx import OnnxFile

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
ERRORS_ONLY = 3  # of its levels of what it logs


class OnnxEngine:
    """A session, with inputs and outputs bound to its device."""

    def __init__(self, runtime: Any, network: bytes | str, device: str, threads: int, optimised: bool = True) -> None:
        kind, _, number = device.partition(":")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, ERRORS_ONLY
        if not optimised:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        providers = [PROVIDERS[kind]] if kind == "cpu" else [(PROVIDERS[kind], {"device_id": number or "0"})]
        self.runtime, self.kind, self.number = runtime, kind, int(number or 0)
        self.session = runtime.InferenceSession(network, options, providers)
        self.binding = self.session.io_binding()
        self.input, self.output = self.session.get_inputs()[0].name, self.session.get_outputs()[0].name

    def place(self, array: Any) -> Any:
        """On the device."""
        return self.runtime.OrtValue.ortvalue_from_numpy(array, self.kind, self.number)

    def run(self, batch: Any) -> Any:
        """A forward pass."""
        self.binding.bind_ortvalue_input(self.input, batch)
        self.binding.bind_output(self.output, self.kind, self.number)
        self.session.run_with_iobinding(self.binding)
        return self.binding

    def fetch(self, output: Any) -> Any:
        """On the host."""
        return output.copy_outputs_to_cpu()[0]

    def wait(self) -> None:
        """For outputs that are still on their way."""
        self.binding.synchronize_outputs()


class OnnxFileEngine(OnnxEngine):
    """A session for a file, with inputs by their names, and all outputs."""

    def __init__(self, runtime: Any, file: OnnxFile, device: str, threads: int, optimised: bool = True) -> None:
        super().__init__(runtime, file.path, device, threads, optimised)
        self.outputs = [output.name for output in self.session.get_outputs()]

    def place(self, batch: Any) -> Any:
        """Each input on the device."""
        return {name: super(OnnxFileEngine, self).place(array) for name, array in batch.items()}

    def run(self, batch: Any) -> Any:
        """A forward pass."""
        binding = self.binding
        for name, value in batch.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name, self.kind, self.number)
        self.session.run_with_iobinding(binding)
        return binding

    def fetch(self, output: Any) -> Any:
        """All outputs on the host."""
        return output.copy_outputs_to_cpu()


class Onnxruntime(ExportedFramework):
    """ONNX Runtime as mldyno uses it."""

    name = "onnxruntime"
    runtime: Any = None

    def start(self) -> None:
        """Import it."""
        import onnxruntime

        self.runtime = onnxruntime

    def runtime_version(self) -> str:
        """Its version."""
        return str(self.runtime.__version__)

    def devices(self) -> list[Device]:
        """Those that have a provider here."""
        available = self.runtime.get_available_providers()
        names = {"cpu": "cpu", "cuda": "cuda:0"}
        return [Device(names[kind], self.name) for kind, provider in PROVIDERS.items() if provider in available]

    def load(self, network: bytes, case: Case) -> OnnxEngine:
        """A session."""
        return OnnxEngine(self.runtime, network, case.device, self.threads() or 0)

    def load_file(self, file: OnnxFile, case: Case) -> OnnxFileEngine:
        """A session."""
        return OnnxFileEngine(self.runtime, file, case.device, self.threads() or 0)

    def load_plain(self, file: OnnxFile, case: Case) -> OnnxFileEngine:
        """A session of one thread, whose graph is as the file has it."""
        return OnnxFileEngine(self.runtime, file, "cpu", threads=1, optimised=False)


FRAMEWORK = Onnxruntime()
