"""Inference runtimes: networks exported from PyTorch with their weights, and ONNX files.

onnxruntime: ONNX Runtime: networks of PyTorch and ONNX files, inference only. Requires: onnxruntime
openvino: OpenVINO: networks of PyTorch and ONNX files on Intel's devices and CPUs, inference only. Requires: openvino
"""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import PROOF_NUMBERS, TOLERANCE, Framework, Program, Unsupported, proof_case, relative_error
from mldyno.frameworks.program import BATCH_POOL, cores
from mldyno.frameworks.torch.program import tensor_of, with_first_values
from mldyno.records import Device
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Build, Portable, Recipe, Workload
    from mldyno.workloads.user_models.onnx import Feed, OnnxFile

ONNX_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
ONNX_LOG_ERRORS_ONLY = 3
OPENVINO_NAMES = {"CPU": "cpu", "GPU": "xpu"}  # our names for OpenVINO's devices
NUMPY_NAMES = {"fp16": "float16", "fp32": "float32", "fp64": "float64"}  # NumPy's names for our precisions

Network = bytes | str  # an exported network, or the path of a file


class Engine(ABC):
    """A network in a runtime; a batch is a dictionary of arrays by the names of the inputs."""

    inputs: list[str]

    def place(self, batch: Any) -> Any:
        """Place a batch on the device, so that steps need not copy it."""
        return batch

    @abstractmethod
    def run(self, batch: Any) -> Any:
        """Issue a forward pass."""

    @abstractmethod
    def fetch(self, output: Any) -> list[Any]:
        """Return all outputs of a pass as NumPy arrays."""

    @abstractmethod
    def fp32_mode(self) -> str:
        """Return how the runtime multiplies fp32 numbers, as it reports it: fp32, tf32, bf16."""

    @abstractmethod
    def device(self) -> str:
        """Return the device on which the runtime placed the network, as it reports it."""

    def wait(self) -> None:  # noqa: B027 (most are done when their call returns)
        """Wait until all that was issued is done."""


class OnnxEngine(Engine):
    """A session of ONNX Runtime, with inputs and outputs bound to its device."""

    def __init__(self, runtime: Any, network: Network, device: str, threads: int, optimised: bool = True) -> None:
        kind, _, number = device.partition(":")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, ONNX_LOG_ERRORS_ONLY
        if not optimised:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings = {} if kind == "cpu" else {"device_id": number or "0", "use_tf32": "0"}  # fp32 must be fp32
        self.runtime, self.kind, self.number = runtime, kind, int(number or 0)
        self.session = runtime.InferenceSession(network, options, [(ONNX_PROVIDERS[kind], settings)])
        self.binding = self.session.io_binding()
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]

    def place(self, batch: Any) -> Any:
        put = self.runtime.OrtValue.ortvalue_from_numpy
        return {name: put(array, self.kind, self.number) for name, array in batch.items()}

    def run(self, batch: Any) -> Any:
        binding = self.binding
        for name, value in batch.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name, self.kind, self.number)
        self.session.run_with_iobinding(binding)
        return binding

    def fetch(self, output: Any) -> list[Any]:
        return list(output.copy_outputs_to_cpu())

    def fp32_mode(self) -> str:
        """Return tf32 unless CUDA's provider reports that it is off."""
        options = self.session.get_provider_options().get(ONNX_PROVIDERS["cuda"])
        return "fp32" if options is None or options.get("use_tf32") in ("0", "false") else "tf32"

    def device(self) -> str:
        """Return the device of the first provider: where CUDA's can't be loaded, ONNX Runtime takes the CPU's."""
        kinds = {provider: kind for kind, provider in ONNX_PROVIDERS.items()}
        kind = kinds[self.session.get_providers()[0]]
        return kind if kind == "cpu" else f"{kind}:{self.number}"

    def wait(self) -> None:
        self.binding.synchronize_outputs()


