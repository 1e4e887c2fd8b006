"""MLX: lazy arrays, forced at the end of each step, on the CPU and on GPUs.

Requires: mlx
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Framework, Unsupported
from mldyno.frameworks._arrays import PRECISIONS, ArrayProgram, cores
from mldyno.frameworks._callables import SEED, CallableProgram, seed_generators
from mldyno.frameworks._mlx_callable import MlxCallable
from mldyno.frameworks._mlx_model import Matmul, MlxModel
from mldyno.frameworks._portable import PortableProgram
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Build, Recipe
    from mldyno.workloads._portable import Portable

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What the libraries that may multiply matrices on the CPU take their number of threads from."""
PRELOADED = "MLDYNO_MLX_PRELOAD"  # in MLX's processes only: other frameworks may be slow with it
LIBRARIES = {"openblas": "OpenBLAS", "mkl_rt": "MKL", "blis": "BLIS", "libblas": "the reference BLAS"}
"""Parts of a library's file name, the one that wins first, and what it is."""


class Mlx(Framework):
    """MLX as mldyno uses it."""

    portable = True
    precisions = PRECISIONS
    placements = ("device", "host", "roundtrip", "loader")
    compiles = True
    mx: Any = None

    def environment(self, case: Case) -> dict[str, str]:
        """The library for matmuls, where the user names one, and its threads, which it takes when it is loaded."""
        threads = {name: str(case.threads) for name in THREADS} if case.threads else {}
        library = os.environ.get(PRELOADED)
        return {**threads, **({"LD_PRELOAD": library} if library else {})}

    def asynchronous(self, device: str) -> bool:
        """Everywhere: arrays are computed when they are asked for, by another thread."""
        return True

    def start(self) -> None:
        """Import mlx."""
        import mlx.core
        import mlx.nn
        import mlx.optimizers

        self.mx, self.nn, self.optimizers = mlx.core, mlx.nn, mlx.optimizers

    def versions(self) -> dict[str, str]:
        """Of mlx, and on a CPU what multiplies there."""
        return {"mlx": self.mx.__version__, "blas": blas()}

    def threads(self) -> int | None:
        """Of the library for matmuls; all else on the CPU has one."""
        return int(os.environ.get(THREADS[0]) or cores()) if blas() != LIBRARIES["libblas"] else 1

    def limit_threads(self, threads: int) -> None:
        """Only what its environment says when it starts."""
        if threads != self.threads():
            raise Unsupported(f"mlx has {self.threads()} threads with {blas()}, and takes them when it starts")

    def devices(self) -> list[Device]:
        """The CPU, and the GPU where there is one: Metal's is called mps."""
        devices = [Device("cpu", "mlx")]
        if self._gpu is not None:
            info = self.mx.device_info(self.mx.gpu)
            memory = info.get("max_recommended_working_set_size") or info.get("total_memory")
            devices.append(Device(self._gpu, "mlx", str(info.get("device_name") or Device.title), memory))
        return devices

    @property
    def _gpu(self) -> str | None:
        """Our name for its GPU."""
        if self.mx.metal.is_available():
            return "mps"
        cuda = getattr(self.mx, "cuda", None)
        return "cuda:0" if cuda is not None and cuda.is_available() else None

    def check(self, case: Case, build: Any, data: Opened | None) -> None:
        """On the CPU a matmul is always done in fp32, and a step is compiled by g++: without it nothing would be."""
        super().check(case, build, data)
        if case.compile and case.device == "cpu" and shutil.which("g++") is None:
            raise Unsupported("mlx compiles for the CPU with a C++ compiler; install g++")
        if case.device == "cpu" and case.precision != "fp32":
            raise Unsupported(
                f"mlx multiplies in fp32 on the CPU, whatever the precision; {case.precision} is for GPUs"
            )

    def build_program(self, case: Case, build: Portable | Build, data: Opened | None) -> ArrayProgram:
        """The case; with --compile its step is compiled as a whole."""
        if callable(build):
            return self._own_program(case, build)

        def make(case: Case, portable: Portable, dropout: bool) -> MlxModel:
            return MlxModel(self.mx, self.nn, self.optimizers, self._device(case), case, portable, dropout)

        return MlxProgram(case, build, make, data)

    def _own_program(self, case: Case, build: Build) -> MlxCallableProgram:
        """Of a model of the user's own."""

        def recipe_of(case: Case) -> Recipe:
            seed_generators()
            self.mx.random.seed(SEED)
            self.mx.set_default_device(self._device(case))
            return build(sys.modules["mlx"], case)

        def make(case: Case, recipe: Recipe, dropout: bool) -> MlxCallable:
            return MlxCallable(self.mx, self.nn, self._device(case), case, recipe, dropout)

        return MlxCallableProgram(case, recipe_of, make)

    def _device(self, case: Case) -> Any:
        return self.mx.cpu if case.device == "cpu" else self.mx.gpu

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
        """Two square matrices on the case's device."""
        return Matmul(self.mx, self._device(case), case, size)

    def allocate(self, case: Case, size: int) -> Any:
        """Zeros, which are written."""
        if case.device == "cpu" and size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
            raise MemoryError(f"the machine has no memory of {size:,} B, and mlx would crash")
        memory = self.mx.zeros((max(1, size >> 30), min(size, 1 << 30)), self.mx.uint8)
        self.mx.eval(memory)
        return memory

    def explain(self, error: BaseException) -> tuple[str, str]:
        """MLX has no types for its errors."""
        status, reason = super().explain(error)
        if status == "failed":
            if isinstance(error, ModuleNotFoundError) and error.name and error.name.startswith("mlx"):
                return "failed", "mlx is not installed for this Python; pip install 'mldyno[mlx]'"
            if any(words in str(error) for words in ("allocate", "out of memory", "Out of memory")):
                return "oom", reason
        return status, reason


class MlxProgram(PortableProgram):
    """A case in MLX."""

    @property
    def facts(self) -> dict[str, Any]:
        """What multiplied on the CPU."""
        return dict(super().facts) | ({"blas": blas()} if self.case.device == "cpu" else {})


class MlxCallableProgram(CallableProgram):
    """A user's own model in MLX."""

    @property
    def facts(self) -> dict[str, Any]:
        """What multiplied on the CPU; the types of all products are not known."""
        return self.noted | ({"blas": blas()} if self.case.device == "cpu" else {})


def blas() -> str:
    """The library that multiplies matrices on the CPU: of those that this process has loaded, the one that wins."""
    if sys.platform == "darwin":
        return "Accelerate"
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            names = {line.rpartition("/")[2] for line in lines if "/" in line}
    except OSError:
        return "unknown"
    return next((title for part, title in LIBRARIES.items() if any(part in name for name in names)), "unknown")


FRAMEWORK = Mlx()
