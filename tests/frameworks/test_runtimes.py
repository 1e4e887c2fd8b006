"""Inference runtimes: fp32 is enforced, and read back from the runtime itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import openvino
import openvino.opset13 as operations
import pytest

from mldyno.frameworks.runtimes import ONNX_PROVIDERS, OnnxEngine, OpenvinoEngine

CUDA = ONNX_PROVIDERS["cuda"]


class Session:
    """A session of ONNX Runtime on CUDA, which uses tf32 unless it is turned off; on the CPU where CUDA is broken."""

    broken = False

    def __init__(self, network: bytes, options: Any, providers: list[tuple[str, dict[str, str]]]) -> None:
        given = {} if self.broken else dict(providers)
        self.settings = {provider: {"use_tf32": "1"} | settings for provider, settings in given.items()}
        self.settings["CPUExecutionProvider"] = {}

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return self.settings

    def get_providers(self) -> list[str]:
        return [*self.settings]

    def get_inputs(self) -> list[Any]:
        return []

    get_outputs = get_inputs

    def io_binding(self) -> None: ...


RUNTIME = SimpleNamespace(InferenceSession=Session, SessionOptions=SimpleNamespace)


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_onnx_runtime_computes_fp32_in_fp32_on_cuda(device: str) -> None:
    engine = OnnxEngine(RUNTIME, b"", device, 1)
    assert engine.session.settings[CUDA] == {"device_id": device[-1], "use_tf32": "0"}
    assert (engine.fp32_mode(), engine.device()) == ("fp32", device)
    engine.session.settings[CUDA]["use_tf32"] = "1"
    assert engine.fp32_mode() == "tf32"


def test_a_session_that_fell_back_to_the_cpu_is_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "broken", True)
    engine = OnnxEngine(RUNTIME, b"", "cuda:0", 1)
    assert (engine.fp32_mode(), engine.device()) == ("fp32", "cpu")


def test_openvino_reports_the_precision_and_the_device_of_a_compiled_model() -> None:
    inputs = operations.parameter([2, 4], numpy.float32)
    product = operations.matmul(inputs, operations.constant(numpy.ones((4, 4), "f")), False, False)
    core = openvino.Core()
    reading: Any = SimpleNamespace(
        read_model=lambda *network: openvino.Model([product], [inputs]), compile_model=core.compile_model
    )
    engine = OpenvinoEngine(reading, b"", "CPU", 1)
    assert (engine.fp32_mode(), engine.device()) == ("fp32", "cpu")
    engine.model = SimpleNamespace(get_property=lambda name: openvino.Type.bf16)
    assert engine.fp32_mode() == "bf16"