class OpenvinoEngine(Engine):
    """An inference request to a model that OpenVINO has compiled."""

    def __init__(self, core: Any, network: Network, device: str, threads: int) -> None:
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}  # fp32 must be fp32
        if device == "CPU":
            settings |= {"INFERENCE_NUM_THREADS": str(threads)}
        model = core.read_model(network) if isinstance(network, str) else core.read_model(network, b"")
        self.inputs = [each.any_name for each in model.inputs]
        self.model = core.compile_model(model, device, settings)
        self.request = self.model.create_infer_request()

    def run(self, batch: Any) -> Any:
        """Issue a forward pass, without a copy of the batch."""
        return self.request.infer(batch, share_inputs=True, share_outputs=True)

    def fp32_mode(self) -> str:
        kind: str = self.model.get_property("INFERENCE_PRECISION_HINT").to_string()  # f32, bf16, f16
        return {"f32": "fp32", "f16": "fp16"}.get(kind, kind)

    def device(self) -> str:
        return " and ".join(sorted(map(_openvino_name, self.model.get_property("EXECUTION_DEVICES"))))

    def fetch(self, output: Any) -> list[Any]:
        return [output[place].copy() for place in range(len(output))]


# -- programs --------------------------------------------------------------------------------------


class EngineProgram(Program):
    """A case that an engine runs, with the batches that it cycles through; nothing is trained."""

    def __init__(self, case: Case, engine: Engine, batches: Sequence[Any]) -> None:
        self.case, self.engine = case, engine
        self.copies, self.returns = case.placement != "device", case.placement == "roundtrip"
        self.batches = itertools.cycle(batches if self.copies else [engine.place(batch) for batch in batches])

    def run(self, steps: int) -> None:
        engine = self.engine
        for batch in itertools.islice(self.batches, steps):
            output = engine.run(engine.place(batch) if self.copies else batch)
            if self.returns:
                engine.fetch(output)

    def synchronize(self) -> None:
        self.engine.wait()

    def losses(self) -> Mapping[str, float] | None:
        return None

    def actual_device(self) -> str:
        return self.engine.device()

    def effective_precision(self) -> str:
        return self.engine.fp32_mode()


class ExportedProgram(EngineProgram):
    """A case whose network was exported from PyTorch."""

    def __init__(self, torch: Any, case: Case, build: Build, load: Callable[[Network, Case], Engine]) -> None:
        self.torch, self.build, self.load = torch, build, load
        recipe = self._build(case)
        if recipe.phases:
            raise Unsupported(f"a step of it is made of phases ({', '.join(recipe.phases)}), which no export holds")
        self.params = sum(parameter.numel() for parameter in recipe.network.parameters())
        pool = [recipe.draw()[0] for _ in range(BATCH_POOL)]
        if not torch.is_tensor(pool[0]):
            raise Unsupported(
                "it has several inputs; models are exported with one input only, your own file .onnx may have any"
            )
        engine = self._loaded(recipe.network, pool[0], case)
        super().__init__(case, engine, [{engine.inputs[0]: inputs.numpy()} for inputs in pool])

    def _build(self, case: Case) -> Recipe:
        """Build the recipe with its first weights."""
        self.torch.manual_seed(SEED)
        return self.build(self.torch, case)

    def _loaded(self, network: Any, inputs: Any, case: Case) -> Engine:
        """Export a network for inputs of this shape, and load it."""
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of missing packages
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = self.torch.onnx.export(network.eval(), (inputs,), dynamo=True, verbose=False)
        return self.load(program.model_proto.SerializeToString(), case)

    def _results(self, network: Any, inputs: Any, case: Case) -> list[float]:
        engine = self._loaded(network, inputs, case)
        (output, *_) = engine.fetch(engine.run(engine.place({engine.inputs[0]: inputs.numpy()})))
        return sample_values(output.reshape(-1).tolist())

    def error_vs_reference(self) -> tuple[float, float]:
        small = proof_case(self.case)
        recipe = self._build(small)
        network, inputs = recipe.network.eval(), recipe.draw()[0]
        with self.torch.inference_mode():
            expected = sample_values(network(inputs).flatten().tolist())
        return relative_error(self._results(network, inputs, small), expected), TOLERANCE["fp32"]

    def proof(self, portable: Portable) -> list[float]:
        small = proof_case(self.case)
        network = with_first_values(self.torch, self._build(small).network, portable)
        return self._results(network, tensor_of(self.torch, portable.batch(small, 0)[0]), small)


