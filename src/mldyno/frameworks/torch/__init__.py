"""PyTorch, on the CPU and on any device that torch.accelerator knows (CUDA, MPS, XPU).

Requires: torch
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import TOLERANCE, Framework, Trial, Unsupported
from mldyno.frameworks.torch import devices
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.frameworks.program import Repeated
    from mldyno.frameworks.torch.program import TorchProgram
    from mldyno.frameworks.torch.ranks import TorchTeam
    from mldyno.records import Case, Device, Fact
    from mldyno.workloads import Build


# Errors if a device, or the compiler for it, can't be used, each with the next step.
CURES = {
    "CUDA error: no kernel image is available": (
        "this build of PyTorch has no kernels for this GPU; a GPU of compute capability below 7.5 needs the build for "
        "CUDA 12.6, a new one a newer PyTorch; pip install torch --index-url https://download.pytorch.org/whl/cu126"
    ),
    "Failed to find C compiler": "torch.compile needs a C compiler for this device; install gcc or clang",
    "InvalidCxxCompiler": "torch.compile needs a C++ compiler; install g++ or clang",
    "TritonMissing": "torch.compile needs Triton for this device; pip install triton",
    "GPUTooOldForTriton": "this GPU is too old for Triton, which torch.compile needs: compute capability 7.0 or newer",
}
FIRST_SAFE_AUTOCAST_ON_MPS = (2, 12)  # in older releases batch norm with weights and inputs of two types crashed
UNPINNED = ("cpu", "mps")  # devices for which a DataLoader does not pin memory, and only warns
FIRST_TF32_CAPABILITY = (8, 0)
DRAWN_BYTES = 4 << 20  # random bytes, which a larger copy repeats: more than any memory compresses at once


CONVOLUTION, IMAGE_WIDTH = "1x1", 32  # a layout of matmuls; pixels in a row of its image


class Torch(Framework):
    """PyTorch as mldyno uses it."""

    precisions = tuple(TOLERANCE)
    placements = ("device", "host", "roundtrip", "loader")
    memory_formats = ("contiguous", "channels-last")
    compiles = True
    loads_in_workers = True
    parallel = ("ddp", "fsdp")
    computes_in_caller = True
    # By rows, or transposed: by columns. On a CPU also as a convolution of 1x1: there oneDNN multiplies, which on some
    # AMD processors is twice as fast as the BLAS library.
    layouts = ("nn", "nt", "tn", "tt", CONVOLUTION)
    features: Mapping[str, float] = {name: feature.timeout for name, feature in devices.FEATURES.items()}
    fallback: Mapping[str, str] = devices.FALLBACK
    packages = ("torch",)
    not_supported = (
        "not implemented for", "unsupported autocast device", "does not support bfloat16", "doesn't support float64",
        "is not supported on", "not currently supported on", "could not create a primitive",
        "no kernel image is available",
    )  # fmt: skip
    out_of_memory = (
        "out of memory", "outofmemoryerror", "can't allocate memory", "not enough memory",
        "invalid buffer size",  # MPS
        "_status_alloc_failed", "_allocation_failed",  # CUDA's and AMD's libraries
        "out_of_device_memory",  # Intel's driver
    )  # fmt: skip
    torch: Any = None
    _team: TorchTeam | None = None

    def environment(self, case: Case) -> dict[str, str]:
        from mldyno.frameworks.torch.ranks import compute_cores, environment

        return environment(case, compute_cores()) if case.in_ranks else {}

    def team(self) -> TorchTeam:
        from mldyno.frameworks.torch.ranks import TorchTeam

        if not self.torch.distributed.is_available():
            raise Unsupported("this build of torch has no torch.distributed")
        self._team = self._team or TorchTeam(self.torch)
        return self._team

    def start(self) -> None:
        """Import torch, and turn TF32 off in matmuls and convolutions: fp32 must be fp32."""
        import warnings

        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch

        if not hasattr(torch, "accelerator"):
            raise Unsupported(f"torch {torch.__version__} is too old: mldyno needs 2.6 or newer")
        from mldyno.frameworks.torch.precision import set_fp32_mode

        set_fp32_mode(torch, "fp32")
        self.torch = torch

    def versions(self) -> dict[str, str]:
        """Return the versions of torch and of the libraries that it was built with: CUDA and cuDNN, HIP, XPU."""
        torch = self.torch
        built = {name: getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")}
        if built["cuda"]:
            built["cudnn"] = torch.backends.cudnn.version()
        return {"torch": str(torch.__version__)} | {name: str(version) for name, version in built.items() if version}

    def threads(self) -> int | None:
        return int(self.torch.get_num_threads())

    def limit_threads(self, threads: int) -> None:
        self.torch.set_num_threads(threads)

    def devices(self) -> list[Device]:
        return devices.list_devices(self.torch)

    def support(self) -> dict[str, Fact]:
        return devices.support(self.torch)

    def try_feature(self, feature: str, device: str) -> Trial:
        return devices.try_feature(self.torch, feature, device)

    def check(self, case: Case, build: Callable[..., Any] | None, data: Opened | None) -> None:
        """Refuse what PyTorch would ignore or crash on, such as tf32 on other devices than NVIDIA's GPUs since 2020."""
        if build is not None and case.precision == "tf32" and not case.device.startswith("cuda"):
            raise Unsupported(f"tf32 is a mode of CUDA's matmuls; {case.device} has none")
        if case.in_ranks and case.mode == "train":
            self._check_ranks(case)
        if case.pin_memory and case.device.partition(":")[0] in UNPINNED:
            raise Unsupported(f"pinned memory is for copies to CUDA or XPU; on {case.device} PyTorch pins nothing")
        super().check(case, build, data)
        if case.compile:
            devices.check_compiler()
        autocasts = str(case.precision).startswith("amp")
        release = tuple(map(int, str(self.torch.__version__).split(".")[:2]))
        if case.device.startswith("mps") and autocasts and release < FIRST_SAFE_AUTOCAST_ON_MPS:
            raise Unsupported(f"torch {self.torch.__version__} crashes in batch norm under autocast on MPS; update it")
        if case.precision == "tf32" and not self.torch.version.hip:
            capability = tuple(self.torch.cuda.get_device_capability(case.device))
            if capability < FIRST_TF32_CAPABILITY:
                version = ".".join(map(str, capability))
                raise Unsupported(f"tf32 needs a GPU of compute capability 8.0; {case.device} has {version}")

    def _check_ranks(self, case: Case) -> None:
        from mldyno.frameworks.torch.ranks import BACKENDS

        kind, ranks = case.device.partition(":")[0], case.ranks or 1
        if kind not in BACKENDS:
            raise Unsupported(f"PyTorch has no backend that exchanges gradients between ranks on {kind}")
        if kind == "cpu" and case.parallel == "fsdp" and not hasattr(self.torch.cpu.Stream, "record_event"):
            raise Unsupported(f"torch {self.torch.__version__} can't shard a model on the CPU; update it")
        if ranks % case.nodes:
            raise Unsupported(f"{ranks} ranks can't be spread over {case.nodes} nodes evenly")
        ranks //= case.nodes
        there = sum(device.name.partition(":")[0] == kind for device in self.devices())
        if kind != "cpu" and ranks > there:
            raise Unsupported(f"{ranks} ranks need as many devices of {kind}; there are {there}")

    def build_program(self, case: Case, build: Build, data: Opened | None) -> TorchProgram:
        from mldyno.frameworks.torch.program import TorchProgram
        from mldyno.frameworks.torch.ranks import RankProgram

        if case.in_ranks and self._team is None:
            raise Unsupported("ranks are started together, by `mldyno run --ranks`; this process is one by itself")
        if self._team is not None:
            return RankProgram(self, case, build, data, self._team)
        return TorchProgram(self, case, build, data)

    def forecast_memory(self, case: Case, build: Build | None) -> int | None:
        """Forecast from steps on the meta device; None if the case can't be built there."""
        from mldyno.frameworks.torch.operations import forecast_peak

        if build is None:
            return None
        try:
            return forecast_peak(self.torch, case, build)
        except (RuntimeError, NotImplementedError):
            return None

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Repeated:
        from mldyno.frameworks.program import MATMUL_SIDE, Repeated
        from mldyno.frameworks.torch.precision import PrecisionPolicy
        from mldyno.frameworks.torch.program import waiting

        if layout == CONVOLUTION and case.device != "cpu":
            raise Unsupported("a matmul as a convolution is for CPUs")
        torch, turns = self.torch, self.layouts[0] if layout in (None, CONVOLUTION) else layout
        device = torch.device(case.device)
        policy, generator, side = PrecisionPolicy(torch, case, device), torch.Generator(), min(size, MATMUL_SIDE)
        generator.manual_seed(SEED)
        parts = [torch.randn(side, side, generator=generator).to(device, policy.compute_type) for _ in turns]
        drawn = [part.repeat(size // side, size // side) for part in parts]
        factors = [matrix.t() if turn == "t" else matrix for matrix, turn in zip(drawn, turns, strict=True)]
        multiply = partial(torch.mm, *factors, out=torch.empty_like(drawn[0]))
        if layout == CONVOLUTION:
            pixels = drawn[0].view(1, size // IMAGE_WIDTH, IMAGE_WIDTH, size).permute(0, 3, 1, 2)
            multiply = partial(torch.nn.functional.conv2d, pixels, drawn[1].view(size, size, 1, 1))
        return Repeated(multiply, waiting(torch, device), 2.0 * size**3, policy.steps)

    def copy(self, case: Case, size: int, from_host: bool) -> Repeated:
        from mldyno.frameworks.program import Repeated
        from mldyno.frameworks.torch.program import waiting

        if from_host and case.device == "cpu":
            raise Unsupported("nothing is copied between the host and its own CPU")
        torch, device = self.torch, self.torch.device(case.device)
        drawn = torch.randint(-(2**62), 2**62, (min(size, DRAWN_BYTES) // 8,))  # and repeated: to draw takes longer
        data = drawn.repeat(size // DRAWN_BYTES or 1)
        copy = partial(torch.empty_like(data, device=device).copy_, data if from_host else data.to(device))
        moved = size if from_host else 2 * size  # on one device, bytes are read and written
        return Repeated(copy, waiting(torch, device), float(moved))

    def allocate(self, case: Case, size: int) -> Any:
        return self.torch.empty(size, dtype=self.torch.uint8, device=case.device)

    def limit_memory(self, case: Case) -> None:
        """Limit MPS: PyTorch allocates up to 1.7 times what Metal recommends, and Metal drops what does not fit."""
        if case.device.startswith("mps"):
            self.torch.mps.set_per_process_memory_fraction(1.0)

    def explain(self, error: BaseException) -> tuple[str, str]:
        words = f"{type(error).__name__} {error}"
        advice = next((advice for name, advice in CURES.items() if name in words), None)
        return super().explain(error) if advice is None else ("unsupported", advice)


FRAMEWORK = Torch()
