"""JAX: jitted steps with donated buffers, on the CPU and on GPUs.

Requires: jax
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Framework, Unsupported
from mldyno.frameworks._arrays import PRECISIONS, ArrayProgram, cores
from mldyno.frameworks._callables import CallableProgram, seed_generators
from mldyno.frameworks._jax_callable import JaxCallable
from mldyno.frameworks._jax_model import JaxModel, Matmul, device_name
from mldyno.frameworks._portable import PortableProgram
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Build, Recipe
    from mldyno.workloads._portable import Portable

COMPILING = "/jax/core/compile/"  # with which the names of these events begin


class Jax(Framework):
    """JAX as mldyno uses it."""

    portable = True
    precisions = PRECISIONS
    placements = ("device", "host", "roundtrip", "loader")
    jax: Any = None
    compiled = 0.0
    """Time in s that was spent on tracing and compiling."""

    def environment(self, case: Case) -> dict[str, str]:
        """XLA takes its number of threads when it starts."""
        return {"NPROC": str(case.threads)} if case.threads else {}

    def asynchronous(self, device: str) -> bool:
        """Everywhere: a call returns before its result is there."""
        return True

    def start(self) -> None:
        """Import jax, and let fp32 be fp32."""
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of a GPU's memory
        import jax
        import jax.monitoring
        import optax

        jax.config.update("jax_default_matmul_precision", "highest")
        if self.jax is None:
            jax.monitoring.register_event_duration_secs_listener(self._heard)
        self.jax, self.optax = jax, optax

    def _heard(self, event: str, seconds: float, **_: Any) -> None:
        """What JAX says of itself: tracing, lowering and compiling are events of their own."""
        if event.startswith(COMPILING):
            self.compiled += seconds

    def versions(self) -> dict[str, str]:
        """Of jax, its compiled part and optax."""
        return {"jax": self.jax.__version__, "jaxlib": self.jax.lib.__version__, "optax": self.optax.__version__}

    def threads(self) -> int | None:
        """As many as XLA was started with."""
        return int(os.environ.get("NPROC") or cores())

    def limit_threads(self, threads: int) -> None:
        """Only what its environment says when it starts."""
        if threads != self.threads():
            raise Unsupported(f"jax takes its threads when it starts: NPROC={threads}")

    def devices(self) -> list[Device]:
        """All that JAX finds, the CPU first."""
        devices = [Device("cpu", "jax")]
        for device in self.jax.devices():
            if device.platform != "cpu":
                devices.append(Device(device_name(device), "jax", str(device.device_kind), _memory(device)))
        return devices

    def build_program(self, case: Case, build: Portable | Build, data: Opened | None) -> ArrayProgram:
        """The case, its step jitted."""
        if callable(build):
            return self._own_program(case, build)

        def make(case: Case, portable: Portable, dropout: bool) -> JaxModel:
            return JaxModel(self.jax, self.optax, self._device(case), case, portable, dropout, lambda: self.compiled)

        return PortableProgram(case, build, make, data)

    def _own_program(self, case: Case, build: Build) -> CallableProgram:
        """Of a model of the user's own."""

        def recipe_of(case: Case) -> Recipe:
            seed_generators()
            with self.jax.default_device(self._device(case)):
                return build(self.jax, case)

        def make(case: Case, recipe: Recipe, dropout: bool) -> JaxCallable:
            return JaxCallable(self.jax, self.optax, self._device(case), case, recipe, lambda: self.compiled)

        return CallableProgram(case, recipe_of, make)

    def _device(self, case: Case) -> Any:
        devices = [*self.jax.devices(), *self.jax.devices("cpu")]
        return next(device for device in devices if device_name(device) == case.device)

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
        """Two square matrices on the case's device."""
        return Matmul(self.jax, self._device(case), case, size)

    def allocate(self, case: Case, size: int) -> Any:
        """Zeros, which are written."""
        return self.jax.block_until_ready(self.jax.numpy.zeros(size, self.jax.numpy.uint8))

    def explain(self, error: BaseException) -> tuple[str, str]:
        """XLA's errors begin with their kind."""
        status, reason = super().explain(error)
        if status == "failed":
            if isinstance(error, ModuleNotFoundError) and error.name in ("jax", "optax", "jaxlib"):
                return "failed", f"{error.name} is not installed for this Python; pip install 'mldyno[jax]'"
            if "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower():
                return "oom", reason
            if "UNIMPLEMENTED" in str(error):
                return "unsupported", reason
        return status, reason


def _memory(device: Any) -> int | None:
    """In B, as far as the device tells."""
    stats = device.memory_stats() or {}
    return stats.get("bytes_limit")


FRAMEWORK = Jax()