def sample_values(flat: list[float]) -> list[float]:
    """Return the values of a proof, evenly spaced."""
    return flat[:: max(1, len(flat) // PROOF_NUMBERS)][:PROOF_NUMBERS]


class FileProgram(EngineProgram):
    """A case whose network is an ONNX file, with random inputs; its reference is the file without optimisation."""

    def __init__(self, case: Case, build: Build, runtime: Runtime) -> None:
        self.build, self.runtime = build, runtime
        recipe = build(None, case)
        self.file: OnnxFile = recipe.network
        self.params = self.file.params
        self.noted = dict(recipe.notes)
        feeds = recipe.draw()[0]
        pool = [arrays(feeds, SEED + number) for number in range(BATCH_POOL)]
        super().__init__(case, runtime.load(self.file.path, case), pool)

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.noted

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Compare with the same file on the CPU, run by one thread of ONNX Runtime without optimisation."""
        plain = self.runtime.load_plain(self.file.path)
        if plain is None:
            self.noted["not_checked"] = "agreement with the CPU"
            return None
        batch = arrays(self.build(None, proof_case(self.case)).draw()[0], SEED)
        expected = plain.fetch(plain.run(plain.place(batch)))
        actual = self.engine.fetch(self.engine.run(self.engine.place(batch)))
        errors = [_error(*pair) for pair in zip(actual, expected, strict=True)]
        known = [error for error in errors if error is not None]
        if not known:
            raise Unsupported("its outputs for random inputs are not finite, so that they can't be checked")
        self.noted["proof"] = " ".join(f"{number:.7g}" for number in _finite(actual))
        return max(known), self._tolerance()

    def _tolerance(self) -> float:
        """Return the tolerance for the types of the weights; that of bf16 if they are quantised."""
        if self.file.quantised:
            return TOLERANCE["bf16"]
        return max((TOLERANCE[kind] for kind in self.file.weights_in if kind in TOLERANCE), default=TOLERANCE["fp32"])


def arrays(feeds: tuple[Feed, ...], seed: int) -> dict[str, Any]:
    """Draw an array for each input, from a seed."""
    import numpy

    chance = numpy.random.default_rng(seed)
    batch = {}
    for feed in feeds:
        kind = NUMPY_NAMES.get(feed.type, feed.type)
        if feed.below is None:
            batch[feed.name] = chance.standard_normal(feed.shape).astype(kind)
        elif feed.below:
            batch[feed.name] = chance.integers(0, feed.below, feed.shape).astype(kind)
        else:
            batch[feed.name] = numpy.ones(feed.shape, kind)
    return batch


def _finite(outputs: list[Any]) -> list[float]:
    """Return some finite numbers of all outputs; two runtimes that do the same work return the same."""
    flat = [number for output in outputs if output.dtype.kind in "fiub" for number in output.reshape(-1).tolist()]
    return sample_values([float(number) for number in flat if math.isfinite(number)])


def _error(actual: Any, expected: Any) -> float | None:
    """Return the relative error of the numbers that should be finite; None if there are none."""
    import numpy

    if expected.dtype.kind not in "fiub":
        return None
    if expected.shape != actual.shape:
        return math.inf
    finite = numpy.isfinite(expected)
    if not finite.any():
        return None
    expected, actual = expected[finite].astype("float64"), actual[finite].astype("float64")
    error = float(numpy.abs(actual - expected).max() / max(1e-6, numpy.abs(expected).max()))
    return error if math.isfinite(error) else math.inf


# -- frameworks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileBuild:
    """Builds a workload that is a file, and needs no export."""

    build: Build


class Runtime(Framework):
    """A runtime for networks exported from PyTorch, and for ONNX files."""

    builds_from = "torch"
    placements = ("device", "host", "roundtrip")
    packages = ("onnxruntime", "openvino", "numpy", "torch", "onnx", "onnx_ir", "onnxscript")
    out_of_memory = ("out of memory", "allocate memory")
    runtime: Any = None
    torch: Any = None
    exporter: Any = None
    _threads = 0

    def versions(self) -> dict[str, str]:
        versions = {self.name: str(self.runtime.__version__)}
        if self.torch is not None:
            versions |= {"torch": str(self.torch.__version__), "onnxscript": self.exporter.__version__}
        return versions

    @abstractmethod
    def load(self, network: Network, case: Case) -> Engine:
        """Return an engine for a network on the case's device."""

    @abstractmethod
    def load_plain(self, path: str) -> Engine | None:
        """Return an engine on the CPU for a file, without optimisation; None if no runtime has one."""

    def version_of(self, workload: Workload) -> Any:
        file = workload.build.get(self.name)
        return super().version_of(workload) if file is None else FileBuild(file)

    def threads(self) -> int | None:
        return self._threads or cores()

    def limit_threads(self, threads: int) -> None:
        self._threads = threads

    def check(self, case: Case, build: Callable[..., Any] | None, data: Opened | None) -> None:
        super().check(case, build, data)
        if case.mode != "infer":
            raise Unsupported(f"{self.name} does not train networks; take --mode infer")

    def build_program(self, case: Case, build: Build | FileBuild, data: Opened | None) -> EngineProgram:
        if isinstance(build, FileBuild):
            return FileProgram(case, build.build, self)
        import onnxscript
        import torch

        self.torch, self.exporter = torch, onnxscript
        return ExportedProgram(torch, case, build, self.load)


class Onnxruntime(Runtime):
    """ONNX Runtime."""

    name = "onnxruntime"

    def start(self) -> None:
        import onnxruntime

        self.runtime = onnxruntime

    def devices(self) -> list[Device]:
        available = self.runtime.get_available_providers()
        names = {"cpu": "cpu", "cuda": "cuda:0"}
        return [Device(names[kind], self.name) for kind, provider in ONNX_PROVIDERS.items() if provider in available]

    def load(self, network: Network, case: Case) -> OnnxEngine:
        return OnnxEngine(self.runtime, network, case.device, self.threads() or 0)

    def load_plain(self, path: str) -> OnnxEngine:
        """Return a session of one thread that runs the file's graph unchanged."""
        return OnnxEngine(self.runtime, path, "cpu", threads=1, optimised=False)


class Openvino(Runtime):
    """OpenVINO."""

    name = "openvino"
    core: Any = None

    def start(self) -> None:
        import openvino

        self.runtime, self.core = openvino, openvino.Core()

    def devices(self) -> list[Device]:
        known = [name for name in self.core.available_devices if name.partition(".")[0] in OPENVINO_NAMES]
        titles = {name: str(self.core.get_property(name, "FULL_DEVICE_NAME")) for name in known}
        return [Device(_openvino_name(name), self.name, title) for name, title in titles.items()]

    def load(self, network: Network, case: Case) -> OpenvinoEngine:
        device = next(name for name in self.core.available_devices if _openvino_name(name) == case.device)
        return OpenvinoEngine(self.core, network, str(device), self.threads() or 0)

    def load_plain(self, path: str) -> Engine | None:
        """Return that of ONNX Runtime, if it is installed: two runtimes rarely make the same error."""
        onnxruntime = FRAMEWORKS["onnxruntime"]
        try:
            onnxruntime.start()
        except ModuleNotFoundError:
            return None
        return onnxruntime.load_plain(path)


def _openvino_name(name: str) -> str:
    """Return our name of one of OpenVINO's devices."""
    kind, _, number = name.partition(".")
    ours = OPENVINO_NAMES.get(kind, kind)
    return ours if number in ("", "0") else f"{ours}:{number}"


FRAMEWORKS: dict[str, Runtime] = {"onnxruntime": Onnxruntime(), "openvino": Openvino()}
