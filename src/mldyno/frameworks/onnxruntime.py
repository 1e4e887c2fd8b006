"""ONNX Runtime: networks exported from PyTorch with their weights, inference only.

Requires: onnxruntime
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mldyno.frameworks._exported import ExportedFramework
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.records import Case

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
ERRORS_ONLY = 3  # of its levels of what it logs


class OnnxEngine:
    """A session, with inputs and outputs bound to its device."""

    def __init__(self, runtime: Any, network: bytes, case: Case, threads: int) -> None:
        kind, _, number = case.device.partition(":")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, ERRORS_ONLY
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


class Onnxruntime(ExportedFramework):
    """ONNX Runtime as mldyno uses it."""

    name = "onnxruntime"
    runtime: Any = None

    def start_runtime(self) -> None:
        """Import it, and what PyTorch exports with."""
        import onnxruntime
        import onnxscript

        self.runtime, self.exporter = onnxruntime, onnxscript

    def versions(self) -> dict[str, str]:
        """Of the runtime, and of what exported."""
        return {
            "onnxruntime": self.runtime.__version__, "torch": str(self.torch.__version__),
            "onnxscript": self.exporter.__version__,
        }  # fmt: skip

    def devices(self) -> list[Device]:
        """Those that have a provider here."""
        available = self.runtime.get_available_providers()
        names = {"cpu": "cpu", "cuda": "cuda:0"}
        return [Device(names[kind], self.name) for kind, provider in PROVIDERS.items() if provider in available]

    def load(self, network: bytes, case: Case) -> OnnxEngine:
        """A session."""
        return OnnxEngine(self.runtime, network, case, self.threads() or 0)


FRAMEWORK = Onnxruntime()
