"""OpenVINO: networks exported from PyTorch with their weights, inference only, on Intel's devices and other CPUs.

Requires: openvino
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mldyno.frameworks._exported import ExportedFramework
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.records import Case

NAMES = {"CPU": "cpu", "GPU": "xpu"}
"""Our names for its devices."""


class OpenvinoEngine:
    """A compiled model, and a request to it."""

    def __init__(self, core: Any, network: bytes, device: str, threads: int) -> None:
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}  # fp32 must be fp32
        if device == "CPU":
            settings |= {"INFERENCE_NUM_THREADS": str(threads)}
        self.request = core.compile_model(core.read_model(network, b""), device, settings).create_infer_request()

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


class Openvino(ExportedFramework):
    """OpenVINO as mldyno uses it."""

    name = "openvino"
    core: Any = None

    def start_runtime(self) -> None:
        """Import it, and what PyTorch exports with."""
        import onnxscript
        import openvino

        self.runtime, self.exporter, self.core = openvino, onnxscript, openvino.Core()

    def versions(self) -> dict[str, str]:
        """Of the runtime, and of what exported."""
        return {
            "openvino": str(self.runtime.__version__), "torch": str(self.torch.__version__),
            "onnxscript": self.exporter.__version__,
        }  # fmt: skip

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
        device = next(name for name in self.core.available_devices if self._ours(name) == case.device)
        return OpenvinoEngine(self.core, network, device, self.threads() or 0)


FRAMEWORK = Openvino()
