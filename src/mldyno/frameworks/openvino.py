"""OpenVINO: networks exported from PyTorch, and ONNX files, inference only, on Intel's devices and other CPUs.

Requires: openvino
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mldyno.frameworks._exported import ExportedFramework
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.frameworks._engine import Engine
    from mldyno.records import Case
    from mldyno.workloads.user_models.onnx import OnnxFile

NAMES = {"CPU": "cpu", "GPU": "xpu"}
"""Our names for its devices."""


class OpenvinoEngine:
    """A compiled model, and a request to it."""

    def __init__(self, core: Any, network: Any, device: str, threads: int) -> None:
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}  # fp32 must be fp32
        if device == "CPU":
            settings |= {"INFERENCE_NUM_THREADS": str(threads)}
        self.request = core.compile_model(network, device, settings).create_infer_request()

    def place(self, array: Any) -> Any:
        """As it is: the request takes it without a copy."""
        return array

    def run(self, batch: Any) -> Any:
        """A forward pass."""
        return self.request.infer([batch], share_inputs=True, share_outputs=True)

    def fetch(self, output: Any) -> Any:
        """On the host."""
        return output[0].copy()

    def wait(self) -> None:
        """A request is done when its call returns."""


class OpenvinoFileEngine(OpenvinoEngine):
    """A compiled file, with inputs by their names, and all outputs."""

    def run(self, batch: Any) -> Any:
        """A forward pass."""
        return self.request.infer(batch, share_inputs=True, share_outputs=True)

    def fetch(self, output: Any) -> Any:
        """All outputs."""
        return [output[place].copy() for place in range(len(output))]


class Openvino(ExportedFramework):
    """OpenVINO as mldyno uses it."""

    name = "openvino"
    core: Any = None

    def start(self) -> None:
        """Import it."""
        import openvino

        self.runtime, self.core = openvino, openvino.Core()

    def runtime_version(self) -> str:
        """Its version."""
        return str(self.runtime.__version__)

    def devices(self) -> list[Device]:
        """Those that it finds: the CPU, and Intel's GPUs."""
        found = [name for name in self.core.available_devices if name.partition(".")[0] in NAMES]
        return [
            Device(self._ours(name), self.name, str(self.core.get_property(name, "FULL_DEVICE_NAME"))) for name in found
        ]

    def _ours(self, name: str) -> str:
        kind, _, number = name.partition(".")
        return NAMES[kind] if number in ("", "0") else f"{NAMES[kind]}:{number}"

    def load(self, network: bytes, case: Case) -> OpenvinoEngine:
        """A compiled model."""
        return OpenvinoEngine(self.core, self.core.read_model(network, b""), self._theirs(case), self.threads() or 0)

    def load_file(self, file: OnnxFile, case: Case) -> OpenvinoFileEngine:
        """A compiled file."""
        return OpenvinoFileEngine(self.core, self.core.read_model(file.path), self._theirs(case), self.threads() or 0)

    def load_plain(self, file: OnnxFile, case: Case) -> Engine | None:
        """ONNX Runtime's, where that is installed: two runtimes rarely err alike."""
        other = import_module("mldyno.frameworks.onnxruntime").FRAMEWORK
        try:
            other.start()
        except ModuleNotFoundError:
            return None
        plain: Engine = other.load_plain(file, case)
        return plain

    def _theirs(self, case: Case) -> str:
        return str(next(name for name in self.core.available_devices if self._ours(name) == case.device))


FRAMEWORK = Openvino()
