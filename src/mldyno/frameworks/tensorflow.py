"""TensorFlow: layers and optimisers of Keras 3, steps by tf.function, XLA with --compile; on the CPU and on GPUs.

Requires: tensorflow
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Framework, Unsupported
from mldyno.frameworks._arrays import PRECISIONS, ArrayProgram, cores
from mldyno.frameworks._callables import SEED, CallableProgram
from mldyno.frameworks._keras_model import POLICIES, KerasModel, Matmul
from mldyno.frameworks._portable import PortableProgram
from mldyno.frameworks._tensorflow_callable import TensorflowCallable
from mldyno.records import Device

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.workloads import Build, Recipe
    from mldyno.workloads._portable import Portable

THREADS = "TF_NUM_INTRAOP_THREADS"


class Tensorflow(Framework):
    """TensorFlow as mldyno uses it."""

    portable = True
    precisions = PRECISIONS
    placements = ("device", "host", "roundtrip", "loader")
    compiles = True
    tf: Any = None

    def environment(self, case: Case) -> dict[str, str]:
        """Its pool of threads is made when it starts, and so is Keras's choice of what is below it."""
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
        return quiet | ({THREADS: str(case.threads)} if case.threads else {})

    def start(self) -> None:
        """Import tensorflow; fp32 must be fp32."""
        os.environ["KERAS_BACKEND"] = "tensorflow"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import keras
        import tensorflow as tf

        if keras.backend.backend() != "tensorflow":
            raise Unsupported(
                f"keras is in use with {keras.backend.backend()} in this process; it needs one of its own"
            )
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)  # else it takes all of a GPU's memory
        self.tf, self.keras = tf, keras

    def versions(self) -> dict[str, str]:
        """Of tensorflow, keras and, where it was built with it, CUDA."""
        built = self.tf.sysconfig.get_build_info()
        versions = {"tensorflow": self.tf.__version__, "keras": self.keras.__version__}
        names = {"cuda": "cuda_version", "cudnn": "cudnn_version"}
        return versions | {name: str(built[key]) for name, key in names.items() if built.get(key)}

    def threads(self) -> int | None:
        """Of one operation."""
        return int(os.environ.get(THREADS) or cores())

    def limit_threads(self, threads: int) -> None:
        """Only what its environment says when it starts."""
        if threads != self.threads():
            raise Unsupported(f"tensorflow takes its threads when it starts: {THREADS}={threads}")

    def devices(self) -> list[Device]:
        """The CPU, and its GPUs: those of tensorflow-metal are called mps."""
        devices = [Device("cpu", "tensorflow")]
        for number, gpu in enumerate(self.tf.config.list_physical_devices("GPU")):
            details = self.tf.config.experimental.get_device_details(gpu)
            title = str(details.get("device_name") or Device.title)
            devices.append(Device(self._name(number), "tensorflow", title))
        return devices

    def _name(self, number: int) -> str:
        """Our name of a GPU."""
        kind = "cuda" if self.tf.test.is_built_with_cuda() or self.tf.test.is_built_with_rocm() else "mps"
        return f"{kind}:{number}" if number or kind == "cuda" else kind

    def _device(self, case: Case) -> str:
        """Its own name of the case's device."""
        return "/CPU:0" if case.device == "cpu" else f"/GPU:{case.device.partition(':')[2] or 0}"

    def build_program(self, case: Case, build: Portable | Build, data: Opened | None) -> ArrayProgram:
        """The case; with --compile its step goes through XLA."""
        if callable(build):
            return self._own_program(case, build)

        def make(case: Case, portable: Portable, dropout: bool) -> KerasModel:
            return KerasModel(self.tf, self.keras, self._device(case), case, portable, dropout)

        return PortableProgram(case, build, make, data)

    def _own_program(self, case: Case, build: Build) -> CallableProgram:
        """Of a model of the user's own: layers of Keras take their precision when they are made."""

        def recipe_of(case: Case) -> Recipe:
            self.keras.utils.set_random_seed(SEED)
            config, wanted = self.keras.config, POLICIES[case.precision or "fp32"]
            policy = config.dtype_policy()
            config.set_dtype_policy(wanted)
            try:
                with self.tf.device(self._device(case)):
                    recipe = build(self.tf, case)
            finally:
                config.set_dtype_policy(policy)
            if case.precision != "fp32":
                self._check_policy(getattr(recipe.network, "model", recipe.network), wanted, case)
            return recipe

        def make(case: Case, recipe: Recipe, dropout: bool) -> TensorflowCallable:
            return TensorflowCallable(self.tf, self._device(case), case, recipe, dropout)

        return CallableProgram(case, recipe_of, make)

    def _check_policy(self, model: Any, wanted: str, case: Case) -> None:
        if not isinstance(model, self.keras.Layer):
            raise Unsupported(f"tensorflow casts models of Keras only; take fp32 in the place of {case.precision}")
        if model.dtype_policy.name != wanted:
            made = f"its layers were made for {model.dtype_policy.name} before the case began"
            raise Unsupported(f"{made}; make them within the function for {case.precision}")

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Any:
        """Two square matrices on the case's device."""
        return Matmul(self.tf, self._device(case), case, size)

    def allocate(self, case: Case, size: int) -> Any:
        """Zeros, which are written."""
        with self.tf.device(self._device(case)):
            return self.tf.zeros((size,), self.tf.uint8)

    def explain(self, error: BaseException) -> tuple[str, str]:
        """TensorFlow has types for its errors, by whose names they are known."""
        status, reason = super().explain(error)
        if status == "failed":
            if isinstance(error, ModuleNotFoundError) and error.name in ("tensorflow", "keras"):
                return "failed", f"{error.name} is not installed for this Python; pip install 'mldyno[tensorflow]'"
            if type(error).__name__ == "ResourceExhaustedError" or "OOM when allocating" in str(error):
                return "oom", reason
            if type(error).__name__ == "UnimplementedError":
                return "unsupported", reason
        return status, reason


FRAMEWORK = Tensorflow()
